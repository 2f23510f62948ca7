"""Messages about a finished job: its use of the GPUs, and why it may have died."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.report.messages import unit_of
from gpumon.scheduling.messages import gib, name_of
from gpumon.text.formatting import counted, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.scheduling.eligibility import Candidate
    from gpumon.scheduling.run.child import CommandExit
    from gpumon.scheduling.run.usage import Fill, JobGpuUsage

_UNKNOWN = "unknown"
_FULL_BYTES = 2**30
_FULL_SHARE = 0.02
"""A GPU is full with less free memory than the larger of both."""
_NAMED = 2


def ended(
    command: str, command_exit: CommandExit, seconds: float, gpus: Sequence[JobGpuUsage]
) -> str:
    """The first line: what exited, how, after how long, and where it ran."""
    places = ", ".join(one.candidate.label for one in gpus)
    return f"{printable(command)} ended after {length(seconds)} on {places}: {command_exit.words}"


def of_gpu(gpu: JobGpuUsage) -> str:
    """The job's use of one GPU."""
    total = gpu.candidate.memory_total
    of_all = f" of {gib(total)}" if total else ""
    peak, mean = gpu.memory.peak, gpu.memory.mean
    memory = "memory unknown"
    if peak is not None and gpu.used:
        memory = f"memory peak {gib(peak)}, mean {_UNKNOWN if mean is None else gib(mean)}{of_all}"
    sm = gpu.sm.mean if gpu.used else None
    told = f"{memory} · SM mean {_UNKNOWN if sm is None else f'{sm:.0f} %'}"
    if gpu.unused:
        told = "not used by the job"
    return f"{gpu.candidate.label}: {told} · {_slowed(gpu)} · {_energy(gpu)}"


def use(gpus: Sequence[JobGpuUsage]) -> str:
    """A warning if the job did not appear on some or all of its GPUs; otherwise empty."""
    unused = [gpu.candidate.label for gpu in gpus if gpu.unused]
    if unused:
        seen = "as far as a look every second shows"
        why = "; it may have run on the CPU" if len(unused) == len(gpus) else ""
        return f"warning: the job never used {', '.join(unused)}, {seen}{why}"
    unseen = ", ".join(gpu.candidate.label for gpu in gpus if not gpu.used)
    if unseen:
        return f"warning: the job was not seen on {unseen}: whether it used that GPU is unknown"
    return ""


def _slowed(gpu: JobGpuUsage) -> str:
    slowed = gpu.slowed
    if not slowed.known:
        return "throttling unknown"
    reasons = (("heat", slowed.heat), ("power brake", slowed.brake), ("hardware", slowed.hardware))
    told = [f"{length(seconds)} by {name}" for name, seconds in reasons if seconds]
    return f"throttled {', '.join(told)}" if told else "not throttled"


def _energy(gpu: JobGpuUsage) -> str:
    energy = gpu.energy
    if gpu.candidate.mig is not None or not (energy.counted or energy.integrated):
        return "energy unknown"
    unit = unit_of(energy.joules)
    return f"{unit.format(energy.joules)} {unit.name}"


def full(gpu: JobGpuUsage) -> str | None:
    """That a GPU was full when the job exited, and who held what; ``None`` if it was not full."""
    fills = [one for one in gpu.fills if one.free is not None]
    if not fills:
        return None
    # The newest if several are equally full: lists of processes come later than the memory.
    fullest = min(reversed(fills), key=lambda one: one.free or 0)
    if fullest.free is None or fullest.free > _limit(fullest.total):
        return None
    total = "" if fullest.total is None else f" of {gib(fullest.total)[:-4]}"
    return (
        f"{gpu.candidate.label} had {fullest.free / 2**30:.1f}{total} GiB free when it ended; "
        f"{_holders(fullest, gpu.candidate)}."
    )


def _limit(total: int | None) -> float:
    return max(_FULL_BYTES, _FULL_SHARE * (total or 0))


def _holders(fill: Fill, candidate: Candidate) -> str:
    parts = [f"{gib(fill.job)} held by the job itself"]
    sizes = [(candidate.memory_of(one), one) for one in fill.others]
    for size, process in sorted(sizes, key=lambda one: -(one[0] or 0))[:_NAMED]:
        parts.append(f"{gib(size)} by {name_of(process)}")
    if len(sizes) > _NAMED:
        parts.append(f"and {counted(len(sizes) - _NAMED, 'other')}")
    return ", ".join(parts)


def length(seconds: float) -> str:
    """A duration, to a tenth of a second if it is short."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {whole % 60:02d} s"
