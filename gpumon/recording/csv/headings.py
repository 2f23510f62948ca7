"""The header of a log file: which columns its rows have; and lines split into cells."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from gpumon.recording.csv.cells import read_moment
from gpumon.recording.csv.columns import HOSTNAME, column_name
from gpumon.recording.recording import RecordingError
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LONGEST_LINE = 2**17
"""Bytes of the longest line that is read; those that gpumon writes are far below it."""

_KEYS = ("index", "uuid", "pci.bus_id")
_MARK = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_PAIRED = 16
_FOUND_CHARACTERS = 60


class Header:
    """The columns of the rows below one header.

    Args:
        cells: The cells of the header; one of them names the time.
        processes: Whether it is the header of the process file.

    Attributes:
        names: The names in ``columns``; ``None`` for an unknown column.
        places: The position of each known column, by its name in ``columns``.
        width: Number of columns.
        time: Position of the timestamp.
        elapsed: Position of ``elapsed [s]``, or ``None``.
        key: Position of the cell that identifies the GPU. ``None`` if the rows of a sample share
            one timestamp, as gpumon's do; the timestamps of nvidia-smi's rows differ by
            milliseconds.
        is_ranked: Whether the GPUs of a sample are in the order of their keys.
        several: Whether it is a log of several machines. The host of a row is then the one that
            the user named, not what the machine calls itself.
    """

    def __init__(self, cells: Sequence[str], *, processes: bool) -> None:
        self.names = [column_name(cell, processes=processes) for cell in cells]
        self.places = {name: place for place, name in enumerate(self.names) if name is not None}
        self.width = len(cells)
        self.several = HOSTNAME.name in self.places
        if self.several:
            self.places["host"] = self.places[HOSTNAME.name]
        self.time = self.places["timestamp"]
        self.elapsed = self.places.get("elapsed [s]")
        self.key: int | None = None
        self.is_ranked = False
        if not processes and "gpumon_log" not in self.places:
            key = next((key for key in _KEYS if key in self.places), None)
            self.key = None if key is None else self.places[key]
            self.is_ranked = key != "uuid"

    def stamp(self, line: bytes) -> tuple[bytes, bytes]:
        """The cells with the timestamp and the key, of a row or of any other line."""
        if self.key is None and self.time == 0 and not line.startswith(b'"'):
            return line[: line.find(b",")], b""
        key = self.time if self.key is None else self.key
        last = max(self.time, key)
        if b'"' in line:
            cells = [cell.encode() for cell in cells_of(line)]
        else:
            cells = line.split(b",", last + 1)
        return (cells[self.time], cells[key]) if len(cells) > last else (b"", b"")


def as_header(line: bytes, *, processes: bool) -> Header | None:
    """The header in a line; ``None`` if the line is not a header with a time column."""
    cells = cells_of(line.removeprefix(_MARK))
    names = {column_name(cell, processes=processes) for cell in cells} - {None}
    if "timestamp" not in names or len(names) < 2:
        return None
    return Header(cells, processes=processes)


def first_header(block: bytes, name: str, *, processes: bool) -> tuple[int, Header]:
    """The position of a file's first header, and the header.

    Args:
        block: The file's beginning.
        name: Name of the file in messages.
        processes: Whether it should be the process file.

    Raises:
        RecordingError: The file does not begin with a header.
    """
    place = 0
    for number, line in enumerate(block.split(b"\n"), 1):
        if line.strip(_MARK + b" \r\0"):
            if (foreign := _foreign(block, line, processes=processes)) is not None:
                raise RecordingError(f"{name} {foreign}")
            header = as_header(line, processes=processes)
            if header is None:
                raise RecordingError(_no_log(line, number, name, processes=processes))
            return place, header
        place += len(line) + 1
    raise RecordingError(
        f"{name} is empty: expected headings such as {_expected(processes)} in line 1."
    )


def _foreign(block: bytes, line: bytes, *, processes: bool) -> str | None:
    """What is wrong with the file's format, and what to do; ``None`` if nothing is.

    Args:
        block: The file's beginning.
        line: Its first line that is not empty.
        processes: Whether it should be the process file.
    """
    # In UTF-16 every other byte of Latin letters is 0.
    begin = block[:_PAIRED]
    is_paired = len(begin) == _PAIRED and any(
        not any(begin[at::2]) and all(begin[1 - at :: 2]) for at in (0, 1)
    )
    if block.startswith(_UTF_16) or is_paired:
        return (
            "is in UTF-16, as a redirection in Windows PowerShell writes it: convert it with"
            " iconv -f UTF-16 -t UTF-8."
        )
    first, _, rest = line.partition(b"\r")
    if rest.strip(b"\r") and as_header(first, processes=processes) is not None:
        return "has lines that end in a carriage return alone: convert it with tr '\\r' '\\n'."
    return None


def _expected(processes: bool) -> str:
    return f"timestamp,index,uuid,{'pid' if processes else 'utilization.gpu [%]'}"


def _no_log(line: bytes, number: int, name: str, *, processes: bool) -> str:
    cells = cells_of(line.removeprefix(_MARK))
    known = [cell for cell in cells if column_name(cell, processes=False) is not None]
    if not processes and any("." in cell for cell in known):
        return (
            f"{name} has no column timestamp in line {number}, so nobody can tell when its rows"
            " were taken: add it, as in nvidia-smi --query-gpu=timestamp,index,…"
        )
    found = printable(line[: 4 * _FOUND_CHARACTERS].decode("utf-8", "replace"))
    if len(found) > _FOUND_CHARACTERS:
        found = f"{found[:_FOUND_CHARACTERS]}…"
    return (
        f"{name} is no log: expected headings such as {_expected(processes)} in line {number},"
        f" found {found!r}."
    )


def cells_of(line: bytes) -> list[str]:
    """The cells of a line; none if it is too long or cannot be parsed."""
    if len(line) > LONGEST_LINE:
        return []
    text = line.decode("utf-8", "replace").replace("\0", "").rstrip("\r")
    if '"' not in text:
        return text.split(",")
    # A writer that puts a space after each comma, as nvidia-smi does, also puts it before a quote.
    spaced = ', "' in text
    try:
        return next(csv.reader(text.splitlines(keepends=True), skipinitialspace=spaced), [])
    except csv.Error:
        return []


def row_of(line: bytes, header: Header) -> list[str]:
    """The trustworthy cells of a row.

    If there are too few cells, the last one was cut off; if there are too many, two rows were
    merged and no cell is reliable.
    """
    cells = cells_of(line)
    if len(cells) < header.width:
        return cells[:-1]
    if len(cells) > header.width and any(cells[header.width :]):
        return []
    return cells


def whole_lines(lines: Sequence[bytes], header: Header) -> Iterator[bytes]:
    """The lines, with those joined that a line break in a quoted cell separated."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        if held and read_moment(header.stamp(line)[0].decode("utf-8", "replace")) is None:
            held.append(line)
            size += 1 + len(line)
            if line.count(b'"') % 2 or size >= LONGEST_LINE:
                yield b"\n".join(held)
                held = []
            continue
        if held:
            yield b"\n".join(held)
            held = []
        if line.count(b'"') % 2 and len(line) < LONGEST_LINE:
            held, size = [line], len(line)
        else:
            yield line
    if held:
        yield b"\n".join(held)
