"""A GPU that ``gpumon run`` has reserved for a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.findings.finding import SHORT_CELLS, Answer, Finding, FindingKind, Severity
from gpumon.findings.phrases import at_most
from gpumon.text.formatting import duration, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.snapshot import Gpu, Reserved
    from gpumon.recording.history import History


def reservations(history: History, gpu: Gpu) -> Sequence[Reserved]:
    """The reservations of a GPU and of its MIG devices."""
    latest = history.latest
    return () if latest is None else [one for one in latest.reserved if one.gpu_uuid == gpu.uuid]


def reserved(history: History, gpu: Gpu) -> Answer:
    """The GPU is reserved, which a user who looks for a free GPU must see before the job runs."""
    held = reservations(history, gpu)
    if not held:
        return False
    first = held[0]
    holding = history.holding(gpu)
    quiet = holding is not None and bool(holding.processes)
    by = "" if first.user is None else f" by {printable(first.user)}"
    since = "" if first.since is None else f" {duration(history.now - first.since)}"
    more = f" +{len(held) - 1}" if len(held) > 1 else ""
    room = SHORT_CELLS - len("reserved") - len(since) - len(more)
    what = "reserved" if first.mig_uuid is None else "a MIG device of it is reserved"
    length = f" for{since}" if since else ""
    return Finding(
        kind=FindingKind.RESERVED,
        subject=gpu.uuid,
        severity=Severity.QUIET if quiet else Severity.NOTE,
        sentence=f"{what}{by}{length}: gpumon run keeps it for a job",
        short=f"reserved{at_most(by, room)}{since}{more}",
        brief="reserved",
        since=first.since,
        evidence=tuple(map(_evidence, held)),
    )


def _evidence(one: Reserved) -> str:
    if one.pid is None:
        return "its lock is held by a process that cannot be seen here"
    command = f": {printable(one.command)}" if one.command else ""
    return f"gpumon run {one.pid}{command}"
