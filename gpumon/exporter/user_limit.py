"""Bounds the number of users in labels: each new label value is a new series for Prometheus."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Snapshot

MOST_USERS = 64
OTHER = "other"
KEPT_SECONDS = 3600.0


class UserLimit:
    """Renames users beyond the first ``MOST_USERS`` to ``OTHER``.

    A user who has a place keeps it, also for ``KEPT_SECONDS`` after the last process, so that no
    series alternates between a name and ``OTHER``, and so that a container that runs processes
    under thousands of numbers adds at most ``MOST_USERS`` names an hour. New users get free places
    in the order of their memory.
    """

    def __init__(self) -> None:
        self._seen_at: dict[str, float] = {}

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with at most ``MOST_USERS`` users and ``OTHER``."""
        now, places = snapshot.time, self._seen_at
        held: defaultdict[str, int] = defaultdict(int)
        for process in snapshot.processes:
            if process.user is not None:
                held[process.user] += process.memory_used or 0
        for user, seen_at in list(places.items()):
            # The clock may have been set back.
            if user not in held and not now - KEPT_SECONDS <= seen_at <= now:
                del places[user]
        for user in sorted(held, key=lambda user: (-held[user], user)):
            if user in places or len(places) < MOST_USERS:
                places[user] = now
        if held.keys() <= places.keys():
            return snapshot
        return replace(snapshot, processes=tuple(map(self._renamed, snapshot.processes)))

    def _renamed(self, process: GpuProcess) -> GpuProcess:
        if process.user is None or process.user in self._seen_at:
            return process
        return replace(process, user=OTHER)
