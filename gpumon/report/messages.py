"""Text that tables, notes and job summaries share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.text.formatting import UNKNOWN, duration, printable

if TYPE_CHECKING:
    from gpumon.report.figures import Report, ReportRow

KNOWN = 0.995
"""From this part of the time on, a figure counts as known for all of it."""
PARTLY = "*"
"""Stands behind one that is known for less."""


_SMALL = 0.1 * 3.6e6
"""Joules below which energy is told in watt hours, where that is so of every line."""


class EnergyUnit(NamedTuple):
    """A unit of energy.

    Attributes:
        name: Its symbol.
        joules: Its size in joules.
        digits: Decimal places.
    """

    name: str
    joules: float
    digits: int

    def told(self, joules: float) -> str:
        """An amount in this unit, without the symbol."""
        return f"{joules / self.joules:.{self.digits}f}"


KILOWATT_HOURS = EnergyUnit("kWh", 3.6e6, 3)


def energy_unit(report: Report) -> EnergyUnit:
    """One unit for a whole report, in which small amounts do not round to 0."""
    return unit_of(max(report.total.energy.joules, report.alone))


def unit_of(joules: float) -> EnergyUnit:
    """The unit in which this energy, and smaller amounts beside it, do not round to 0."""
    if joules >= _SMALL:
        return KILOWATT_HOURS
    return EnergyUnit("Wh", 3.6e3, 1 if joules >= _SMALL / 10 else 2)


SHORT = 600.0
"""Seconds below which seconds matter in a length of time, and in the times of a span."""


def length(seconds: float) -> str:
    """A duration that may be a sum: ``42s``, ``1m36s``, ``22m``, ``57h12m``; no days."""
    whole = round(seconds)
    if 60 <= whole < SHORT:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 3600:
        return duration(whole)
    return f"{whole // 3600}h{whole // 60 % 60:02d}m"


def card_name(line: ReportRow) -> str:
    """The index of a row's GPU, or its UUID without one; safe to print."""
    if line.card is None:
        return ""
    index = line.card.index
    return printable(line.card.uuid or UNKNOWN) if index is None else str(index)
