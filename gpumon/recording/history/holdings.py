"""What the processes of a list hold of the GPUs, and what they do on them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpumon.availability import Listed
from gpumon.model.process_states import ENDED, UNINTERRUPTIBLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpumon.model.processes import GpuProcess

    _There = tuple[GpuProcess, float, str | None]


class Holding(Listed, frozen=True):
    """What the processes hold of one GPU."""

    hidden: int = 0  # Number of processes not visible to this host that may run.
    # Users of the computing processes, largest holder first; ``None`` stands for the unknown owners
    # of hidden processes, and of those that ended unseen.
    owners: tuple[str | None, ...] = ()
    # When the first computing process of the first owner was first seen on a GPU.
    owner_since: float | None = None
    # CPU use of the busiest computing process, percent of one core; ``None`` if no use is known.
    cpu_percent: float | None = None
    # Number of computing processes that wait inside the kernel, mostly for a disk.
    blocked: int = 0
    unseen: int = 0  # Number of computing processes whose CPU use or state is unknown.
    # SM use in percent of the job with the second most: 0 without a second one, ``None`` if that is
    # unknown.
    second_sm: int | None = 0
    # Whether a job ran no kernel on it, but did on most of the job's other GPUs; ``None`` if that
    # is unknown.
    left_out: bool | None = False


def holdings(there: Iterable[_There]) -> dict[str, Holding]:
    """The holdings of processes on every GPU.

    Args:
        there: The processes, each with the time it was first seen, and the key of its job if that
            is known.
    """
    on_gpu: dict[str, list[tuple[GpuProcess, float, int | None]]] = defaultdict(list)
    # Percent of each job on each of its GPUs; ``None`` is unknown.
    work: dict[str | None, dict[str, int | None]] = defaultdict(dict)
    for process, first, job in there:
        uses = process.uses
        computes = process.type != "G"
        if len(uses) == 1:
            use = uses[0]
            on_gpu[use.gpu_uuid].append((process, first, use.memory_used))
        else:
            parts: dict[str, int | None] = {}
            for use in uses:
                memory = parts.get(use.gpu_uuid, 0)
                if memory is not None:
                    memory = None if use.memory_used is None else memory + use.memory_used
                parts[use.gpu_uuid] = memory
            for uuid, memory in parts.items():
                on_gpu[uuid].append((process, first, memory))
        if computes:
            gpus = work[job]
            for use in uses:
                sm = gpus.get(use.gpu_uuid, 0)
                gpus[use.gpu_uuid] = None if sm is None or use.sm is None else sm + use.sm
    left_out = _left_out(work)
    return {
        uuid: _holding_of(here, _second(work, uuid), left_out.get(uuid, False))
        for uuid, here in on_gpu.items()
    }


def _second(work: Mapping[str | None, Mapping[str, int | None]], uuid: str) -> int | None:
    """The second highest SM use of a job on a GPU."""
    if len(work) < 2:
        return None if work.get(None, {}).get(uuid) else 0
    first = second = 0
    for job, gpus in work.items():
        sm = gpus.get(uuid, 0)
        if sm is None or (job is None and sm):
            return None
        if sm > first:
            first, second = sm, first
        elif sm > second:
            second = sm
    return second


def _left_out(work: Mapping[str | None, Mapping[str, int | None]]) -> dict[str, bool | None]:
    """Whether a job does nothing on a GPU and works on most of its others."""
    left_out: dict[str, bool | None] = {}
    for job, gpus in work.items():
        if len(gpus) < 2:
            continue
        active = sum([1 for sm in gpus.values() if sm])
        unknown = None in gpus.values() or (job is None and active > 0)
        for uuid, sm in gpus.items():
            if sm or left_out.get(uuid):
                continue
            is_left_out = None if unknown else 2 * active > len(gpus) - 1
            if is_left_out or left_out.get(uuid, False) is False:
                left_out[uuid] = is_left_out
    return left_out


def _holding_of(
    here: Sequence[tuple[GpuProcess, float, int | None]],
    second_sm: int | None,
    left_out: bool | None,
) -> Holding:
    """The holdings of processes, each with its first-seen time and its bytes, on one GPU."""
    held: dict[str | None, int] = defaultdict(int)
    since: dict[str | None, float] = {}
    computing = total = hidden = blocked = unseen = 0
    cpu: float | None = None
    known = True
    for process, first, memory in here:
        hidden += not process.visible and process.state != ENDED
        if memory is None:
            known = False
        else:
            total += memory
        if process.type != "G":
            computing += 1
            held[process.user] += memory or 0
            since[process.user] = min(first, since.get(process.user, first))
            blocked += process.state == UNINTERRUPTIBLE
            used = process.cpu_percent
            unseen += used is None or process.state is None
            if used is not None and (cpu is None or used > cpu):
                cpu = used
    owners = tuple(sorted(held, key=lambda owner: (-held[owner], owner or "")))
    return Holding(
        processes=len(here),
        computing=computing,
        memory=total if known else None,
        hidden=hidden,
        owners=owners,
        owner_since=since[owners[0]] if owners else None,
        cpu_percent=cpu,
        blocked=blocked,
        unseen=unseen,
        second_sm=second_sm,
        left_out=left_out,
    )
