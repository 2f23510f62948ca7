"""How many names may stand in labels: each new value of a label is a new series for Prometheus."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.model.snapshot import Snapshot

MOST_NAMES = 64
"""Of users, and of jobs."""
NAME_SECONDS = 3600.0
"""Time for which a user or a job that is gone remains one of these."""
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
    """Renames users and jobs beyond the limits of names, users with less memory first."""

    def __init__(self) -> None:
        self._users = NameLimit()
        self._jobs = NameLimit()

    def apply(self, snapshot: Snapshot, jobs: Iterable[str] = ()) -> Snapshot:
        """The snapshot with a limited number of users and jobs, and ``other``.

        Args:
            snapshot: The snapshot.
            jobs: The names of further jobs, those first that are to be named: see ``job``.
        """
        held: defaultdict[str, int] = defaultdict(int)
        for process in snapshot.processes:
            if process.user is not None:
                held[process.user] += process.memory_used or 0
        allocations = snapshot.allocations or ()
        for allocation in allocations:
            if allocation.user is not None:
                held[allocation.user] += 0
        users = sorted(held, key=lambda user: (-held[user], user))
        given = [allocation.job for allocation in allocations if allocation.job is not None]
        all_users = self._users.see(users, snapshot.time)
        all_jobs = self._jobs.see([*given, *jobs], snapshot.time)
        if all_users and all_jobs:
            return snapshot
        return replace(
            snapshot,
            processes=tuple(
                replace(process, user=self._users.label(process.user))
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

    def job(self, name: str | None) -> str | None:
        """The name of a job, or ``other``, as in the last snapshot."""
        return self._jobs.label(name)
