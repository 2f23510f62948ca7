"""Parses amounts as users type them: ``10G``, ``1h30m``, ``90%``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping


class QuantityError(ValueError):
    """The text is not an amount of this kind; the message says how to write one."""


class Measure(Struct, frozen=True):
    """A kind of amount."""

    # The size of each unit; the empty key if a unit is optional. Lower case here; input may have
    # either case.
    units: Mapping[str, float]
    advice: str  # How to write an amount.
    adds: bool = False  # Whether several add up: ``1h30m``.

    def read(self, text: str) -> tuple[float, float]:
        """An amount, and half a step of the last digit that was typed.

        The amount is infinite if it has too many digits for a number. A 0 needs no unit.

        Raises:
            QuantityError: The text is not an amount of this kind.
        """
        parts = _PART.findall(text)
        complete = "".join(number + unit for number, unit in parts) == text
        if not parts or not complete or (len(parts) > 1 and not self.adds):
            raise QuantityError(self.advice)
        amount = slack = 0.0
        for number, unit in parts:
            size = self.units.get(unit.lower()) if unit or len(parts) == 1 else None
            if size is None and (unit or float(number)):
                raise QuantityError(self.advice)
            amount += float(number) * (size or 1.0)
            slack = (size or 1.0) / 2 * 10.0 ** -len(number.partition(".")[2])
        return amount, slack


_PART = re.compile(r"(\d+\.?\d*|\.\d+)([a-z%]*)", re.IGNORECASE | re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

SIZE = Measure(
    {"b": 1}
    | {
        letter + tail: 1024**power
        for power, letter in enumerate("kmgt", 1)
        for tail in ("", "b", "ib")
    },
    "write a number with K, M, G or T, such as 10G",
)
"""Bytes; K, M, G and T are powers of 1024, whether or not ``B`` or ``iB`` follows."""

COUNT = Measure({"": 1}, "write a number, such as 2")

PERCENT = Measure({"": 1, "%": 1}, "write a number of percent, such as 90")

DURATION = Measure(_SECONDS, "write a time such as 90s, 1h30m or 2d", adds=True)
"""Seconds, where a number without a unit could mean anything."""

TIMESPAN = Measure(
    _SECONDS | {"": 1}, "write seconds, or a time such as 30s, 15m, 1h30m or 2d", adds=True
)
"""Seconds, where a number alone is seconds too, as in ``sleep``."""
