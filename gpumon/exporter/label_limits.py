"""How many names may stand in labels: each new value of a label is a new series for Prometheus."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.export.as_prometheus import model_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.model.processes import GpuProcess, Workload
    from gpumon.model.serving import InferenceServer
    from gpumon.model.snapshot import Snapshot

MOST_NAMES = 64
"""Of users, of jobs, and of the models of inference servers."""
NAME_SECONDS = 3600.0
"""Time for which a user, a job or a model that is gone remains one of these."""
_OTHER = "other"


class NameLimit:
    """Which names may stand in labels: the first ``MOST_NAMES``; all others are ``other``.

    A name stays for ``NAME_SECONDS`` after it was last seen, so that no series alternates between a
    name and ``other``, and so that a container that runs processes under thousands of numbers adds
    at most ``MOST_NAMES`` names an hour.
    """

    def __init__(self) -> None:
        self._seen_at: dict[str, float] = {}

    def see(self, names: Sequence[str], now: float) -> bool:
        """See the names of a sample, those first that are to be named.

        Returns:
            Whether all of them are.
        """
        seen = self._seen_at
        present = set(names)
        for name, seen_at in list(seen.items()):
            # The clock may have been set back.
            if name not in present and not now - NAME_SECONDS <= seen_at <= now:
                del seen[name]
        for name in names:
            if name in seen or len(seen) < MOST_NAMES:
                seen[name] = now
        return seen.keys() >= present

    def label(self, name: str | None) -> str | None:
        """The name, or ``other``."""
        return name if name is None or name in self._seen_at else _OTHER


class LabelLimits:
    """Renames users, jobs and models beyond the limits of names, those with less memory first."""

    def __init__(self) -> None:
        self._users = NameLimit()
        self._jobs = NameLimit()
        self._models = NameLimit()

    def apply(self, snapshot: Snapshot, jobs: Iterable[str] = ()) -> Snapshot:
        """The snapshot with a limited number of users, jobs and models, and ``other``.

        Args:
            snapshot: The snapshot.
            jobs: The names of further jobs, those first that are to be named: see ``job``.
        """
        held: defaultdict[str, int] = defaultdict(int)
        held_by_model: defaultdict[str, int] = defaultdict(int)
        for process in snapshot.processes:
            if process.user is not None:
                held[process.user] += process.memory_used or 0
            if (server := _server(process)) is not None:
                held_by_model[model_label(server)] += process.memory_used or 0
        allocations = snapshot.allocations or ()
        for allocation in allocations:
            if allocation.user is not None:
                held[allocation.user] += 0
        given = [allocation.job for allocation in allocations if allocation.job is not None]
        all_users = self._users.see(_most_first(held), snapshot.time)
        all_jobs = self._jobs.see([*given, *jobs], snapshot.time)
        all_models = self._models.see(_most_first(held_by_model), snapshot.time)
        if all_users and all_jobs and all_models:
            return snapshot
        return replace(
            snapshot,
            processes=tuple(
                replace(process, user=self._users.label(process.user), place=self._place(process))
                for process in snapshot.processes
            ),
            allocations=snapshot.allocations
            and tuple(
                replace(
                    allocation,
                    user=self._users.label(allocation.user),
                    job=self._jobs.label(allocation.job),
                )
                for allocation in snapshot.allocations
            ),
        )

    def _place(self, process: GpuProcess) -> Workload | None:
        server = _server(process)
        if process.place is None or server is None:
            return process.place
        model = self._models.label(model_label(server))
        return replace(process.place, server=replace(server, model=model))

    def job(self, name: str | None) -> str | None:
        """The name of a job, or ``other``, as in the last snapshot."""
        return self._jobs.label(name)


def _server(process: GpuProcess) -> InferenceServer | None:
    return None if process.place is None else process.place.server


def _most_first(held: dict[str, int]) -> list[str]:
    """The names by their memory, most first."""
    return sorted(held, key=lambda name: (-held[name], name))
