"""Waits until something holds for the cards: looks again and again, less often while it is calm.

A driver that does not answer, or is gone for a while, is waited for too.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, TypeVar

from gpumon.choosing.allocation import UncertainAllocationError
from gpumon.choosing.lookout import QUICK_PATIENCE, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from gpumon.choosing.lookout import Lookout
    from gpumon.model import Snapshot

QUICK_SECONDS = 0.5
"""Between two looks at first, and after something has changed."""
SLOW_SECONDS = 2.0
"""... and once nothing has for a while. A card that becomes free is noticed within this."""
_SLOWER = 1.25
_STEP_BYTES = 256 * 2**20

_T = TypeVar("_T")


def wait_for(
    lookout: Lookout,
    found: Callable[[Snapshot], _T | None],
    tell: Callable[[Snapshot], None],
    tell_trouble: Callable[[str], None],
    seconds: float | None = None,
) -> _T | None:
    """Look until something is found.

    Args:
        lookout: Looks at the cards.
        found: What is looked for, in a look at the cards; ``None`` while it is not there.
        tell: Told of each look that was in vain.
        tell_trouble: Told in a sentence why there was no look.
        seconds: How long at most, may be infinite; ``None``: trouble is not waited for either.

    Returns:
        ``None`` when the time is over.

    Raises:
        SourceError: There is nothing to look at.
    """
    deadline = time.monotonic() + (math.inf if seconds is None else seconds)
    first_by = max(deadline, time.monotonic() + QUICK_PATIENCE)
    before: Hashable = None
    pace = QUICK_SECONDS
    if seconds is not None:
        lookout.interval = pace
    while True:
        left = (first_by if before is None else deadline) - time.monotonic()
        if left <= 0:
            return None
        try:
            first = seconds is None and before is None
            snapshot = lookout.look() if first else lookout.next(min(pace, left))
            if snapshot is None:
                continue  # the collector says so in its own time
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
            lookout.interval = pace


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
