"""One part of a log: its two files, read as snapshots.

A part is opened when a moment in it is requested; until then only its start time is known.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import OrderedDict
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING

from gpumon.model.snapshot import Snapshot
from gpumon.model.subset import processes_on
from gpumon.recording.csv.accident_cells import sample_accidents
from gpumon.recording.csv.allocation_cells import sample_allocations
from gpumon.recording.csv.clocks import GRAIN, Clocks, clocks_at, clocks_of
from gpumon.recording.csv.compression import head, is_packed
from gpumon.recording.csv.gpu_changes import SequentialGpuReader
from gpumon.recording.csv.headings import LONGEST_LINE, first_header
from gpumon.recording.csv.index import open_sheet
from gpumon.recording.csv.process_lists import ListReader, ProcessList
from gpumon.recording.csv.rows import LIST_SECONDS
from gpumon.recording.csv.timeline import Timeline
from gpumon.recording.recording import RecordingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gpumon.model.processes import GpuProcess
    from gpumon.recording.csv.damage import DamageCounter
    from gpumon.recording.csv.files import LogFiles
    from gpumon.recording.csv.gpus import ParsedGpu
    from gpumon.recording.csv.headings import Header
    from gpumon.recording.csv.hosts import HostFilter
    from gpumon.recording.csv.index import Chunk, CsvFile, SampleSpan

LIST_FRESH = LIST_SECONDS + 1.0
"""An older list is not the newest there was: that one was empty, or was left out."""
_LISTS_KEPT = 64
_onward = attrgetter("onward")


class Part:
    """One part of a log, or what it has of one host. Not thread-safe.

    Args:
        files: Its files; the process file may be missing.
        stop: Whether to stop decompressing them.
        host: Read only the rows of this host; ``None`` reads all.

    Attributes:
        shift: Seconds by which its onward times are ahead of the recording's times.
        first: The clock readings at its first sample, before it is open that of any host; ``None``
            while there is none.
        set_back: Seconds by which its clock was set back, as far as that is known.
        identity: That of its GPU file.

    Raises:
        RecordingError: There is no such log.
    """

    def __init__(self, files: LogFiles, stop: Callable[[], bool], host: HostFilter | None) -> None:
        self.files = files
        self._stop = stop
        self._host = host
        self.shift = 0.0
        self.set_back = 0.0
        self.identity = identity(files.gpus)
        self.first = _first(files.gpus)
        self._last: Clocks | None = None
        self._gpus: CsvFile | None = None
        self._lists: CsvFile | None = None
        self._had_lists = False
        self._read: OrderedDict[tuple[float, float], ProcessList] = OrderedDict()
        self._filtered: tuple[ProcessList, frozenset[str], tuple[GpuProcess, ...]] | None = None
        self._gpu_readers: dict[Header, SequentialGpuReader] = {}
        self._list_readers: dict[Header, ListReader] = {}

    @property
    def is_open(self) -> bool:
        """Whether its files are open and indexed."""
        return self._gpus is not None

    @property
    def ends(self) -> tuple[int, int]:
        """Where the complete lines of its two files end; it must be open."""
        return self.gpus.end, -1 if self._lists is None else self._lists.end

    @property
    def has_lists(self) -> bool:
        """Whether it has a process file, as far as it was open."""
        return self._had_lists

    @property
    def is_packed(self) -> bool:
        """Whether it takes disk space while it is open."""
        return is_packed(self.files.gpus)

    @property
    def gpus(self) -> CsvFile:
        """The GPU file, which must be open."""
        if self._gpus is None:
            raise RuntimeError("the part is not open")
        return self._gpus

    @property
    def last(self) -> Clocks | None:
        """The clock readings at its last sample, or at its first if it was never open."""
        return self._last or self.first

    def open(self) -> None:
        """Open its files.

        Raises:
            RecordingError: They cannot be read any more, or have other names since rotation.
        """
        self._gpus = self._sheet(self.files.gpus)
        self._open_lists()
        if self.is_elsewhere(self.files.gpus):
            self.close()
            raise RecordingError(f"{self.files.gpus} was rotated while it was opened.")
        self._measure()

    def _measure(self) -> None:
        sheet = self.gpus
        self.first, self._last, self.set_back = sheet.first, sheet.last, sheet.set_back

    def close(self) -> None:
        """Close the files; they are reopened on demand."""
        for sheet in (self._gpus, self._lists):
            if sheet is not None:
                sheet.close()
        self._gpus = self._lists = None
        self._forget()

    def grow(self) -> None:
        """Index what was written since."""
        if self.gpus.grow():
            self._measure()
        if self._lists is None:
            self._open_lists()
        else:
            self._lists.grow()

    def is_at(self, path: Path) -> bool:
        """Whether a path leads to its GPU file."""
        return identity(path) == self.identity

    def is_elsewhere(self, path: Path) -> bool:
        """Whether a path leads to a file other than its GPU file."""
        return identity(path) not in (None, self.identity)

    def snapshot(
        self, chunk: Chunk, run: SampleSpan, damage: DamageCounter | None = None
    ) -> Snapshot:
        """The snapshot of a sample, with the recording's times.

        Args:
            chunk: Where it is.
            run: The sample.
            damage: Counts what is damaged in its rows of GPUs.
        """
        time = run.onward - self.shift
        reader = self._gpu_readers.get(chunk.header)
        if reader is None:
            reader = self._gpu_readers[chunk.header] = SequentialGpuReader(chunk.header)
        rows, host = reader.read(chunk.lines[run.first : run.stop], time, run.wall, damage)
        listing = self._list(chunk, run) if any(one.listed for one in rows) else None
        counts = {} if listing is None else listing.counts
        gpus = [
            reader.gpu(one, listed=one.listed is not None and counts.get(one.uuid, 0) >= one.listed)
            for one in rows
        ]
        at: float | None = time
        if listing is not None:
            at = min(time, listing.onward - self.shift)
        elif all(one.listed is None for one in rows):
            at = None
        return Snapshot(
            time=time,
            host=host,
            gpus=tuple(gpus),
            processes=() if listing is None else self._processes(listing, rows),
            processes_at=at,
            source="replay",
            allocations=sample_allocations(
                (gpu, row.allocated) for gpu, row in zip(gpus, rows, strict=True)
            ),
            accidents=sample_accidents((row.accidents for row in rows), time - run.wall),
        )

    def _processes(self, listing: ProcessList, rows: Sequence[ParsedGpu]) -> tuple[GpuProcess, ...]:
        """The processes that are still listed: none for GPUs whose list is empty or missing."""
        busy = frozenset(one.uuid for one in rows if one.listed)
        if busy.issuperset(listing.counts):
            return listing.processes
        known = self._filtered
        if known is None or known[0] is not listing or known[1] != busy:
            known = self._filtered = (listing, busy, processes_on(listing.processes, busy))
        return known[2]

    def _list(self, samples: Chunk, run: SampleSpan) -> ProcessList | None:
        """The process list of a sample."""
        found = self._list_run(samples, run)
        if found is None:
            return None
        chunk, listed = found
        return self._read.get((listed.onward, self.shift)) or self._read_list(chunk, listed)

    def count_lists(self, damage: DamageCounter, until: float, most: int) -> bool:
        """Count the damage of the next lists.

        Args:
            damage: Counts it; goes on behind the last list that it has seen.
            until: The onward time of the last one.
            most: The number of lists at most.

        Returns:
            Whether these were all.
        """
        sheet = self._lists
        if sheet is None or (sheet.first is None and math.isfinite(until)):
            return True
        damage.begin_file(sheet)
        chunk = sheet.at(damage.onward)
        while chunk is not None:
            damage.begin(sheet, chunk)
            for run in chunk.runs:
                if run.onward > until + GRAIN:
                    return True
                if damage.is_new(run):
                    if not most:
                        return False
                    most -= 1
                    damage.see(run)
                    self._read_list(chunk, run, damage)
            chunk = sheet.after(chunk)
        return True

    def _read_list(
        self, chunk: Chunk, listed: SampleSpan, damage: DamageCounter | None = None
    ) -> ProcessList:
        reader = self._list_readers.get(chunk.header)
        if reader is None:
            reader = self._list_readers[chunk.header] = ListReader(chunk.header)
        late = listed.onward - self.shift - listed.wall
        lines = chunk.lines[listed.first : listed.stop]
        listing = reader.read(lines, listed.onward, late, damage)
        self._read[listed.onward, self.shift] = listing
        if len(self._read) > _LISTS_KEPT:
            self._read.popitem(last=False)
        return listing

    def _list_run(self, samples: Chunk, run: SampleSpan) -> tuple[Chunk, SampleSpan] | None:
        """The newest list that is not newer than a sample, if it is recent enough."""
        if self._lists is None:
            return None
        onward = run.onward + GRAIN
        chunk = self._lists.at(onward)
        if chunk is None:
            return None
        place = bisect_right(chunk.runs, onward, key=_onward) - 1
        if place < 0:
            return None
        listed = chunk.runs[place]
        if onward - listed.onward > LIST_FRESH:
            # A clock that was set forward makes no list older.
            clocks = clocks_at(run.wall, samples.lines[run.first], samples.header)
            before = clocks_at(listed.wall, chunk.lines[listed.first], chunk.header)
            if not 0 <= clocks.elapsed - before.elapsed <= LIST_FRESH:
                return None
        return chunk, listed

    def _open_lists(self) -> None:
        # GPUs without their processes are still a log.
        with suppress(RecordingError):
            self._lists = self._sheet(self.files.processes, Timeline(self.gpus))
            self._had_lists = True

    def _sheet(self, path: Path, timeline: Timeline | None = None) -> CsvFile:
        is_lists = timeline is not None
        return open_sheet(
            path, processes=is_lists, host=self._host, timeline=timeline, stop=self._stop
        )

    def _forget(self) -> None:
        self._read.clear()
        self._gpu_readers.clear()
        self._list_readers.clear()


def identity(path: Path) -> tuple[int, int] | None:
    """The identity of a file under any name; ``None`` if there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _first(path: Path) -> Clocks | None:
    """The clock readings at the first sample of a file.

    Raises:
        RecordingError: It is not a GPU file.
    """
    block = head(path, LONGEST_LINE)
    place, header = first_header(block, str(path), processes=False)
    *lines, _ = block[place:].split(b"\n")
    for line in lines[1:]:
        clocks = clocks_of(line, header)
        if not math.isnan(clocks.wall):
            return clocks
    return None
