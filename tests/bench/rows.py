"""Reads CSV files that were written row by row, by a process that may have been ended meanwhile."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def whole_rows(file: Path) -> list[dict[str, str]]:
    """The rows that have every column, keyed by the header, but not a last one that was cut.

    Raises:
        OSError: The file cannot be read.
    """
    whole, end, _ = _text(file).rpartition("\n")
    lines = csv.reader(io.StringIO(whole + end, newline=""))
    header = next(lines, [])
    return [dict(zip(header, row, strict=True)) for row in lines if len(row) == len(header)]


def is_cut(file: Path) -> bool:
    """Whether its last line has no end."""
    text = _text(file)
    return bool(text) and not text.endswith("\n")


def _text(file: Path) -> str:
    # Not universal newlines: a cell may have its own.
    return file.read_bytes().decode(errors="replace")
