"""Values as cells of a CSV file, in nvidia-smi's words and units."""

from __future__ import annotations

import csv
import io
import math
from datetime import datetime
from typing import TYPE_CHECKING

from gpumon.model.metrics import Unit
from gpumon.text.formatting import spreadsheet_safe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows of cells as lines."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def csv_heading(name: str, unit: Unit) -> str:
    """A header as nvidia-smi writes it: with the unit, if there is one."""
    return f"{name} [{unit.csv}]" if unit.csv else name


def iso_time(time: float | None) -> str:
    """A local time in ISO 8601, with its offset from UTC; empty if unknown."""
    if time is None:
        return ""
    return datetime.fromtimestamp(time).astimezone().isoformat(timespec="milliseconds")


def csv_cell(value: object, unit: Unit, number: Callable[[float, Unit], str]) -> str:
    """The cell of a value; empty if it is unknown.

    Args:
        value: The value, in the model's unit.
        unit: Its unit.
        number: Formats a finite number: how many digits it gets depends on the file.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        yes, no = ("Enabled", "Disabled") if unit is Unit.ENABLED else ("Yes", "No")
        return yes if value else no
    if not isinstance(value, (int, float)):
        return spreadsheet_safe(str(value))
    if unit is Unit.TIME:
        return iso_time(value)
    if not math.isfinite(value):
        return ""
    if unit is Unit.PSTATE:
        return f"P{value:g}"
    if unit is Unit.BITS:
        return f"0x{int(value):016X}"
    return number(value, unit)
