"""The interface to a scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gpumon.model.allocations import Allocation

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot


class Scheduler(Protocol):
    """Finds repeatedly what a scheduler has given to jobs here. Not thread-safe."""

    def find(self, snapshot: Snapshot, patience: float) -> tuple[tuple[Allocation, ...], float]:
        """Look once, and ask the scheduler at most one question.

        Args:
            snapshot: A sample, with the workloads of its processes if they are known.
            patience: Seconds that the question may take.

        Returns:
            What jobs have, as far as it is known; and seconds until it is useful to look again.
        """
        ...


def unknown(scheduler: str) -> Allocation:
    """That it is not known what a scheduler has given to jobs here."""
    return Allocation(scheduler, unplaced=None)
