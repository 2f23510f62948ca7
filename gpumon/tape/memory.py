"""What this gpumon has seen, in bounded memory: finely for minutes, coarsely for days.

Kept are the newest 6,000 snapshots as they came, ten minutes at ten a second; before that one of
every second for half an hour, of every 4 seconds for two hours, of every 16 seconds for a day and
a half, of every 64 seconds for two days and of every 256 for a week. Those at which a mark lies are
kept too wherever they are no more than the others, so that what happened is seen as it happened.
A snapshot that is kept is kept whole: every field of it comes back equal to what it was, but for
times, which move where the clock was set back.

All that takes at most ``MOST_BYTES``, by its own count, which is high, and counts the texts that
others made up, such as command lines; where it would take more, the pace that takes most forgets
its oldest. Measured with tracemalloc: eight cards and a hundred
processes of which every value changes all the time, with fifty an hour that come and fifty that go,
would be 34 MiB after a day that ended at ten samples a second, all marks of the day among them: its
newest hours are known by 16 seconds, what is older by 64. Besides come the blocks that were
opened last to be looked at, of some 2 MiB each.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gpumon.tape.levels import BLOCK_BYTES, Block, Level
from gpumon.tape.marks import MarkFinder
from gpumon.tape.order import evenly, mark_beside, marks_from_to, place_at
from gpumon.tape.packing import packing, unpacked

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from gpumon.model import Snapshot
    from gpumon.tape import Mark

MOST_BYTES = 32 * 2**20
MARKS_KEPT = 5000
"""The newest ones; fewer where little may be taken."""
STEP = 1.0
"""Seconds by which the clock may fall behind without being taken for set back, as for the history,
which stands above this and says so with the same number."""

_LEVELS = ((0, 6000), (1, 1800), (4, 1800), (16, 8000), (64, 2700), (256, 2700))
"""Seconds from one to the next, and how many of them."""
_MARK_BYTES = 500
_MARKS_SHARE = 0.125
_FRESH_SHARE = 0.25
"""How much of what it may take is for what is not packed yet."""
_BLOCKS_OPEN = 2
_LEAST_SPACING = 0.001


class MemoryTape:
    """See the module; a ``gpumon.tape.Tape``. Filled by one thread at a time, asked by others.

    Args:
        full_share: A card is full below this share of free memory; ``Thresholds.full_share``.
        most_bytes: What it may take.
    """

    def __init__(self, full_share: float, most_bytes: int = MOST_BYTES) -> None:
        self._levels = [Level(period, most) for period, most in _LEVELS]
        self._most_bytes = most_bytes
        self._most_marks = min(MARKS_KEPT, int(most_bytes * _MARKS_SHARE / _MARK_BYTES))
        self._finder = MarkFinder(full_share)
        self._marks: list[Mark] = []
        # The marks as they were found, and by how much they have been moved since: added up as
        # those of the blocks are, so that a mark stays at the very time of its snapshot.
        self._found: list[tuple[Mark, float]] = []
        self._last: float | None = None
        self._owed: list[Snapshot] = []
        self._owing = Lock()
        self._spacing = STEP
        self._packing: Generator[None, None, None] | None = None
        self._lock = Lock()
        self._open: OrderedDict[tuple[int, float], tuple[Block, list[Snapshot]]] = OrderedDict()
        self._reading = Lock()

    def add(self, snapshot: Snapshot) -> None:
        """Take the next snapshot; each once. A listener of a collector."""
        with self._owing:
            if self._owed:
                self._owed.append(snapshot)
            else:
                self._add(snapshot)

    def _add(self, snapshot: Snapshot) -> None:
        snapshot = self._in_order(snapshot)
        marks = self._finder.see(snapshot)
        with self._lock:
            self._last = snapshot.time
            for level in self._levels:
                level.take(snapshot, eventful=bool(marks))
            self._marks += marks
            self._found += [(mark, 0.0) for mark in marks]
            del self._marks[: -self._most_marks], self._found[: -self._most_marks]
        self._pack_on()
        self._shrink()

    def begin_with(self, past: Iterable[Snapshot]) -> None:
        """Take what was before, oldest first. It is put in order once somebody looks back."""
        self._owed = list(past)

    def settle(self) -> None:
        """Put in order what is owed, for whoever has the time before somebody looks back."""
        if self._owed:
            with self._owing:
                for snapshot in self._owed:
                    self._add(snapshot)
                self._owed = []

    @property
    def bytes(self) -> int:
        """What it takes, about."""
        return sum(level.bytes for level in self._levels) + len(self._marks) * _MARK_BYTES

    @property
    def first(self) -> float | None:
        """See ``Tape.first``."""
        self.settle()
        with self._lock:
            return min(
                (level.first for level in self._levels if level.first is not None), default=None
            )

    @property
    def last(self) -> float | None:
        """See ``Tape.last``."""
        self.settle()
        return self._last

    def at(self, time: float) -> Snapshot | None:
        """See ``Tape.at``."""
        view = self._view()
        return self._snapshot(view, place_at(view.times, time)) if view.times else None

    def between(self, first: float, last: float, most: int) -> Iterator[Snapshot]:
        """See ``Tape.between``.

        Few blocks are opened for many hours, since what is told of them is of a coarse pace; so
        there may be half as many as asked for.
        """
        all_ = chosen = self._view()
        if all_.count(first, last) > most:
            for finest in range(1, len(self._levels)):
                coarser = self._view(finest)
                if coarser.count(first, last) < most / 2:
                    break
                chosen = coarser
        places = evenly(chosen.times, first, last, most)
        for place in places:
            yield self._snapshot(chosen, place)
        # The newest one ends it, whatever its pace.
        newest = evenly(all_.times, first, last, 1)
        if newest and all_.times[newest[0]] > chosen.times[places[-1]]:
            yield self._snapshot(all_, newest[0])

    def step(self, time: float, samples: int) -> float:
        """See ``Tape.step``."""
        times = self._view().times
        if not times:
            return time
        return times[min(max(place_at(times, time) + samples, 0), len(times) - 1)]

    def marks(self, first: float, last: float) -> Sequence[Mark]:
        """See ``Tape.marks``. Known are the newest ``MARKS_KEPT``."""
        self.settle()
        with self._lock:
            return marks_from_to(self._marks, first, last)

    @property
    def marks_complete(self) -> bool:
        """Always: they are found as snapshots come."""
        return True

    def next_mark(self, time: float, *, forward: bool) -> Mark | None:
        """See ``Tape.next_mark``."""
        self.settle()
        with self._lock:
            return mark_beside(self._marks, time, forward=forward)

    def _in_order(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot at its time on the tape, where no two have the same."""
        last, time = self._last, snapshot.time
        if last is None:
            return snapshot
        if time < last - STEP:
            self._move_back(last - time + self._spacing)
        elif time <= last:
            return replace(snapshot, time=math.nextafter(last, math.inf))
        else:
            self._spacing = min(max(time - last, _LEAST_SPACING), STEP)
        return snapshot

    def _move_back(self, seconds: float) -> None:
        """Follow a clock that was set back."""
        for _ in self._packing or ():
            pass
        self._packing = None
        for level in self._levels:
            if level.fresh:
                for _ in self._pack(level):
                    pass
        with self._lock:
            for level in self._levels:
                level.move_back(seconds)
            self._found = [(mark, shift - seconds) for mark, shift in self._found]
            self._marks = [replace(mark, time=mark.time + shift) for mark, shift in self._found]

    def _pack_on(self) -> None:
        """Do the next step of the packing that is due, or all of it where there is too much."""
        while True:
            fresh = sum(level.fresh_bytes for level in self._levels)
            hurry = fresh > self._most_bytes * _FRESH_SHARE
            if self._packing is None:
                fullest = max(self._levels, key=attrgetter("fresh_bytes"))
                if fullest.fresh_bytes < BLOCK_BYTES and not hurry:
                    return
                self._packing = self._pack(fullest)
            for _ in self._packing:
                if not hurry:
                    return
            self._packing = None

    def _pack(self, level: Level) -> Generator[None, None, None]:
        snapshots = tuple(level.fresh)
        data = yield from packing(snapshots)
        block = Block([snapshot.time for snapshot in snapshots], data)
        with self._lock:
            level.seal(block)

    def _shrink(self) -> None:
        """Forget what is too much; the newest snapshots stay in any case."""
        finest = self._levels[0]
        while self.bytes > self._most_bytes:
            packed = [one for one in self._levels if len(one.blocks) > (one is finest)]
            if not packed:
                return
            with self._lock:
                max(packed, key=attrgetter("packed_bytes")).drop_oldest()

    def _view(self, finest: int = 0) -> _View:
        """What is kept: of each pace what no finer one reaches back to.

        Args:
            finest: The finest level to look at.
        """
        self.settle()
        parts: list[_Part] = []
        until = math.inf
        with self._lock:
            for level in self._levels[finest:]:
                kept = [_Part(block, block.shift, block.times) for block in level.blocks]
                kept.append(_Part(level.fresh, 0.0, [one.time for one in level.fresh]))
                first = level.first
                older = [part for part in kept if part.times and part.times[0] < until]
                parts = [part.before(until) for part in older] + parts
                if first is not None:
                    until = min(until, first)
        return _View(parts)

    def _snapshot(self, view: _View, place: int) -> Snapshot:
        part, place = view.find(place)
        if isinstance(part.source, list):
            return part.source[place]
        with self._reading:
            return self._opened(part.source, part.shift)[place]

    def _opened(self, block: Block, shift: float) -> list[Snapshot]:
        """The snapshots of a block; the last few stay open."""
        key = (id(block), shift)
        if key in self._open:
            self._open.move_to_end(key)
        else:
            self._open[key] = (block, unpacked(block.data, shift))
            if len(self._open) > _BLOCKS_OPEN:
                self._open.popitem(last=False)
        return self._open[key][1]


class _Part(NamedTuple):
    """Snapshots that are kept together.

    Attributes:
        source: The block, or the list, they stand in from its beginning on.
        shift: Seconds to add to the times in that block.
        times: Their times, after that.
    """

    source: Block | list[Snapshot]
    shift: float
    times: Sequence[float]

    def before(self, time: float) -> _Part:
        """Those that are older than a time."""
        if self.times[-1] < time:
            return self
        return self._replace(times=self.times[: bisect_left(self.times, time)])


class _View:
    """What was kept at one moment, in the order of time.

    Attributes:
        times: Of all of it.
    """

    def __init__(self, parts: list[_Part]) -> None:
        self.times = array("d")
        self._parts = parts
        self._starts: list[int] = []
        for part in parts:
            self._starts.append(len(self.times))
            self.times.extend(part.times)

    def count(self, first: float, last: float) -> int:
        """How many there are from ``first`` to ``last``."""
        return bisect_right(self.times, last) - bisect_left(self.times, first)

    def find(self, place: int) -> tuple[_Part, int]:
        """The part in which one stands, and where there."""
        number = bisect_right(self._starts, place) - 1
        return self._parts[number], place - self._starts[number]
