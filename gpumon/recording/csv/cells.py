"""The values of a log's cells, each text parsed once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpumon.model.snapshot import Unknown
from gpumon.recording.csv.nvidia_smi import unknown_word
from gpumon.recording.csv.parsers import ImpossibleValueError, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable

CELLS_KEPT = 512
"""Values remembered of a column: most cells of a log repeat."""

DATE = re.compile(rb"\d{4}[-/]\d\d[-/]\d\d")
"""Stands in every line that has a time, as gpumon and nvidia-smi write it."""
DAMAGED = object()
"""Stands for a cell that cannot be read, where a reader asks for it."""
IMPOSSIBLE = object()
"""The same for a value that no hardware can have."""


class Cells(dict[str, object]):
    """The values of a column by cell text, each parsed once.

    A value is ``None`` if the cell is empty. Bounded; not thread-safe.

    Args:
        read: Parses the value; may raise ``ValueError``, ``OverflowError`` or ``OSError``.
        reasons: Whether a cell that gives the reason for a missing value becomes that ``Unknown``
            instead of ``None``.
        damaged: The value of a cell that cannot be read; one with a value that no hardware can have
            is then ``IMPOSSIBLE``.

    Attributes:
        found_damage: How often a cell could not be read, if ``damaged`` was given.
    """

    __slots__ = ("_damaged", "_read", "_reasons", "found_damage")

    def __init__(
        self, read: Callable[[str], object], *, reasons: bool = False, damaged: object = None
    ) -> None:
        super().__init__()
        self._read = read
        self._reasons = reasons
        self._damaged = damaged
        self.found_damage = 0

    def __missing__(self, text: str) -> object:
        if len(self) >= CELLS_KEPT:
            self.clear()
        value: object = None
        if text:
            try:
                value = self._read(text)
            except (ValueError, OverflowError, OSError) as error:
                value = unknown_word(text)
                # nvidia-smi has more bracketed words than this table.
                is_word = value is not None or text.strip().startswith("[") or text.isspace()
                is_impossible = isinstance(error, ImpossibleValueError)
                if self._damaged is not None and not is_word:
                    # Not kept, so that each of them is counted.
                    self.found_damage += 1
                    return IMPOSSIBLE if is_impossible else self._damaged
                if is_impossible:
                    value = Unknown.IMPOSSIBLE
            if value.__class__ is Unknown and not self._reasons:
                value = None
        self[text] = value
        return value


def read_moment(text: str) -> float | None:
    """The time in a cell, see ``parse_time``; ``None`` if it cannot be read."""
    try:
        return parse_time(text)
    except (ValueError, OverflowError, OSError):
        return None
