"""Text that tables, notes and job summaries share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.text.formatting import UNKNOWN, duration, printable

if TYPE_CHECKING:
    from gpumon.report.figures import ReportRow, UsageReport

KNOWN = 0.995
"""Share of the time from which on a figure counts as fully known."""
PARTLY = "*"
"""Marks a figure that is known for less."""


_SMALL = 0.1 * 3.6e6
"""Energy is shown in watt hours if every row has fewer joules than this."""


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

    def format(self, joules: float) -> str:
        """An amount in this unit, without the symbol."""
        return f"{joules / self.joules:.{self.digits}f}"


KILOWATT_HOURS = EnergyUnit("kWh", 3.6e6, 3)


def energy_unit(report: UsageReport) -> EnergyUnit:
    """One unit for a whole report, in which small amounts do not round to 0."""
    return unit_of(max(report.total.energy.joules, report.alone))


def unit_of(joules: float) -> EnergyUnit:
    """The unit in which this energy, and smaller amounts beside it, do not round to 0."""
    if joules >= _SMALL:
        return KILOWATT_HOURS
    return EnergyUnit("Wh", 3.6e3, 1 if joules >= _SMALL / 10 else 2)


SHORT = 600.0
"""Durations and time spans below this many seconds are shown to the second."""


def length(seconds: float) -> str:
    """A duration that may be a sum: ``42s``, ``1m36s``, ``22m``, ``57h12m``; no days."""
    whole = round(seconds)
    if 60 <= whole < SHORT:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 3600:
        return duration(whole)
    return f"{whole // 3600}h{whole // 60 % 60:02d}m"


def gpu_name(line: ReportRow) -> str:
    """The index of a row's GPU, or what else the log identifies it by; safe to print."""
    gpu = line.gpu
    if gpu is None:
        return ""
    return printable(gpu.hardware_id or UNKNOWN) if gpu.index is None else str(gpu.index)
