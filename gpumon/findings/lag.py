"""Which machines of a job lag behind the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHARE, _POINTS = 0.5, 20.0
"""A machine lags whose load is below this part of the job's median, and by so many percent: the
others of a job that works in step wait for it."""


def usual_load(loads: Iterable[float]) -> float:
    """The median of the load of a job's machines, in percent; 0 of a single one.

    Of two machines it is the larger one, so that one of them can lag.
    """
    known = sorted(loads)
    return known[len(known) // 2] if len(known) > 1 else 0.0


def lags(load: float, usual: float) -> bool:
    """Whether a machine with this load lags behind the others, see ``usual_load``."""
    return load < _SHARE * usual and usual - load >= _POINTS
