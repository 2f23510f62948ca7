"""The processes of a job: its first process and all descendants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.host.procfs import stat_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.processes import GpuProcess, ProcessId

_GENERATIONS = 64
_KEPT = 4096
"""How many of either kind are remembered beside those that are listed, the newest: a job may run
for weeks, and start processes all the time."""


class Members:
    """The processes of a job. A member stays one, even after its parents have exited.

    Args:
        root: The job's first process.
        group: Its process group, if it has its own.
        proc: Where the process file system is mounted.
    """

    def __init__(self, root: int, group: int | None = None, proc: str = "/proc") -> None:
        self._root, self._group = root, group
        self._proc = proc
        self._known: dict[ProcessId, None] = {}
        self._strangers: dict[ProcessId, None] = {}

    def among(self, processes: Iterable[GpuProcess]) -> tuple[GpuProcess, ...]:
        """The processes of these that belong to the job."""
        listed = tuple(processes)
        members = tuple(one for one in listed if self._belongs(one))
        for kept in (self._known, self._strangers):
            if len(kept) > 2 * _KEPT + len(listed):
                newest = list(kept)[-_KEPT:]
                there = {one.id for one in listed}
                for id_ in kept.keys() - there - set(newest):
                    del kept[id_]
        return members

    def had(self, pid: int) -> bool:
        """Whether a member had this PID: the driver may list it after its exit."""
        return pid == self._root or any(one.pid == pid for one in self._known)

    def _belongs(self, process: GpuProcess) -> bool:
        if process.id in self._known:
            return True
        if not process.visible or process.id in self._strangers:
            return False
        belongs = self._descends(process.id)
        (self._known if belongs else self._strangers)[process.id] = None
        return belongs

    def _descends(self, process: ProcessId) -> bool:
        stat = stat_of(self._proc, process.pid)
        if stat is None or stat.id != process:
            return False
        for _ in range(_GENERATIONS):
            if self._root == stat.id.pid or self._group == stat.group or stat.id in self._known:
                return True
            parent = stat_of(self._proc, stat.parent)
            if parent is None or parent.id.start_time is None:
                return False
            stat = parent
        return False
