"""The layout of the table of GPUs: its columns, and the rows and columns of lines.

``line_columns`` decides what fits into a width: it goes through ``_WIDTH_STEPS``, most wanted
first. Read backwards, the steps say what a narrow terminal drops first.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import chain, combinations
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.makers import first_maker, makers_of
from gpumon.model.snapshot import lines_of
from gpumon.text.formatting import cell_width, gibibytes, mig_name, number
from gpumon.text.table import GUTTER, line_width
from gpumon.ui.view.gpu_text import core_name, short_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.text.table import Column
    from gpumon.ui.view.frame import Memo


_LEAST_LINE = 40
"""The least width of a GPU's line that holds its numbers."""
_LEAST_PANEL = 5
_PANEL_WIDTH = 72


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


_ADDED = "added"
"""Where the columns that the user has added stand, and the step at which they get their room."""
ORDER = (
    *("index", "name", "state", "memory", "memory_bar", "util", "util_bar", "celsius", "power"),
    *(_ADDED, "spark", "clock", "pcie"),
)
"""The keys of the columns in order."""

# Placeholders for widths that depend on the GPUs.
_FIRST_STATE, _TIGHT_NAME, _CORE_NAME, _WHOLE_NAME, _WATTS = -1, -2, -3, -4, -5
_LONGEST_NAME = 24
_SEVERAL = 2
NAME_HEADING = "GPU"

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
    ("state", 54, False),
    ("memory_bar", 21, False),
    ("util_bar", 21, False),
    ("spark", 62, False),
    ("state", 72, False),
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
        _WATTS: 2 * max(watts, 3) + len("  /W"),
    }
    widths = dict.fromkeys(ORDER, 0)
    widths |= {"index": 3, "state": 10, "memory": 2 * max(sizes, 4) + len("  /G")}
    widths |= {"util": 6, "celsius": 4}
    left = width - sum(widths.values())
    fitting: list[Column[Gpu]] = []
    for column, goal, whole in _WIDTH_STEPS:
        if column == _ADDED:
            for one in added:
                if one.width <= left:
                    fitting.append(one)
                    left -= one.width
            continue
        step = fixed.get(goal, goal) - widths[column]
        if step <= 0 or (whole and step > left) or (column == "spark" and not graphs):
            continue
        step = min(step, left)
        widths[column] += step
        left -= step
    # On a very narrow line, memory sizes of four digits take cells from the state.
    widths["state"] += min(left, 0)
    clocks = {maker.clock_heading for maker in makers_of(gpus) or (first_maker(),)}
    texts = [(name, _fitting((name, brief[name], tight[name]), widths["name"])) for name in names]
    before = ORDER[: ORDER.index(_ADDED)]
    return LineColumns(
        width=width,
        widths=(
            *((key, widths[key]) for key in before if widths[key] > 0),
            *((column.key, column.width) for column in fitting),
            *((key, widths[key]) for key in ORDER[len(before) :] if widths[key] > 0),
        ),
        clock_label=clocks.pop() if len(clocks) == 1 else "core MHz",
        names=tuple(texts),
    )


def _name_width(names: Iterable[str]) -> int:
    """The width of a column for these names and its heading, with the gap after it."""
    widest = max(map(cell_width, names), default=0)
    return max(len(NAME_HEADING), min(widest, _LONGEST_NAME)) + 1


def _fitting(texts: Sequence[str], width: int) -> str:
    """The first text that fits, or the last one."""
    return next((text for text in texts if cell_width(text) < width), texts[-1])


class GpusShape(Struct, frozen=True):
    """The layout of the GPUs."""

    panels: int  # Height of each tall panel; 0 if the GPUs are lines.
    columns: int  # Number of lines side by side.
    rows: int  # Height of all of it, with the heading.

    @property
    def in_sight(self) -> int:
        """Number of lines that fit."""
        return self.columns * (self.rows - 1)


def gpus_shape(lines: int, gpus: int, width: int, room: int, panel_room: int = 0) -> GpusShape:
    """Choose the layout of the GPUs.

    Args:
        lines: Number of lines for all GPUs and their MIG instances.
        gpus: Number of GPUs.
        width: Cells.
        room: Maximum number of rows.
        panel_room: Maximum number of rows of tall panels; 0 allows none.
    """
    if 1 <= gpus <= 2 and lines == gpus and width >= _PANEL_WIDTH:
        height = panel_room // gpus
        if height >= _LEAST_PANEL:
            return GpusShape(height, 1, height * gpus)
    if lines + 1 <= room:
        return GpusShape(0, 1, lines + 1)
    if width >= 2 * _LEAST_LINE + GUTTER:
        needed = (lines + 1) // 2 + 1
        return GpusShape(0, 2, min(needed, room))
    return GpusShape(0, 1, max(0, room))


def gpu_lines(snapshot: Snapshot) -> int:
    """Number of lines: one for each GPU and one for each of its MIG instances."""
    return len(lines_of(snapshot.gpus))


def list_columns(
    memo: Memo,
    snapshot: Snapshot,
    shape: GpusShape,
    width: int,
    graphs: bool,
    added: Sequence[Column[Gpu]],
) -> LineColumns | None:
    """The columns of the GPUs' lines; ``None`` for tall panels.

    Args:
        memo: Caches the result.
        snapshot: The snapshot.
        shape: From ``gpus_shape``.
        width: Cells of all lines side by side.
        graphs: Whether to show the small graph.
        added: The columns that the user has added.
    """
    if shape.panels:
        return None
    each = line_width(width, shape.columns)
    kinds = {
        (gpu.name, gpu.power_limit, gpu.memory_total, gpu.index if gpu.mig else None)
        for gpu in snapshot.gpus
    }
    key = (each, kinds, graphs, added)
    return memo.by(key, line_columns, each, snapshot.gpus, graphs, added)


def gpu_line(snapshot: Snapshot, uuid: str | None) -> int | None:
    """The line number of a GPU; ``None`` if it is not in the snapshot."""
    lines = lines_of(snapshot.gpus)
    return next((number for number, line in enumerate(lines) if line.uuid == uuid), None)


def gpu_at(
    snapshot: Snapshot, shape: GpusShape, width: int, top: int, x: int, y: int
) -> Gpu | None:
    """The GPU at a cell; ``None`` at the heading and below the last GPU."""
    if shape.panels:
        return snapshot.gpus[y // shape.panels] if y // shape.panels < len(snapshot.gpus) else None
    if y < 1:
        return None
    line = top + y - 1
    if shape.columns > 1 and x > width // 2:
        line += shape.rows - 1
    lines = lines_of(snapshot.gpus)
    return lines[line].gpu if line < len(lines) else None


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
