"""The types that the writer and the reader of a stream share."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from gpumon.findings.finding import FindingKind, Severity  # noqa: TC001 - msgspec resolves annotations
from gpumon.model.snapshot import Snapshot  # noqa: TC001 - at run time
from gpumon.recording.recording import Event  # noqa: TC001 - as above

VERSION = 1
"""The version of the format. It rises when a key goes, or changes its meaning."""
SCHEMA = f"gpumon.stream/{VERSION}"
"""The value of the key ``schema``, which begins every line."""
MOST_LINE = 4 * 2**20
"""Bytes in the longest line, without its line break."""
MOST_EVENTS = 256
"""Events in one line."""
MOST = 10**18
"""Larger numbers are damage. Sums of as many as fit in a line still are finite."""


class StreamError(Exception):
    """What arrived is not a stream that this program can read.

    Attributes:
        sentence: What was found and what to do, for a person. Safe to print.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class Heartbeat(Struct, frozen=True, gc=False, rename={"age": "age_seconds"}):
    """Why a line has no fresh values.

    Attributes:
        reason: A sentence without a full stop, such as ``the driver has not answered for 12s``; not
            safe to print, see ``gpumon.text.formatting``.
        age: Seconds since the newest values of the snapshot were read; ``None`` if no GPU was read
            yet.
    """

    reason: str = ""
    age: Annotated[float, Meta(ge=0, le=MOST)] | None = None


class GpuState(Struct, frozen=True, gc=False):
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
    since: float | None = None


class StreamedSample(Struct, frozen=True):
    """What one line of a stream says.

    Attributes:
        snapshot: The state of the other machine. Rows that did not change are the same objects as
            in the sample before; for a heartbeat without a new sample the whole snapshot is.
        sequence: Number of the line, from 1.
        written_at: The clock of the other machine when it wrote the line, in seconds since the
            epoch. ``snapshot.time`` is by the same clock.
        version: The version of gpumon at the other end.
        interval: Seconds between samples there.
        full: Whether the line contained the whole state.
        dropped: Number of samples that were left out before this line because the reader was slow.
        heartbeat: Why there are no fresh values; ``None`` if there are.
        events: What happened since the line before, oldest first, also in samples left out.
        states: The state of each GPU, in the order of ``snapshot.gpus``; empty if not known there.
    """

    snapshot: Snapshot
    sequence: int
    written_at: float
    version: str
    interval: float
    full: bool = False
    dropped: int = 0
    heartbeat: Heartbeat | None = None
    events: tuple[Event, ...] = ()
    states: tuple[GpuState, ...] = ()
