"""An archive as a recording: any moment of the last days, read from a few kilobytes of its files.

It may be written by another program meanwhile: it grows at its end and loses its oldest files.
"""

from __future__ import annotations

import math
import threading
import time as clock
from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from gpumon.model.interval import MAX_INTERVAL
from gpumon.model.time_shift import TimeShift
from gpumon.recording.archive.clock_changes import clock_shifts, segment_span
from gpumon.recording.archive.folder import segments_at
from gpumon.recording.archive.segment import Segment, read_header
from gpumon.recording.archive.segment_format import (
    FRAME_SAMPLES,
    encode_thresholds,
)
from gpumon.recording.memory.ordering import evenly, event_beside, events_from_to
from gpumon.recording.recording import Event, RecordingError, WholeRecording
from gpumon.recording.series import LATE
from gpumon.system.files import beginning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.archive.folder import SegmentFile
    from gpumon.recording.archive.segment_format import SegmentHeader
    from gpumon.recording.history import History

_SEGMENTS_OPEN = 4
_MOST_EVENTS, _MOST_ACCIDENTS = 5000, 1000
"""The newest events are known, and of older ones so many accidents: processes that start and exit
would crowd these out in hours."""
_ACCIDENT = b'"kind":"accident"'
"""In the line of an accident."""
_MOST_EVENT_BYTES = 2**20
"""Bytes of the events of one segment that are read, at most."""
_MOST_FRAMES = 8
"""So many frames are read for a range of time; of a longer one single samples are."""
GAP_SECONDS, _GAP_INTERVALS = 60.0, 3
"""A gap between two segments is longer than this."""
_FOLLOWED_SECONDS, _MOST_FOLLOWED = 60.0, 200
"""A history goes on with samples up to here, instead of beginning anew."""
_event = msgspec.json.Decoder(Event)


class _Known(NamedTuple):
    """A segment whose header was read."""

    file: SegmentFile
    header: SegmentHeader


class _Place(NamedTuple):
    """Where a sample is: the positions of its segment, of its frame, and in that."""

    segment: int
    frame: int
    number: int


class Archive(WholeRecording):
    """An archive as ``Recording``. Thread-safe.

    Args:
        folder: Its folder, or one segment that is used alone.
        refresh_seconds: Seconds between two looks into the folder, at least.
    """

    def __init__(self, folder: Path, *, refresh_seconds: float = 1.0) -> None:
        self.folder = folder
        self._refresh_seconds = refresh_seconds
        self._lock = threading.RLock()
        self._headers: dict[Path, SegmentHeader | None] = {}
        self._known: list[_Known] = []
        self._begins: list[float] = []
        self._shifts: Sequence[float] = ()
        self._open: OrderedDict[Path, Segment] = OrderedDict()
        self._gaps: list[tuple[float, float]] = []
        self._looked_at = -math.inf
        self._events: list[Event] = []
        self._searching: threading.Thread | None = None
        self._is_searched = False
        self._is_closed = False
        self._has_damage = False
        self._shift: tuple[float, TimeShift] = (0.0, TimeShift(0.0))

    def close(self) -> None:
        """Forget everything that was read."""
        self._is_closed = True
        with self._lock:
            self._open.clear()

    @property
    def hosts(self) -> set[str]:
        """The names of its machine, which may have been renamed.

        Raises:
            RecordingError: The folder cannot be read.
        """
        with self._lock:
            self._look()
            return {known.header.host for known in self._known}

    @property
    def first(self) -> float | None:
        """See ``Recording.first``."""
        with self._lock:
            self._look()
            place = self._edge(0, 0)
            return None if place is None else self._time(place)

    @property
    def last(self) -> float | None:
        """See ``Recording.last``."""
        with self._lock:
            self._look()
            place = self._edge(len(self._known) - 1, -1)
            return None if place is None else self._time(place)

    def is_kept(self, time: float, patience: float) -> bool:
        """Whether it is being kept at a time: its newest sample is near.

        Args:
            time: The time.
            patience: Seconds to that sample at most; more if samples are further apart.

        Raises:
            RecordingError: The folder cannot be read.
        """
        with self._lock:
            last = self.last
            if last is None:
                return False
            interval = min(self._known[-1].header.interval, MAX_INTERVAL)
            return abs(time - last) <= max(patience, LATE * interval)

    @property
    def is_damaged(self) -> bool:
        """Whether a part of it, as far as it was read, cannot be used."""
        with self._lock:
            return (
                self._has_damage
                or None in self._headers.values()
                or any(segment.is_damaged for segment in self._open.values())
            )

    def at(self, time: float) -> Snapshot | None:
        """See ``Recording.at``."""
        with self._lock:
            self._look()
            place = self._find(time)
            return None if place is None else self._snapshot(place)

    def between(self, first: float, last: float, most: int) -> Iterator[Snapshot]:
        """See ``Recording.between``. Of many frames only single samples are read."""
        with self._lock:
            self._look()
            times = self._times_between(first, last, most)
        before = -math.inf
        for time in times:
            snapshot = self.at(time)
            if snapshot is not None and before < snapshot.time and first <= snapshot.time <= last:
                before = snapshot.time
                yield snapshot

    def samples(self, first: float, last: float) -> Iterator[Snapshot]:
        """All samples from a time to another one, oldest first.

        Reads each frame once, and keeps one segment in memory. Samples that are damaged, or are
        removed meanwhile, are left out.

        Raises:
            RecordingError: The folder cannot be read.
        """
        with self._lock:
            self._look()
            known = list(zip(self._known, self._begins, self._shifts, strict=True))
        ends = [begin for _, begin, _ in known[1:]]
        for (segment, begin, shift), end in zip(known, [*ends, math.inf], strict=True):
            if begin <= last and first < end:
                yield from self._samples_in(segment, shift, first, last)

    def _samples_in(
        self, known: _Known, shift: float, first: float, last: float
    ) -> Iterator[Snapshot]:
        """The samples of a segment from a time to another one."""
        try:
            segment = Segment(known.file.path, known.header)
        except RecordingError:
            return
        moved = TimeShift(-shift)
        for frame in range(segment.frame_at(first + shift), segment.frames):
            for number, there in enumerate(segment.frame(frame).times):
                time = there - shift
                if time > last:
                    return
                if time < first:
                    continue
                snapshot = segment.snapshot(frame, number)
                if snapshot is None:
                    # The samples after it in the frame cannot be unpacked either.
                    self._has_damage = True
                    break
                yield _at_time(moved.snapshot(snapshot), time)
        self._has_damage |= segment.is_damaged

    def step(self, time: float, samples: int) -> float:
        """See ``Recording.step``."""
        with self._lock:
            self._look()
            place = self._find(time)
            return time if place is None else self._time(self._moved(place, samples))

    def resume(self, history: History, time: float) -> bool:
        """Bring an empty history to a time: with the intervals that had not ended, and its sample.

        Args:
            history: The history.
            time: The time; of the newest sample that is not newer.

        Returns:
            Whether the intervals are known. They are not if other thresholds were used then.
        """
        with self._lock:
            self._look()
            place = self._find(time)
            segment = None if place is None else self._segment(place.segment)
            if place is None or segment is None:
                return False
            begin, known = 0, None
            if bytes(segment.header.thresholds) == bytes(encode_thresholds(history.thresholds)):
                known = segment.standing(place.frame, place.number)
            if known is not None:
                begin, standing = known
                history.resume(standing)
            for number in range(begin, place.number + 1):
                snapshot = segment.snapshot(place.frame, number)
                if snapshot is not None:
                    history.add(snapshot)
            shift = self._shifts[place.segment]
            if shift:
                history.shift(shift)
            return known is not None

    def events(self, first: float, last: float) -> Sequence[Event]:
        """See ``Recording.events``."""
        self._search()
        return events_from_to(self._events, first, last)

    @property
    def events_complete(self) -> bool:
        """See ``Recording.events_complete``."""
        self._search()
        return self._is_searched

    def next_event(self, time: float, *, forward: bool) -> Event | None:
        """See ``Recording.next_event``."""
        self._search()
        return event_beside(self._events, time, forward=forward)

    @property
    def gaps(self) -> Sequence[tuple[float, float]]:
        """See ``Recording.gaps``."""
        return self._gaps

    # -- files ------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Find new segments, and forget those that are gone.

        Raises:
            RecordingError: The folder cannot be read.
        """
        now = clock.monotonic()
        if now - self._looked_at < self._refresh_seconds:
            return
        self._looked_at = now
        try:
            files = segments_at(self.folder)
        except OSError as error:
            raise RecordingError(f"{self.folder} cannot be read: {error.strerror}.") from error
        newest = self._known[-1].file.path if self._known else self.folder
        if newest in self._open:
            try:
                self._open[newest].grow()
            except RecordingError:
                # It was removed, and another one goes on.
                del self._open[newest]
        # The header of the last file may just be written.
        is_unread = bool(files) and self._headers.get(files[-1].path) is None
        if is_unread or {file.path for file in files} != self._headers.keys():
            self._arrange(files)

    def _arrange(self, files: Sequence[SegmentFile]) -> None:
        """Put the segments on one timeline, which never runs backwards."""
        self._headers = {file.path: self._header_of(file.path) for file in files}
        self._known = [
            _Known(file, header) for file in files if (header := self._headers[file.path])
        ]
        spans = [segment_span(known.file.path, known.header) for known in self._known]
        self._shifts = clock_shifts(spans)
        self._begins = [
            known.header.begins - shift
            for known, shift in zip(self._known, self._shifts, strict=True)
        ]
        self._gaps = [
            (end, begin)
            for known, span, shift, begin in zip(
                self._known, spans, self._shifts, self._begins[1:], strict=False
            )
            if begin - (end := span.ends - shift)
            > max(GAP_SECONDS, _GAP_INTERVALS * known.header.interval)
        ]

    def _header_of(self, path: Path) -> SegmentHeader | None:
        """The header of a segment; ``None`` if it cannot be used."""
        known = self._headers.get(path)
        if known is not None:
            return known
        try:
            return read_header(path)
        except RecordingError:
            return None

    def _segment(self, position: int) -> Segment | None:
        """A segment, opened; ``None`` if it cannot be read any more."""
        file, header = self._known[position]
        if file.path in self._open:
            self._open.move_to_end(file.path)
            return self._open[file.path]
        try:
            segment = Segment(file.path, header)
        except RecordingError:
            return None
        self._open[file.path] = segment
        if len(self._open) > _SEGMENTS_OPEN:
            self._open.popitem(last=False)
        return segment

    # -- places -----------------------------------------------------------------------------------

    def _find(self, time: float) -> _Place | None:
        """The newest sample that is not newer than a time, or the oldest sample."""
        position = max(0, bisect_right(self._begins, time) - 1)
        if position >= len(self._known):
            return None
        segment = self._segment(position)
        if segment is None or not segment.frames:
            return self._beside(position, -1) or self._beside(position, 1)
        there = time + self._shifts[position]
        frame = segment.frame_at(there)
        times = segment.frame(frame).times
        return _Place(position, frame, max(0, bisect_right(times, there) - 1))

    def _edge(self, position: int, frame: int) -> _Place | None:
        """The first (frame 0) or last (frame -1) sample of a segment, or of those beyond it."""
        while 0 <= position < len(self._known):
            segment = self._segment(position)
            if segment is not None and segment.frames:
                number = frame % segment.frames
                return _Place(position, number, frame % len(segment.frame(number).times))
            position += 1 if frame == 0 else -1
        return None

    def _beside(self, position: int, step: int) -> _Place | None:
        """The nearest sample of the segments before (step -1) or after one."""
        return self._edge(position + step, 0 if step > 0 else -1)

    def _moved(self, place: _Place, samples: int) -> _Place:
        """The place that many samples further, within the ends."""
        while True:
            segment = self._segment(place.segment)
            if segment is None:
                return place
            count = len(segment.frame(place.frame).times)
            wanted = place.number + samples
            if 0 <= wanted < count:
                return place._replace(number=wanted)
            forward = wanted >= count
            samples = wanted - count if forward else wanted + 1
            frame = place.frame + (1 if forward else -1)
            following: _Place | None
            if 0 <= frame < segment.frames:
                last = len(segment.frame(frame).times) - 1
                following = place._replace(frame=frame, number=0 if forward else last)
            else:
                following = self._beside(place.segment, 1 if forward else -1)
            if following is None:
                return place._replace(number=count - 1 if forward else 0)
            place = following

    def _time(self, place: _Place) -> float:
        """The time of a sample."""
        segment = self._segment(place.segment)
        if segment is None:
            return self._begins[place.segment]
        return segment.frame(place.frame).times[place.number] - self._shifts[place.segment]

    def _snapshot(self, place: _Place) -> Snapshot | None:
        """A sample; if it is damaged, the newest one before it that is not, or one after it."""
        for step in (-1, 1):
            at: _Place | None = place
            while at is not None:
                segment = self._segment(at.segment)
                found = None if segment is None else segment.snapshot(at.frame, at.number)
                if found is not None:
                    return self._in_order(found, self._time(at), self._shifts[at.segment])
                beside = self._moved(at, step)
                at = None if beside == at else beside
        return None

    def _in_order(self, snapshot: Snapshot, time: float, shift: float) -> Snapshot:
        """The snapshot with its times on the timeline of the archive."""
        if self._shift[0] != shift:
            self._shift = shift, TimeShift(-shift)
        return _at_time(self._shift[1].snapshot(snapshot), time)

    def _times_between(self, first: float, last: float, most: int) -> Sequence[float]:
        """About ``most`` times, at or shortly after which there are samples."""
        place = self._find(first)
        if place is None:
            return ()
        end = self._edge(len(self._known) - 1, -1)
        last = last if end is None else min(last, self._time(end))
        interval = self._known[place.segment].header.interval
        if (last - first) / interval <= FRAME_SAMPLES * min(most, _MOST_FRAMES):
            times = self._times_from(place, last)
            return [times[at] for at in evenly(times, first, last, most)]
        begin, count = max(first, self._begins[0]), max(1, most - 1)
        apart = (last - begin) / count
        wanted = [begin + apart * number for number in range(count + 1)]
        return sorted({max(first, self._frame_begin(time, apart)) for time in wanted})

    def _times_from(self, place: _Place, last: float) -> list[float]:
        """The times of all samples of the frames from that of a place to that of a time."""
        times: list[float] = []
        following: _Place | None = place
        while following is not None and (not times or times[-1] <= last):
            segment = self._segment(following.segment)
            if segment is None:
                break
            shift = self._shifts[following.segment]
            found = segment.frame(following.frame).times
            times += [time - shift for time in found]
            end = following._replace(number=len(found) - 1)
            following = self._moved(end, 1)
            following = None if following == end else following
        return times

    def _frame_begin(self, time: float, apart: float) -> float:
        """The time of the first sample of a frame, which is read without any other.

        Args:
            time: A time in the frame.
            apart: The seconds between such times; if a frame is longer the time itself is returned.
        """
        position = max(0, bisect_right(self._begins, time) - 1)
        segment = self._segment(position)
        if segment is None or not segment.frames:
            return time
        shift = self._shifts[position]
        begin, end = segment.span_of(segment.frame_at(time + shift))
        return time if end - begin > apart else begin - shift

    # -- events -----------------------------------------------------------------------------------

    def _search(self) -> None:
        """Begin to read the events, unless that has begun."""
        if self._searching is None:
            self._searching = threading.Thread(
                target=self._read_events, name="gpumon-history", daemon=True
            )
            self._searching.start()

    def _read_events(self) -> None:
        """Read the events once, newest segment first."""
        try:
            with self._lock:
                self._look()
                known = list(zip(self._known, self._shifts, strict=True))
        except RecordingError:
            known = []
        events: list[Event] = []
        for (file, _), shift in reversed(known):
            if self._is_closed:
                break
            is_full = len(events) >= _MOST_EVENTS
            found = _events_of(file.events, shift, containing=_ACCIDENT if is_full else b"")
            events = found + events
            older, newest = events[:-_MOST_EVENTS], events[-_MOST_EVENTS:]
            accidents = [event for event in older if event.accident is not None]
            self._events = events = accidents[-_MOST_ACCIDENTS:] + newest
        self._is_searched = True


def _at_time(snapshot: Snapshot, time: float) -> Snapshot:
    """The snapshot with exactly this time."""
    return snapshot if snapshot.time == time else replace(snapshot, time=time)


def _events_of(path: Path, shift: float, *, containing: bytes) -> list[Event]:
    """The events of a segment, oldest first; those that are damaged are left out.

    Args:
        path: Their file.
        shift: By how many seconds the clock was set back since.
        containing: What is in their lines.
    """
    try:
        content = beginning(path, _MOST_EVENT_BYTES)
    except OSError:
        return []
    events: list[Event] = []
    for line in content.split(b"\n") if containing in content else ():
        if containing not in line:
            continue
        try:
            event = _event.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        if not events or event.time >= events[-1].time:
            events.append(event)
    return [event.moved(-shift) for event in events] if shift else events


class ArchiveHistory:
    """The history at moments of an archive, made again for each moment that does not follow.

    Args:
        archive: The archive.
        make: Makes an empty history.
    """

    def __init__(self, archive: Archive, make: Callable[[], History]) -> None:
        self._archive, self._make = archive, make
        self._history: History | None = None

    def of(self, snapshot: Snapshot) -> History:
        """The history up to a snapshot of the archive."""
        history, time = self._history, snapshot.time
        if history is None or not 0 <= time - history.now <= _FOLLOWED_SECONDS:
            self._history = history = self._make()
            self._archive.resume(history, time)
        else:
            for one in self._archive.between(history.now, time, _MOST_FOLLOWED):
                if one.time > history.now:
                    history.add(one)
        if history.now < time:
            history.add(snapshot)
        return history
