"""Where processes run, from several lists of a log.

The lookup of where a process runs finishes after the process is first listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.model.processes import ProcessId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.processes import Container
    from gpumon.report.samples import Identity, ListedProcess

    _Workload = tuple[Container | None, str | None, int | None, ProcessId | None, str | None]


def _workload(row: ListedProcess) -> _Workload:
    return row.container, row.slurm_job, row.session, row.launcher, row.launcher_name


class Lookups:
    """What any list of a log says of where its processes run."""

    def __init__(self) -> None:
        self._known: dict[tuple[str | None, Identity], _Workload] = {}
        self._launchers: dict[tuple[str | None, ProcessId], str | None] = {}

    def learn(self, processes: Iterable[ListedProcess]) -> None:
        """Learn from the processes of lists, in any order."""
        for row in processes:
            key, found = (row.hostname, row.identity), _workload(row)
            known = self._known.get(key)
            if known == found:
                continue
            if known is not None:
                found = (
                    known[0] or found[0],
                    known[1] or found[1],
                    known[2] or found[2],
                    known[3] or found[3],
                    known[4] or found[4],
                )
            self._known[key] = found
            if row.launcher is not None:
                self._launchers[row.hostname, row.launcher] = row.launcher_name

    def complete(self, row: ListedProcess) -> ListedProcess:
        """The process with what other lists say of it."""
        container, slurm_job, session, launcher, name = self._known.get(
            (row.hostname, row.identity), _workload(row)
        )
        own = row.hostname, ProcessId(row.pid, row.start_ticks)
        if launcher is None and own in self._launchers:
            # A launcher is part of the job that it started, also on a GPU of its own.
            launcher, name = own[1], self._launchers[own]
        if _workload(row) == (container, slurm_job, session, launcher, name):
            return row
        return replace(
            row,
            container=container,
            slurm_job=slurm_job,
            session=session,
            launcher=launcher,
            launcher_name=name,
        )
