"""What of a log is damaged, missing or repeated: counts it, and says so."""

from __future__ import annotations

import math
from copy import copy
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.recording.csv.cells import DAMAGED, IMPOSSIBLE
from gpumon.recording.csv.clocks import GRAIN, STEADY
from gpumon.recording.csv.headings import as_header
from gpumon.recording.csv.nvidia_smi import is_lost_gpu, is_message
from gpumon.recording.csv.repeats import Repeats
from gpumon.text.formatting import counted, printable

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping
    from pathlib import Path

    from gpumon.recording.csv.headings import Header
    from gpumon.recording.csv.index import Chunk, CsvFile, SampleSpan
    from gpumon.recording.csv.sample_rows import SampleRow

_MOST_FILES = 8
"""Number of files whose damage is listed."""
_MESSAGE_CHARACTERS = 120


class Damage(Struct):
    """What of a file could not be read, is left out, or is to be mentioned.

    Attributes:
        lines: Number of damaged lines.
        first: 1-based number of the first one; ``None`` if there is none.
        repeated: Number of rows that repeat another row of their sample.
        flaw: What is wrong with the whole file, such as a wrong checksum; ``None`` if nothing is.
        refusal: Why the file was not read at all, in a sentence; ``None`` if it was.
        impossible: Number of whole lines with a value that no hardware can have.
        first_impossible: 1-based number of the first one.
        messages: Number of messages of nvidia-smi between the rows.
        first_message: The first one, with its 1-based line number.
        has_lost_message: Whether any of them is on a GPU that nvidia-smi cannot open.
        unassigned: Number of rows whose GPU is not known.
        first_unassigned: 1-based line number of the first one.
        unread: Headings of columns that have no meaning for gpumon although it lacks values.
        again: Number of samples that repeat earlier ones.
        first_again: 1-based line number of the first one.
        overlapping: Another file that may be of the same GPUs at the same time, or of others.
        before: Number of lines before the headings.
    """

    lines: int = 0
    first: int | None = None
    repeated: int = 0
    flaw: str | None = None
    refusal: str | None = None
    impossible: int = 0
    first_impossible: int | None = None
    messages: int = 0
    first_message: tuple[int, str] | None = None
    has_lost_message: bool = False
    unassigned: int = 0
    first_unassigned: int | None = None
    unread: tuple[str, ...] = ()
    again: int = 0
    first_again: int | None = None
    overlapping: Path | None = None
    before: int = 0

    def __bool__(self) -> bool:
        """Whether there is anything to report."""
        return self.is_in_lines or self.flaw is not None

    @property
    def is_in_lines(self) -> bool:
        """Whether there is more than a flaw: who reads a part of the file finds a part of it."""
        counts = (self.lines, self.repeated, self.impossible, self.messages, self.unassigned)
        return any((*counts, self.before, self.again, self.unread, self.refusal, self.overlapping))


def flaw_in(values: Container[object]) -> object:
    """``DAMAGED`` if any of these values is, else ``IMPOSSIBLE`` if any is, else ``None``."""
    return DAMAGED if DAMAGED in values else IMPOSSIBLE if IMPOSSIBLE in values else None


class DamageCounter:
    """Counts the damage of a file while its samples are read in order. Not thread-safe.

    Of a sample that is read again because it has got more lines, only these are counted. Lines are
    given by their number in the sample, or in a chunk without samples.

    Args:
        damage: Receives what is counted.

    Attributes:
        damage: What is counted.
        onward: The onward time of the last sample; infinitely early before the first one.
    """

    def __init__(self, damage: Damage) -> None:
        self.damage = damage
        self.onward = -math.inf
        self._lines = 0
        # The lines before the first sample that were read, and the end of the file then.
        self._before, self._before_end = 0, -1
        self._sheet: CsvFile | None = None
        self._chunk: Chunk | None = None
        self._repeats: Repeats | None = None
        # In the lines of the chunk: where the sample begins, and where those begin that are new.
        self._first = self._new = 0

    def branch(self) -> DamageCounter:
        """A counter that goes on from here with a damage of its own; not for a file of GPUs."""
        branch = copy(self)
        branch.damage = copy(self.damage)
        return branch

    def begin_file(self, sheet: CsvFile) -> None:
        """Count the lines before the first sample, as far as they were not yet."""
        if math.isinf(self.onward) and self._before_end != sheet.end:
            self.begin(sheet, sheet.before_first())

    def begin(self, sheet: CsvFile, chunk: Chunk) -> None:
        """Move to a chunk, or to the lines before the first sample."""
        self._sheet, self._chunk, self._first, self._new = sheet, chunk, 0, 0
        if self._repeats is None and sheet.set_back > STEADY and not sheet.processes:
            self._repeats = Repeats(sheet.set_back)
        self.damage.flaw = sheet.flaw
        if chunk.header.other is not None:
            self.damage.unread = chunk.header.other.unread
        if not chunk.runs:
            self._new, self._before = self._before, len(chunk.lines)
            self._before_end = sheet.end
            before = sheet.lines_before
            for number, line in enumerate(chunk.lines):
                self.skip(line, number, is_before=number < before)

    def is_new(self, run: SampleSpan) -> bool:
        """Whether a sample is later than the last one, or is that and has got more lines."""
        has_more = run.stop - run.first > self._lines
        return run.onward > self.onward + (-GRAIN if has_more else GRAIN)

    def see(self, run: SampleSpan) -> None:
        """Move to a sample. One may repeat an earlier one, as in a file appended to itself."""
        is_same = run.onward <= self.onward + GRAIN
        self._first, self._new = run.first, run.first + (self._lines if is_same else 0)
        self.onward, self._lines = run.onward, run.stop - run.first
        if self._repeats is None or self._chunk is None or is_same:
            return
        count = self._repeats.see(self._chunk, run)
        self.damage.again += count
        if count and self.damage.first_again is None and self._repeats.start is not None:
            self.damage.first_again = self._line_number(*self._repeats.start)

    def skip(self, line: bytes, number: int, *, is_before: bool = False) -> None:
        """Note a line without a row: it is damage unless it is empty or a header."""
        chunk, sheet = self._chunk, self._sheet
        if not line.strip() or chunk is None or sheet is None or not self._is_new(number):
            return
        if _is_header(line, chunk.header, processes=sheet.processes):
            return
        text = line.decode("utf-8", "replace")
        if not sheet.processes and is_message(text):
            damage = self.damage
            damage.messages += 1
            damage.has_lost_message = damage.has_lost_message or is_lost_gpu(text)
            if damage.first_message is None:
                damage.first_message = self._line_number(chunk, self._first + number), text.strip()
            return
        if is_before:
            self.damage.before += 1
        else:
            self.add(line, number)

    def add(self, line: bytes, number: int) -> None:
        """Note a damaged row, which may consist of several joined lines."""
        if self._chunk is None or not self._is_new(number):
            return
        place = self._first + number
        self.damage.lines += 1 + line.count(b"\n") + self._chunk.passed.get(place, 0)
        if self.damage.first is None:
            self.damage.first = self._line_number(self._chunk, place)

    def judge(self, row: SampleRow, flaw: object) -> None:
        """Note a row that is not whole, or has a value that is damaged or impossible.

        Args:
            row: The row.
            flaw: See ``flaw_in``.
        """
        if flaw is DAMAGED or not row.is_whole:
            self.add(row.line, row.number)
        elif flaw is not None and self._chunk is not None and self._is_new(row.number):
            self.damage.impossible += 1
            if self.damage.first_impossible is None:
                place = self._first + row.number
                self.damage.first_impossible = self._line_number(self._chunk, place)

    def add_unassigned(self, number: int) -> None:
        """Note a row of which nobody can tell the GPU."""
        if self._chunk is None or not self._is_new(number):
            return
        self.damage.unassigned += 1
        if self.damage.first_unassigned is None:
            place = self._first + number
            self.damage.first_unassigned = self._line_number(self._chunk, place)

    def add_repeated(self, rows: int) -> None:
        """Note rows that repeat others of the sample."""
        if self._is_new(0):
            self.damage.repeated += rows

    def _is_new(self, number: int) -> bool:
        return self._first + number >= self._new

    def _line_number(self, chunk: Chunk, place: int) -> int:
        return 0 if self._sheet is None else self._sheet.line_number(chunk, place)


def _is_header(line: bytes, header: Header, *, processes: bool) -> bool:
    if header.other is not None and header.is_same(header.split(line)):
        return True
    return b"timestamp" in line and as_header(line, processes=processes) is not None


def damage_notes(damages: Mapping[Path, Damage], most: int = _MOST_FILES) -> list[str]:
    """What is wrong with the files of logs, in sentences for the user.

    Args:
        damages: The damage of each file, also of those without.
        most: Number of files that are named.
    """
    found = [(path, damage) for path, damage in damages.items() if damage]
    sentences = [printable(one) for each in found[:most] for one in _sentences(*each)]
    more = len(found) - most
    if more > 0:
        sentences.append(f"{counted(more, 'more file')} of these logs are damaged too.")
    return sentences


def _sentences(path: Path, damage: Damage) -> Iterator[str]:
    if damage.refusal:
        yield f"{damage.refusal.rstrip('.')}; its rows are left out."
    if damage.flaw:
        yield f"{path} {damage.flaw}."
    if damage.before:
        lines = counted(damage.before, "line")
        yield f"{path} has {lines} before the headings, which gpumon skips."
    if damage.lines:
        lines = counted(damage.lines, "damaged line")
        first = "" if damage.lines == 1 else "the first is "
        yield f"{path} has {lines}, {first}line {damage.first}; unreadable values count as unknown."
    if damage.repeated:
        rows = counted(damage.repeated, "row")
        yield f"{path} has {rows} twice in a sample, which count once."
    if damage.impossible:
        lines = counted(damage.impossible, "line")
        first = "" if damage.impossible == 1 else "the first is "
        yield (
            f"{path} has {lines} with values that no GPU can have, {first}line"
            f" {damage.first_impossible}; these values count as unknown."
        )
    if damage.unassigned:
        rows = counted(damage.unassigned, "row")
        first = "" if damage.unassigned == 1 else "the first is "
        yield (
            f"{path} has {rows} that may be of any GPU, {first}line {damage.first_unassigned}:"
            " others are missing there, so add index to the query."
        )
    if damage.unread:
        columns = "the column" if len(damage.unread) == 1 else "the columns"
        yield (
            f"{path}: gpumon does not know {columns} {', '.join(damage.unread)}; it reads the names"
            " of nvidia-smi --query-gpu."
        )
    if damage.again:
        rows = counted(damage.again, "earlier sample")
        yield (
            f"{path} repeats {rows} from line {damage.first_again} on. They count twice: remove"
            " them if the file was appended to itself."
        )
    if damage.overlapping is not None:
        yield (
            f"{path} and {damage.overlapping} overlap in time and have no UUIDs, so GPUs of one"
            " index count as one GPU: if the files are of one host, this is right; report files of"
            " different hosts one by one."
        )
    if damage.first_message is not None:
        number, text = damage.first_message
        messages = counted(damage.messages, "message")
        first = "" if damage.messages == 1 else "the first "
        yield (
            f"{path} has {messages} of nvidia-smi among its rows, {first}in line {number}:"
            f" {text[:_MESSAGE_CHARACTERS]}"
        )
