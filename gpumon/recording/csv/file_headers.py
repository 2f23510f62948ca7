"""The headers of a log file: the first one, and those of other versions further down."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING

from gpumon.recording.csv.headings import LONGEST_LINE, Header, as_header, first_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.recording.csv.file_lines import FileLines

_BLOCK = 2**16
_MOST_HEADERS = 1000


class FileHeaders:
    """The headers of one file, as far as they were looked for.

    Args:
        file: The file.
        name: Its name in messages.
        processes: Whether it is the process file.

    Raises:
        RecordingError: It does not begin with a header, or its rows cannot be read.
    """

    def __init__(self, file: FileLines, name: str, *, processes: bool) -> None:
        self._file, self._name = file, name
        self._processes = processes
        self._places: list[int] = []
        self._headers: list[Header] = []
        self.read_first()

    def read_first(self) -> None:
        """Read the first header, and what the first rows say of those of another program.

        Raises:
            RecordingError: See the class.
        """
        block = self._file.read(0, LONGEST_LINE)
        place, header = first_header(block, self._name, processes=self._processes)
        self._places, self._headers = [place], [header]
        self._time = header.texts[header.time].encode()

    def forget(self) -> None:
        """Forget those further down: the file is read anew."""
        del self._places[1:], self._headers[1:]

    @property
    def first(self) -> Header:
        """The first one."""
        return self._headers[0]

    @property
    def place(self) -> int:
        """Where the first one is, in bytes."""
        return self._places[0]

    def at(self, place: int) -> tuple[Header, bool]:
        """The header of the rows at an offset, and whether the header itself is there."""
        number = bisect_right(self._places, place) - 1
        return self._headers[number], self._places[number] == place

    def after(self, place: int) -> Sequence[int]:
        """Where there are headers after an offset."""
        return self._places[bisect_right(self._places, place) :]

    def seek(self, start: int, stop: int) -> list[int]:
        """Search for headers in a part of the file that starts at a line; returns where some are.

        A repeated header with the same columns changes nothing.
        """
        found: list[int] = []
        for place in range(start, stop, _BLOCK):
            block = self._file.read(place, min(stop, place + _BLOCK + LONGEST_LINE))
            at = block.find(self._time, 0, _BLOCK)
            while at >= 0:
                begin = block.rfind(b"\n", 0, at) + 1
                end = block.find(b"\n", at)
                known = place + begin <= self._places[-1]
                if not known and (begin or place == start) and len(self._headers) < _MOST_HEADERS:
                    header = as_header(block[begin:end], processes=self._processes)
                    if header is not None and header.names != self._headers[-1].names:
                        _learn(header, block[end + 1 :])
                        found.append(place + begin)
                        self._places.append(place + begin)
                        self._headers.append(header)
                at = block.find(self._time, end, _BLOCK) if end >= 0 else -1
        return found


def _learn(header: Header, block: bytes) -> None:
    """Find out what is particular to the rows below a further header."""
    if header.other is not None:
        # Rows that cannot be read are damaged; those below the first header can be.
        with suppress(ValueError):
            header.other.learn(block[:LONGEST_LINE].split(b"\n")[:-1])
