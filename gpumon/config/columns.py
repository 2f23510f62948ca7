"""The columns of the process table: their keys, headers, widths and sort letters.

And the columns that can be added to the list of GPUs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.metrics import PROCESS_METRIC
from gpumon.model.snapshot import GPU_METRIC, GPU_METRICS

if TYPE_CHECKING:
    from collections.abc import Sequence


class Column(Struct, frozen=True):
    """A column of the table."""

    key: str  # Of a row in ``metrics.PROCESS_METRICS``, or in ``_DERIVED``.
    width: int  # In cells, without the space before it.
    keep: int  # Priority on a narrow terminal: the lowest is dropped first.
    letter: str  # Sorts by it.
    left: bool = False  # Aligned at the left.
    descends: bool = False  # The first key press sorts the largest first, as for amounts.
    shown: bool = True  # By default.

    @property
    def label(self) -> str:
        """The header."""
        return "#" if self.key == "gpu" else self.name

    @property
    def name(self) -> str:
        """The column in a sentence; the header of a GPU's index is a sign, as in the GPU list."""
        derived = _DERIVED.get(self.key)
        return PROCESS_METRIC[self.key].label if derived is None else derived[0]

    @property
    def about(self) -> str:
        """What it means, in a sentence."""
        derived = _DERIVED.get(self.key)
        return PROCESS_METRIC[self.key].about if derived is None else derived[1]


_DERIVED = {
    "idle": (
        "IDLE",
        "How long it has held memory and run nothing, as far as gpumon saw; ≥ is at least.",
    ),
    "host_memory": ("RAM%", "Host memory it keeps resident, as a share of the host's memory."),
}
"""Header and meaning of the columns whose values need more than the process."""


COLUMNS: tuple[Column, ...] = (
    Column("gpu", 7, 90, "G"),
    Column("pid", 8, 95, "P"),
    Column("user", 9, 80, "U", left=True),
    Column("type", 5, 20, "Y", left=True),
    Column("memory_used", 8, 100, "M", descends=True),
    Column("sm", 4, 70, "S", descends=True),
    Column("memory_activity", 5, 33, "B", descends=True, shown=False),
    Column("idle", 7, 45, "I", descends=True),
    Column("cpu", 5, 40, "C", descends=True),
    Column("rss", 7, 30, "R", descends=True),
    Column("host_memory", 5, 32, "V", descends=True, shown=False),
    Column("age", 7, 50, "A", descends=True),
    Column("state", 2, 5, "E", left=True, shown=False),
    Column("where", 14, 35, "W", left=True),
    Column("container", 20, 6, "O", left=True, shown=False),
    Column("job", 14, 7, "J", left=True, shown=False),
    Column("command", 0, 100, "N", left=True),
)
"""All columns in their default order."""

COLUMN: dict[str, Column] = {column.key: column for column in COLUMNS}

DEFAULT_COLUMNS = tuple(column.key for column in COLUMNS if column.shown)
"""Keys of the columns shown by default; the command is always the last."""


class GpuColumn(Struct, frozen=True):
    """A column that can be added to the list of GPUs."""

    key: str  # The field of ``Gpu``.
    label: str
    width: int  # In cells, with the gap before it.

    @property
    def about(self) -> str:
        """What it means, in a sentence."""
        return GPU_METRIC[self.key].about


GPU_COLUMNS = tuple(
    # Percentages need four cells, after a gap of two.
    GpuColumn(metric.field, metric.column, 2 + max(4, len(metric.column)))
    for metric in GPU_METRICS
    if metric.column is not None
)
"""All columns that can be added to the list of GPUs: the metrics that have a heading for it."""

GPU_COLUMN: dict[str, GpuColumn] = {column.key: column for column in GPU_COLUMNS}

COLUMN_SETS: dict[str, tuple[str, ...]] = {
    "default": DEFAULT_COLUMNS,
    "nvitop": (
        *("gpu", "pid", "user", "memory_used", "sm", "memory_activity"),
        *("cpu", "host_memory", "age", "command"),
        *("utilization_memory", "fan_speed", "pstate"),
    ),
}
"""Named sets of columns, which stand for their columns in the configuration."""


def whole_choice(keys: Sequence[str]) -> tuple[str, ...]:
    """The columns for these keys of columns and names of sets, without duplicates.

    Those of the process table come first, with the PID, and the command as their last; then those
    of the list of GPUs.
    """
    each = [key for name in keys for key in COLUMN_SETS.get(name, (name,))]
    kept = dict.fromkeys(each if "pid" in each else ["pid", *each])
    kept.pop("command", None)
    return (*process_columns(tuple(kept)), "command", *(key for key in kept if key in GPU_COLUMN))


@lru_cache(maxsize=16)
def process_columns(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The keys of the process table's columns among these."""
    return tuple(key for key in keys if key in COLUMN)


@lru_cache(maxsize=16)
def gpu_columns(keys: tuple[str, ...]) -> tuple[GpuColumn, ...]:
    """The columns of the list of GPUs among these."""
    return tuple(GPU_COLUMN[key] for key in keys if key in GPU_COLUMN)
