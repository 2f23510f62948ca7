"""The values that the small graph of a GPU can show, each as a share of its maximum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.text.cells import braille
from gpumon.text.formatting import UNKNOWN, gibibytes, number, temperature
from gpumon.text.units import degree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history import History

_NO_SLOWDOWN = 100
"""The upper edge in degrees Celsius for a GPU that does not report its slowdown temperature."""


class Graph(Struct, frozen=True):
    """A value drawn over time.

    Attributes:
        key: Its name in the configuration.
        label: Its short name on screen.
        field: The field of ``Gpu``.
        style: The style of the graph.
        top: The value at the upper edge; if it is ``None``, nothing is drawn.
        about: What it shows, for messages.
        now: The newest value, and the dimmed text after it.
    """

    key: str
    label: str
    field: str
    style: str
    top: Callable[[Gpu], float | None]
    about: str
    now: Callable[[Gpu], tuple[str, str]]

    def values(
        self, history: History, gpu: Gpu, seconds: float, count: int, second: int
    ) -> list[float | None]:
        """The last ``seconds`` as ``count`` shares of the upper edge; ``None`` is unknown.

        ``second`` is a whole second, so that a graph changes once in each.
        """
        top = self.top(gpu)
        if not top:
            return [None] * count
        # The end of the second: its start would leave out the newest sample.
        values = history.gpu_series(gpu.uuid).buckets(self.field, seconds, count, second + 0.999)
        return [None if value is None else value / top for value in values]

    def lines(self, history: History, gpu: Gpu, width: int, height: int, second: int) -> list[str]:
        """A graph of braille cells, a second for each column of dots."""
        return braille(self.values(history, gpu, 2 * width, 2 * width, second), 1.0, width, height)


def _of(value: str, whole: str, unit: str) -> tuple[str, str]:
    """A value, padded to the width of its maximum, and that maximum."""
    if value == UNKNOWN:
        return value, ""
    return value.rjust(max(3, len(whole))), unit if whole == UNKNOWN else f"/{whole}{unit}"


def top_temperature(gpu: Gpu) -> int:
    """The temperature at the upper edge of graphs and at the end of bars."""
    return gpu.temperature_slowdown or _NO_SLOWDOWN


def _percent_graph(key: str, label: str, field: str, style: str, about: str) -> Graph:
    return Graph(
        key,
        label,
        field,
        style,
        lambda _: 100,
        about,
        lambda gpu: _of(number(getattr(gpu, field)), UNKNOWN, "%"),
    )


UTIL = _percent_graph("util", "util", "utilization_gpu", "graph.util", "utilisation")
MEMORY = Graph(
    "memory",
    "mem",
    "memory_used",
    "graph.memory",
    lambda gpu: gpu.memory_total,
    "memory, of all there is",
    lambda gpu: _of(gibibytes(gpu.memory_used), gibibytes(gpu.memory_total), "G"),
)
POWER = Graph(
    "power",
    "power",
    "power_draw",
    "graph.other",
    lambda gpu: gpu.power_limit,
    "power, against its cap",
    lambda gpu: _of(number(gpu.power_draw), number(gpu.power_limit), "W"),
)
TEMPERATURE = Graph(
    "temperature",
    "temp",
    "temperature_gpu",
    "graph.other",
    top_temperature,
    "temperature, against where it slows down",
    lambda gpu: _of(
        temperature(gpu.temperature_gpu), temperature(gpu.temperature_slowdown), degree()
    ),
)
SMS = _percent_graph("sm", "SMs", "sm_active", "graph.util", "the SMs that have work")
DRAM = _percent_graph("dram", "DRAM", "dram_active", "graph.memory", "the traffic of GPU memory")
MAIN_GRAPHS = (UTIL, MEMORY, POWER, TEMPERATURE)
"""What nearly all GPUs report."""
GRAPHS = (*MAIN_GRAPHS, SMS, DRAM)
GRAPH = {graph.key: graph for graph in GRAPHS}


def next_graph(key: str, gpus: Sequence[Gpu]) -> Graph:
    """The next graph of which these GPUs report something; after the last comes the first."""
    after = GRAPHS.index(GRAPH[key]) + 1
    return next(
        graph
        for graph in (*GRAPHS[after:], *GRAPHS[:after])
        if graph in MAIN_GRAPHS or any(getattr(gpu, graph.field) is not None for gpu in gpus)
    )
