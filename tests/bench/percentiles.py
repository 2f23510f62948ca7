"""Percentiles, in a module of its own: not every bench needs what draws a screen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that this share of the values, 0 to 1, does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
