"""Streams as plain data, to look into and to damage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import msgpack

from gpumon.makers.demo import DemoSource
from gpumon.stream import StreamedSample, StreamReader, StreamWriter
from gpumon.system.zstandard import zstd
from tests.build import NOON
from tests.clock import HandClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.model.snapshot import Snapshot

SEQUENCE, WRITTEN_AT, DROPPED, HEARTBEAT, EVENTS, STATES, HEAD, PROCESSES, HOLDERS = range(9)
"""The places in a sample."""
_NESTED = (HEAD, PROCESSES, HOLDERS)


def demo_samples(count: int) -> list[Snapshot]:
    """Samples of the demo, a second apart."""
    clock = HandClock()
    source = DemoSource(clock=clock)
    taken = []
    for _ in range(count):
        taken.append(source.sample())
        clock.now += 1
    return taken


def parts_of(snapshots: Iterable[Snapshot]) -> list[bytes]:
    """What a writer makes of each snapshot."""
    writer = StreamWriter(1.0)
    return [writer.write(one, NOON + at) for at, one in enumerate(snapshots)]


def read(data: bytes, cuts: Iterable[int] = ()) -> list[StreamedSample]:
    """What a reader makes of a stream that is cut at these places."""
    reader, start, samples = StreamReader(), 0, []
    for end in (*sorted(cuts), len(data)):
        samples += reader.feed(data[start:end])
        start = end
    return samples


def opened(stream: bytes) -> tuple[dict[str, Any], list[list[Any]]]:
    """The header and the samples of a stream."""
    header, _, packed = stream.partition(b"\n")
    content = zstd.ZstdDecompressor().decompress(packed)
    samples = []
    while content:
        end = 4 + int.from_bytes(content[:4], "big")
        sample = msgpack.decode(content[4:end])
        for place in _NESTED:
            # What is unknown stays bytes, and nothing nothing.
            if sample[place] is not None:
                sample[place] = msgpack.decode(sample[place]) or sample[place]
        samples.append(sample)
        content = content[end:]
    return json.loads(header), samples


def sealed(header: dict[str, Any], samples: Iterable[Sequence[Any]]) -> bytes:
    """The stream of a header and samples, each whole but for what it lacks."""
    frames = []
    for sample in samples:
        nested = [
            msgpack.encode(part) if place in _NESTED and isinstance(part, list | dict) else part
            for place, part in enumerate(sample)
        ]
        frames.append(msgpack.encode(nested))
    return packed(header, b"".join(framed(frame) for frame in frames))


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def packed(header: dict[str, Any], content: bytes) -> bytes:
    """The stream of a header and any content."""
    compressor = zstd.ZstdCompressor()
    flushed: bytes = compressor.compress(content, zstd.ZstdCompressor.FLUSH_BLOCK)
    return json.dumps(header, separators=(",", ":")).encode() + b"\n" + flushed
