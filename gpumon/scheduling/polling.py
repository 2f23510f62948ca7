"""Waits until something holds for the cards: looks again and again, less often while it is calm."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from gpumon.model.snapshot import Snapshot
    from gpumon.scheduling.lookout import CardSampler

QUICK_SECONDS = 0.5
"""Between two looks at first, and after something has changed."""
SLOW_SECONDS = 2.0
"""... and once nothing has for a while. A card that becomes free is noticed within this."""
_SLOWER = 1.25
_STEP_BYTES = 256 * 2**20

_T = TypeVar("_T")


def wait_for(
    lookout: CardSampler,
    found: Callable[[Snapshot], _T | None],
    tell: Callable[[Snapshot], None],
    seconds: float | None = None,
    slowest: float = SLOW_SECONDS,
) -> _T | None:
    """Look until something is found.

    Args:
        lookout: Looks at the cards.
        found: What is looked for, in a look at the cards; ``None`` while it is not there.
        tell: Told of each look that was in vain.
        seconds: How long at most; ``None`` is for ever.
        slowest: Seconds between two looks, at most.

    Returns:
        ``None`` when the time is over.

    Raises:
        SourceError: There is nothing to look at, or the driver does not answer.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    snapshot: Snapshot | None = lookout.look()
    before: Hashable = None
    pace = QUICK_SECONDS
    while True:
        if snapshot is not None:
            taken = found(snapshot)
            if taken is not None:
                return taken
            tell(snapshot)
            now = _outline(snapshot)
            pace = min(pace * _SLOWER, slowest) if now == before else QUICK_SECONDS
            before = now
            lookout.interval = pace
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return None
        # Where no sample comes the collector says so in its own time; somebody may have ended too.
        snapshot = lookout.next(pace if left is None else min(pace, left))


def _outline(snapshot: Snapshot) -> Hashable:
    """What does not change while all is calm."""
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
