"""The columns of the process table: their keys, headers, widths and sort letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.metrics import PROCESS_METRIC

if TYPE_CHECKING:
    from collections.abc import Sequence


class Column(Struct, frozen=True):
    """A column of the table.

    Attributes:
        key: Its row in ``metrics.PROCESS_METRICS``; ``idle`` comes from the history.
        width: Cells, without the space before it.
        keep: Priority on a narrow terminal: the lowest is dropped first.
        letter: The key that sorts by it.
        left: Whether its text starts at the left.
        descends: Whether a first press sorts the largest first: so for amounts, not for names.
    """

    key: str
    width: int
    keep: int
    letter: str
    left: bool = False
    descends: bool = False

    @property
    def label(self) -> str:
        """The header."""
        return "IDLE" if self.key == "idle" else PROCESS_METRIC[self.key].label

    @property
    def about(self) -> str:
        """What it means, in a sentence."""
        return _IDLE_ABOUT if self.key == "idle" else PROCESS_METRIC[self.key].about


_IDLE_ABOUT = "How long it has held memory and run nothing, as far as gpumon saw; ≥ is at least."


COLUMNS: tuple[Column, ...] = (
    Column("gpu", 7, 90, "G"),
    Column("pid", 8, 95, "P"),
    Column("user", 9, 80, "U", left=True),
    Column("type", 5, 20, "Y", left=True),
    Column("memory_used", 8, 100, "M", descends=True),
    Column("sm", 4, 70, "S", descends=True),
    Column("idle", 7, 45, "I", descends=True),
    Column("cpu", 5, 40, "C", descends=True),
    Column("rss", 7, 30, "R", descends=True),
    Column("age", 7, 50, "A", descends=True),
    Column("state", 2, 5, "E", left=True),
    Column("where", 14, 35, "W", left=True),
    Column("container", 20, 6, "O", left=True),
    Column("job", 14, 7, "J", left=True),
    Column("command", 0, 100, "N", left=True),
)
"""Every column, in the order in which they stand unless told otherwise."""

COLUMN: dict[str, Column] = {column.key: column for column in COLUMNS}

CHOSEN = tuple(key for key in COLUMN if key not in {"state", "container", "job"})
"""Keys of the columns that are shown unless told otherwise; the command is always the last."""


def with_command(keys: Sequence[str]) -> tuple[str, ...]:
    """The columns for these keys: without duplicates, with the PID, and the command last."""
    kept = dict.fromkeys(keys if "pid" in keys else ["pid", *keys])
    kept.pop("command", None)
    return (*kept, "command")
