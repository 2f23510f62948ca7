"""Reads the bytes and the lines of a log's file at any offset, without holding too much of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpumon.recording.csv.cells import DATE
from gpumon.recording.csv.headings import LONGEST_LINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

PIECE = 2**18
"""Bytes that are read at a time at most where there may be any number of them."""
PROBE = 2**13
"""Bytes that are read first, because a few lines are often enough."""
_WHOLE_PIECES = 8
"""So many pieces are split into lines at once, unless most lines are too short for rows."""
_SHORT = 24
_NO_ROW = b"\0"


class FileLines:
    """The lines of a file that may grow.

    Args:
        file: The file; ``close`` closes it.

    Attributes:
        date: What stands in every line that has a time.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.date = DATE
        self._file = file
        self._searched_from = self._breakless = 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return os.fstat(self._file.fileno()).st_size

    def read(self, start: int, stop: int) -> bytes:
        """The bytes between two offsets; fewer, or none, where the disk fails or the file ends."""
        try:
            return os.pread(self._file.fileno(), stop - start, start)
        except OSError:
            # The disk fails here; other parts of the file can still be read.
            return b""

    def end_of_lines(self, end: int, size: int) -> int:
        """The end of the last complete line; the line after it is torn or still being written.

        A crash can leave many megabytes of zeros: a range without a line break is not searched
        again.

        Args:
            end: Where complete lines are known to end.
            size: Size of the file.
        """
        if not self._searched_from <= end <= self._breakless <= size:
            self._searched_from = self._breakless = end
        stop = size
        while stop > self._breakless:
            start = max(self._breakless, stop - PIECE)
            found = self.read(start, stop).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            stop = start
        self._breakless = size
        return end

    def line_number(self, place: int) -> int:
        """The 1-based line number of the line at an offset."""
        breaks = sum(
            self.read(start, min(place, start + PIECE)).count(b"\n")
            for start in range(0, place, PIECE)
        )
        return breaks + 1

    def kept_lines(
        self, start: int, stop: int, limit: int, keep: Callable[[bytes], bool]
    ) -> Iterator[tuple[int, bytes]]:
        """Those of the lines that begin in a part of the file that are kept, with their offsets."""
        for at, line, _ in self.lines(start, stop, limit):
            if keep(line):
                yield at, line

    def lines(self, start: int, stop: int, limit: int) -> Iterator[tuple[int, bytes, int]]:
        """The lines that begin in a part of the file, each with its offset.

        Lines that are longer than any row, and long sequences of lines without a time, are skipped
        without holding them: one line represents them, with the number of lines skipped. Nothing
        from ``limit`` on is read.
        """
        at = place = start
        held, size, is_row = b"", PROBE, True
        while at < stop and (block := self.read(place, min(limit, place + size))):
            size = min(4 * size, PIECE)
            if not is_row:
                cut = block.find(b"\n") + 1
                is_row = cut > 0
                at = place = place + (cut or len(block))
                continue
            place += len(block)
            lines, end, held = (held + block).rpartition(b"\n")
            if end and self.date.search(lines) is None:
                empty = len(lines) - len(lines.lstrip())
                more = lines.count(b"\n", 0, stop - at - 1)
                before = lines.count(b"\n", 0, min(empty, stop - at - 1))
                if before:
                    yield at, b"", before - 1
                yield at, _NO_ROW if empty < len(lines) else b"", more - before
                at += len(lines) + 1
            elif end:
                for line in lines.split(b"\n"):
                    if at >= stop:
                        return
                    yield at, line if len(line) <= LONGEST_LINE else _NO_ROW, 0
                    at += len(line) + 1
            if len(held) > LONGEST_LINE:
                if at < stop:
                    yield at, _NO_ROW, 0
                held, is_row = b"", False

    def all_lines(self, start: int, stop: int, limit: int) -> tuple[list[bytes], dict[int, int]]:
        """The lines of a part of the file, and how many lines each one represents.

        The part begins and ends between two lines.
        """
        if stop - start <= _WHOLE_PIECES * PIECE:
            text = self.read(start, stop)
            if text.count(b"\n") * _SHORT < len(text):
                found = text.split(b"\n")[:-1]
                return [line if len(line) <= LONGEST_LINE else _NO_ROW for line in found], {}
        lines: list[bytes] = []
        passed: dict[int, int] = {}
        for _, line, more in self.lines(start, stop, limit):
            if more:
                passed[len(lines)] = more
            lines.append(line)
        return lines, passed
