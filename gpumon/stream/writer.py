"""Writes a stream: each sample as MessagePack, all in one stream of zstd."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

import gpumon
from gpumon.model.codec import encode_for_others
from gpumon.recording.encoded import Once, SnapshotEncoder
from gpumon.stream.sample import (
    MOST_EVENTS,
    MOST_FRAME,
    MOST_WINDOW_LOG,
    SCHEMA,
    SIZE_BYTES,
    Heartbeat,
    StreamFrame,
    StreamHeader,
    own_layout,
)
from gpumon.system.zstandard import zstd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.encoded import EncodedSnapshot, Holders, Processes
    from gpumon.recording.recording import Event
    from gpumon.stream.sample import GpuState

_LEVEL = 5
"""With half of the window, it makes samples as short as level 3."""
_LEAST_WINDOW_LOG = 15
_SAMPLES = 2
"""At least so many samples fit into the window, if it may be as large."""


class StreamWriter:
    """Makes the bytes of each sample.

    A sample that would be longer than ``MOST_FRAME`` loses command lines and places, as all samples
    after it.

    Args:
        interval: Seconds between samples, for the reader.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._sequence = 0
        self._encoder = SnapshotEncoder(encode_for_others)
        self._is_short = False
        self._processes = Once(_without_commands)
        self._holders = Once(_without_their_commands)
        self._before: tuple[Snapshot, EncodedSnapshot] | None = None
        self._zstd = _Compressor()

    def write(
        self,
        snapshot: Snapshot,
        written_at: float,
        *,
        events: Sequence[Event] = (),
        states: Sequence[GpuState] = (),
        heartbeat: Heartbeat | None = None,
        dropped: int = 0,
    ) -> bytes:
        """The bytes of the next sample; before the first one those of the header.

        Args:
            snapshot: The sample; of a heartbeat without a new sample the one before.
            written_at: The time now, in seconds since the epoch.
            events: What happened since the sample before; of too many the newest.
            states: The state of each GPU.
            heartbeat: Why there are no fresh values.
            dropped: Number of samples left out since the sample before.
        """
        self._sequence += 1
        frame = StreamFrame(
            self._sequence,
            written_at,
            dropped,
            heartbeat,
            tuple(events[-MOST_EVENTS:]),  # type: ignore[arg-type]  # a reader takes them apart
            tuple(states),
        )
        self._add(snapshot, frame)
        data = encode_for_others(frame)
        if len(data) > MOST_FRAME and not self._is_short:
            self._is_short, self._before = True, None
            self._add(snapshot, frame)
            data = encode_for_others(frame)
        packed = self._zstd.pack(len(data).to_bytes(SIZE_BYTES, "big") + data)
        return packed if self._sequence > 1 else self._header() + packed

    def _add(self, snapshot: Snapshot, frame: StreamFrame) -> None:
        """Add to a frame what is not the same as in the one before."""
        before = self._before
        if before is not None and before[0] is snapshot:
            return
        sent = snapshot
        if self._is_short:
            sent = replace(
                snapshot,
                processes=self._processes(snapshot.processes),
                holders=self._holders(snapshot.holders),
            )
        encoded = self._encoder.encode(sent)
        self._before = snapshot, encoded
        frame.head, frame.processes, frame.holders = encoded.after(before and before[1])

    def _header(self) -> bytes:
        header = StreamHeader(SCHEMA, gpumon.__version__, self._interval, own_layout())
        return msgspec.json.encode(header) + b"\n"


class _Compressor:
    """Compresses samples, with a window that holds the sample before.

    So what did not change costs next to nothing. A window is memory at both ends, 64 KiB for 8 GPUs
    with 18 processes; where samples have grown, a larger one begins.
    """

    def __init__(self) -> None:
        self._zstd: zstd.ZstdCompressor | None = None
        self._window = 0

    def pack(self, content: bytes) -> bytes:
        """The bytes of a sample, flushed."""
        wanted = (_SAMPLES * len(content)).bit_length()
        window = min(max(wanted, _LEAST_WINDOW_LOG), MOST_WINDOW_LOG)
        end = b""
        if self._zstd is None or window > self._window:
            if self._zstd is not None:
                end = self._zstd.flush()
            self._window = window
            options: dict[int, int] = {
                zstd.CompressionParameter.compression_level: _LEVEL,
                zstd.CompressionParameter.window_log: window,
            }
            self._zstd = zstd.ZstdCompressor(options=options)
        packed: bytes = end + self._zstd.compress(content, zstd.ZstdCompressor.FLUSH_BLOCK)
        return packed


def _without_commands(processes: Processes) -> Processes:
    # Without its place, nobody knows which processes have one server.
    return tuple([replace(process, command=(), place=None, load=None) for process in processes])


def _without_their_commands(holders: Holders) -> Holders:
    if holders is None:
        return None
    bare = [replace(suspect, command=(), place=None) for suspect in holders.suspects]
    return replace(holders, suspects=tuple(bare))
