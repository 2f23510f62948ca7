"""Reads a stream, from an end that may be hostile."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec.msgpack import Decoder

import gpumon
from gpumon.model.codec import shared_codec
from gpumon.recording.encoded import SnapshotDecoder, restored
from gpumon.recording.recording import Event
from gpumon.stream.sample import (
    MOST_FRAME,
    MOST_WINDOW_LOG,
    SIZE_BYTES,
    VERSION,
    OtherVersionError,
    StreamedSample,
    StreamError,
    StreamFrame,
    StreamHeader,
)
from gpumon.system.zstandard import zstd
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from msgspec import Raw

    from gpumon.model.codec import Codec
    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.encoded import EncodedSnapshot

MOST_BEFORE = 2**16
"""Bytes before the samples: the header, and greetings of a login shell."""
PART = 2**12
"""Bytes to feed at a time, so that time and memory stay small."""
MOST_CONTENT = 2**22
"""Bytes to which such a part of the stream may expand."""
_MOST_SAMPLES = 2**10
"""Samples in such a part."""
_PIECE = 2**18
_MOST_ROWS = 2**14
"""Rows of one kind of a machine; its processes use GPUs four times as often."""
_QUOTED = 40
_BEGIN = b'{"schema":"gpumon.stream/'
_START = re.compile(rb'\{"schema":"gpumon\.stream/([0-9]{1,9})"')
_DAMAGED = (msgspec.MsgspecError, ValueError, RecursionError)
_event = Decoder(Event)


class StreamReader:
    """Makes samples of the bytes of a stream.

    Attributes:
        content_bytes: To how many bytes all parts so far have expanded.
    """

    def __init__(self) -> None:
        self.content_bytes = 0
        # Not the exception: its traceback would keep what was read.
        self._error: tuple[type[StreamError], str] | None = None
        self._greeting = b""
        self._skipped = 0
        self._rest = b""
        self._frames: _Frames | None = None

    def feed(self, data: bytes) -> list[StreamedSample]:
        """The samples that these bytes complete, oldest first; often none.

        Args:
            data: The next bytes, cut anywhere, at most ``PART``. Nothing after the last ones, to
                raise what was held back.

        Raises:
            StreamError: The bytes are not a stream, or are damaged. Samples before a damaged one
                are returned first; the next call raises. If the compression is damaged, those in
                the same bytes are lost.
        """
        samples: list[StreamedSample] = []
        if self._error is None:
            try:
                self._read(data, samples)
            except StreamError as error:
                self._error = type(error), error.sentence
                # Release what was kept: nothing more is read.
                self._rest, self._frames = b"", None
        if self._error is not None and not samples:
            kind, sentence = self._error
            raise kind(sentence)
        return samples

    def _read(self, data: bytes, samples: list[StreamedSample]) -> None:
        if self._frames is None:
            data = self._after_header(data)
        if self._frames is not None:
            for sample in self._frames.read(data):
                if len(samples) == _MOST_SAMPLES:
                    raise StreamError("the other end sends samples without end; connect again")
                samples.append(sample)
            self.content_bytes += self._frames.part_bytes

    def _after_header(self, data: bytes) -> bytes:
        """What follows the header; nothing while that has not arrived."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for number, line in enumerate(lines):
            if found := _START.match(line):
                _check_version(int(found[1]))
                self._frames = _frames_after(line)
                rest, self._rest = b"\n".join((*lines[number + 1 :], self._rest)), b""
                return rest
            self._greeting = self._greeting or line[:_QUOTED]
            self._skipped += len(line) + 1
        if found := _START.match(self._rest):
            _check_version(int(found[1]))
        if self._skipped + len(self._rest) > MOST_BEFORE:
            raise self._no_stream(self._rest)
        return b""

    def _no_stream(self, line: bytes) -> StreamError:
        begin = printable((self._greeting or line)[:_QUOTED].decode(errors="replace")).strip()
        return StreamError(
            f"the other end does not write a stream of gpumon, it begins with {begin!r}: check the "
            "command that runs there"
        )


def _check_version(version: int) -> None:
    if version != VERSION:
        raise OtherVersionError(
            f"another version of gpumon: it writes version {version} of the stream, and gpumon "
            f"{gpumon.__version__} here reads version {VERSION}: install the same at both ends"
        )


def _frames_after(line: bytes) -> _Frames:
    """What makes samples of the bytes after a header."""
    try:
        return _Frames(msgspec.json.decode(line, type=StreamHeader))
    except _DAMAGED as error:
        raise StreamError(
            f"the first line of the stream is damaged: {printable(str(error))}; connect again"
        ) from None


def _decompressor() -> zstd.ZstdDecompressor:
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: MOST_WINDOW_LOG}
    decompressor: zstd.ZstdDecompressor = zstd.ZstdDecompressor(options=options)
    return decompressor


class _Frames:
    """What follows the header.

    Attributes:
        part_bytes: To how many bytes the last part has expanded.

    Raises:
        ValueError: The header names impossible fields.
    """

    def __init__(self, header: StreamHeader) -> None:
        self.part_bytes = 0
        self._header = header
        self._zstd = _decompressor()
        self._content = bytearray()
        self._frame: Codec[StreamFrame] = shared_codec(StreamFrame, header.fields)
        self._snapshots = SnapshotDecoder(header.fields)
        self._encoded: EncodedSnapshot | None = None
        self._sequence = 0

    def read(self, data: bytes) -> Iterator[StreamedSample]:
        """The samples that these bytes complete.

        Raises:
            StreamError: The bytes are damaged.
        """
        self.part_bytes = 0
        while True:
            piece = self._expand(data)
            self.part_bytes += len(piece)
            if self.part_bytes > MOST_CONTENT:
                raise self._damaged(f"it expands to more than {MOST_CONTENT // 2**20} MiB")
            self._content += piece
            yield from self._complete()
            data = b""
            if self._zstd.eof:
                # Samples have grown, and go on with a larger window.
                data, self._zstd = self._zstd.unused_data, _decompressor()
            if not data and (self._zstd.needs_input or not piece):
                return

    def _expand(self, data: bytes) -> bytes:
        try:
            content: bytes = self._zstd.decompress(data, _PIECE)
        except (zstd.ZstdError, EOFError) as error:
            raise self._damaged(printable(str(error))) from None
        return content

    def _complete(self) -> Iterator[StreamedSample]:
        """The samples whose content is there."""
        content = self._content
        while len(content) >= SIZE_BYTES:
            size = int.from_bytes(content[:SIZE_BYTES], "big")
            if size > MOST_FRAME:
                raise self._damaged(f"it is longer than {MOST_FRAME // 2**20} MiB")
            end = SIZE_BYTES + size
            if len(content) < end:
                return
            frame = bytes(content[SIZE_BYTES:end])
            del content[:end]
            try:
                sample = self._sample(self._frame.decode(frame))
            except _DAMAGED as error:
                raise self._damaged(printable(str(error))) from None
            yield sample

    def _damaged(self, what: str) -> StreamError:
        return StreamError(
            f"sample {self._sequence + 1} of the stream is damaged: {what}; connect again"
        )

    def _sample(self, frame: StreamFrame) -> StreamedSample:
        if frame.sequence != self._sequence + 1:
            raise ValueError(f"it is sample {frame.sequence}")
        encoded = self._encoded
        if frame.head is not None:
            parts = frame.head, frame.processes, frame.holders
            encoded = restored(frame.written_at, parts, encoded)
        if encoded is None:
            raise ValueError("it has no snapshot")
        snapshot = self._snapshots.decode(encoded)
        if encoded is not self._encoded:
            _check_size(snapshot)
        self._encoded = encoded
        self._sequence = frame.sequence
        return StreamedSample(
            snapshot,
            frame.sequence,
            frame.written_at,
            version=self._header.gpumon,
            interval=self._header.interval_seconds,
            dropped=frame.dropped,
            heartbeat=frame.heartbeat,
            events=tuple(_known(frame.events)),
            states=frame.states,
        )


def _check_size(snapshot: Snapshot) -> None:
    """Refuse more rows than any machine has: a few bytes of each become hundreds in memory.

    Raises:
        ValueError: There are more.
    """
    suspects = () if snapshot.holders is None else snapshot.holders.suspects
    allocations = snapshot.allocations or ()
    if (
        max(map(len, (snapshot.processes, snapshot.reserved, suspects, allocations))) > _MOST_ROWS
        or sum([len(allocation.devices) for allocation in allocations]) > _MOST_ROWS
        or sum([len(gpu.mig) for gpu in snapshot.gpus]) > _MOST_ROWS
        or sum([len(process.uses) for process in snapshot.processes]) > 4 * _MOST_ROWS
    ):
        raise ValueError("it has more rows than any machine")


def _known(events: Sequence[Raw]) -> Iterator[Event]:
    """The events of a kind that this version knows."""
    for event in events:
        with suppress(*_DAMAGED):
            yield _event.decode(event)
