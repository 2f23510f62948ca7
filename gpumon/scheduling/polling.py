"""Polls the GPUs until a condition holds, less often while nothing changes.

It also waits for a driver that does not respond or is temporarily gone.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, TypeVar

from gpumon.scheduling.allocation import UncertainAllocationError
from gpumon.scheduling.gpu_sampler import QUICK_PATIENCE, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from gpumon.model.snapshot import Snapshot
    from gpumon.scheduling.gpu_sampler import GpuSampler

QUICK_SECONDS = 0.5
"""Seconds between two samples at first, and after a change."""
SLOW_SECONDS = 2.0
"""Maximum seconds between two samples: a GPU that becomes free is noticed within this."""
_SLOWER = 1.25
_STEP_BYTES = 256 * 2**20

_T = TypeVar("_T")


def wait_for(
    sampler: GpuSampler,
    found: Callable[[Snapshot], _T | None],
    tell: Callable[[Snapshot], None],
    tell_trouble: Callable[[str], None],
    seconds: float | None = None,
) -> _T | None:
    """Sample until a condition holds.

    Args:
        sampler: Samples the GPUs.
        found: Returns the result from a snapshot; ``None`` while the condition does not hold.
        tell: Called for each snapshot without a result.
        tell_trouble: Called with a sentence if there was no snapshot.
        seconds: Maximum time, may be infinite; ``None`` does not wait for a driver either.

    Returns:
        The result; ``None`` on timeout.

    Raises:
        SourceError: There are no GPUs.
    """
    deadline = time.monotonic() + (math.inf if seconds is None else seconds)
    first_by = max(deadline, time.monotonic() + QUICK_PATIENCE)
    before: Hashable = None
    pace = QUICK_SECONDS
    if seconds is not None:
        sampler.interval = pace
    while True:
        left = (first_by if before is None else deadline) - time.monotonic()
        if left <= 0:
            return None
        try:
            first = seconds is None and before is None
            snapshot = sampler.look() if first else sampler.next(min(pace, left))
            if snapshot is None:
                continue  # The collector prints it at the right time.
            taken = found(snapshot)
            if taken is not None:
                return taken
        except (UnavailableError, UncertainAllocationError) as error:
            if seconds is None or not error.passing:
                raise
            tell_trouble(error.sentence)
        else:
            tell(snapshot)
            now = _outline(snapshot)
            pace = min(pace * _SLOWER, SLOW_SECONDS) if now == before else QUICK_SECONDS
            before = now
            sampler.interval = pace


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
