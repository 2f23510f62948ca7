"""The values over time that are drawn: of GPUs, processes, users and the host.

A series is declared once: lists, tiles, panels, pages and the host's line draw it. Every metric of
a GPU whose values are kept (``Metric.charted``) has a chart on the GPU's page.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gpumon.model.metrics import Unit
from gpumon.model.snapshot import GPU_METRIC, GPU_METRICS
from gpumon.text.cells import bar_style
from gpumon.text.formatting import (
    UNKNOWN,
    duration,
    gib,
    gibibytes,
    per_second,
    temperature,
)
from gpumon.text.units import degree, degrees, memory_units
from gpumon.ui.view.gpu_text import rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from gpumon.config.keymap import ChartWindow
    from gpumon.findings.groups import UserUse
    from gpumon.model.metrics import Metric
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu, Host
    from gpumon.recording.history import History, ViewedSeries

    Points = Sequence[tuple[float, float]]

SubjectT = TypeVar("SubjectT")

AXIS_WIDTH = 6
"""Width of the axis of values of a chart."""
FIRST_SIGN, SECOND_SIGN = "⠒", "─"
"""How the curves of a chart look, beside the names of their series."""
_UPWARD, _DOWNWARD = "graph.memory", "graph.util"
"""The styles of two values that are drawn in opposite directions."""
_SMALL_HEADROOM = 1.25
"""The top of a small chart as a multiple of its peak, so that a constant value looks like one."""
_LEAST_SECONDS = 20.0
"""With less time than this, no direction is given."""
_STILL_SHARE, _STILL_BYTES = 0.001, 8 * 2**20
"""A smaller change, as a share of the peak or in bytes, counts as none."""
_STILL_PERCENT = 20.0
_PART_SECONDS, _MOST_PARTS = 5.0, 10
"""The newest cell of a chart is drawn anew after so many seconds, and at most so many times."""
NO_VALUES = "no values in this time"
ALL_ZERO = "0 throughout"

_SPANS = (
    *(60.0 * minutes for minutes in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50)),
    *(3600.0 * hours for hours in (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 18, 21)),
)
_DAY = 86400.0
"""The history of a GPU is no longer."""


# -- windows ---------------------------------------------------------------------------------------


def window_seconds(window: ChartWindow, history: History, now: float | None = None) -> float:
    """The length of a window up to now; the window of everything is rounded up."""
    if window.seconds is not None:
        return window.seconds
    now = history.now if now is None else now
    seen = 0.0 if history.started is None else now - history.started
    return next((span for span in _SPANS if span >= seen), _DAY)


def window_title(window: ChartWindow, history: History) -> str:
    """The heading of the charts."""
    if window.seconds is not None or history.started is None:
        return window.title
    seen = history.now - history.started
    return f"{window.title}: {duration(seen)}" if seen <= _DAY else "The last 24 hours"


class ChartEnd(NamedTuple):
    """Where a chart ends; a chart is drawn again when this changes."""

    time: float
    is_complete: bool  # Whether its newest value does not change any more.
    # The time up to which values are shown, if the newest cell is not over.
    seen: float | None = None


def end_of_second(second: int) -> ChartEnd:
    """The end of a second: the start would leave out its newest sample."""
    return ChartEnd(second + 0.999, is_complete=False)


def value_count(width: int) -> int:
    """The number of values in a chart: two per cell."""
    return 2 * max(1, width - AXIS_WIDTH)


def end_of_chart(now: float, seconds: float, count: int) -> ChartEnd:
    """Where a chart ends that has so many values, two in a cell.

    It ends with the second, or with a whole cell if that is longer, so that no value changes its
    cell. A short cell is drawn once, when it is complete. A long one is drawn while it passes,
    because its values would be minutes late: first from a few samples, a few times in all.
    """
    cell = 2 * seconds / count
    if cell <= 1:
        return end_of_second(int(now))
    parts = min(_MOST_PARTS, math.ceil(cell / _PART_SECONDS))
    if parts == 1:
        return ChartEnd((math.floor(now / cell) - 0.001) * cell, is_complete=True)
    step = cell / parts
    # The seconds up to then are over, so that a chart that is drawn later is the same.
    seen = math.floor(math.floor(now / step) * step) - 0.001
    return ChartEnd((math.floor(seen / cell) + 0.999) * cell, is_complete=True, seen=seen)


def highest(values: Iterable[float | None]) -> float | None:
    """The highest known value."""
    return max((value for value in values if value is not None), default=None)


# -- trends ----------------------------------------------------------------------------------------

# A rate is given only if the value keeps moving in one direction: memory that was allocated at once
# three minutes ago does not grow, although a line through all points rises.


def size_text(size: float) -> str:
    """Bytes in GiB, or in MiB if less than 1 GiB: ``43.9 GiB``, ``380 MiB``."""
    units = memory_units()
    mega = units.kilo**2
    if size >= mega * units.kilo:
        return f"{size / (mega * units.kilo):.1f} {units.giga}"
    return f"{size / mega:.0f} {units.mega}" if size >= mega else f"{size / mega:.1f} {units.mega}"


def bytes_trend(points: Points, peak: float | None, slope: float | None) -> str:
    """``peak 43.9 GiB, grows 1.2 GiB/h``, ``peak 43.9 GiB, steady``, ``peak 44 GiB, +3 GiB in 2m``.

    Args:
        points: Time and bytes, oldest first.
        peak: The maximum of all samples.
        slope: Bytes per second, of a line through all points.
    """
    if not points or peak is None:
        return NO_VALUES
    trend = _direction(points, max(_STILL_SHARE * peak, _STILL_BYTES))
    if trend == "grows" and slope is not None and slope > 0:
        trend = f"grows {_slope_text(slope)}"
    elif trend == "falls" and slope is not None and slope < 0:
        trend = f"falls {_slope_text(-slope)}"
    elif trend == "moved":
        change = points[-1][1] - points[0][1]
        seconds = duration(points[-1][0] - points[0][0])
        trend = f"{'+' if change > 0 else '−'}{size_text(abs(change))} in {seconds}"
    return f"peak {size_text(peak)}, {trend}" if trend else f"peak {size_text(peak)}"


def percent_trend(points: Points, peak: float | None, slope: float | None) -> str:
    """``peak 98 %, mean 41 %``, with the change per minute if it keeps one direction.

    Args:
        points: Time and percent, oldest first.
        peak: The maximum of all samples.
        slope: Percent per second, of a line through all points.
    """
    if not points or peak is None:
        return NO_VALUES
    mean = sum(value for _, value in points) / len(points)
    text = f"peak {peak:.0f} %, mean {mean:.0f} %"
    trend = _direction(points, _STILL_PERCENT)
    if trend not in ("grows", "falls") or not slope or (slope > 0) != (trend == "grows"):
        return text
    return f"{text}, {'+' if slope > 0 else '−'}{abs(slope) * 60:.0f} a minute"


def rate_trend(points: Points, peak: float | None, _: float | None) -> str:
    """``peak 840, mean 540``.

    Args:
        points: Time and value, oldest first.
        peak: The maximum of all samples.
    """
    if not points or peak is None:
        return NO_VALUES
    mean = sum(value for _, value in points) / len(points)
    return f"peak {per_second(peak)}, mean {per_second(mean)}"


def _direction(points: Points, still: float) -> str:
    """``steady``, ``grows``, ``falls`` or ``moved``; empty if the time is too short.

    It compares the means of three equal parts of the time: a value grows or falls only if both
    steps between them have the same direction.
    """
    first, last = points[0][0], points[-1][0]
    third = (last - first) / 3
    if last - first < _LEAST_SECONDS:
        return ""
    thirds: list[list[float]] = [[], [], []]
    for at, value in points:
        thirds[min(2, int((at - first) / third))].append(value)
    if not all(thirds):
        return ""
    old, middle, new = (sum(values) / len(values) for values in thirds)
    before, lately = middle - old, new - middle
    if abs(lately) < still and abs(before) < still:
        return "steady" if abs(new - old) < still else ("grows" if new > old else "falls")
    if abs(lately) < still:
        return "steady"
    if abs(before) >= still and (before > 0) == (lately > 0):
        return "grows" if lately > 0 else "falls"
    return "moved"


def _slope_text(slope: float) -> str:
    """Bytes per hour, minute or second: the first in which the number is not too large."""
    for seconds, unit in ((3600, "h"), (60, "min")):
        if slope * seconds < 100 * 2**30:
            return f"{size_text(slope * seconds)}/{unit}"
    return f"{size_text(slope)}/s"


# -- quantities ------------------------------------------------------------------------------------


def _whole_number(value: float) -> str:
    return f"{value:.0f}"


_LEAST_WIDTH = 3
"""Of a value in a list, so that what follows stays in its place."""


class Quantity(Struct, frozen=True):
    """How values of a kind are written and scaled; they are in the model's unit."""

    text: Callable[[float], str] = _whole_number  # A value, without ``unit``.
    # What follows it on a page, `` GiB``, and in a list, ``G``; ``str()`` is empty.
    unit: Callable[[], str] = str
    short_unit: Callable[[], str] = str
    axis: Callable[[float], str] = _whole_number  # A converted value beside an axis.
    convert: Callable[[float], float] = float  # To the unit of the axis.
    step: float | None = 1.0  # The unit of round values on an axis; ``None`` is bytes.
    steps: Sequence[float] = ()  # Between labels of an axis, if not the usual round ones.
    trend: Callable[[Points, float | None, float | None], str] = percent_trend  # In words.


def _gibibytes_label(value: float) -> str:
    return f"{value:.{0 if value >= 1000 else 1}f}".removesuffix(".0") + "G"


PERCENT = Quantity(
    unit=lambda: " %", short_unit=lambda: "%", axis="{:.0f}%".format, steps=(25.0, 50.0)
)
_MEMORY = Quantity(
    text=lambda size: gibibytes(int(size)),
    unit=lambda: f" {gib()}",
    short_unit=lambda: "G",
    axis=_gibibytes_label,
    convert=lambda size: size / memory_units().kilo ** 3,
    trend=bytes_trend,
)
_QUANTITIES = {
    Unit.PERCENT: PERCENT,
    Unit.SHARE: PERCENT,
    Unit.BYTES: _MEMORY,
    Unit.WATTS: Quantity(unit=lambda: " W", short_unit=lambda: "W", axis="{:.0f}W".format),
    Unit.CELSIUS: Quantity(
        text=temperature,
        unit=lambda: f" {degree()}",
        short_unit=degree,
        axis="{:.0f}°".format,
        convert=degrees,
    ),
    Unit.MEGAHERTZ: Quantity(unit=lambda: " MHz"),
    Unit.RPM: Quantity(unit=lambda: " RPM"),
    Unit.BYTES_PER_SECOND: Quantity(
        text=rate,
        unit=lambda: " a second",
        axis=lambda value: rate(value).replace(".0", ""),
        step=None,
    ),
}
"""For a metric without one of these units, numbers are drawn as they are."""


# -- series ----------------------------------------------------------------------------------------


def _nothing(_: object) -> None:
    return None


class ChartSeries(Struct, Generic[SubjectT], frozen=True):
    """A value over time of a GPU, a process, a user or the host."""

    label: str  # On pages.
    fields: tuple[str, ...]  # In the history; of two the second is drawn downwards.
    quantity: Quantity
    styles: tuple[str, ...]  # Of each field.
    over_time: Callable[[History, SubjectT], ViewedSeries]
    read: Callable[[SubjectT, str], Any] = getattr  # The newest value of a field.
    whole: Callable[[SubjectT], float | None] = _nothing  # What it is a part of, or its limit.
    can_exceed: bool = False  # Whether ``whole`` is a limit that values may exceed.
    top: float | None = None  # Stands for ``whole`` where that is unknown.
    optional: bool = False  # Whether a chart without values is left out: few GPUs report it.
    name: str = ""  # In the configuration, and above the graphs of a GPU.
    short: str = ""  # Its name in a few cells.
    about: str = ""  # What it shows, in messages.

    @property
    def style(self) -> str:
        """The style of the first field."""
        return self.styles[0]

    def newest(self, subject: SubjectT) -> float | None:
        """The newest value of the first field."""
        value: float | None = self.read(subject, self.fields[0])
        return value

    def bounds(self, subject: SubjectT) -> tuple[float | None, float | None]:
        """The maximum of the axis, if it is known, and the limit that values may exceed."""
        if self.can_exceed:
            return None, self.whole(subject)
        return self.whole(subject) or self.top, None

    def text(self, subject: SubjectT) -> str:
        """The newest value without its unit."""
        value = self.newest(subject)
        return UNKNOWN if value is None else self.quantity.text(value)

    def texts(self, subject: SubjectT) -> tuple[str, str]:
        """The newest value in a constant width, and what follows it in a list; see ``rest``."""
        if self.newest(subject) is None:
            return UNKNOWN, ""
        return self.text(subject).rjust(self.text_width(subject)), self.rest(subject)

    def text_width(self, subject: SubjectT) -> int:
        """The width of the newest value in a list: that of its maximum, so that nothing moves."""
        whole = self.whole(subject)
        width = 0 if whole is None else len(self.quantity.text(whole))
        return max(_LEAST_WIDTH, width)

    def rest(self, subject: SubjectT, *, on_page: bool = False) -> str:
        """What follows a value: ``/700W``, on a page ``/700 W``."""
        unit = self.quantity.unit() if on_page else self.quantity.short_unit()
        whole = self.whole(subject)
        return unit if whole is None else f"/{self.quantity.text(whole)}{unit}"

    def share(self, subject: SubjectT) -> float | None:
        """The newest value as a share of the maximum or the limit: 0 if its text reads 0."""
        value, whole = self.newest(subject), self.whole(subject) or self.top
        if value is None or not whole:
            return None
        return 0.0 if self.quantity.text(value) == self.quantity.text(0.0) else value / whole

    def bar_style(self, share: float | None) -> str:
        """The style of a bar that is so full."""
        style = self.style.replace("graph.", "bar.")
        return style if style == "bar.other" else bar_style(style, share)

    def values(
        self,
        history: History,
        subject: SubjectT,
        field: str,
        seconds: float,
        count: int,
        end: ChartEnd,
        *,
        peak: bool = False,
    ) -> list[float | None]:
        """The values of a chart up to its end; see ``ViewedSeries.buckets``."""
        series, now = self.over_time(history, subject), end.time if end.seen is None else end.seen
        values = series.buckets(field, seconds, count, now, peak=peak, complete=end.is_complete)
        width = seconds / count
        gaps = math.floor(end.time / width) - math.floor(now / width)
        return [*values[gaps:], *[None] * gaps] if gaps else values

    def shares(
        self, history: History, subject: SubjectT, seconds: float, count: int, end: ChartEnd
    ) -> list[float | None]:
        """The last ``seconds`` as ``count`` shares of the upper edge; ``None`` is unknown."""
        top = self.whole(subject) or self.top
        if not top:
            return [None] * count
        values = self.values(history, subject, self.fields[0], seconds, count, end)
        return [None if value is None else value / top for value in values]

    def small_top(self, peak: float | None) -> float:
        """The upper edge of a small chart with this peak."""
        return (peak or 1) * _SMALL_HEADROOM if self.top is None else max(self.top, peak or 0.0)


def _of_gpu(history: History, gpu: Gpu) -> ViewedSeries:
    return history.gpu_series(gpu.uuid)


def _gpu_series(
    label: str,
    *fields: str,
    style: str = "graph.other",
    whole: str = "",
    can_exceed: bool = False,
    top: float | None = None,
    optional: bool = False,
    name: str = "",
    short: str = "",
    about: str = "",
) -> ChartSeries[Gpu]:
    """A series of one metric, or of two in opposite directions, in the metric's unit."""
    quantity = _QUANTITIES.get(GPU_METRIC[fields[0]].unit, Quantity())
    return ChartSeries(
        label,
        fields,
        quantity,
        (style,) if len(fields) == 1 else (_UPWARD, _DOWNWARD),
        _of_gpu,
        whole=attrgetter(whole) if whole else _nothing,
        can_exceed=can_exceed,
        top=100.0 if quantity is PERCENT else top,
        optional=optional,
        name=name,
        short=short,
        about=about,
    )


UTIL = _gpu_series(
    "utilisation",
    "utilization_gpu",
    style="graph.util",
    name="util",
    short="util",
    about="utilisation",
)
MEMORY = _gpu_series(
    "memory",
    "memory_used",
    style="graph.memory",
    whole="memory_total",
    name="memory",
    short="mem",
    about="memory, of the total",
)
POWER = _gpu_series(
    "power",
    "power_draw",
    whole="power_limit",
    can_exceed=True,
    name="power",
    short="power",
    about="power, against its cap",
)
_TEMPERATURE = _gpu_series(
    "temperature",
    "temperature_gpu",
    whole="temperature_slowdown",
    can_exceed=True,
    # Where the GPU does not report at which temperature it slows down.
    top=100.0,
    name="temperature",
    short="temp",
    about="temperature, against where it slows down",
)
MAIN_SERIES = (UTIL, MEMORY, POWER, _TEMPERATURE)
"""What nearly all GPUs report."""
_CLOCK = _gpu_series("SM clock", "clock_sm", whole="clock_sm_max")
PAGE_SERIES = (UTIL, _CLOCK, POWER, _TEMPERATURE)
"""The first charts of a GPU's page: why it is slow. Its memory stands above them, as an account."""
LOAD_AND_MEMORY = (UTIL, MEMORY)
"""What one chart shows as two lines, each as a share of its maximum."""
_LISTED = (
    *PAGE_SERIES,
    MEMORY,
    _gpu_series(
        "SMs active",
        "sm_active",
        style="graph.util",
        optional=True,
        name="sm",
        short="SMs",
        about="the SMs that have work",
    ),
    _gpu_series(
        "DRAM",
        "dram_active",
        style="graph.memory",
        optional=True,
        name="dram",
        short="DRAM",
        about="the traffic of GPU memory",
    ),
    _gpu_series("PCIe", "pcie_rx", "pcie_tx"),
    _gpu_series("NVLink", "nvlink_rx", "nvlink_tx"),
)


def charts_of(metrics: Iterable[Metric]) -> tuple[ChartSeries[Gpu], ...]:
    """The charts on the page of a GPU: those above, then one for each other charted metric."""
    listed = {field for series in _LISTED for field in series.fields}
    others = [metric for metric in metrics if metric.charted and metric.field not in listed]
    return *_LISTED, *map(_chart_of, others)


def _chart_of(metric: Metric) -> ChartSeries[Gpu]:
    whole = f"{metric.field}_max"
    return _gpu_series(
        metric.label, metric.field, whole=whole if whole in GPU_METRIC else "", optional=True
    )


GPU_SERIES = charts_of(GPU_METRICS)
"""The charts on the page of a GPU, the main ones first."""
SMALL_GRAPHS = (
    *MAIN_SERIES,
    *(series for series in GPU_SERIES if series.name and series not in MAIN_SERIES),
)
"""Those that the small graph of a GPU can show."""
SMALL_GRAPH = {series.name: series for series in SMALL_GRAPHS}
AUTO_GRAPH = "auto"
"""Stands for the series that says most at its size, until the user chooses another one."""


def small_graph(name: str, gpus: Iterable[Gpu]) -> ChartSeries[Gpu]:
    """What the small graph in a GPU's line shows.

    Power tells a full chip from a stuck or an almost empty one; a graph of utilisation would repeat
    the bar beside it.
    """
    if name != AUTO_GRAPH:
        return SMALL_GRAPH[name]
    return POWER if any(POWER.share(gpu) is not None for gpu in gpus) else UTIL


def large_graph(name: str) -> ChartSeries[Gpu]:
    """What a large graph of a GPU shows first."""
    return SMALL_GRAPH.get(name, UTIL)


def next_small_graph(name: str, gpus: Sequence[Gpu]) -> ChartSeries[Gpu]:
    """The next small graph of which these GPUs report something; after the last the first."""
    after = SMALL_GRAPHS.index(SMALL_GRAPH[name]) + 1
    return next(
        series
        for series in (*SMALL_GRAPHS[after:], *SMALL_GRAPHS[:after])
        if series in MAIN_SERIES or any(series.newest(gpu) is not None for gpu in gpus)
    )


def _of_process(history: History, process: GpuProcess) -> ViewedSeries:
    return history.process_series(process.id)


def _process_series(
    label: str, field: str, quantity: Quantity, style: str, top: float | None = None
) -> ChartSeries[GpuProcess]:
    return ChartSeries(label, (field,), quantity, (style,), _of_process, top=top)


_SIZE = replace(_MEMORY, text=size_text, unit=str)
PROCESS_SERIES = (
    _process_series("GPU memory", "memory_used", _SIZE, "graph.memory"),
    # Named as the maker of its GPUs names the load.
    _process_series("", "sm", PERCENT, "graph.util", 100.0),
    _process_series("CPU", "cpu_percent", PERCENT, "graph.util", 100.0),
    _process_series("host memory", "rss", _SIZE, "graph.memory"),
)


def _of_server(history: History, process: GpuProcess) -> ViewedSeries:
    return history.server_series(process.id)


def _server_series(label: str, field: str, style: str) -> ChartSeries[GpuProcess]:
    quantity = Quantity(text=per_second, trend=rate_trend)
    return ChartSeries(
        label, (field,), quantity, (style,), _of_server, lambda p, name: getattr(p.load, name, None)
    )


SERVER_SERIES = (
    _server_series("tokens/s", "tokens", "graph.util"),
    _server_series("waiting", "waiting", "graph.other"),
)
"""For a process of an inference server that reports something."""


def _of_user(history: History, use: UserUse) -> ViewedSeries:
    return history.user_series(use.user)


USER_SERIES: tuple[ChartSeries[UserUse], ...] = (
    ChartSeries(
        "GPU memory",
        ("memory_used",),
        replace(_MEMORY, text=rate, unit=str),
        ("graph.memory",),
        _of_user,
        lambda use, _: use.memory,
    ),
    ChartSeries(
        "GPUs",
        ("gpus",),
        # A number of GPUs is never a fraction.
        Quantity(axis=lambda value: f"{value:.0f}" if value == int(value) else ""),
        ("graph.util",),
        _of_user,
        lambda use, _: len(use.gpus),
    ),
)


def _of_host(history: History, _: Host) -> ViewedSeries:
    return history.host_series()


HOST_SERIES: tuple[ChartSeries[Host], ...] = (
    ChartSeries("cpu", ("cpu_percent",), PERCENT, ("graph.util",), _of_host, top=100.0),
    ChartSeries(
        "ram",
        ("memory_used",),
        _MEMORY,
        ("graph.memory",),
        _of_host,
        whole=lambda host: host.memory_total,
    ),
    ChartSeries(
        "load",
        ("load",),
        Quantity(),
        ("graph.other",),
        _of_host,
        lambda host, _: None if host.load is None else host.load[0],
        whole=lambda host: host.cpu_count,
    ),
)
