"""The columns that can be chosen: those of the process table, and more for the list of GPUs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from gpumon.text.gpu_columns import GPU_COLUMNS
from gpumon.text.process_columns import PROCESS_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.snapshot import Gpu
    from gpumon.text.table import Column


COLUMN = {column.key: column for column in PROCESS_COLUMNS}

PROCESS_DEFAULTS = tuple(column.key for column in PROCESS_COLUMNS if column.shown)
"""Keys of the columns of processes shown by default."""
DEFAULT_COLUMNS = (*PROCESS_DEFAULTS,)
"""The same with those of the list of GPUs that users may remove."""


GPU_COLUMN = {column.key: column for column in GPU_COLUMNS}

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
def gpu_columns(keys: tuple[str, ...]) -> tuple[Column[Gpu], ...]:
    """The columns of the list of GPUs among these."""
    return tuple(GPU_COLUMN[key] for key in keys if key in GPU_COLUMN)
