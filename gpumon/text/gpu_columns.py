"""The columns that can be added to the list of GPUs: the metrics that have a heading for it."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from gpumon.model.metrics import Unit
from gpumon.model.snapshot import GPU_METRICS
from gpumon.text.formatting import UNKNOWN, memory_size, number, temperature
from gpumon.text.table import Column

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.snapshot import Gpu

_LEAST, _GAP = 4, 2
"""Cells of a percentage, and of the gap before a column, which its width has too."""


def _count(value: float) -> str:
    """A count in at most four characters: ``9999``, ``10k``, ``2M``."""
    if value < 10_000:
        return f"{value:.0f}"
    exponent = min(4, math.floor(math.log10(value) / 3))
    return f"{value // 1000**exponent:.0f}{' kMGT'[exponent]}"


_TEXT: dict[Unit, Callable[[Any], str]] = {
    Unit.NUMBER: _count,
    Unit.ENABLED: lambda value: "on" if value else "off",
    Unit.YES_NO: lambda value: "yes" if value else "no",
    Unit.PSTATE: "P{}".format,
    Unit.BYTES: lambda value: memory_size(int(value)),
    Unit.PERCENT: "{}%".format,
    Unit.SHARE: "{:.0f}%".format,
    Unit.CELSIUS: temperature,
    Unit.WATTS: "{:.0f}W".format,
    Unit.MEGAHERTZ: number,
    Unit.RPM: number,
    Unit.BYTES_PER_SECOND: lambda value: memory_size(int(value)),
}
"""The text of the units whose values fit into such a column."""


def _column(field: str, label: str, about: str, unit: Unit) -> Column[Gpu]:
    value, text = attrgetter(field), _TEXT[unit]

    def cell(gpu: Gpu) -> str:
        known = value(gpu)
        return UNKNOWN if known is None else text(known)

    return Column(field, label, _GAP + max(_LEAST, len(label)), about, value, cell)


GPU_COLUMNS = tuple(
    _column(metric.field, metric.column, metric.about, metric.unit)
    for metric in GPU_METRICS
    if metric.column is not None
)
