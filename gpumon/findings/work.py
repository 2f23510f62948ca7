"""What a card does: nothing, too little, or its work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.availability import busy_sentence, listed_on, why_not_free
from gpumon.findings.conditions import BUSY_UNLISTED, IDLE, STUCK
from gpumon.findings.finding import SHORT_CELLS, Finding, FindingKind, Severity
from gpumon.findings.reserved import reservations
from gpumon.findings.words import (
    at_most,
    brief_length,
    count_processes,
    in_container,
    short_length,
    told_length,
    with_length,
)
from gpumon.history import Spell
from gpumon.text import cell_width, gib, gibibytes, printable

if TYPE_CHECKING:
    from gpumon.availability import Listed, NotFree
    from gpumon.history import History
    from gpumon.model import Gpu, MigInstance
    from gpumon.thresholds import Thresholds


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
        spell = Spell(holding.owner_since, spell.last, begin_seen=True, samples=samples)
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


def busy_unlisted(history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """Something runs though no process is listed: whose it is, the driver does not tell.

    Utilisation is of the last second and the list is read less often, so it must have lasted; what
    holds from the first sample on is told at once, as of now.
    """
    spell = history.spell(gpu.uuid, BUSY_UNLISTED)
    if spell is None or not gpu.utilization_gpu:
        return None
    lasted = spell.seconds >= thresholds.unattributed_after
    if spell.begin_seen and not lasted:
        return None
    contained = in_container(history)
    sentence = busy_sentence(gpu.utilization_gpu, in_container=contained)
    lasting = f"for {told_length(history, spell)}" if lasted else "at this moment"
    return Finding(
        kind=FindingKind.BUSY_UNLISTED,
        subject=gpu.uuid,
        severity=Severity.NOTE,
        sentence=f"{sentence}, {lasting}",
        short="busy, by nobody visible here" if contained else "busy, by nobody listed",
        brief="busy, by ?",
        since=spell.since,
        evidence=(
            f"utilisation {gpu.utilization_gpu} %",
            "no process in the driver's list",
            f"memory used {gibibytes(gpu.memory_used)} {gib()}",
        ),
    )


def free(history: History, gpu: Gpu, thresholds: Thresholds) -> Finding | None:
    """Nobody's: ``availability.why_not_free`` has the rule, for the commands that choose too.

    Where the utilisation is never reported, as in MIG mode, memory and processes decide, and the
    sentence says so.
    """
    if not_free(history, gpu, thresholds) is not None:
        return None
    holding = history.holding(gpu)
    drawing = 0 if holding is None else holding.processes
    util = gpu.utilization_gpu
    busy = "utilisation is not reported" if util is None else f"utilisation {util} %"
    who = f"{count_processes(drawing)}, drawing only" if drawing else "no process"
    told = "no process is on it" if not drawing else f"nobody computes on it ({who})"
    return Finding(
        kind=FindingKind.FREE,
        subject=gpu.uuid,
        severity=Severity.GOOD,
        sentence=f"free: {told}; {busy}",
        short="free",
        brief="free",
        evidence=(who, f"memory used {gibibytes(gpu.memory_used)} {gib()}", busy),
    )


def not_free(
    history: History, gpu: Gpu, thresholds: Thresholds, mig: MigInstance | None = None
) -> NotFree | None:
    """Why a card, or a MIG device of it, is not free, as it stands in the newest snapshot."""
    listed: Listed | None = history.holding(gpu)
    reserved_ = reservations(history, gpu)
    if mig is not None:
        reserved_ = [one for one in reserved_ if one.mig_uuid in {None, mig.uuid}]
        if listed is not None and history.latest is not None:
            listed = listed_on(history.latest.processes, gpu, mig)
    return why_not_free(
        gpu,
        listed,
        thresholds,
        mig=mig,
        reserved=bool(reserved_),
        old=history.old(gpu) is not None,
        in_container=in_container(history),
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
    reason = not_free(history, gpu, history.thresholds)
    start = "unknown" if unknown else "in use"
    if not unknown and reason is not None and reason.kind == "mode":
        start = reason.sentence
    return Finding(
        kind=FindingKind.UNKNOWN if unknown else FindingKind.WORKING,
        subject=gpu.uuid,
        severity=Severity.QUIET,
        sentence=f"{start}: {', '.join(facts)}",
        short="unknown" if unknown else "ok",
        brief="unknown" if unknown else "ok",
        evidence=tuple(facts),
    )


def rests(spell: Spell, seconds: float, thresholds: Thresholds) -> bool:
    """Whether a spell has lasted for so long, and in samples enough to say so."""
    return spell.seconds >= seconds and spell.samples >= thresholds.least_samples
