"""The recording of this run, in bounded memory: full resolution for minutes, coarser for days.

It keeps the newest 6,000 snapshots unchanged, which is ten minutes at ten per second; before that
one per second for half an hour, one every 4 seconds for two hours, every 16 seconds for a day and a
half, every 64 seconds for two days and every 256 for a week. Snapshots with an event are kept too,
as long as they are not more than the regular ones, so that the event can be seen. A kept snapshot
is complete: every field is restored unchanged, except times, which move if the clock was set back.

All of it takes at most ``MOST_BYTES``: the encoded bytes of the newest snapshots, which count in
each tier that keeps them, and the compressed blocks of the older ones. Above that, the tier that
takes most drops its oldest snapshots. ``docs/decisions/0006-past-in-memory.md`` has the sizes.
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

from gpumon.recording.encoded import SnapshotDecoder, SnapshotEncoder
from gpumon.recording.memory.event_finder import EventFinder
from gpumon.recording.memory.ordering import evenly, event_beside, events_from_to, place_at
from gpumon.recording.memory.retention import BLOCK_BYTES, RetentionTier
from gpumon.recording.recording import WholeRecording

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.encoded import EncodedSnapshot
    from gpumon.recording.memory.block import Block
    from gpumon.recording.recording import Event

MOST_BYTES = 32 * 2**20
MARKS_KEPT = 5000
"""The newest ones; fewer where little may be taken."""
ACCIDENT_MARKS_KEPT = 256
"""So many accidents are kept that are older than the other kept events, fewer where little may be
taken: they matter most, and processes that come and go are many."""
STEP = 1.0
"""Seconds by which the clock may fall behind without being taken for set back, as for the history,
which stands above this and says so with the same number."""

_LEVELS = ((0, 6000), (1, 1800), (4, 1800), (16, 8000), (64, 2700), (256, 2700))
"""Seconds from one to the next, and how many of them."""
_MARK_BYTES = 500
_MARKS_SHARE = 0.125
_FRESH_SHARE = 0.25
"""How much of what it may take is for what is not packed yet."""
_LISTS_SHARE = 1 / 64
"""How much of it the older lists take that ``EventFinder`` needs, encoded."""
_BLOCKS_OPEN = 2
_LEAST_SPACING = 0.001


class MemoryRecording(WholeRecording):
    """A ``Recording``, filled by one thread at a time and read by others.

    Args:
        full_share: A GPU is full below this share of free memory; ``Thresholds.full_share``.
        most_bytes: Maximum size in bytes.
    """

    def __init__(self, full_share: float, most_bytes: int = MOST_BYTES) -> None:
        self._levels = [RetentionTier(period, most) for period, most in _LEVELS]
        self._most_bytes = most_bytes
        self._most_marks = min(MARKS_KEPT, int(most_bytes * _MARKS_SHARE / _MARK_BYTES))
        self._most_accidents = min(ACCIDENT_MARKS_KEPT, self._most_marks // 8)
        self._encoder, self._decoder = SnapshotEncoder(), SnapshotDecoder()
        self._finder = EventFinder(full_share, int(most_bytes * _LISTS_SHARE))
        self._events: list[Event] = []
        # The events as found, and how far they have been shifted since: summed in the same way as
        # for blocks, so that an event keeps exactly the time of its snapshot.
        self._found: list[tuple[Event, float]] = []
        self._last: float | None = None
        self._owed: list[Snapshot] = []
        self._owing = Lock()
        self._spacing = STEP
        self._lock = Lock()
        self._open: OrderedDict[tuple[int, float], tuple[Block, list[Snapshot]]] = OrderedDict()
        self._reading = Lock()

    def add(self, snapshot: Snapshot) -> None:
        """Add the next snapshot; each one once. A listener of a collector."""
        with self._owing:
            if self._owed:
                self._owed.append(snapshot)
            else:
                self._add(snapshot)

    def _add(self, snapshot: Snapshot) -> None:
        snapshot = self._in_order(snapshot)
        found = self._finder.see(snapshot)
        encoded = self._encoder.encode(snapshot)
        with self._lock:
            self._last = snapshot.time
            for level in self._levels:
                level.take(encoded, eventful=bool(found))
            self._events += found
            self._found += [(event, 0.0) for event in found]
            self._drop_events()
        self._pack_full()
        self._shrink()

    def begin_with(self, past: Iterable[Snapshot]) -> None:
        """Prepend older snapshots, oldest first. They are sorted in on the first query."""
        self._owed = list(past)

    def settle(self) -> None:
        """Sort in the prepended snapshots; call it when there is time before the first query."""
        if self._owed:
            with self._owing:
                for snapshot in self._owed:
                    self._add(snapshot)
                self._owed = []

    @property
    def bytes(self) -> int:
        """Its approximate size in bytes."""
        return sum(level.bytes for level in self._levels) + len(self._events) * _MARK_BYTES

    @property
    def first(self) -> float | None:
        """See ``Recording.first``."""
        self.settle()
        with self._lock:
            return min(
                (level.first for level in self._levels if level.first is not None), default=None
            )

    @property
    def last(self) -> float | None:
        """See ``Recording.last``."""
        self.settle()
        return self._last

    def at(self, time: float) -> Snapshot | None:
        """See ``Recording.at``."""
        view = self._view()
        return self._snapshot(view, place_at(view.times, time)) if view.times else None

    def between(self, first: float, last: float, most: int) -> Iterator[Snapshot]:
        """See ``Recording.between``.

        Few blocks are opened for a range of many hours, because its snapshots come from a coarse
        tier; so the result may have only half as many snapshots as requested.
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
        # The newest snapshot ends the range, whatever its tier.
        newest = evenly(all_.times, first, last, 1)
        if newest and all_.times[newest[0]] > chosen.times[places[-1]]:
            yield self._snapshot(all_, newest[0])

    def step(self, time: float, samples: int) -> float:
        """See ``Recording.step``."""
        times = self._view().times
        if not times:
            return time
        return times[min(max(place_at(times, time) + samples, 0), len(times) - 1)]

    def events(self, first: float, last: float) -> Sequence[Event]:
        """See ``Recording.events``.

        The newest ``MARKS_KEPT`` are known, and the newest ``ACCIDENT_MARKS_KEPT`` accidents that
        are older.
        """
        self.settle()
        with self._lock:
            return events_from_to(self._events, first, last)

    @property
    def events_complete(self) -> bool:
        """Always true: events are found as snapshots arrive."""
        return True

    def next_event(self, time: float, *, forward: bool) -> Event | None:
        """See ``Recording.next_event``."""
        self.settle()
        with self._lock:
            return event_beside(self._events, time, forward=forward)

    def _drop_events(self) -> None:
        excess = max(0, len(self._events) - self._most_marks)
        older = range(excess)
        kept = [at for at in older if self._events[at].accident is not None]
        kept = kept[max(0, len(kept) - self._most_accidents) :]
        self._events[:excess] = [self._events[at] for at in kept]
        self._found[:excess] = [self._found[at] for at in kept]

    def _in_order(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with its time in the recording, where no two have the same."""
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
        for level in self._levels:
            if level.fresh:
                self._pack(level)
        with self._lock:
            for level in self._levels:
                level.move_back(seconds)
            self._found = [(mark, shift - seconds) for mark, shift in self._found]
            self._events = [event.moved(shift) for event, shift in self._found]

    def _pack_full(self) -> None:
        """Pack the fullest tier if it is due: one per sample, more if memory runs short."""
        while True:
            fullest = max(self._levels, key=attrgetter("fresh_bytes"))
            fresh = sum(level.fresh_bytes for level in self._levels)
            short = fresh > self._most_bytes * _FRESH_SHARE
            if fullest.fresh_bytes >= BLOCK_BYTES or short:
                self._pack(fullest)
            if not short:
                return

    def _pack(self, level: RetentionTier) -> None:
        # Its compression takes half a MiB, which a short look at the screen never needs.
        from gpumon.recording.memory.block import Block

        block = Block(tuple(level.fresh))
        with self._lock:
            level.seal(block)

    def _shrink(self) -> None:
        """Drop what exceeds the maximum size; the newest snapshots always stay."""
        finest = self._levels[0]
        while self.bytes > self._most_bytes:
            packed = [one for one in self._levels if len(one.blocks) > (one is finest)]
            if not packed:
                return
            with self._lock:
                max(packed, key=attrgetter("packed_bytes")).drop_oldest()

    def _view(self, finest: int = 0) -> _View:
        """All kept snapshots: from each tier those older than all finer tiers.

        Args:
            finest: The finest tier to use.
        """
        self.settle()
        parts: list[_Part] = []
        until = math.inf
        with self._lock:
            for level in self._levels[finest:]:
                kept = [_Part(block, block.shift, block.times) for block in level.blocks]
                kept.append(_Part(level.fresh, 0.0, [snapshot.time for snapshot in level.fresh]))
                first = level.first
                older = [part for part in kept if part.times and part.times[0] < until]
                parts = [part.before(until) for part in older] + parts
                if first is not None:
                    until = min(until, first)
        return _View(parts)

    def _snapshot(self, view: _View, place: int) -> Snapshot:
        part, place = view.find(place)
        with self._reading:
            if isinstance(part.source, list):
                return self._decoder.decode(part.source[place])
            return self._opened(part.source, part.shift)[place]

    def _opened(self, block: Block, shift: float) -> list[Snapshot]:
        """The snapshots of a block; the last few blocks stay open."""
        key = (id(block), shift)
        if key in self._open:
            self._open.move_to_end(key)
        else:
            self._open[key] = (block, block.open(shift))
            if len(self._open) > _BLOCKS_OPEN:
                self._open.popitem(last=False)
        return self._open[key][1]


class _Part(NamedTuple):
    """Snapshots that are stored together.

    Attributes:
        source: The block or the list that begins with them.
        shift: Seconds to add to the times in that block.
        times: Their times, with ``shift`` added.
    """

    source: Block | list[EncodedSnapshot]
    shift: float
    times: Sequence[float]

    def before(self, time: float) -> _Part:
        """Those that are older than a time."""
        if self.times[-1] < time:
            return self
        return self._replace(times=self.times[: bisect_left(self.times, time)])


class _View:
    """The kept snapshots at one moment, in time order.

    Attributes:
        times: The times of all snapshots.
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
        """The part that contains a snapshot, and its position there."""
        number = bisect_right(self._starts, place) - 1
        return self._parts[number], place - self._starts[number]
