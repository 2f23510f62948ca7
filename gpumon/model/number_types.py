"""The types of numbers and lists of the model, with bounds: a decoder refuses others as damage.

Within them programs may add numbers up and make dates of times; NaN is outside. What hardware can
report is narrower: see ``gpumon.model.bounds``.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from msgspec import Meta

T = TypeVar("T")

_MOST = 10**18
TIMES = (-6e10, 2e11)
"""The years 68 to 8307. Python's calendar ends with the year 9999."""

Count = Annotated[int, Meta(ge=0, le=_MOST)]
"""A number that is never negative, such as a PID, an index or a size."""
Integer = Annotated[int, Meta(ge=-_MOST, le=_MOST)]
Real = Annotated[float, Meta(ge=-_MOST, le=_MOST)]
Time = Annotated[float, Meta(ge=TIMES[0], le=TIMES[1])]
"""Seconds since the epoch."""
Few = Annotated[tuple[T, ...], Meta(max_length=2**8)]
"""A list of things of which no machine has many, and which take more memory than bytes."""
