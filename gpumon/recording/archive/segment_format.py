"""The bytes of a segment: a header, then frames of records.

The header is a line of JSON, ``SegmentHeader``. A record is one sample: a ``RecordHead``, then
bytes of one stream of zstd that begins anew with each frame, flushed after the sample. The first
record of a frame has a head with ``FRAME``, so that a reader finds a frame from any place. What the
stream holds is the MessagePack of a ``SampleContent``.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from msgspec import Meta, Raw, Struct

from gpumon.model.codec import Layout, layout_of
from gpumon.model.number_types import TIMES, Time
from gpumon.model.snapshot import Snapshot
from gpumon.recording.encoded import Holders, Processes
from gpumon.recording.history import Standing

if TYPE_CHECKING:
    from gpumon.model.thresholds import Thresholds

VERSION = 1
"""The version of the format. It rises when a field changes its type, unit or meaning."""
SCHEMA_NAME = "gpumon.history"
SCHEMA = f"{SCHEMA_NAME}/{VERSION}"
SUFFIX = ".gpumon"
"""What the name of a segment ends in."""
EVENTS_SUFFIX = ".events"
"""What the name of the file of its events ends in."""
MOST_HEADER = 2**18
"""Bytes of a header at most."""
FRAME_SAMPLES = 60
"""Samples of a frame, at most."""
STANDING_SAMPLES = 10
"""The first of every so many samples of a frame has a ``Standing``. To bring a history to a moment
takes 1 ms for each sample after it."""
FRAME_BYTES = 2**23
"""Bytes of a frame before compression, from which on the next sample begins another one."""
SEGMENT_SECONDS = 3600.0
"""From its first sample on, the time of a segment at most."""
MOST_CONTENT = 2**23
"""Bytes of a sample before compression, at most."""
MOST_WINDOW_LOG = 23
"""Two to this power are the most bytes that samples are compressed over."""

FRAME, RECORD = b"\xa7gpumonF", b"\xa7gpumonR"
_HEAD = struct.Struct("<8sdII")
HEAD_BYTES = _HEAD.size + 4


class SegmentHeader(Struct):
    """The first line of a segment, as JSON."""

    schema: str
    gpumon: str  # The version that wrote it.
    host: str  # The name of the machine.
    begins: Time  # The time of its first sample.
    # By how many seconds the clock was set back since the last sample of the segment before.
    set_back: Annotated[float, Meta(ge=0, le=1e11)]
    interval: Annotated[float, Meta(gt=0, le=1e9)]  # Seconds between samples, as asked for.
    fields: Layout
    thresholds: Raw = Raw(b"null")  # Those by which the conditions of ``Standing`` were judged.


class SampleContent(Struct, array_like=True):
    """A sample as bytes: ``EncodedSnapshot.after``; ``None`` is as in the record before."""

    head: bytes
    processes: bytes | None = None
    holders: bytes | None = None
    standing: bytes | None = None  # ``Standing`` after this sample, see ``STANDING_SAMPLES``.


class RecordHead(NamedTuple):
    """What stands before the bytes of a sample."""

    is_first: bool  # of a frame
    time: float  # of the sample, seconds since the epoch
    size: int  # of its compressed bytes
    checksum: int  # CRC-32 of these

    def packed(self) -> bytes:
        """The bytes of the head, with a checksum of its own."""
        head = _HEAD.pack(FRAME if self.is_first else RECORD, self.time, self.size, self.checksum)
        return head + zlib.crc32(head).to_bytes(4, "little")


def read_head(data: bytes, place: int) -> RecordHead | None:
    """The head at a place; ``None`` if there is none."""
    head = data[place : place + HEAD_BYTES]
    if len(head) < HEAD_BYTES or head[:8] not in (FRAME, RECORD):
        return None
    if zlib.crc32(head[:-4]) != int.from_bytes(head[-4:], "little"):
        return None
    magic, time, size, checksum = _HEAD.unpack(head[:-4])
    if not TIMES[0] <= time <= TIMES[1]:
        return None
    return RecordHead(magic == FRAME, time, size, checksum)


def encode_thresholds(thresholds: Thresholds) -> Raw:
    """Thresholds, to be compared."""
    return Raw(msgspec.json.encode(thresholds))


def own_layout() -> Layout:
    """The layout of all that this program writes into a segment."""
    return layout_of(tuple[SampleContent, Snapshot, Processes, Holders, Standing])
