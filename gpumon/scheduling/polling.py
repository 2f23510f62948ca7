"""Polls the GPUs until a condition holds, less often while nothing changes.

It also waits for a driver that does not respond or is temporarily gone.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, TypeVar

from gpumon.sampling.gpu_sampler import QUICK_PATIENCE, UnavailableError
from gpumon.scheduling.allocation import UncertainAllocationError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from gpumon.model.snapshot import Snapshot
    from gpumon.sampling.gpu_sampler import GpuSampler

QUICK_SECONDS = 0.5
"""Seconds between two samples at first, and after a change."""
SLOW_SECONDS = 2.0
"""Maximum seconds between two samples: a GPU that becomes free is noticed within this."""
_SLOWER = 1.25
"""Factor from one interval to the next."""
_STEP_BYTES = 256 * 2**20

_T = TypeVar("_T")


class PollInterval:
    """The interval between two samples: it grows while nothing changes.

    Args:
        shortest: Seconds at first, and after a change.
        longest: The maximum.
    """

    def __init__(self, shortest: float = QUICK_SECONDS, longest: float = SLOW_SECONDS) -> None:
        self._shortest, self._longest = shortest, longest
        self._last: Hashable = None
        self.seconds = shortest

    def after(self, mark: Hashable) -> bool:
        """Set the interval after a sample; returns whether something has changed.

        Args:
            mark: A value that changes with every relevant change.
        """
        changed = mark != self._last
        self.seconds = self._shortest if changed else min(self._longest, self.seconds * _SLOWER)
        self._last = mark
        return changed


def wait_for(
    sampler: GpuSampler,
    found: Callable[[Snapshot], _T | None],
    tell: Callable[[Snapshot], None],
    tell_trouble: Callable[[UnavailableError | UncertainAllocationError], None],
    seconds: float | None = None,
) -> _T | None:
    """Sample until a condition holds.

    Args:
        sampler: Samples the GPUs.
        found: Returns the result from a snapshot; ``None`` while the condition does not hold.
        tell: Called for each snapshot without a result.
        tell_trouble: Called with the reason if there was no snapshot, or none to judge by.
        seconds: Maximum time, may be infinite; ``None`` does not wait for a driver either.

    Returns:
        The result; ``None`` on timeout.

    Raises:
        SourceError: There are no GPUs.
    """
    deadline = time.monotonic() + (math.inf if seconds is None else seconds)
    first_by = max(deadline, time.monotonic() + QUICK_PATIENCE)
    interval = PollInterval()
    if seconds is not None:
        sampler.collector.interval = interval.seconds
    seen = False
    while True:
        left = (deadline if seen else first_by) - time.monotonic()
        if left <= 0:
            return None
        try:
            first = seconds is None and not seen
            snapshot = sampler.look() if first else sampler.next(min(interval.seconds, left))
            if snapshot is None:
                continue  # The collector prints it at the right time.
            taken = found(snapshot)
            if taken is not None:
                return taken
        except (UnavailableError, UncertainAllocationError) as error:
            if seconds is None or not error.passing:
                raise
            tell_trouble(error)
        else:
            tell(snapshot)
            seen = True
            interval.after(_outline(snapshot))
            sampler.collector.interval = interval.seconds


def _outline(snapshot: Snapshot) -> Hashable:
    """The part of a snapshot that does not change while nothing happens."""
    return (
        tuple(
            (
                gpu.uuid,
                gpu.status,
                None if gpu.memory_used is None else gpu.memory_used // _STEP_BYTES,
            )
            for gpu in snapshot.gpus
        ),
        tuple(one.id for one in snapshot.processes),
    )
