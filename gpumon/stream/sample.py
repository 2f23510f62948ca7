"""What a stream carries: the samples, as the writer and the reader see them, and as bytes.

``docs/stream.md`` describes the format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Raw, Struct

from gpumon.findings.finding import FindingKind, Severity  # noqa: TC001 - msgspec resolves annotations
from gpumon.model.codec import Layout, layout_of
from gpumon.model.number_types import Count, Few, Real, Time  # noqa: TC001 - at run time
from gpumon.model.snapshot import Snapshot
from gpumon.recording.encoded import Holders, Processes

if TYPE_CHECKING:
    from gpumon.recording.recording import Event

VERSION = 2
"""The version of the format. It rises when a field changes its type, unit or meaning."""
SCHEMA = f"gpumon.stream/{VERSION}"
"""The value of the key ``schema``, which begins the first line."""
MOST_FRAME = 2 * 2**20
"""Bytes of the longest sample, before compression."""
SIZE_BYTES = 4
"""Bytes of the length before each sample, the highest first."""
MOST_WINDOW_LOG = 21
"""Two to this power are the most bytes that samples are compressed over, which a reader keeps."""
MOST_EVENTS = 256
"""Events in one sample."""


class StreamError(Exception):
    """What arrived is not a stream that this program can read.

    Attributes:
        sentence: What was found and what to do, for a person. Safe to print.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class OtherVersionError(StreamError):
    """The other end writes another version of the stream."""


class StreamHeader(Struct):
    """The first line, as JSON."""

    schema: str
    gpumon: str
    interval_seconds: Annotated[float, Meta(gt=0, le=1e9)]
    fields: Layout


class Heartbeat(Struct, frozen=True, gc=False, array_like=True):
    """Why a sample has no fresh values.

    Attributes:
        reason: A sentence without a full stop, such as ``the driver has not answered for 12s``; not
            safe to print, see ``gpumon.text.formatting``.
        age: Seconds since the newest values of the snapshot were read; ``None`` if no GPU was read
            yet.
    """

    reason: str = ""
    age: Real | None = None


class GpuState(Struct, frozen=True, gc=False, array_like=True):
    """What the findings at the other end say about a GPU: its most severe one.

    Attributes:
        gpu_uuid: UUID of the GPU.
        kind: The finding.
        severity: How much attention it needs.
        since: When it was first observed there, in seconds since the epoch.
    """

    gpu_uuid: str
    kind: FindingKind
    severity: Severity
    since: Time | None = None


class StreamFrame(Struct, gc=False, array_like=True):
    """A sample as bytes."""

    sequence: Count
    written_at: Time
    dropped: Count
    heartbeat: Heartbeat | None = None
    events: Few[Raw] = ()  # An ``Event`` each: a newer gpumon may have other kinds.
    states: Few[GpuState] = ()
    # Those of ``EncodedSnapshot``; ``None``: they are those of the sample before.
    head: bytes | None = None
    processes: bytes | None = None
    holders: bytes | None = None


class StreamedSample(Struct, frozen=True):
    """A sample of another machine.

    Attributes:
        snapshot: The state of the other machine. Lists that were not read again are the same
            objects as in the sample before; for a heartbeat without a new sample the whole snapshot
            is.
        sequence: Its number, from 1.
        written_at: The clock of the other machine when it wrote the sample, in seconds since the
            epoch. ``snapshot.time`` is by the same clock.
        version: The version of gpumon at the other end.
        interval: Seconds between samples there.
        dropped: Number of samples that were left out before this one because the reader was slow.
        heartbeat: Why there are no fresh values; ``None`` if there are.
        events: What happened since the sample before, oldest first, also in samples left out.
        states: The state of each GPU, in the order of ``snapshot.gpus``; empty if not known there.
    """

    snapshot: Snapshot
    sequence: int
    written_at: float
    version: str
    interval: float
    dropped: int = 0
    heartbeat: Heartbeat | None = None
    events: tuple[Event, ...] = ()
    states: tuple[GpuState, ...] = ()


def own_layout() -> Layout:
    """The layout of all that this program writes into a stream."""
    return layout_of(tuple[StreamFrame, Snapshot, Processes, Holders])
