"""The notice of the end of a process or job that was awaited by key: how long, and its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.text.formatting import UNKNOWN, duration, gib, gibibytes, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.alerts.notice import Notice
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Snapshot

_TITLE_CHARACTERS = 60
_NAME_CHARACTERS = 24
_CAME_BACK = 0.9
"""The share of its memory from which on it counts as returned: others may grow meanwhile."""


def end_of_process(notice: Notice, process: GpuProcess, before: Snapshot, now: Snapshot) -> Notice:
    """The notice with how long the process ran, and whether its memory came back.

    Args:
        notice: That it has ended.
        process: The process as it was last listed.
        before: The last snapshot that lists it.
        now: The newest snapshot.
    """
    name = f"process {process.id.pid}"
    sentence = _sentence(name, process.started_at, (process,), before, now)
    return replace(notice, sentence=sentence, since=process.started_at)


def end_of_job(
    notice: Notice,
    job: str,
    processes: Sequence[GpuProcess],
    before: Snapshot,
    now: Snapshot,
) -> Notice:
    """The notice of the end of a whole job, from that of its last process."""
    starts = [process.started_at for process in processes]
    known = [start for start in starts if start is not None]
    started = min(known) if len(known) == len(starts) else None
    shown = printable(job)
    return replace(
        notice,
        alert=f"job {shown} ends",
        title=f"{printable(notice.host)[:_NAME_CHARACTERS]} job {shown}: ended"[:_TITLE_CHARACTERS],
        sentence=_sentence(f"job {shown}", started, processes, before, now),
        since=started,
    )


def _sentence(
    name: str,
    started: float | None,
    processes: Sequence[GpuProcess],
    before: Snapshot,
    now: Snapshot,
) -> str:
    ran = "" if started is None else f" after {duration(now.time - started)}"
    returned = _memory(processes, before, now)
    return f"{name} has ended{ran}{f'; {returned}' if returned else ''}"


def _memory(processes: Sequence[GpuProcess], before: Snapshot, now: Snapshot) -> str:
    """Whether the memory of processes has come back; empty if that cannot be known."""
    held: dict[str, int] = {}
    for process in processes:
        for use in process.uses:
            if use.memory_used is None:
                return ""
            held[use.gpu_uuid] = held.get(use.gpu_uuid, 0) + use.memory_used
    if not held:
        return ""
    used_before = {gpu.uuid: gpu.memory_used for gpu in before.gpus}
    used_now = {gpu.uuid: gpu for gpu in now.gpus}
    others = {process.id for process in processes}
    staying = []
    for uuid, size in held.items():
        gpu, then = used_now.get(uuid), used_before.get(uuid)
        if gpu is None or gpu.memory_used is None or then is None:
            return ""
        if then - gpu.memory_used < size * _CAME_BACK:
            is_alone = all(
                process.id in others or all(use.gpu_uuid != uuid for use in process.uses)
                for process in (*before.processes, *now.processes)
            )
            if not is_alone:
                # Other processes may have taken it meanwhile.
                return ""
            staying.append(f"{gibibytes(gpu.memory_used)} {gib()} stay in use on GPU {gpu.index}")
    if staying:
        return ", ".join(staying)
    return f"its {gibibytes(sum(held.values())) or UNKNOWN} {gib()} came back"
