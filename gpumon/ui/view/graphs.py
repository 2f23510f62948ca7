"""What the small graph of each card shows: one of four values, as a share of what it can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.text.formatting import UNKNOWN, gibibytes, number, temperature
from gpumon.text.units import degree

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history import History

_NO_SLOWDOWN = 100
"""Degrees Celsius at the upper edge where a card does not tell where it slows down."""


class Graph(Struct, frozen=True):
    """A value that is drawn over time.

    Attributes:
        key: What it is called in a configuration.
        label: What it is called on screen, in the fewest cells.
        field: The card's field.
        style: Its colour.
        top: The value at the upper edge; ``None`` where that is unknown, and nothing is drawn.
        about: What it shows, for a person.
        now: The newest value, and what stands dimmed behind it.
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
        """The last ``seconds`` in so many shares of the upper edge; unknown is ``None``.

        The same for all of a second, with what it has brought so far in the newest share.
        """
        top = self.top(gpu)
        if not top:
            return [None] * count
        # As of its end: a moment before the newest sample would leave that out.
        values = history.gpu_buckets(gpu.uuid, self.field, seconds, count, second + 0.999)
        return [None if value is None else value / top for value in values]


def _of(value: str, whole: str, unit: str) -> tuple[str, str]:
    """A value as wide as the largest it can be, and what it is of."""
    if value == UNKNOWN:
        return value, ""
    return value.rjust(max(3, len(whole))), unit if whole == UNKNOWN else f"/{whole}{unit}"


UTIL = Graph(
    "util",
    "util",
    "utilization_gpu",
    "graph.util",
    lambda _: 100,
    "utilisation",
    lambda gpu: _of(number(gpu.utilization_gpu), UNKNOWN, "%"),
)
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
    lambda gpu: gpu.temperature_slowdown or _NO_SLOWDOWN,
    "temperature, against where it slows down",
    lambda gpu: _of(
        temperature(gpu.temperature_gpu), temperature(gpu.temperature_slowdown), degree()
    ),
)
GRAPHS = (UTIL, MEMORY, POWER, TEMPERATURE)
GRAPH = {graph.key: graph for graph in GRAPHS}


def next_graph(key: str) -> Graph:
    """The graph that comes after one, and after the last the first."""
    return GRAPHS[(GRAPHS.index(GRAPH[key]) + 1) % len(GRAPHS)]
