"""Charts of the GPUs' curves in a terminal, drawn by plotext."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import plotext

from gpumon.text.formatting import counted, fit, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.report.curves import GpuCurves

_LEAST_WIDTH = 60
"""Minimum width of a chart in cells, if two are side by side."""
_LEAST_HEIGHT, _MOST_HEIGHT = 9, 18
_AXIS_CELLS = 6
"""Cells of a chart beside its curves."""
_MOST_CHARTS = 64
"""A damaged log may name any number of GPUs."""
_SERIES = (
    ("utilisation %", "braille", "braille", "green+"),
    ("memory %", "braille", "·", "blue+"),
)
"""The label of each curve, its marker with colour and without, and its colour."""
_SAMPLES = {"braille": "⣀⡠⠊", "·": "···"}
_STEPS = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0 * one for one in (1, 2, 5, 10, 15, 30)),
    *(3600.0 * one for one in (1, 2, 3, 6, 12, 24)),
)
"""Possible seconds between two ticks of the time axis."""
_SECONDS, _MINUTES, _DAYS = "%H:%M:%S", "%H:%M", "%d %b %H:%M"
_DAY = 86400.0
"""Up to this length the times of an axis are those of one day."""
_LEAST_SECONDS = 1.0
"""Minimum length of the time axis."""


def draw(gpus: Sequence[GpuCurves], width: int, height: int, *, colour: bool) -> str:
    """One chart per GPU: utilisation and memory, all over the same time.

    Args:
        gpus: The GPUs to draw, in order.
        width: Available cells.
        height: Available lines; charts that would be too low to read take more.
        colour: Whether the two curves differ by colour; else they differ by their markers.
    """
    if not gpus:
        return ""
    left_out, gpus = len(gpus) - _MOST_CHARTS, gpus[:_MOST_CHARTS]
    across = max(1, min(len(gpus), width // _LEAST_WIDTH))
    down = -(-len(gpus) // across)
    each = max(_LEAST_HEIGHT, min(_MOST_HEIGHT, (height - 1) // down))
    span = _span(gpus)
    charts = [_chart(gpu, width // across, each, span, colour=colour) for gpu in gpus]
    lines = [_legend(colour=colour)]
    for first in range(0, len(charts), across):
        beside = charts[first : first + across]
        lines += ["".join(parts).rstrip() for parts in zip(*beside, strict=True)]
    if left_out > 0:
        lines.append(f"{counted(left_out, 'more GPU')} not drawn.")
    return "".join(f"{line}\n" for line in lines)


def _legend(*, colour: bool) -> str:
    parts = []
    for label, marker, plain, shade in _SERIES:
        sample = _SAMPLES[marker if colour else plain]
        parts.append(f"{plotext.colorize(sample, shade) if colour else sample} {label}")
    return "   ".join(parts)


def _span(gpus: Sequence[GpuCurves]) -> tuple[float, float]:
    """The time range of all curves; never empty, because plotext divides by its length."""
    ends = [end for gpu in gpus for curve in (gpu.utilization, gpu.memory) for end in curve.ends]
    began = min(ends, default=0.0)
    return began, max((*ends, began + _LEAST_SECONDS))


def _chart(
    gpu: GpuCurves, width: int, height: int, span: tuple[float, float], *, colour: bool
) -> list[str]:
    """The lines of one GPU's chart, each as wide as the chart."""
    plotext.clear_figure()
    plotext.theme("clear")
    # Otherwise it is no wider than the terminal that plotext finds, and its ticks stand closer.
    plotext.limit_size(False, False)
    plotext.plot_size(width, height)
    plotext.title(fit(_title(gpu), width - 8).rstrip())
    # Without any point plotext draws no axes.
    plotext.scatter([span[0]], [0], marker=" ")
    curves = zip((gpu.utilization, gpu.memory), _SERIES, strict=True)
    for curve, (_, marker, plain, shade) in curves:
        for run in curve.runs(gpu.patience):
            # plotext allocates every cell that a line crosses, even far outside the chart.
            times = [time for time, _ in run]
            percents = [min(100.0, max(0.0, percent)) for _, percent in run]
            plotext.plot(times, percents, marker=marker if colour else plain, color=shade)
    plotext.ylim(0, 100)
    plotext.yticks([0, 50, 100])
    plotext.xlim(*span)
    # Without any value there is no time either.
    ticks = _ticks(span, width) if span[0] else []
    plotext.xticks([time for time, _ in ticks], [label for _, label in ticks])
    drawn: str = plotext.build()
    return (drawn if colour else plotext.uncolorize(drawn)).splitlines()


def _title(gpu: GpuCurves) -> str:
    host = "" if gpu.host is None else f"{gpu.host}  "
    name = "" if gpu.name is None else f"  {gpu.name}"
    known = any(gpu.utilization.ends) or any(gpu.memory.ends)
    index = "?" if gpu.index is None else gpu.index
    return printable(f"{host}GPU {index}{name}{'' if known else ': no values'}")


def _ticks(span: tuple[float, float], width: int) -> list[tuple[float, str]]:
    """Round local times along the axis, as many as fit."""
    began, ended = span
    # plotext inserts labels in the order of a set, which differs in each process, and moves a label
    # that has others within its own width on either side, or leaves it out.
    most = {
        form: max(1.0, (width - _AXIS_CELLS) / (2 * len(f"{datetime.fromtimestamp(began):{form}}")))
        for form in (_SECONDS, _MINUTES, _DAYS)
    }
    coarse = _MINUTES if ended - began <= _DAY else _DAYS
    forms = {step: _SECONDS if step < 60 else coarse for step in _STEPS}
    fitting = (step for step in _STEPS if (ended - began) / step <= most[forms[step]])
    step = next(fitting, _STEPS[-1])
    while (ended - began) / step > most[coarse]:
        step *= 2
    form = forms.get(step, coarse)
    # Whole hours and days in local time.
    offset = datetime.fromtimestamp(began).astimezone().utcoffset()
    shift = 0.0 if offset is None else offset.total_seconds()
    first = -int(-(began + shift) // step)
    times = [place * step - shift for place in range(first, int((ended + shift) // step) + 1)]
    return [(time, f"{datetime.fromtimestamp(time):{form}}") for time in times]
