"""The line of a GPU: its columns, and which of them fit.

``line_columns`` decides what fits into a width: it goes through ``_WIDTH_STEPS``, most wanted
first. Read backwards, the steps say what a narrow terminal drops first.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import chain, combinations
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.snapshot import lines_of
from gpumon.text.cells import Field, bar, bar_style
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    fit,
    fit_right,
    gibibytes,
    mig_name,
    number,
    temperature,
)
from gpumon.text.gpu_columns import GPU_COLUMNS
from gpumon.text.table import Column
from gpumon.ui.view.chart_series import UTIL
from gpumon.ui.view.gpu_text import (
    clock_heading,
    core_name,
    memory_share,
    rate,
    short_name,
    state_fields,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpumon.findings import Finding
    from gpumon.model.snapshot import Gpu


_NAME_HEADING = "GPU"


class GpuLine(Struct, gc=False):
    """A GPU or a MIG device as the columns see it."""

    gpu: Gpu  # The GPU, or that of the MIG device.
    name: str  # Its name that fits.
    state: Finding
    holders: tuple[str, ...]  # Texts about who holds it, longest first.
    memory: tuple[int | None, int | None]  # Bytes in use and of all.
    graph: Field = ("", "")
    mark: str = " "  # The cell behind the index.
    stale: str = ""  # The style of values that are old; empty if they are not.


def _index(item: GpuLine, _: int) -> Sequence[Field]:
    return [(f"{item.gpu.index:>2}", item.stale or "strong"), (item.mark, "tagged")]


def _name(item: GpuLine, width: int) -> Sequence[Field]:
    return [(fit(fit(item.name, width - 1), width), item.stale)]


def _state(item: GpuLine, width: int) -> Sequence[Field]:
    return state_fields(item.state, item.holders, width, holder_style=item.stale)


def _memory(item: GpuLine, width: int) -> Sequence[Field]:
    (used, total), stale = item.memory, item.stale
    if used is None and total is None:
        return [(fit_right(UNKNOWN, width), stale)]
    cap = f"/{gibibytes(total)}G" if total is not None else "G"
    return [(fit_right(gibibytes(used), width - len(cap)), stale), (cap, stale or "dim")]


def _memory_bar(item: GpuLine, width: int) -> Sequence[Field]:
    return _bar(item, "bar.memory", memory_share(*item.memory), width)


def _utilization(item: GpuLine, width: int) -> Sequence[Field]:
    percent, stale = item.gpu.utilization_gpu, item.stale
    if percent is None:
        return [(fit_right(UNKNOWN, width), stale)]
    return [(f"{percent:>{width - 1}}", stale), ("%", stale or "dim")]


def _utilization_bar(item: GpuLine, width: int) -> Sequence[Field]:
    return _bar(item, "bar.util", UTIL.share(item.gpu), width)


def _bar(item: GpuLine, style: str, filled: float | None, width: int) -> Sequence[Field]:
    """A bar after its figure."""
    look = "bar.stale" if item.stale else bar_style(style, filled)
    return [(" ", ""), (bar(filled, width - 1), look)]


def _power(item: GpuLine, width: int) -> Sequence[Field]:
    draw, limit, stale = item.gpu.power_draw, item.gpu.power_limit, item.stale
    if draw is None:
        return [(fit_right(UNKNOWN, width), stale)]
    cap = "" if limit is None else f"/{limit:.0f}"
    # The limit has a constant width, so the draw does not move.
    unit = f"{cap}W"
    return [(f"{draw:>{width - len(unit)}.0f}", stale), (unit, stale or "dim")]


def _graph(item: GpuLine, _: int) -> Sequence[Field]:
    return [("  ", ""), item.graph]


def _traffic(item: GpuLine, width: int) -> Sequence[Field]:
    received, sent = item.gpu.pcie_rx, item.gpu.pcie_tx
    known = received is not None or sent is not None
    text = f"{rate(received):>6} {rate(sent):>6}" if known else UNKNOWN
    return [(fit_right(text, width), item.stale or "dim")]


def _text(text: Callable[[Gpu], str], style: str = "") -> Callable[[GpuLine, int], Sequence[Field]]:
    """Draws a text at the right."""
    return lambda item, width: [(fit_right(text(item.gpu), width), item.stale or style)]


_FIRST_COLUMNS: tuple[Column[GpuLine], ...] = (
    Column("index", " # ", 0, "", lambda item: (item.gpu.index, item.mark), draw=_index),
    Column("name", _NAME_HEADING, 0, "", lambda item: item.name, left=True, draw=_name),
    Column(
        *("state", "state", 0),
        "then the user with the most memory on the GPU, how much, and how many others there are",
        lambda item: (item.state, item.holders),
        left=True,
        draw=_state,
    ),
    Column(
        *("memory", "memory", 0),
        "used by processes, of the total; without what the driver reserves",
        lambda item: item.memory,
        draw=_memory,
    ),
    Column("memory_bar", "", 0, "", lambda item: item.memory, draw=_memory_bar),
    Column(
        *("util", "util", 0),
        "share of time in which any kernel ran; does not show how full the GPU was",
        lambda item: item.gpu.utilization_gpu,
        draw=_utilization,
    ),
    Column("util_bar", "", 0, "", lambda item: item.gpu.utilization_gpu, draw=_utilization_bar),
    Column(
        *("celsius", "", 0, ""),
        lambda item: item.gpu.temperature_gpu,
        draw=_text(lambda gpu: temperature(gpu.temperature_gpu)),
    ),
    Column(
        *("power", "power", 0, "draw and the cap in force"),
        lambda item: (item.gpu.power_draw, item.gpu.power_limit),
        draw=_power,
    ),
)
_LAST_COLUMNS: tuple[Column[GpuLine], ...] = (
    Column(
        *("spark", "power 60 s", 0),
        (
            "power against its cap over the last minute: low if a kernel is stuck or fills only a "
            "part of the GPU, even at high util; or another value, named in the heading"
        ),
        lambda item: item.graph,
        left=True,
        draw=_graph,
    ),
    Column(
        *("clock", "SM MHz", 0, "clock of the multiprocessors"),
        lambda item: item.gpu.clock_sm,
        draw=_text(lambda gpu: number(gpu.clock_sm), "dim"),
    ),
    Column(
        *("pcie", "PCIe rx  tx/s", 0, "into and out of the GPU"),
        lambda item: (item.gpu.pcie_rx, item.gpu.pcie_tx),
        draw=_traffic,
    ),
)


def _of_line(column: Column[Gpu]) -> Column[GpuLine]:
    """A column that the user may add, in the line of a GPU."""
    return Column(
        *(column.key, column.label, column.width, column.about),
        lambda item: column.value(item.gpu),
        draw=_text(column.text),
    )


_LINE_COLUMNS = (*_FIRST_COLUMNS, *_LAST_COLUMNS)
"""In their order; those that the user has added stand between them."""
LINE_COLUMN = {column.key: column for column in (*_LINE_COLUMNS, *map(_of_line, GPU_COLUMNS))}
EXPLAINED = tuple((" ".join(it.label.split()), it.about) for it in _LINE_COLUMNS if it.about)
"""The headings that need an explanation, with it."""


class LineColumns(Struct, frozen=True):
    """The columns of a GPU's line that fit; those of a MIG device have the same widths."""

    width: int  # Cells of the line.
    # The key and the cells of each column in order, with the gap before it.
    widths: tuple[tuple[str, int], ...]
    clock_label: str = "SM MHz"  # The heading of the clock.
    names: tuple[tuple[str, str], ...] = ()  # The text of each short name.

    def width_of(self, key: str) -> int:
        """Cells of a column; 0 if it is not there."""
        return dict(self.widths).get(key, 0)


# Placeholders for widths that depend on the GPUs.
_FIRST_STATE, _TIGHT_NAME, _CORE_NAME, _WHOLE_NAME, _LONG_NAME, _WATTS = -1, -2, -3, -4, -5, -6
_LONGEST_NAME = 24
_SEVERAL = 2
_ADDED = "added"
"""The step at which the columns that the user has added get their room."""

# (column, width to reach, whether a part of the step is useless), most wanted first.
_WIDTH_STEPS: tuple[tuple[str, int, bool], ...] = (
    ("state", _FIRST_STATE, False),
    ("name", _TIGHT_NAME, True),
    ("state", 20, False),
    ("name", _CORE_NAME, True),
    ("memory_bar", 4, True),
    ("util_bar", 4, True),
    ("power", _WATTS, True),
    (_ADDED, 0, True),
    ("memory_bar", 8, False),
    ("util_bar", 6, False),
    ("state", 26, False),
    ("spark", 12, True),
    ("state", 33, False),
    ("memory_bar", 12, False),
    ("util_bar", 9, False),
    ("state", 42, False),
    ("memory_bar", 15, False),
    ("util_bar", 12, False),
    ("name", _WHOLE_NAME, True),
    ("spark", 32, False),
    ("clock", 10, True),
    ("pcie", 16, True),
    ("name", _LONG_NAME, True),
    ("state", 54, False),
    ("memory_bar", 21, False),
    ("util_bar", 21, False),
    # All states with a cause, and the names of several users.
    ("state", 66, False),
    ("memory_bar", 31, False),
    ("util_bar", 31, False),
    ("spark", 62, False),
    # The same with the memory of each user.
    ("state", 84, False),
    ("memory_bar", 42, False),
    ("util_bar", 42, False),
    ("memory_bar", 62, False),
    ("util_bar", 62, False),
    ("spark", 122, False),
    ("state", 400, False),
)


def line_columns(
    width: int, gpus: Sequence[Gpu], graphs: bool = True, added: Sequence[Column[Gpu]] = ()
) -> LineColumns:
    """Choose the columns of a GPU's line.

    Args:
        width: Cells of the line.
        gpus: The GPUs.
        graphs: Whether to show the small graph.
        added: The columns that the user has added.
    """
    names = frozenset(short_name(gpu.name) for gpu in gpus)
    brief, tight = brief_names(names)
    # As wide as the largest possible value, so that no number moves or is cut.
    watts = max((len(number(limit)) for limit in {gpu.power_limit for gpu in gpus}), default=0)
    sizes = max((len(gibibytes(size)) for size in {gpu.memory_total for gpu in gpus}), default=0)
    devices = ((line.gpu.index, line.mig.index) for line in lines_of(gpus) if line.mig is not None)
    mig = max((len(f"MIG {mig_name(*device)} ") for device in devices), default=0)
    fixed = {
        # Different models need their names more than the rest of their state.
        _FIRST_STATE: 20 if len(names) < _SEVERAL else 17,
        _TIGHT_NAME: max(mig, _name_width(tight.values())),
        _CORE_NAME: max(mig, _name_width(brief.values())),
        _WHOLE_NAME: max(mig, _name_width(names)),
        _LONG_NAME: max(mig, _name_width(names, longest=width)),
        _WATTS: 2 * max(watts, 3) + len("  /W"),
    }
    widths = {column.key: 0 for column in _LINE_COLUMNS}
    widths |= {"index": 3, "state": 10, "memory": 2 * max(sizes, 4) + len("  /G")}
    widths |= {"util": 6, "celsius": 4}
    left = width - sum(widths.values())
    fitting: list[Column[Gpu]] = []
    for column, goal, whole in _WIDTH_STEPS:
        if column == _ADDED:
            for added_column in added:
                if added_column.width <= left:
                    fitting.append(added_column)
                    left -= added_column.width
            continue
        step = fixed.get(goal, goal) - widths[column]
        if step <= 0 or (whole and step > left) or (column == "spark" and not graphs):
            continue
        step = min(step, left)
        widths[column] += step
        left -= step
    # On a very narrow line, memory sizes of four digits take cells from the state.
    widths["state"] += min(left, 0)
    texts = [(name, _fitting((name, brief[name], tight[name]), widths["name"])) for name in names]
    return LineColumns(
        width=width,
        widths=(
            *((it.key, widths[it.key]) for it in _FIRST_COLUMNS if widths[it.key] > 0),
            *((column.key, column.width) for column in fitting),
            *((it.key, widths[it.key]) for it in _LAST_COLUMNS if widths[it.key] > 0),
        ),
        clock_label=clock_heading(gpus),
        names=tuple(texts),
    )


def _name_width(names: Iterable[str], longest: int = _LONGEST_NAME) -> int:
    """The width of a column for these names and its heading, with the gap after it."""
    widest = max(map(cell_width, names), default=0)
    return max(len(_NAME_HEADING), min(widest, longest)) + 1


def _fitting(texts: Sequence[str], width: int) -> str:
    """The first text that fits, or the last one."""
    return next((text for text in texts if cell_width(text) < width), texts[-1])


_SPELLED = {"PCIE": "PCIe"}


@lru_cache(maxsize=64)
def brief_names(names: frozenset[str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Brief texts for the short names of all GPUs.

    Models with the same core get the words that distinguish them: ``H100 PCIe`` and ``H100 80GB``,
    ``RTX 4090`` and ``RTX 4090 Laptop``.

    Returns:
        Two texts for each name; the second is shorter where models have the same core.
    """
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(core_name(name), []).append(name)
    briefer = dict(chain.from_iterable(_distinct(core, group) for core, group in groups.items()))
    brief = {name: " ".join([core_name(name), *briefer[name]]) for name in names}
    same = Counter(brief.values())
    brief = {name: name if same[text] > 1 else text for name, text in brief.items()}
    tight = {name: " ".join([core_name(name).rpartition(" ")[2], *briefer[name]]) for name in names}
    crowded = len(groups) < len(names) and len({*tight.values()}) == len(names)
    return brief, tight if crowded else brief


def _distinct(core: str, group: list[str]) -> Iterable[tuple[str, tuple[str, ...]]]:
    """For each name with this core the fewest further words that no other one has."""
    pending = {name: _further_words(core, name) for name in group}
    while pending:
        found = {
            name: choice
            for name, words in pending.items()
            if (choice := _choice(words, [pending[it] for it in pending if it != name])) is not None
        }
        # Without an answer, each keeps all of its words.
        for name, choice in (found or dict(pending)).items():
            yield name, choice
            del pending[name]


def _choice(words: tuple[str, ...], others: list[tuple[str, ...]]) -> tuple[str, ...] | None:
    for count in range(len(words) + 1):
        for choice in combinations(words, count):
            if not any(set(choice) <= set(other) for other in others):
                return choice
    return None


def _further_words(core: str, name: str) -> tuple[str, ...]:
    """The words after the core: ``SXM4`` and ``80GB`` of ``A100-SXM4-80GB``.

    NVIDIA writes both ``PCIE`` and ``PCIe``.
    """
    words = name.removeprefix("Quadro ").split()
    last = len(core.split()) - 1
    further = (*words[last].split("-")[1:], *words[last + 1 :])
    return tuple(
        _SPELLED.get(word, word) for word in further if word[:1].isalnum() and word != "with"
    )
