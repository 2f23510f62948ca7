"""How often the backends read, and for how long a value is good."""

from __future__ import annotations

EVERY_SECOND = 0.95
"""A second, less the time that a tick may come early."""

PERIOD = 2.0
"""Seconds between two readings of a slow value, and between two looks for added GPUs."""

RETRY_SECONDS = 5.0
"""Seconds after which a driver that did not respond, or a GPU that could not be opened or was lost,
is retried."""

KEPT_SECONDS = 10.0
"""Seconds for which the last value is kept while reading it fails for a passing reason."""

SHARE = 0.05
"""The share of time that the process lists may take, and expensive queries together."""

GOLDEN = 0.6180339887498949
"""Multiples of this spread evenly over a period, whatever their number."""

_LONGEST_PAUSE = 4.0
"""Findings use lists of the last five seconds, so slow lists are read before that, too."""


def pause_after_lists(spent: float) -> float:
    """Seconds until process lists are due again.

    Args:
        spent: Seconds that reading them took: lists that take long, as on some laptops, are read
            less often.
    """
    return min(max(EVERY_SECOND, spent / SHARE), _LONGEST_PAUSE)
