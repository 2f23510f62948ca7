"""The header of a log file: which columns its rows have; and lines split into cells."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from gpumon.recording.csv.cells import read_moment
from gpumon.recording.csv.columns import HOSTNAME, column_name
from gpumon.recording.recording import RecordingError
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.recording.csv.other_logs import OtherLog
    from gpumon.recording.csv.other_names import Heading

LONGEST_LINE = 2**17
"""Bytes of the longest line that is read; those that gpumon writes are far below it."""

_OWN_COLUMN = "gpumon_log"
"""Stands in every heading of gpumon's."""
_OWN_CLOCK = "elapsed [s]"
"""What other programs call so may be any other time, such as that of an epoch of a training."""
_FOUND_CHARACTERS = 60
_MARK = b"\xef\xbb\xbf"
_DELIMITERS = (",", ";", "\t")
_HEADING_CHARACTERS = 2**14
"""A longer line is no header."""
_MEASURED = ("utilization", "memory", "temperature", "power", "clocks")
"""How the names of columns begin that only a log of GPUs has."""
_LINES_BEFORE = 100
"""Lines among which the first header is sought."""


class Header:
    """The columns of the rows below one header.

    Args:
        texts: The cells of the header; one of them names the time.
        processes: Whether it is the header of the process file.
        delimiter: What separates the cells.

    Attributes:
        names: The names in ``columns``; ``None`` for an unknown column.
        texts: The headings as written.
        places: The position of each known column, by its name in ``columns``.
        width: Number of columns.
        time: Position of the timestamp.
        elapsed: Position of ``elapsed [s]``, or ``None``.
        key: Position of the cell that identifies the GPU in a log of another program. ``None`` if
            there is none, and in gpumon's, where the rows of a sample share one timestamp.
        is_ranked: Whether the GPUs of a sample are in the order of their keys.
        several: Whether it is a log of several machines. The host of a row is then the one that
            the user named, not what the machine calls itself.
        other: What is particular to a log of another program, such as nvidia-smi, whose rows have
            times that differ by milliseconds; ``None`` for a file of gpumon.
    """

    def __init__(self, texts: Sequence[str], *, processes: bool, delimiter: str = ",") -> None:
        self.texts = [text.strip() for text in texts]
        self.width = len(texts)
        self.key: int | None = None
        self.is_ranked = False
        self.other: OtherLog | None = None
        headings: list[Heading] = []
        if processes or _is_own(texts):
            self.names = [column_name(text, processes=processes) for text in self.texts]
        else:
            headings = _headings(self.texts)
            self.names = [heading.name for heading in headings]
        self.places = {name: place for place, name in enumerate(self.names) if name is not None}
        # Rows of another program are of a single host.
        self.several = HOSTNAME.name in self.places and not headings
        if HOSTNAME.name in self.places:
            self.places["host"] = self.places[HOSTNAME.name]
        self.time = self.places["timestamp"]
        self.elapsed = self.places.get(_OWN_CLOCK)
        if headings:
            from gpumon.recording.csv.other_logs import KEYS, OtherLog

            self.set_key(next((name for name in KEYS if name in self.places), None))
            self.other = OtherLog(self, delimiter, headings)

    def set_key(self, name: str | None, place: int | None = None) -> None:
        """Set the column that identifies the GPU, by default where its name is."""
        self.key = place if name is None or place is not None else self.places[name]
        self.is_ranked = name in ("index", "pci.bus_id")

    def stamp(self, line: bytes) -> tuple[bytes, bytes]:
        """The cells with the timestamp and the key, of a row or of any other line."""
        is_plain = self.other is None or self.other.is_plain
        if is_plain and self.key is None and self.time == 0 and not line.startswith(b'"'):
            return line[: line.find(b",")], b""
        key = self.time if self.key is None else self.key
        last = max(self.time, key)
        if b'"' in line or not is_plain:
            cells = [cell.encode() for cell in self.split(line)]
        else:
            cells = line.split(b",", last + 1)
        if len(cells) <= last:
            return b"", b""
        return cells[self.time], b"" if self.key is None else cells[key]

    def moment(self, stamp: bytes) -> float | None:
        """The time in a timestamp; ``None`` if it cannot be read."""
        text = stamp.decode("utf-8", "replace")
        return read_moment(text) if self.other is None else self.other.times.read(text)

    def split(self, line: bytes) -> list[str]:
        """The cells of a line; none if it is too long or cannot be parsed."""
        if self.other is None:
            return cells_of(line)
        return self.other.split(cells_of(line, self.other.delimiter))

    def is_same(self, cells: Sequence[str]) -> bool:
        """Whether these are the cells of the header, written again."""
        return len(cells) == self.width and cells[self.time].strip() == self.texts[self.time]


def _is_own(texts: Sequence[str]) -> bool:
    """Whether gpumon wrote these headings."""
    return any(text.strip() == _OWN_COLUMN for text in texts)


def _headings(texts: Sequence[str]) -> list[Heading]:
    """What each heading of another program means; a meaning counts once."""
    from gpumon.recording.csv.other_names import Heading, heading_of

    strict = [column_name(text, processes=False) for text in texts]
    # A name of nvidia-smi is more certain than one that a script chose.
    found, taken = [], {name for name in strict if name is not None}
    for text, name in zip(texts, strict, strict=True):
        heading = heading_of(text)
        if heading.name == _OWN_CLOCK or (name is None and heading.name in taken):
            heading = Heading(None)
        elif heading.name is not None:
            taken.add(heading.name)
        found.append(heading)
    return found


def as_header(line: bytes, *, processes: bool) -> Header | None:
    """The header in a line; ``None`` if the line is not a header with a time column."""
    if len(line) > _HEADING_CHARACTERS:
        return None
    line = line.removeprefix(_MARK)
    if processes or _OWN_COLUMN.encode() in line:
        cells = cells_of(line)
        names = {column_name(cell, processes=processes) for cell in cells} - {None}
        if "timestamp" in names and len(names) > 1:
            return Header(cells, processes=processes)
        if processes or _is_own(cells):
            return None
    from gpumon.recording.csv.other_names import heading_of

    for delimiter in _DELIMITERS:
        cells = cells_of(line, delimiter)
        if len(cells) < 2:
            continue
        names = {heading_of(cell).name for cell in cells} - {None}
        if "timestamp" in names and len(names) > 1:
            return Header(cells, processes=False, delimiter=delimiter)
    return None


def first_header(block: bytes, name: str, *, processes: bool) -> tuple[int, Header]:
    """The position of a file's first header, and the header.

    Args:
        block: The file's beginning.
        name: Name of the file in messages.
        processes: Whether it should be the process file.

    Raises:
        RecordingError: The file does not begin with a header, or its rows cannot be read.
    """
    place, header, trouble = 0, None, None
    before: list[bytes] = []
    for number, line in enumerate(block.split(b"\n")[:_LINES_BEFORE], 1):
        if line.strip(_MARK + b" \r\0"):
            trouble = trouble or (number, line)
            # A message of nvidia-smi, of a shell or of nohup may stand before the header.
            header = as_header(line, processes=processes)
            if header is not None:
                break
            before.append(line)
        place += len(line) + 1
    if trouble is None:
        raise RecordingError(
            f"{name} is empty: expected headings such as {_expected(processes)} in line 1."
        )
    if header is not None and any(_is_row(line, header) for line in before):
        # Rows of another program, which may have written other columns.
        header = None
    if header is None or header.other is not None:
        from gpumon.recording.csv.other_kinds import other_kind

        kind = other_kind(block, header, processes=processes)
        if kind is not None:
            raise RecordingError(f"{name} {kind}.")
    if header is None:
        raise RecordingError(_no_log(trouble[1], trouble[0], name, processes=processes))
    if header.other is None and not processes and "pid" in header.texts:
        raise RecordingError(
            f"{name} has the processes of a log, without its GPUs: name the file of the GPUs, which"
            " is in the same folder."
        )
    if header.other is not None:
        try:
            header.other.learn(block[place:].split(b"\n")[1:-1])
        except ValueError as error:
            raise RecordingError(f"{name} {error}.") from None
    return place, header


def _is_row(line: bytes, header: Header) -> bool:
    """Whether a line before a header has as many cells, and a time."""
    from gpumon.recording.csv.time_formats import time_format

    cells = header.split(line)
    if len(cells) != header.width:
        return False
    try:
        return time_format([cells[header.time]]).read(cells[header.time]) is not None
    except ValueError:
        return False


def _expected(processes: bool) -> str:
    return f"timestamp,index,uuid,{'pid' if processes else 'utilization.gpu [%]'}"


def _no_log(line: bytes, number: int, name: str, *, processes: bool) -> str:
    if not processes and (wrong := _wrong_headings(line.removeprefix(_MARK), number)) is not None:
        return f"{name} {wrong}"
    found = printable(line[: 4 * _FOUND_CHARACTERS].decode("utf-8", "replace"))
    if len(found) > _FOUND_CHARACTERS:
        found = f"{found[:_FOUND_CHARACTERS]}…"
    what = "is JSON and no log" if line.lstrip()[:1] in (b"{", b"[") else "is no log"
    return (
        f"{name} {what}: expected headings such as {_expected(processes)} in line {number},"
        f" found {found!r}."
    )


def _wrong_headings(line: bytes, number: int) -> str | None:
    """What is wrong with headings that have no column of times, as the rest of a sentence."""
    from gpumon.recording.csv.other_names import heading_of

    for delimiter in _DELIMITERS:
        cells = cells_of(line, delimiter)
        known = [cell for cell in cells if heading_of(cell).name is not None]
        before, found, after = cells[0].partition("timestamp") if cells else ("", "", "")
        if known and found and before.strip() and not after.strip():
            return (
                f"has {printable(before[:_FOUND_CHARACTERS])!r} before the column timestamp in line"
                f" {number}, as srun -l, docker logs or ts write it before each line: remove it"
                " from all lines."
            )
        names = [heading_of(cell).name or "" for cell in known]
        if any("." in cell for cell in known) or any(name.startswith(_MEASURED) for name in names):
            return (
                f"has no column timestamp in line {number}, so the times of its rows are unknown:"
                " add it, as in nvidia-smi --query-gpu=timestamp,index,…"
            )
    return None


def cells_of(line: bytes, delimiter: str = ",") -> list[str]:
    """The cells of a line; none if it is too long or cannot be parsed."""
    if len(line) > LONGEST_LINE:
        return []
    text = line.decode("utf-8", "replace").replace("\0", "").rstrip("\r")
    if '"' not in text:
        return text.split(delimiter)
    # A writer that puts a space after each comma, as nvidia-smi does, also puts it before a quote.
    spaced = f'{delimiter} "' in text
    try:
        lines = text.splitlines(keepends=True)
        return next(csv.reader(lines, delimiter=delimiter, skipinitialspace=spaced), [])
    except csv.Error:
        return []
