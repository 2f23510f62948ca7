"""What the watchers need to evaluate their alerts: a snapshot, and questions about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.alerts.filter_languages import AlertContext
from gpumon.findings.allocated import NO_LOAD
from gpumon.model.allocations import allocations_of
from gpumon.model.snapshot import ANSWERING
from gpumon.recording.history import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpumon.model.processes import ProcessId
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history import History


class EvaluationContext:
    """One evaluation of all alerts."""

    def __init__(
        self,
        history: History,
        snapshot: Snapshot,
        *,
        pace: float,
        is_settling: bool,
        list_is_new: bool,
    ) -> None:
        self.history = history
        self.snapshot = snapshot
        self.now = history.now
        self.pace = pace
        """Seconds between the two evaluations before this one."""
        self.max_gap = max(PATIENCE, 2.5 * pace)
        """Seconds; what happened in a longer gap between two evaluations is unknown."""
        self.is_settling = is_settling
        """Whether this run is so new that what held before it may not show yet."""
        self.list_is_new = list_is_new
        """Whether the process list has changed since the last evaluation."""
        self.gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
        self._listed: set[str] | None = None
        self._users: dict[str, set[str | None]] | None = None

    def at(self, snapshot: Snapshot) -> EvaluationContext:
        """The same evaluation of an earlier snapshot."""
        return EvaluationContext(
            self.history,
            snapshot,
            pace=self.pace,
            is_settling=self.is_settling,
            list_is_new=self.list_is_new,
        )

    # Not an attribute: it refers back to this object, which would then keep its snapshot until the
    # next garbage collection, and minutes pass between two of these.
    @property
    def of_processes(self) -> AlertContext:
        """What terms about processes need."""
        return AlertContext(
            self.now,
            self._idle,
            self.history.thresholds.idle_after,
            allocations=self.snapshot.allocations or (),
            idle_for_longer=self._idle_longer,
        )

    def _idle(self, process: ProcessId) -> float | None:
        interval = self.history.process_idle(process)
        return None if interval is None else self.now - interval.since

    def _idle_longer(self, process: ProcessId) -> bool:
        interval = self.history.process_idle(process)
        return interval is not None and not interval.start_observed

    def idle_seconds(self, gpu: Gpu) -> float | None:
        """For how long nothing has run on a GPU, at least; ``None`` if that is not known."""
        if gpu.utilization_gpu is None:
            return None
        interval = self.history.interval(gpu.uuid, NO_LOAD)
        return 0.0 if interval is None else self.now - interval.since

    def may_be_idle_longer(self, gpu: Gpu) -> bool:
        """Whether it was idle already when it was first seen."""
        interval = self.history.interval(gpu.uuid, NO_LOAD)
        return interval is not None and not interval.start_observed

    def users_on(self, gpu: Gpu) -> Collection[str | None] | None:
        """The users with processes on a GPU, and of jobs that it was given to.

        ``None`` stands for an unknown user.

        Returns:
            ``None`` without a current process list.
        """
        if not self.is_listed(gpu.uuid):
            return None
        if self._users is None:
            self._users = {}
            for process in self.snapshot.processes:
                for use in process.uses:
                    self._users.setdefault(use.gpu_uuid, set()).add(process.user)
            for other in self.snapshot.gpus:
                for allocation in allocations_of(self.snapshot.allocations, other):
                    self._users.setdefault(other.uuid, set()).add(allocation.user)
        return self._users.get(gpu.uuid, ())

    def is_listed(self, uuid: str) -> bool:
        """Whether it is known which processes are on a GPU."""
        if self._listed is None:
            self._listed = {
                gpu.uuid
                for gpu in self.snapshot.gpus
                if gpu.status in ANSWERING and self.history.holding(gpu) is not None
            }
        return uuid in self._listed
