"""The parts of a log in order: the position of every sample, and its neighbours.

Parts are opened and closed as moments are requested. If the clock was set back in a part, that is
known once the part has been opened: everything before then moves back by it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import OrderedDict
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from gpumon.recording.csv.clocks import GRAIN, onward_step
from gpumon.recording.csv.files import parts
from gpumon.recording.csv.part import Part
from gpumon.recording.memory.ordering import evenly
from gpumon.recording.recording import RecordingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.csv.files import LogFiles
    from gpumon.recording.csv.hosts import HostFilter
    from gpumon.recording.csv.index import Chunk, SampleSpan

_SNAPSHOTS_KEPT = 128
_PACKED_OPEN = 4
"""How many unpacked parts may take disk space at a time."""
_PLAIN_OPEN = 16
_FEW_CHUNKS = 8
"""Chunks whose samples are looked at one by one for ``times_between``; more are seeked through."""
_onward = attrgetter("onward")


class Position(NamedTuple):
    """The position of a sample: part, chunk, and sample in the chunk."""

    part: Part
    chunk: Chunk
    number: int

    @property
    def run(self) -> SampleSpan:
        """The sample."""
        return self.chunk.runs[self.number]

    @property
    def time(self) -> float:
        """When it was taken, in the recording's times."""
        return self.run.onward - self.part.shift


class RotatedLog:
    """The parts of a log. Not thread-safe.

    Args:
        files: The log.
        stop: Whether to stop decompressing its files.
        host: Read only the rows of this host; ``None`` reads all.

    Attributes:
        host: That host.

    Raises:
        RecordingError: There is no such log, or no part of it can be read.
    """

    def __init__(
        self,
        files: LogFiles,
        stop: Callable[[], bool] = lambda: False,
        host: HostFilter | None = None,
    ) -> None:
        self._files = files
        self.host = host
        self._stop = stop
        self._failure: RecordingError | None = None
        self._snapshots: OrderedDict[tuple[Part, float], Snapshot] = OrderedDict()
        self._opened: OrderedDict[Part, None] = OrderedDict()
        self._parts = self._all_parts()
        self._begins: list[float] = []
        self._known: list[object] = []
        self._is_closed = False
        self.refresh()
        if not self._parts and self._failure is not None:
            raise self._failure

    def _all_parts(self) -> list[Part]:
        """The existing parts, oldest first.

        Raises:
            RecordingError: No part can be read, or the log's own file is not a log.
        """
        found = {each: self._part(each) for each in parts(self._files) or [self._files]}
        # A broken rotated part does not affect the others.
        whole = [part for part in found.values() if isinstance(part, Part)]
        for each, part in found.items():
            is_own = each == self._files
            if isinstance(part, RecordingError) and (not whole or (is_own and _has_begun(each))):
                raise part
        return whole

    def _part(self, files: LogFiles) -> Part | RecordingError:
        try:
            return Part(files, self._stop, self.host)
        except RecordingError as error:
            return error

    def close(self) -> None:
        """Close all files."""
        self._is_closed = True
        for part in {*self._parts, *self._opened}:
            part.close()

    @property
    def first(self) -> float | None:
        """The time of its oldest sample; ``None`` while it is empty."""
        return self._begins[0] if self._begins else None

    @property
    def last(self) -> float | None:
        """The time of its newest sample."""
        spot = self.find(math.inf)
        return None if spot is None else spot.time

    def refresh(self) -> None:
        """Index what was written since, also in files that rotation began."""
        if self._is_closed or not self._parts:
            return
        newest = self._parts[-1]
        if not newest.is_open:
            self._is_open(newest)
        else:
            newest.grow()
        if newest.is_elsewhere(self._files.gpus):
            self._follow(newest)
        self._arrange()

    def _follow(self, newest: Part) -> None:
        """Continue with the files that rotation began."""
        there = parts(self._files)
        # The old file has another name by now, or is gone.
        places = [place for place, files in enumerate(there) if newest.is_at(files.gpus)]
        for files in there[places[-1] + 1 if places else len(there) - 1 :]:
            part = self._part(files)
            if isinstance(part, RecordingError):
                # The file has no header yet; the next call tries again.
                return
            self._parts.append(part)
        # By the next look its name may be another file's.
        self._is_open(self._parts[-1])

    def _arrange(self) -> None:
        """Put the parts on one timeline, so that time never runs backwards."""
        self._parts = [part for part in self._parts[:-1] if part.first] + self._parts[-1:]
        known: list[object] = [
            (part, part.first, part.set_back, part.is_open) for part in self._parts
        ]
        if known == self._known:
            return
        self._known = known
        self._snapshots.clear()
        after: Part | None = None
        for part in reversed(self._parts):
            part.shift = part.set_back
            if after is not None and after.first is not None and part.last is not None:
                walls = after.first.wall - part.last.wall
                back = onward_step(part.last, after.first) - walls
                part.shift += after.shift + (back if back > GRAIN else 0.0)
            after = part if part.first is not None else after
        self._begins = [part.first.wall - part.shift for part in self._parts if part.first]

    def _open(self, part: Part) -> None:
        """Open a part, and close the least recently used ones."""
        part.open()
        if part is not self._parts[-1]:
            self._opened[part] = None
        for packed, most in ((True, _PACKED_OPEN), (False, _PLAIN_OPEN)):
            alike = [one for one in self._opened if one.is_packed is packed]
            for old in alike[:-most]:
                del self._opened[old]
                old.close()

    def find(self, time: float) -> Position | None:
        """The newest sample that is not newer than a time, or the oldest sample."""
        while self._begins and not self._is_closed:
            part = self._parts[max(0, bisect_right(self._begins, time + GRAIN) - 1)]
            if not self._is_open(part):
                continue
            onward = time + part.shift + GRAIN
            chunk = part.gpus.at(onward)
            if chunk is None:
                return None
            number = bisect_right(chunk.runs, onward, key=_onward) - 1
            return Position(part, chunk, max(0, number))
        return None

    def _is_open(self, part: Part) -> bool:
        """Whether a part was open; if not, it is opened now, and all times may have moved."""
        if part.is_open:
            if part in self._opened:
                self._opened.move_to_end(part)
            return True
        try:
            self._open(part)
        except RecordingError as error:
            # It existed when the log was opened: rotation has removed it since, or it is too large
            # when decompressed.
            self._failure = error
            self._parts.remove(part)
        self._arrange()
        return False

    def after(self, part: Part | None, onward: float) -> Position | None:
        """The first sample after a time in a part, or the first of all; ``None`` at the end."""
        self.refresh()
        while part in self._parts and not self._is_open(part):
            pass
        if part is None or part not in self._parts:
            # Rotation removes the oldest part, so the next remaining part follows.
            return self._first_after(-math.inf if part is None else onward - part.shift)
        chunk = part.gpus.at(onward)
        if chunk is None:
            return None
        number = bisect_right(chunk.runs, onward, key=_onward) - 1
        spot = Position(part, chunk, max(0, number))
        following = self.move(spot, 1)
        return None if following == spot else following

    def _first_after(self, time: float) -> Position | None:
        """The first sample after a time."""
        spot = self.find(time)
        if spot is None or spot.time > time + GRAIN:
            return spot
        following = self.move(spot, 1)
        return None if following == spot else following

    def move(self, spot: Position, samples: int) -> Position:
        """The position that many samples further, within the ends."""
        while True:
            count = len(spot.chunk.runs)
            wanted = spot.number + samples
            if 0 <= wanted < count:
                return spot._replace(number=wanted)
            forward = samples > 0
            beside = self._beside(spot, forward=forward)
            if beside is None:
                return spot._replace(number=count - 1 if forward else 0)
            samples = wanted - count if forward else wanted + 1
            spot = beside

    def _beside(self, spot: Position, *, forward: bool) -> Position | None:
        """The first sample of the next chunk, or the last of the previous one."""
        part, gpus = spot.part, spot.part.gpus
        chunk = gpus.after(spot.chunk) if forward else gpus.before(spot.chunk)
        if chunk is None:
            found = self._part_beside(part, forward=forward)
            if found is None:
                return None
            part, chunk = found, found.gpus.at(-math.inf if forward else math.inf)
            if chunk is None:
                return None
        return Position(part, chunk, 0 if forward else len(chunk.runs) - 1)

    def _part_beside(self, part: Part, *, forward: bool) -> Part | None:
        while True:
            place = self._parts.index(part) + (1 if forward else -1)
            if not 0 <= place < len(self._begins):
                return None
            beside = self._parts[place]
            if self._is_open(beside):
                return beside

    def times_between(self, first: float, last: float, most: int) -> Sequence[float]:
        """About ``most`` times at, or shortly after, which samples were taken.

        Args:
            first: Start.
            last: End.
            most: The number of times, if there are more samples.
        """
        spot = self.find(first)
        if spot is None:
            return ()
        times: list[float] = []
        following: Position | None = spot
        for _ in range(_FEW_CHUNKS):
            if following is None or (times and times[-1] > last):
                return [times[place] for place in evenly(times, first, last, most)]
            shift = following.part.shift
            times += [run.onward - shift for run in following.chunk.runs]
            following = self._beside(following, forward=True)
        begin = max(first, self._begins[0])
        end = min(last, self.last or last)
        return [begin + (end - begin) * number / max(1, most - 1) for number in range(max(2, most))]

    def snapshot(self, spot: Position) -> Snapshot:
        """The snapshot of a sample."""
        key = (spot.part, spot.run.onward)
        snapshot = self._snapshots.get(key)
        if snapshot is not None:
            self._snapshots.move_to_end(key)
            return snapshot
        snapshot = spot.part.snapshot(spot.chunk, spot.run)
        # The newest sample of a log that is being written may be incomplete.
        if spot.number + 1 < len(spot.chunk.runs) or spot.part is not self._parts[-1]:
            self._snapshots[key] = snapshot
            if len(self._snapshots) > _SNAPSHOTS_KEPT:
                self._snapshots.popitem(last=False)
        return snapshot


def _has_begun(files: LogFiles) -> bool:
    """Whether the GPU file has any content; rotation creates it empty."""
    try:
        return files.gpus.stat().st_size > 0
    except OSError:
        return False
