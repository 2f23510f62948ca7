"""Time index over a CSV log.

The index probes a file at fixed byte intervals, for the first sample that begins there. The data in
between is read on demand, one chunk at a time.

The rows have wall-clock times, and the clock may have been set back. The index converts them to
``onward`` times, which never run backwards: rows after a setback are shifted forward by it.
``elapsed [s]`` says by how much; without it, a sample immediately follows the one before. Minus
``CsvFile.set_back``, which grows with the file, onward times are the wall-clock times at the end of
the file. A list of processes has the onward time of its sample, see ``timeline``.
"""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

from gpumon.recording.csv.clocks import (
    APART,
    LONGEST_WRONG,
    STEADY,
    Clocks,
    clocks_at,
    held_below,
    jumps,
    onward_step,
    spread,
    usual_step,
    without_wrong,
)
from gpumon.recording.csv.compression import open_file
from gpumon.recording.csv.file_headers import FileHeaders
from gpumon.recording.csv.file_lines import FileLines
from gpumon.recording.csv.headings import LONGEST_LINE, Header
from gpumon.recording.csv.sample_finder import SampleFinder, begins, continues, leads
from gpumon.recording.csv.time_formats import in_hour, second_reading
from gpumon.recording.recording import RecordingError
from gpumon.text.time_parsing import day_and_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from gpumon.recording.csv.hosts import HostFilter
    from gpumon.recording.csv.sample_finder import Row
    from gpumon.recording.csv.timeline import Timeline

CHUNK = 2**16
"""Bytes between two probes."""
STRIDE = 2**20
"""The same in a long file: what can be read and searched while a person waits for a moment."""
HEADINGS_SOUGHT = 2**26
"""Bytes up to which a file is searched for further headings. In a longer one they are looked for
where the number of columns changes, as it does between versions of gpumon."""
_MOST_SET_BACK = 100 * 365.25 * 86400
"""Seconds; what was before is told as so much earlier, and there are no times for any number."""
_DIGIT = re.compile(rb"\d")
_FEW, _MOST_FEW = LONGEST_WRONG + 2, 3 * (LONGEST_WRONG + 2)
"""Samples at the start of a part that show whether its clock jumps, and if it does."""
_CHUNKS_KEPT = 2
"""That of the moment that is shown, and that of the reader in the background."""


class SampleSpan(NamedTuple):
    """The lines of one sample in a chunk, from ``first`` to before ``stop``, and its times."""

    first: int
    stop: int
    onward: float
    wall: float


class Chunk(NamedTuple):
    """The samples that begin in one part of a file.

    Attributes:
        start: Where the part begins.
        header: Its header.
        lines: Its lines; not all need be rows.
        runs: The samples.
        passed: For a line that represents several lines without a row: how many more it represents.
    """

    start: int
    header: Header
    lines: list[bytes]
    runs: list[SampleSpan]
    passed: dict[int, int]


def pieces(chunk: Chunk) -> Iterator[list[SampleSpan]]:
    """The samples of a chunk in groups of about ``CHUNK`` bytes, to read one after the other."""
    size = sum(map(len, chunk.lines))
    each = max(1, len(chunk.runs) * CHUNK // max(size, 1))
    for place in range(0, len(chunk.runs), each):
        yield chunk.runs[place : place + each]


class _Entry(NamedTuple):
    """The start of a chunk, and the clock readings at its first sample."""

    start: int
    clocks: Clocks


def open_sheet(
    path: Path,
    *,
    processes: bool,
    host: HostFilter | None = None,
    timeline: Timeline | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> CsvFile:
    """Open a file of a log: CSV, or compressed CSV by its suffix ``.gz`` or ``.zst``.

    Args:
        path: The file.
        processes: See ``CsvFile``.
        host: See ``CsvFile``.
        timeline: See ``CsvFile``.
        stop: See ``compression.open_file``.

    Raises:
        RecordingError: It is not a log file, or cannot be opened.
    """
    file, flaw = open_file(path, stop)
    try:
        return CsvFile(
            file, str(path), processes=processes, host=host, timeline=timeline, flaw=flaw
        )
    except BaseException:
        file.close()
        raise


class CsvFile:
    """One file of a log, as far as it has been indexed. Not thread-safe.

    Args:
        file: The file; ``close`` closes it.
        name: Its name in messages.
        processes: Whether it is the process file.
        host: Read only the rows of this host; ``None`` reads all.
        timeline: That of the GPU file, if this is its process file.
        flaw: What is wrong with its compressed data; ``None`` if nothing is.

    Attributes:
        processes: Whether it is the process file.

    Raises:
        RecordingError: It is not a log file, or its times are invalid.
    """

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        *,
        processes: bool,
        host: HostFilter | None = None,
        timeline: Timeline | None = None,
        flaw: str | None = None,
    ) -> None:
        self._file, self._name, self._flaw = FileLines(file), name, flaw
        self._host = host
        self.processes = processes
        self._timeline = timeline
        self._finder = SampleFinder()
        self._headers = FileHeaders(self._file, name, processes=processes)
        self._read_rows()
        self._forget()
        self.grow()

    def _read_rows(self) -> None:
        """Find out what is particular to the rows of another program."""
        other = self._headers.first.other
        if other is not None and not other.times.is_usual:
            self._file.date = _DIGIT

    def _forget(self) -> None:
        self._headers.forget()
        self._end = self._headers.place
        self._next = self._end
        self._starts = array("q")
        self._onward = array("d")
        self._clocks: list[Clocks] = []
        self._chunks: OrderedDict[int, Chunk] = OrderedDict()
        self._last: Chunk | None = None
        self._kept: tuple[int, int, list[bytes]] = (-1, -1, [])
        self._set_back = 0.0
        self._is_torn = False
        self._unplaced: int | None = None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def grow(self) -> bool:
        """Index the data added up to the last complete line; returns whether there was any.

        Raises:
            RecordingError: Its times are invalid.
        """
        size = self._file.size
        if size < self._end or (
            self._timeline is not None and self._unplaced not in (None, self._timeline.end)
        ):
            self._forget()
        end = self._file.end_of_lines(self._end, size)
        self._is_torn = size > end
        if end == self._end:
            return False
        if not self._starts and self._headers.first.other is not None:
            # There may have been no rows yet when it was read.
            self._headers.read_first()
            self._read_rows()
        seen, self._end = self._end, end
        if end <= HEADINGS_SOUGHT:
            self._headers.seek(seen, end)
        if not self._starts:
            place = self._headers.place
            first = self._file.read(place, min(self._end, place + LONGEST_LINE)).split(b"\n")
            self._finder.learn_ranks(first, self._headers.first)
        self._look_on()
        if self._starts:
            self._last = self._read_chunk(len(self._starts) - 1)
            run = self._last.runs[-1]
            self._set_back = run.onward - run.wall
            if self._set_back > _MOST_SET_BACK:
                raise RecordingError(
                    f"{self._name} cannot be put in order: its clock was set back by more than a "
                    "hundred years in all, so look for the rows where it was."
                )
        return True

    @property
    def set_back(self) -> float:
        """Total seconds by which the clock was set back."""
        return self._set_back if self._timeline is None else self._timeline.set_back

    @property
    def flaw(self) -> str | None:
        """What is wrong with it as a whole, to continue a sentence; ``None`` if nothing is.

        It is that of when the file was last looked at: one that is written now grows meanwhile.
        """
        flaw = self._flaw
        if flaw is None and self._is_torn:
            flaw = "ends in the middle of a line, which is left out"
        if flaw is None or self.last is None:
            return flaw
        return f"{flaw}; its last sample is of {day_and_time(self.last.wall)}"

    @property
    def end(self) -> int:
        """The end of the last complete line, in bytes."""
        return self._end

    @property
    def probes(self) -> list[tuple[Clocks, float]]:
        """The clocks at the first sample of each chunk, and its onward time."""
        return list(zip(self._clocks, self._onward, strict=True))

    @property
    def first(self) -> Clocks | None:
        """The clock readings at the first sample; ``None`` while there is none."""
        return self._clocks[0] if self._clocks else None

    @property
    def last(self) -> Clocks | None:
        """The clock readings at the last sample."""
        if self._last is None:
            return None
        run = self._last.runs[-1]
        return clocks_at(run.wall, self._last.lines[run.first], self._last.header)

    def at(self, onward: float) -> Chunk | None:
        """The chunk with the newest sample that is not newer than a time, or the first chunk.

        ``None`` while there is none.
        """
        return self.chunk(max(0, bisect_right(self._onward, onward) - 1))

    def after(self, chunk: Chunk) -> Chunk | None:
        """The chunk after one; ``None`` at the end."""
        return self.chunk(bisect_right(self._starts, chunk.start))

    def before(self, chunk: Chunk) -> Chunk | None:
        """The chunk before one; ``None`` at the beginning."""
        return self.chunk(bisect_left(self._starts, chunk.start) - 1)

    def before_first(self) -> Chunk:
        """The lines before the first sample, or all lines while there is no sample."""
        header = self._headers.place
        before = self._file.read(0, header).split(b"\n")[:-1]
        place = (
            header + self._file.read(header, min(self._end, header + LONGEST_LINE)).find(b"\n") + 1
        )
        stop = self._starts[0] if self._starts else self._end
        if self._host is not None and self._host.of(self._headers.first) is not None:
            # Those of other hosts.
            stop = place
        lines, passed = self._file.all_lines(place, stop, self._end)
        # An empty line in place of the header.
        shift = len(before) + 1
        passed = {number + shift: more for number, more in passed.items()}
        return Chunk(0, self._headers.first, [*before, b"", *lines], [], passed)

    @property
    def lines_before(self) -> int:
        """The number of lines before the first header."""
        return self._file.read(0, self._headers.place).count(b"\n")

    def line_number(self, chunk: Chunk, place: int) -> int:
        """The 1-based number in the file of one of the lines of a chunk."""
        keep = None if self._host is None or not chunk.runs else self._host.of(chunk.header)
        if keep is not None:
            # Lines of other hosts are between those of the chunk.
            kept = self._file.kept_lines(chunk.start, self._end, self._end, keep)
            at, _ = next(islice(kept, place, None), (chunk.start, b""))
            return self._file.line_number(at)
        passed = sum(count for at, count in chunk.passed.items() if at < place)
        return self._file.line_number(chunk.start) + place + passed

    def chunk(self, number: int) -> Chunk | None:
        """The chunk with a number; ``None`` if there is none."""
        if not 0 <= number < len(self._starts):
            return None
        if number == len(self._starts) - 1:
            return self._last
        start = self._starts[number]
        chunk = self._chunks.get(start)
        if chunk is None:
            chunk = self._chunks[start] = self._read_chunk(number)
            if len(self._chunks) > _CHUNKS_KEPT:
                self._chunks.popitem(last=False)
        else:
            self._chunks.move_to_end(start)
        return chunk

    # Looking at every so many bytes

    def _look_on(self) -> None:
        """Probe the part that was not probed yet: at fixed intervals, and below headers."""
        begin = self._next
        behind = self._headers.after(begin)
        wide: Sequence[int] = ()
        if not self._starts and self._end > HEADINGS_SOUGHT:
            wide = range(begin, self._end - STRIDE, STRIDE)
        fine = wide[-1] + STRIDE if wide else begin
        # The data after the last probe is less than two chunks, and is read with it.
        count = max(len(range(fine, self._end - CHUNK, CHUNK)), 0 if self._starts else 1)
        places = sorted({*wide, *(fine + CHUNK * number for number in range(count)), *behind})
        for place, stop in pairwise([*places, self._end]):
            self._look(place, stop)
        if self._starts:
            self._next = max(fine + CHUNK * count, behind[-1] + 1 if behind else 0)
        elif self._host is not None:
            # Nothing of the host so far; the line break before the next line begins that search.
            self._next = max(self._next, self._end - 1)

    def _look(self, place: int, stop: int) -> None:
        """Find the first sample that begins in a part of the file."""
        found = self._first_sample(place, stop)
        if found is None:
            return
        entry, width = found
        header, _ = self._headers.at(place)
        if width != header.width and self._end > HEADINGS_SOUGHT and self._starts:
            headings = self._headers.seek(self._starts[-1], entry.start)
            if headings:
                for begin, end in pairwise([*headings, stop]):
                    self._look(begin, end)
                return
        onward = self._placed(entry.clocks, -math.inf)
        if self._starts:
            before = _Entry(self._starts[-1], self._clocks[-1])
            entry = self._with_hour(before, self._onward[-1], entry)
            onward = self._following(before, self._onward[-1], entry)
        self._starts.append(entry.start)
        self._onward.append(onward)
        self._clocks.append(entry.clocks)

    def _first_sample(self, place: int, stop: int) -> tuple[_Entry, int] | None:
        """The first sample that begins in a part of the file, and the width of its first row.

        In a log of another program, a later one if the clock may be wrong at the first.

        If the part begins with a header, that is the first row. Otherwise it begins within a line,
        and the first row only shows whether the next one begins a sample.
        """
        header, fresh = self._headers.at(place)
        keep = None if self._host is None else self._host.of(header)
        before: Row | None = None
        lines: Iterable[tuple[int, bytes]]
        if keep is None:
            lines = ((at, line) for at, line, _ in self._file.lines(place, stop, self._end))
        else:
            lines = self._file.kept_lines(place, stop, self._end, keep)
            # No row of the host comes before the first one.
            fresh = fresh or not self._starts
        left: int | None = None
        # No chunk has the samples before the first one of the file, or of a header.
        takes_first = fresh or header.other is None or not self._starts
        samples: list[tuple[_Entry, int]] = []
        for at, line in lines:
            if at == place:
                continue
            if samples and at - samples[0][0].start > CHUNK:
                break
            row = None if continues(before, line, header) else self._finder.row(line, header)
            if row is not None:
                if fresh if before is None else _begins_apart(before, row, header):
                    entry = _Entry(at if left is None else left, clocks_at(row.wall, line, header))
                    samples.append((entry, len(header.split(line))))
                    if takes_first:
                        return samples[0]
                    if len(samples) == _FEW and _longest_steady(samples)[1] == _FEW:
                        break
                    if len(samples) == _MOST_FEW:
                        break
                before, left = row, None
            elif left is None and leads(before, line, header, fresh=fresh):
                left = at
        if not samples:
            return None
        first, count = _longest_steady(samples)
        # The one before it ends the chunk before: it shows that the clock is right again.
        return samples[first + 1 if count > 1 else first]

    def _placed(self, clocks: Clocks, before: float) -> float:
        """The onward time of a list on the timeline, or of the first sample of a file.

        A list without a sample follows the one before.
        """
        if self._timeline is not None:
            onward = self._timeline.place(clocks, before)
            if onward is not None and onward > before:
                return onward
            # Its sample may not be written yet.
            self._unplaced = self._timeline.end
        return clocks.wall if math.isinf(before) else before + APART

    def _following(self, before: _Entry, onward: float, after: _Entry) -> float:
        """The onward time of the first sample of a chunk, from that of the chunk before.

        Reads the data in between only if the clocks disagree.
        """
        if self._timeline is not None:
            return self._placed(after.clocks, onward)
        wall = after.clocks.wall - before.clocks.wall
        passed = after.clocks.elapsed - before.clocks.elapsed
        # Both clocks go back where a file was appended to itself.
        if wall > 0 and (math.isnan(passed) or abs(passed - wall) <= STEADY):
            return onward + max(wall, APART)
        chunk = self._make_chunk(before, onward, after.start, following=after.clocks.wall)
        run = chunk.runs[-1]
        last = clocks_at(run.wall, chunk.lines[run.first], chunk.header)
        return run.onward + onward_step(last, after.clocks)

    def _with_hour(self, before: _Entry, onward: float, after: _Entry) -> _Entry:
        """A chunk's start; in an hour that the clock shows twice, which of the two it is.

        Only the samples since the chunk before show that.
        """
        wall = after.clocks.wall
        if not _are_local(self._headers.at(after.start)[0]) or second_reading(wall) == wall:
            return after
        walls = [run.wall for run in self._make_chunk(before, onward, after.start).runs]
        wall = in_hour(wall, walls[-1], usual_step(walls))
        return after._replace(clocks=after.clocks._replace(wall=wall))

    # Chunks

    def _read_chunk(self, number: int) -> Chunk:
        entry, onward = _Entry(self._starts[number], self._clocks[number]), self._onward[number]
        if number + 1 == len(self._starts):
            return self._make_chunk(entry, onward, self._end)
        following = number + 1
        by_wall = self._clocks[following].wall - entry.clocks.wall
        return self._make_chunk(
            entry,
            onward,
            self._starts[following],
            following=self._clocks[following].wall,
            limit=self._onward[following],
            is_quiet=abs(self._onward[following] - onward - by_wall) < APART,
        )

    def _make_chunk(
        self,
        entry: _Entry,
        onward: float,
        stop: int,
        *,
        following: float = math.inf,
        limit: float = math.inf,
        is_quiet: bool = False,
    ) -> Chunk:
        """Read a chunk.

        Args:
            entry: Where it starts.
            onward: The onward time of its first sample.
            stop: Where it ends in the file.
            following: The wall-clock time of the sample after it.
            limit: The onward time of that sample.
            is_quiet: Whether the clock was not set between its first sample and the one after it.
        """
        header, _ = self._headers.at(entry.start)
        passed: dict[int, int] = {}
        keep = None if self._host is None else self._host.of(header)
        if keep is not None:
            lines = self._kept_lines(entry.start, stop, keep)
        else:
            lines, passed = self._file.all_lines(entry.start, stop, self._end)
        # No data is readable if the disk fails, or if the file was truncated just now.
        lines = lines or [b""]
        found = self._finder.samples(lines, header) or [(0, entry.clocks.wall)]
        walls = [wall for _, wall in found]
        if _are_local(header):
            walls[0] = entry.clocks.wall
            usual = usual_step(walls)
            for number in range(1, len(walls)):
                walls[number] = in_hour(walls[number], walls[number - 1], usual)
        if header.other is not None:
            walls = without_wrong(walls)
            walls = spread(walls, following, header.other.times.precision)
            found = [(first, wall) for (first, _), wall in zip(found, walls, strict=True)]
        is_quiet = is_quiet and walls[-1] - walls[0] < limit - onward
        if is_quiet and all(one < other for one, other in pairwise(walls)):
            times = [wall + (onward - walls[0]) for wall in walls]
        else:
            clocks = [clocks_at(wall, lines[first], header) for first, wall in found]
            times = [onward]
            for before, after in pairwise(clocks):
                if self._timeline is None:
                    times.append(times[-1] + onward_step(before, after))
                else:
                    times.append(self._placed(after, times[-1]))
            times = held_below(times, clocks, limit)
        stops = [first for first, _ in found[1:]] + [len(lines)]
        runs = [
            SampleSpan(first, end, time, wall)
            for (first, wall), end, time in zip(found, stops, times, strict=True)
        ]
        return Chunk(entry.start, header, lines, runs, passed)

    def _kept_lines(self, start: int, stop: int, keep: Callable[[bytes], bool]) -> list[bytes]:
        """The lines of the host in a part of the file.

        A host that is gone leaves a last chunk that grows with the file: what was read of it is
        not read again.
        """
        begin, end, known = self._kept
        if begin != start or end > stop:
            end, known = start, []
        more = self._file.kept_lines(end, stop, self._end, keep)
        lines = [*known, *(line for _, line in more)]
        self._kept = start, stop, lines
        return lines


def _begins_apart(before: Row, row: Row, header: Header) -> bool:
    """Whether a row begins a sample with another time than the row before.

    Those with the same time are spread together, so they stay in one chunk.
    """
    return begins(before, row, header) and (header.other is None or row.wall != before.wall)


def _longest_steady(samples: Sequence[tuple[_Entry, int]]) -> tuple[int, int]:
    """The first of the most samples in a row whose clock does not jump, and their number."""
    edges = [0, *jumps([entry.clocks.wall for entry, _ in samples]), len(samples)]
    first, stop = max(pairwise(edges), key=lambda edge: edge[1] - edge[0])
    return first, stop - first


def _are_local(header: Header) -> bool:
    """Whether an hour of its times comes twice when summer time ends."""
    return header.other is not None and header.other.times.are_local
