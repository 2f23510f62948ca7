"""Messages about a finished job: its use of the GPUs, and why it may have died."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.report.messages import unit_of
from gpumon.scheduling.messages import gib, many, name_of
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.processes import GpuProcess
    from gpumon.scheduling.eligibility import Candidate
    from gpumon.scheduling.run.child import CommandExit
    from gpumon.scheduling.run.usage import CardUsage, Fill

_UNKNOWN = "unknown"
_FULL_BYTES = 2**30
_FULL_SHARE = 0.02
"""A GPU is full with less free memory than the larger of both."""
_NAMED = 2


def ended(
    command: str, command_exit: CommandExit, seconds: float, cards: Sequence[CardUsage]
) -> str:
    """The first line: what exited, how, after how long, and where it ran."""
    places = ", ".join(one.candidate.label for one in cards)
    return f"{printable(command)} ended after {length(seconds)} on {places}: {command_exit.words}"


def of_card(card: CardUsage) -> str:
    """The job's use of one GPU."""
    total = card.candidate.memory_total
    of_all = f" of {gib(total)}" if total else ""
    peak, mean = card.memory.peak, card.memory.mean
    memory = "memory unknown"
    if peak is not None and card.used:
        memory = f"memory peak {gib(peak)}, mean {_UNKNOWN if mean is None else gib(mean)}{of_all}"
    sm = card.sm.mean if card.used else None
    told = f"{memory} · SM mean {_UNKNOWN if sm is None else f'{sm:.0f} %'}"
    if card.unused:
        told = "not used by the job"
    return f"{card.candidate.label}: {told} · {_slowed(card)} · {_energy(card)}"


def use(cards: Sequence[CardUsage]) -> str:
    """A warning if the job did not appear on some or all of its GPUs; otherwise empty."""
    unused = [card.candidate.label for card in cards if card.unused]
    if unused:
        seen = "as far as a look every second shows"
        why = "; it may have run on the CPU" if len(unused) == len(cards) else ""
        return f"warning: the job never used {', '.join(unused)}, {seen}{why}"
    unseen = ", ".join(card.candidate.label for card in cards if not card.used)
    if unseen:
        return f"warning: the job was not seen on {unseen}: whether it used that GPU is unknown"
    return ""


def _slowed(card: CardUsage) -> str:
    slowed = card.slowed
    if not slowed.known:
        return "throttling unknown"
    reasons = (("heat", slowed.heat), ("power brake", slowed.brake), ("hardware", slowed.hardware))
    told = [f"{length(seconds)} by {name}" for name, seconds in reasons if seconds]
    return f"throttled {', '.join(told)}" if told else "not throttled"


def _energy(card: CardUsage) -> str:
    energy = card.energy
    if card.candidate.mig is not None or not (energy.counted or energy.integrated):
        return "energy unknown"
    unit = unit_of(energy.joules)
    return f"{unit.format(energy.joules)} {unit.name}"


def full(card: CardUsage) -> str | None:
    """That a GPU was full when the job exited, and who held what; ``None`` if it was not full."""
    fills = [one for one in card.fills if one.free is not None]
    if not fills:
        return None
    fullest = min(fills, key=lambda one: one.free or 0)
    if fullest.free is None or fullest.free > _limit(fullest.total):
        return None
    total = "" if fullest.total is None else f" of {gib(fullest.total)[:-4]}"
    return (
        f"{card.candidate.label} had {fullest.free / 2**30:.1f}{total} GiB free when it ended; "
        f"{_holders(fullest, card.candidate)}."
    )


def _limit(total: int | None) -> float:
    return max(_FULL_BYTES, _FULL_SHARE * (total or 0))


def _holders(fill: Fill, candidate: Candidate) -> str:
    parts = [f"{_amount(fill.job)} held by the job itself"]
    sizes = [(_held(one, candidate), one) for one in fill.others]
    for size, process in sorted(sizes, key=lambda one: -(one[0] or 0))[:_NAMED]:
        parts.append(f"{_amount(size)} by {name_of(process)}")
    if len(sizes) > _NAMED:
        parts.append(f"and {many(len(sizes) - _NAMED, 'other')}")
    return ", ".join(parts)


def _held(process: GpuProcess, candidate: Candidate) -> int | None:
    use = candidate.use_of(process)
    return None if use is None else use.memory_used


def _amount(size: int | None) -> str:
    return "an unknown amount" if size is None else gib(size)


def length(seconds: float) -> str:
    """A duration, to a tenth of a second if it is short."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {whole % 60:02d} s"
