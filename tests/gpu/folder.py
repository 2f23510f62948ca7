"""Reads the folder that a visit left, with files that may be missing or cut short."""

from __future__ import annotations

import csv
import tarfile
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tests.bench.rows import is_cut

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

_UNREADABLE = (
    *(OSError, EOFError, ValueError, TypeError, KeyError),
    *(csv.Error, tarfile.TarError, msgspec.MsgspecError),
)


class Folder:
    """What a visit left in a folder."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self.remarks: dict[str, str] = {}  # What is missing, cut or cannot be read.

    def read(self, name: str, read: Callable[[Path], T]) -> T | None:
        """What a file has; ``None`` and a remark if it is missing or cannot be read."""
        path = self._out / name
        try:
            if not path.is_file():
                self.remarks[name] = f"{name} is missing"
                return None
            if path.suffix in {".csv", ".txt"} and is_cut(path):
                self.remarks[name] = f"{name} is cut short"
            return read(path)
        except _UNREADABLE as error:
            self.remarks[name] = f"{name} cannot be read: {error}"
            return None

    def has_nothing(self, name: str) -> None:
        """Remark that a file has no rows, unless there is a remark already."""
        self.remarks.setdefault(name, f"{name} has no rows")


def whole_text(path: Path) -> str:
    """The whole lines of a text."""
    text = path.read_text(encoding="utf-8", errors="replace")
    whole, end, _ = text.rpartition("\n")
    return whole + end
