"""What energy costs, and the carbon dioxide that it causes."""

from __future__ import annotations

import math

from msgspec import Struct

_MOST_DIGITS = 6


class Price(Struct, frozen=True):
    """What a kilowatt hour costs and causes. ``None`` is unknown."""

    per_kwh: float | None = None  # in ``currency``
    currency: str = ""  # its symbol or code; empty if it is not named
    co2_grams: float | None = None  # carbon dioxide for a kilowatt hour

    def cost(self, kilowatt_hours: float | None) -> float | None:
        """The cost of so much energy, in ``currency``."""
        return _product(self.per_kwh, kilowatt_hours)

    def co2(self, kilowatt_hours: float | None) -> float | None:
        """The kilograms of carbon dioxide that so much energy causes."""
        grams = _product(self.co2_grams, kilowatt_hours)
        return None if grams is None else grams / 1000

    @property
    def note(self) -> str:
        """How the figures are made, in a sentence; empty without any."""
        parts = []
        if self.per_kwh is not None:
            unit = f"{self.currency}/kWh" if self.currency else "per kWh"
            parts.append(f"COST is energy times {self.per_kwh:.10g} {unit}")
        if self.co2_grams is not None:
            parts.append(f"CO2-kg is energy times {self.co2_grams:.10g} g/kWh")
        return f"{'; '.join(parts)}." if parts else ""


NO_PRICE = Price()


def _product(each: float | None, amount: float | None) -> float | None:
    return None if each is None or amount is None else each * amount


def digits_for(largest: float | None) -> int:
    """Decimal places with which a column does not round to 0: 2, more below 1."""
    if largest is None or largest <= 0:
        return 2
    return min(_MOST_DIGITS, max(2, 2 - math.floor(math.log10(largest))))
