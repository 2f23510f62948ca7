"""The snapshot as of which a history answers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpumon.availability import FRESH_SECONDS
from gpumon.model.snapshot import ANSWERING
from gpumon.recording.history.intervals import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history.holdings import Holding


class ViewedSnapshot:
    """A snapshot, its time, and what follows from its own values.

    Attributes:
        snapshot: The snapshot; ``None`` before the first.
        time: Its time, on the clock of the history.
        list_seen: The time of the newest process list up to then.
        lists_known: Whether that list was current.
        is_reached: Whether the history has received the snapshots up to then: one of a log that is
            still being read may not.
        held: Whether each condition held, by the UUID of the GPU.
        holdings: What the processes hold, by the UUID of the GPU; ``None`` until it is known.
        second: The second of the last query of buckets.
        open: Values returned in that second for buckets that are still open, by the query.
    """

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.time = -math.inf
        self.list_seen = -math.inf
        self.lists_known = False
        self.is_reached = True
        self.held: dict[str, tuple[bool | None, ...]] = {}
        self.holdings: dict[str, Holding] | None = {}
        # The processes by ID, with the tuple that they are from.
        self._processes: tuple[Sequence[GpuProcess], dict[ProcessId, GpuProcess]] = ((), {})
        self.second = 0
        self.open: dict[tuple[object, ...], list[float | None]] = {}

    def show(self, snapshot: Snapshot, *, is_reached: bool) -> None:
        """Change to another snapshot, of which nothing else is known."""
        self.snapshot, self.time, self.is_reached = snapshot, snapshot.time, is_reached
        self.list_seen = min(snapshot.time, snapshot.processes_at or snapshot.time)
        self.held, self.holdings = {}, None
        self.know_lists(snapshot)

    def know_lists(self, snapshot: Snapshot) -> None:
        """Set whether the process list of a snapshot is current."""
        listed_at = snapshot.processes_at
        self.lists_known = listed_at is not None and snapshot.time - listed_at <= FRESH_SECONDS

    def gpu(self, uuid: str) -> Gpu | None:
        """A GPU of the snapshot."""
        gpus = () if self.snapshot is None else self.snapshot.gpus
        return next((gpu for gpu in gpus if gpu.uuid == uuid), None)

    def is_measured(self, uuid: str, patience: float) -> bool:
        """Whether a GPU's values in the snapshot were read just before it."""
        gpu = self.gpu(uuid)
        if gpu is None or gpu.status not in ANSWERING:
            return False
        return gpu.sampled_at is None or self.time - gpu.sampled_at <= patience

    def processes(self) -> dict[ProcessId, GpuProcess]:
        """The processes of the snapshot."""
        listed = () if self.snapshot is None else self.snapshot.processes
        known = self._processes
        if known[0] is not listed:
            # Set at once: several threads may ask.
            known = self._processes = listed, {process.id: process for process in listed}
        return known[1]

    def just_begun(self, time: float) -> Interval:
        """The interval of a condition of which no earlier time is known."""
        return Interval(time, time, start_observed=self.is_reached, samples=1)

    def shift(self, seconds: float) -> None:
        """Move it into the past."""
        self.time -= seconds
        self.list_seen -= seconds
