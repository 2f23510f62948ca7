"""Whether a GPU is free: the one rule for the screen, ``select``, ``run``, ``wait`` and reports.

A GPU, or a MIG device of it, is free if it is healthy, neither allocated to a job nor reserved, has
no computing process, no unattributed memory, and no utilisation. A GPU with unknown values is never
free.

Processes that only draw do not count on a GPU with a display: its memory and utilisation belong to
the desktop. On other GPUs they may hold only what a display server takes of every GPU: a renderer
without a display is a job.

Metrics do not list processes: if the values come from them, memory and utilisation decide alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.allocations import allocations_of, unplaced_count, unplaced_of
from gpumon.model.snapshot import GpuStatus, Unknown
from gpumon.text.formatting import counted, duration, gib, gibibytes, longest, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpumon.model.allocations import Allocation, JobKey
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu, MigInstance

MEMORY_FIELDS = (
    "remapped_rows_failure",
    "remapped_rows_pending",
    "retired_pages_pending",
    "ecc_uncorrected_volatile",
)
"""What ``memory_faults`` takes of a GPU, if the GPU reports it."""
HEALTH_FIELDS = (*MEMORY_FIELDS, "recovery_action")
FRESH_SECONDS = 5.0
"""Maximum age in seconds of a list of processes that says who is on a GPU now."""


class Listed(Struct, frozen=True):
    """The driver's list of processes on a GPU or a MIG device, summarised."""

    processes: int = 0  # number of processes
    computing: int = 0  # number of computing processes; the others only draw
    memory: int | None = 0  # bytes they hold together; ``None`` if any is unknown


class NotFree(Struct, frozen=True):
    """Why a GPU is not free."""

    # ``status``, ``old``, ``health``, ``mode``, ``allocated``, ``reserved``, ``processes``,
    # ``memory`` or ``busy``.
    kind: str
    sentence: str  # for the user, without the GPU's name; safe to print
    is_unknown: bool = False  # whether it may be free: a value is unknown


NOBODY = Listed()

UNLISTED_BYTES = 256 * 2**20
"""Memory that may be in use without a listed process, because the driver omits its own clients from
its list. More than this belongs to a process: a CUDA context takes 200 to 700 MiB
(pytorch#28113)."""
OVERHEAD_BYTES = 768 * 2**20
"""The same if the used memory includes what the driver reserves, as the older of its two calls does
from driver 510 on: 308 MB (gpustat#141), 513 MiB on an A10G (gpustat#168). 1.5 times the larger of
these, which also covers the memory of a display that belongs to no listed process."""
_OVERHEAD_SHARE = 0.01
"""The same as a share of the GPU's memory, if that is more: the reserved memory grows with the
total."""
UNLISTED_FIELDS = ("memory_reserved", "memory_total", "display_active")
"""What ``normal_unlisted`` takes of a GPU, if the GPU reports it."""
ASSUMED_FIELDS = (*HEALTH_FIELDS, "compute_mode", *UNLISTED_FIELDS)
"""What ``why_not_free`` takes to be in order, or 0, on a GPU that does not report it."""


def listed_on(processes: Iterable[GpuProcess], gpu: Gpu, mig: MigInstance | None = None) -> Listed:
    """The use that these processes make of a GPU, or of a MIG device of it."""
    count = computing = total = 0
    known = True
    for process in processes:
        uses = [
            use
            for use in process.uses
            if use.gpu_uuid == gpu.uuid
            and (mig is None or use.instance == (mig.gpu_instance, mig.compute_instance))
        ]
        count += bool(uses)
        computing += bool(uses) and process.type != "G"
        known = known and all(use.memory_used is not None for use in uses)
        total += sum(use.memory_used or 0 for use in uses)
    return Listed(count, computing, total if known else None)


class Insider(Struct, frozen=True):
    """Who asks for a GPU, as schedulers know them."""

    user: str | None = None
    # The keys of the job that the program runs in; empty outside of jobs.
    jobs: frozenset[JobKey] = frozenset()

    def has(self, allocation: Allocation) -> bool:
        """Whether an allocation is the asker's own."""
        if self.jobs:
            # Each part of a heterogeneous job, such as 5+1, runs with the number of the first.
            leader = (allocation.scheduler, (allocation.job or "").partition("+")[0])
            return not self.jobs.isdisjoint((*allocation.keys, leader))
        return self.user is not None and allocation.user == self.user


STRANGER = Insider()


def allocated_to_others(
    allocations: Sequence[Allocation] | None,
    gpu: Gpu,
    now: float,
    mig: MigInstance | None = None,
    asker: Insider = STRANGER,
) -> NotFree | None:
    """Whether a scheduler has given a GPU, or a MIG device of it, to somebody else's job.

    Inside a job it is also a reason that the GPU is not of that job. While it is not known which
    GPUs a job has, any GPU may be its.

    Args:
        allocations: Of the machine; ``None`` where no scheduler was asked.
        gpu: The GPU.
        now: The time, seconds since the epoch.
        mig: The MIG device.
        asker: Who asks; by default somebody without a job.
    """
    if not allocations:
        return None
    certain = allocations_of(allocations, gpu, mig)
    for allocation in certain:
        if not asker.has(allocation):
            return NotFree("allocated", allocated_sentence(allocation, now))
    if certain:
        return None
    own = [allocation for allocation in allocations if asker.has(allocation)]
    if asker.jobs and own and not unplaced_of(own):
        return NotFree("allocated", f"it is not one of this job's GPUs ({printable(own[0].label)})")
    perhaps = [each for each in unplaced_of(allocations) if not asker.has(each)]
    if not perhaps:
        return None
    return NotFree("allocated", unplaced_sentence(perhaps), is_unknown=True)


def allocated_sentence(allocation: Allocation, now: float) -> str:
    """``slurm 88123 of ann has had it for 4h, 2h left at most``, safe to print."""
    whose = "" if allocation.user is None else f" of {printable(allocation.user)}"
    what = "a part of it" if allocation.is_share else "it"
    has = f"has {what}"
    if allocation.since is not None:
        has = f"has had {what} for {duration(now - allocation.since)}"
    return f"{printable(allocation.label)}{whose} {has}{_end(allocation, now)}"


def _end(allocation: Allocation, now: float) -> str:
    if allocation.until is None:
        return ""
    if allocation.until <= now:
        return ", past its time limit"
    return f", {longest(allocation.until - now)} left at most"


def unplaced_sentence(allocations: Sequence[Allocation]) -> str:
    """That it is not known which GPUs jobs have, safe to print."""
    count = unplaced_count(allocations)
    labels = [printable(allocation.label) for allocation in allocations]
    schedulers = [*dict.fromkeys(printable(each.scheduler) for each in allocations)]
    named = [label for label, each in zip(labels, allocations, strict=True) if each.job]
    if count is None:
        has = "has" if len(named or schedulers) == 1 else "have"
        if named:
            return f"whether {names_listed(named)} {has} GPUs of this machine is not known"
        return f"which GPUs {names_listed(schedulers)} {has} given to jobs is not known"
    verb = "is" if count == 1 else "are"
    which = "which one" if count == 1 else "which ones"
    whose = f"{names_listed(labels)}'s" if named else f"allocated by {names_listed(schedulers)}"
    return f"{counted(count, 'GPU')} of this machine {verb} {whose}, {which} is not known"


def names_listed(names: Sequence[str]) -> str:
    """``slurm 5``, ``slurm 5 and slurm 6``, ``slurm 5 and 3 more``."""
    if len(names) == 2:
        return " and ".join(names)
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def why_not_free(
    gpu: Gpu,
    listed: Listed | None,
    *,
    mig: MigInstance | None = None,
    mine: Listed = NOBODY,
    allocated: NotFree | None = None,
    reserved: bool = False,
    old: bool = False,
    in_container: bool = False,
) -> Iterator[NotFree]:
    """The reasons why a GPU, or a MIG device of it, is not free; none if it is free.

    That a job may have it comes last: this must not hide who certainly uses it.

    Args:
        gpu: The GPU.
        listed: The driver's list, without ``mine``; ``None`` while there is no current list.
        mig: The MIG device.
        mine: Processes that the caller wants to ignore.
        allocated: What ``allocated_to_others`` says of it.
        reserved: Whether ``gpumon run`` has reserved it.
        old: Whether its values are too old.
        in_container: Whether the driver lists the processes of this container only.
    """
    yield from _of_the_gpu(gpu, old=old)
    if allocated is not None and not allocated.is_unknown:
        yield allocated
    if reserved:
        yield NotFree("reserved", "gpumon run keeps it for a job")
    yield from _of_who_is_on_it(gpu, mig, listed, mine, in_container)
    if allocated is not None and allocated.is_unknown:
        yield allocated


def _of_the_gpu(gpu: Gpu, *, old: bool) -> Iterator[NotFree]:
    if gpu.status is not GpuStatus.OK:
        yield NotFree("status", gpu.status.value)
    if old:
        yield NotFree("old", "its values are old", is_unknown=True)
    for fault in memory_faults(gpu):
        yield NotFree("health", fault.sentence)
    action = recovery_action(gpu)
    if action is not None:
        yield NotFree("health", f"the driver recommends a recovery action: {action}")
    if gpu.compute_mode == "Prohibited":
        yield NotFree("mode", "its compute mode prohibits computing")


def _of_who_is_on_it(
    gpu: Gpu,
    mig: MigInstance | None,
    listed: Listed | None,
    mine: Listed,
    in_container: bool,
) -> Iterator[NotFree]:
    if listed is None and gpu.unknown.get("processes") is Unknown.NOT_EXPORTED:
        yield from _of_what_is_in_use(gpu, mig)
        return
    if listed is None:
        yield NotFree("processes", "who computes on it is unknown", is_unknown=True)
        return
    if listed.computing:
        yield NotFree("processes", f"{listed.computing} compute on it")
    if not gpu.memory_unified:
        yield from _of_memory(gpu, mig, listed, mine, in_container)
    if listed.processes and not gpu.display_active:
        held = listed.memory
        if held is None and gpu.memory_unified:
            yield NotFree(
                "processes", "the memory of its drawing processes is unknown", is_unknown=True
            )
        elif (held or 0) > normal_unlisted(gpu, mig):
            yield NotFree("processes", f"processes that draw hold {gibibytes(held)} {gib()}")
    if mig is not None or mine.processes:
        return
    if gpu.utilization_gpu is None and not _is_never_reported(gpu):
        yield NotFree("busy", "its utilisation is unknown", is_unknown=True)
    elif gpu.utilization_gpu and not gpu.display_active:
        yield NotFree("busy", busy_sentence(gpu.utilization_gpu, in_container=in_container))


def _of_what_is_in_use(gpu: Gpu, mig: MigInstance | None) -> Iterator[NotFree]:
    """The reasons where no list exists: a process that computes has memory for its context."""
    used = gpu.memory_used if mig is None else mig.memory_used
    if used is None:
        yield NotFree("memory", "how much of its memory is in use is unknown", is_unknown=True)
    elif used > normal_unlisted(gpu, mig):
        yield NotFree("memory", f"{gibibytes(used)} {gib()} in use")
    if mig is not None:
        return
    if gpu.utilization_gpu is None and not _is_never_reported(gpu):
        yield NotFree("busy", "its utilisation is unknown", is_unknown=True)
    elif gpu.utilization_gpu:
        yield NotFree("busy", f"{gpu.utilization_gpu} % busy")


def _of_memory(
    gpu: Gpu,
    mig: MigInstance | None,
    listed: Listed,
    mine: Listed,
    in_container: bool,
) -> Iterator[NotFree]:
    used = gpu.memory_used if mig is None else mig.memory_used
    if used is None:
        why = "unknown"
        if gpu.unknown.get("memory_used") is Unknown.NO_PERMISSION:
            why = "readable by root only"
        yield NotFree("memory", f"how much of its memory is in use is {why}", is_unknown=True)
        return
    normal = normal_unlisted(gpu, mig)
    unlisted = used - (mine.memory or 0) - (listed.memory or 0)
    if unlisted > normal and (listed.memory is None or mine.memory is None):
        size = f"{gibibytes(used)} {gib()}"
        yield NotFree(
            "memory", f"{size} in use, and the memory of its processes is unknown", is_unknown=True
        )
    elif unlisted > normal:
        yield NotFree("memory", unlisted_sentence(unlisted, in_container=in_container))


def _is_never_reported(gpu: Gpu) -> bool:
    """Whether the driver never reports this GPU's utilisation, as in MIG mode."""
    unsupported = gpu.unknown.get("utilization_gpu") is Unknown.NOT_SUPPORTED
    return unsupported or bool(gpu.mig_mode or gpu.mig)


def normal_unlisted(gpu: Gpu, mig: MigInstance | None = None) -> float:
    """Bytes on a GPU, or a MIG device of it, that may be in use without a listed process."""
    if mig is not None or (gpu.memory_reserved is not None and not gpu.display_active):
        return UNLISTED_BYTES
    return normal_with_reserve(gpu.memory_total)


def normal_with_reserve(total: float | None) -> float:
    """The same limit if used memory may include the driver's reserve or a display's memory."""
    return max(OVERHEAD_BYTES, _OVERHEAD_SHARE * (total or 0))


def is_busy_unlisted(gpu: Gpu, listed: Listed | None) -> bool | None:
    """Whether something runs on a GPU without listed processes; ``None`` is unknown."""
    if gpu.utilization_gpu is None or listed is None:
        return None
    return gpu.utilization_gpu > 0 and not listed.processes and not gpu.display_active


def is_full(free: float | None, total: float | None, share: float) -> bool | None:
    """Whether less than this share of a GPU's memory is free; ``None`` is unknown."""
    return None if free is None or not total else free < share * total


def busy_sentence(utilization: int, *, in_container: bool) -> str:
    """A sentence: something runs, and the list does not show the owner."""
    who = "visible from this container" if in_container else "that the driver lists"
    return f"{utilization} % busy, by nobody {who}"


def unlisted_sentence(size: int, *, in_container: bool) -> str:
    """A sentence: memory is in use, and the list does not show the owner."""
    amount = f"{gibibytes(size)} {gib()}"
    if in_container:
        return f"{amount} not visible from this container"
    return f"{amount} held by no process that the driver lists"


class MemoryFault(Struct, frozen=True):
    """A fault of a GPU's memory, in words."""

    sentence: str
    short: str
    brief: str
    evidence: str


def memory_faults(gpu: Gpu) -> list[MemoryFault]:
    """The faults of a GPU's memory, most severe first."""
    faults = []
    if gpu.remapped_rows_failure:
        faults.append(
            MemoryFault(
                "a bad memory row could not be replaced: the GPU should be returned",
                "row remap failed: replace GPU",
                "bad memory",
                "row remap failure: yes",
            )
        )
    if gpu.remapped_rows_pending:
        faults.append(
            MemoryFault(
                "a bad memory row is replaced at the next reset of the GPU",
                "row remap pending: reset",
                "reset!",
                "row remap pending: yes",
            )
        )
    if gpu.retired_pages_pending:
        faults.append(
            MemoryFault(
                "a bad memory page is retired at the next reset of the GPU",
                "page retirement pending: reset",
                "reset!",
                "page retirement pending: yes",
            )
        )
    if errors := gpu.ecc_uncorrected_volatile:
        words = counted(errors, "uncorrected ECC error")
        faults.append(
            MemoryFault(
                f"{words} since the driver was loaded: what was in that memory is lost",
                words,
                "ECC errors",
                f"uncorrected ECC errors since the driver was loaded: {errors}",
            )
        )
    return faults


def recovery_action(gpu: Gpu) -> str | None:
    """The driver's recovery action, safe to print; ``None`` if there is none or it is unknown."""
    action = gpu.recovery_action
    return None if action is None or action.lower() == "none" else printable(action)
