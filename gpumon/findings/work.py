"""What a card does: nothing, too little, or its work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.findings.conditions import IDLE, STUCK, normal_overhead
from gpumon.findings.errors import memory_faults, recovery_action
from gpumon.findings.finding import SHORT_CELLS, Finding, FindingKind, Severity
from gpumon.findings.messages import (
    at_most,
    brief_length,
    count_processes,
    short_length,
    told_length,
    with_length,
)
from gpumon.findings.reserved import reservations
from gpumon.recording.history import Interval
from gpumon.text.formatting import cell_width, gib, gibibytes, printable

if TYPE_CHECKING:
    from gpumon.model.snapshot import Gpu
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.history import History


def stuck(history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """Busy all the time at little power for long: a hung job can look like this, and may be none.

    Utilisation is the share of time in which any kernel ran, so a kernel that only waits reads as
    100 %; the power tells that it computes nothing.
    """
    spell = history.spell(gpu.uuid, STUCK)
    if spell is None or not rests(spell, thresholds.stuck_after, thresholds):
        return None
    if gpu.utilization_gpu is None or gpu.power_draw is None or not gpu.power_limit:
        return None
    busy, share = gpu.utilization_gpu, 100 * gpu.power_draw / gpu.power_limit
    return Finding(
        kind=FindingKind.STUCK,
        subject=gpu.uuid,
        severity=Severity.WARNING,
        sentence=f"{busy} % busy at {share:.0f} % of its power limit "
        f"for {told_length(history, spell)}: a hung job can look like this",
        short=with_length(f"stuck? {busy}% at {share:.0f}% power, ", history, spell),
        brief="stuck?",
        since=spell.since,
        evidence=(
            f"utilisation {busy} %",
            f"power {gpu.power_draw:.0f} W of {gpu.power_limit:.0f} W",
            f"so in all {spell.samples} samples",
        ),
    )


def idle(history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """Held by a computing process, and nothing has run for a while.

    Who came later than the card fell idle is not blamed for what was before: the time counts from
    when the one named began. What holds from the first sample on is told at once, as of now.
    """
    spell = history.spell(gpu.uuid, IDLE)
    holding = history.holding(gpu)
    if spell is None or holding is None or not holding.owners:
        return None
    if holding.owner_since is not None and holding.owner_since > spell.since:
        samples = history.samples(gpu.uuid, "utilization_gpu", holding.owner_since)
        spell = Interval(holding.owner_since, spell.last, begin_seen=True, samples=samples)
    lasted = rests(spell, thresholds.idle_after, thresholds)
    if spell.begin_seen and not lasted:
        return None
    length = f"idle {short_length(history, spell)}" if lasted else "0% now"
    owner = holding.owners[0]
    others = f" +{len(holding.owners) - 1}" if len(holding.owners) > 1 else ""
    if owner is None:
        short = f"{length}, holder not visible"
    else:
        start = f"{length}, held by "
        room = SHORT_CELLS - cell_width(start) - len(others)
        short = start + at_most(printable(owner), room) + others
    who = "a process not visible here" if owner is None else printable(owner)
    size = "memory" if holding.memory is None else f"{gibibytes(holding.memory)} {gib()}"
    told = "0 % busy at this moment"
    if lasted:
        told = f"idle for {told_length(history, spell)}"
    return Finding(
        kind=FindingKind.IDLE,
        subject=gpu.uuid,
        severity=Severity.NOTE,
        sentence=f"{told} while {who}{others} holds {size}",
        short=short,
        brief=f"idle {brief_length(history, spell)}" if lasted else "0% now",
        since=spell.since,
        evidence=(
            f"utilisation 0 % in all {spell.samples} samples",
            f"{count_processes(holding.processes)} on it, with {size}",
        ),
    )


def free(history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """Nobody's: no process, no work, no memory beyond what the driver keeps.

    Where the utilisation is not reported, as on a card in MIG mode, memory and processes decide,
    and the sentence says so. Without a list of processes no card is called free, nor is one that is
    not sound.
    """
    if memory_faults(gpu) or recovery_action(gpu) is not None or reservations(history, gpu):
        return None
    holding = history.holding(gpu)
    if holding is None or holding.processes or gpu.utilization_gpu:
        return None
    used = gpu.memory_used
    if used is None and (gpu.utilization_gpu is None or not gpu.memory_unified):
        return None
    if used is not None and not gpu.memory_unified and used > normal_overhead(gpu, thresholds):
        return None
    busy = "utilisation is not reported" if gpu.utilization_gpu is None else "utilisation 0 %"
    return Finding(
        kind=FindingKind.FREE,
        subject=gpu.uuid,
        severity=Severity.GOOD,
        sentence=f"free: no process is on it; {busy}",
        short="free",
        brief="free",
        evidence=("no process", f"memory used {gibibytes(used)} {gib()}", busy),
    )


def working(history: History, gpu: Gpu) -> Finding:
    """A card of which nothing else is to be said."""
    holding = history.holding(gpu)
    held = holding is not None and holding.processes > 0
    unknown = gpu.utilization_gpu is None and gpu.memory_used is None and not held
    facts = [
        "utilisation unknown" if gpu.utilization_gpu is None else f"{gpu.utilization_gpu} % busy",
        f"memory used {gibibytes(gpu.memory_used)} {gib()}",
        "processes unknown" if holding is None else f"{count_processes(holding.processes)} on it",
    ]
    return Finding(
        kind=FindingKind.UNKNOWN if unknown else FindingKind.WORKING,
        subject=gpu.uuid,
        severity=Severity.QUIET,
        sentence=f"{'unknown' if unknown else 'in use'}: {', '.join(facts)}",
        short="unknown" if unknown else "ok",
        brief="unknown" if unknown else "ok",
        evidence=tuple(facts),
    )


def rests(spell: Interval, seconds: float, thresholds: Thresholds) -> bool:
    """Whether a spell has lasted for so long, and in samples enough to say so."""
    return spell.seconds >= seconds and spell.samples >= thresholds.least_samples
