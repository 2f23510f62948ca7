"""Finds the marks of a log, in the background and at a pace that nobody notices.

Of each sample only those few cells are looked at that a mark can come from. Where one of them is
not as it was a sample before, ``gpumon.tape.marks`` is shown both.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.availability import is_full
from gpumon.log.cells import Cells, column_cells
from gpumon.log.headings import row_of
from gpumon.log.shelf import Shelf
from gpumon.metrics import HARMFUL_CLOCK_EVENTS
from gpumon.tape import TapeError
from gpumon.tape.marks import MarkFinder
from gpumon.tape.order import mark_beside, marks_from_to

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.log.files import LogFiles
    from gpumon.log.headings import Header
    from gpumon.log.index import Chunk, Run
    from gpumon.log.packed import Opener
    from gpumon.log.part import Part
    from gpumon.tape import Mark

_REST = 2.0
"""Seconds of rest for each second of work, at the least: the screen is drawn meanwhile."""
_HEAD_START = 0.5
"""Seconds that whoever opened the log has for the first frame."""
_AGAIN = 1.0
"""Seconds until it is looked whether the log has grown."""
_STOPPING = 0.3
"""Seconds for which the end of the search is waited for: it may be in a read that hangs."""
_SAME_AS_BEFORE = ("uuid", "index", "status", "processes", "gpu_recovery_action", "xid", "xid.at")


class Finder:
    """Looks through a log from its beginning, on a thread of its own.

    Args:
        files: The log.
        full_share: A card is full below this share of free memory.
        opener: Opens its files.
    """

    def __init__(self, files: LogFiles, full_share: float, opener: Opener) -> None:
        self._files = files
        self._opener = opener
        self._full_share = full_share
        self._marks: list[Mark] = []
        self._stopping = threading.Event()
        self._settled = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="gpumon-log-marks", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking. May be called more than once. A read that hangs goes with the process."""
        self._stopping.set()
        self._thread.join(_STOPPING)

    def wait(self, timeout: float) -> bool:
        """Wait until the log has been looked through as far as it goes; whether it has."""
        return self._settled.wait(timeout)

    def marks(self, first: float, last: float) -> Sequence[Mark]:
        """See ``Tape.marks``."""
        return marks_from_to(self._marks, first, last)

    def next_mark(self, time: float, *, forward: bool) -> Mark | None:
        """See ``Tape.next_mark``."""
        return mark_beside(self._marks, time, forward=forward)

    def _look_on(self) -> None:
        if self._stopping.wait(_HEAD_START):
            return
        try:
            shelf = Shelf(self._files, self._opener)
        except TapeError:
            # Whoever opened the log has just been told the same.
            self._settled.set()
            return
        try:
            search = _Search(shelf, self._full_share)
            while not self._stopping.is_set():
                began = time.thread_time()
                found = search.go_on()
                # Others look at this list: it is replaced, and never changed.
                self._marks = search.marks()
                if found:
                    rest = _REST * (time.thread_time() - began)
                else:
                    self._settled.set()
                    rest = _AGAIN
                self._stopping.wait(rest)
        finally:
            shelf.close()


class _Search:
    """Looks through a log, a chunk at a time."""

    def __init__(self, shelf: Shelf, full_share: float) -> None:
        self._shelf = shelf
        self._finder = MarkFinder(full_share)
        self._full_share = full_share
        self._glance: _Glance | None = None
        self._part: Part | None = None
        self._done = float("-inf")
        self._before: tuple[Part, Chunk, Run] | None = None
        self._state: object = None
        self._shown: Run | None = None
        self._found: list[tuple[Part, float, Mark]] = []
        self._found_in: dict[Part, None] = {}
        self._made: list[Mark] = []
        self._shifts: list[float] = []

    def go_on(self) -> bool:
        """Look through what follows; whether there was any."""
        spot = self._shelf.after(self._part, self._done)
        if spot is None:
            return False
        part, chunk = spot.part, spot.chunk
        if self._glance is None or self._glance.header is not chunk.header:
            self._glance = _Glance(chunk.header, self._full_share)
        for run in chunk.runs[spot.number :]:
            self._see(part, chunk, run, self._glance)
        self._part, self._done = part, chunk.runs[-1].onward
        return True

    def marks(self) -> list[Mark]:
        """All that were found, by the tape's clock as it goes now."""
        shifts = [part.shift for part in self._found_in]
        if shifts[: len(self._shifts)] != self._shifts:
            self._made = []
        self._shifts = shifts
        new = self._found[len(self._made) :]
        if new:
            made = (replace(mark, time=onward - part.shift) for part, onward, mark in new)
            self._made = [*self._made, *made]
        return self._made

    def _see(self, part: Part, chunk: Chunk, run: Run, glance: _Glance) -> None:
        state = (glance.state(chunk, run), part.who(run))
        if state != self._state and self._before is not None:
            before = self._before
            if before[2] is not self._shown:
                self._show(*before)
            self._show(part, chunk, run)
            self._shown = run
        self._before, self._state = (part, chunk, run), state

    def _show(self, part: Part, chunk: Chunk, run: Run) -> None:
        for mark in self._finder.see(part.snapshot(chunk, run)):
            self._found.append((part, run.onward, mark))
            self._found_in[part] = None


class _Glance:
    """What is looked at in the rows below one heading."""

    def __init__(self, header: Header, full_share: float) -> None:
        self.header = header
        self._full_share = full_share
        places = header.places
        self._same = [places[name] for name in _SAME_AS_BEFORE if name in places]
        self._reasons = places.get("clocks_event_reasons.active")
        self._free, self._total = places.get("memory.free [MiB]"), places.get("memory.total [MiB]")
        self._slowed = column_cells("clocks_event_reasons.active", processes=False, reasons=False)
        self._sizes = Cells(_mebibytes)
        used = [*self._same, self._reasons or 0, self._free or 0, self._total or 0, header.time]
        self._split = max(used) + 1

    def state(self, chunk: Chunk, run: Run) -> object:
        """Something that differs where a mark may have to be set."""
        return [self._of(line) for line in chunk.lines[run.first : run.stop]]

    def _of(self, line: bytes) -> object:
        header = self.header
        if b'"' not in line and line.count(b",") == header.width - 1:
            cells = line.decode("utf-8", "replace").split(",", self._split)
        else:
            cells = row_of(line, header)
        try:
            return (
                [cells[place] for place in self._same],
                None if self._reasons is None else self._harm(cells[self._reasons]),
                self._is_full(cells),
            )
        except IndexError:
            return cells

    def _harm(self, cell: str) -> int | None:
        reasons = self._slowed[cell]
        return reasons & HARMFUL_CLOCK_EVENTS if isinstance(reasons, int) else None

    def _is_full(self, cells: list[str]) -> bool | None:
        if self._free is None or self._total is None:
            return None
        free, total = self._sizes[cells[self._free]], self._sizes[cells[self._total]]
        if not isinstance(free, float) or not isinstance(total, float):
            return None
        return is_full(free, total, self._full_share)


def _mebibytes(cell: str) -> float:
    return float(cell.strip().removesuffix(" MiB"))
