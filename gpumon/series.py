"""Values over time, finely for minutes and coarsely for a day, in bounded memory.

A ``Series`` keeps several fields that are always read together, such as those of a card, in three
resolutions: every sample of the last two minutes, seconds for an hour, tens of seconds for a day.
Seconds and tens are slots of absolute time (slot ``n`` of the tens begins at ``10 * n`` since the
epoch), so a slot once past never changes, however it is looked at.

A value stands until the next one is due, which the series learns from the pace of its samples:
without that a screen that samples every five seconds would show holes. What comes later than that
leaves a gap, and so does an unknown value. A gap is never filled.

Numbers are kept as 4-byte floats: seven digits, so 80 GiB are known to 8 KiB.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RECENT_SPAN = 120.0
"""Seconds for which every sample is kept."""
RECENT_SAMPLES = 1300
"""Two minutes at ten samples a second, the fastest pace there is, and some that came early."""
SECONDS_KEPT = 3601
"""An hour, and the second that an hour's window has begun to leave."""
TENS_KEPT = 8641
"""A day in slots of ten seconds, and the one that a day's window has begun to leave."""
LATE = 2.5
"""A sample is missing when it is later than this many times the pace ..."""
LEAST_LATE = 1.0
"""... and than this many seconds, so that a hiccup of a fast sampler is no gap."""
FIRST_LATE = 10.0
"""The second sample is missing when it is later than this; no pace is known before it."""

_UNKNOWN = math.nan


class _Slots:
    """A row of values for each slot of a run of slots: a ring that grows to its bound."""

    def __init__(self, columns: int, capacity: int, start: int) -> None:
        self.end = start
        self._capacity = capacity
        self._origin = start
        self._columns = [array("f") for _ in range(columns)]

    def append(self, row: Sequence[float]) -> None:
        """Fill the next slot."""
        _put(self._columns, (self.end - self._origin) % self._capacity, row)
        self.end += 1

    def fill(self, row: Sequence[float], count: int) -> None:
        """Fill the next slots with the same row."""
        if count >= self._capacity:
            self._columns = [array("f", [value]) * self._capacity for value in row]
            self.end += count
            self._origin = self.end - self._capacity
            return
        place = (self.end - self._origin) % self._capacity
        before_the_turn = min(count, self._capacity - place)
        after_it = count - before_the_turn
        for column, value in zip(self._columns, row, strict=True):
            column[place : place + before_the_turn] = array("f", [value]) * before_the_turn
            if after_it:
                column[:after_it] = array("f", [value]) * after_it
        self.end += count

    def newest(self, column: int, count: int) -> array[float]:
        """The values of the last slots, oldest first; fewer while there are not so many."""
        values = self._columns[column]
        end = (self.end - self._origin) % self._capacity
        if end >= count or len(values) < self._capacity:
            return values[max(0, end - count) : end]
        return values[end - count :] + values[:end]

    def get(self, column: int, slot: int) -> float:
        """The value of a slot before ``end``; NaN where it is unknown or no longer kept."""
        if slot < self._origin or slot < self.end - self._capacity:
            return _UNKNOWN
        return self._columns[column][(slot - self._origin) % self._capacity]

    def shift(self, slots: int) -> None:
        """Call every slot by a number that is lower by so many."""
        self.end -= slots
        self._origin -= slots


class Series:
    """Several fields of one subject over time.

    Attributes:
        first: Time of the first sample.
        last: Time of the newest.
        late: Seconds after a sample from which on the next is missing.
        until: How long the newest is taken to stand, unless another comes.
    """

    def __init__(self, fields: int, time: float) -> None:
        self.first = time
        self.last = time
        self.late = FIRST_LATE
        self.until = time + FIRST_LATE
        self._fields = fields
        self._values: Sequence[float | None] = (None,) * fields
        self._spacings: deque[float] = deque(maxlen=3)
        self._written = 0
        self._times = array("d")
        self._recent = [array("f") for _ in range(fields)]
        self._recent_columns = [self._times, *self._recent]
        self._second = int(time)
        # A row of slots holds the means of all fields, then their peaks.
        self._seconds = _Slots(2 * fields, SECONDS_KEPT, self._second)
        self._tens = _Slots(2 * fields, TENS_KEPT, self._second // 10)
        self._sums = [0.0] * fields
        self._counts = [0] * fields
        self._peaks = [-math.inf] * fields

    def add(self, time: float, values: Sequence[float | None]) -> None:
        """Take a sample, no older than the newest; the time is seconds since the epoch."""
        if self._written:
            if time > self.until:
                self._keep(self.until, (None,) * self._fields)
            self._spacings.append(time - self.last)
            # The lower median: neither one late tick nor one night of suspend is a pace.
            pace = sorted(self._spacings)[(len(self._spacings) - 1) // 2]
            self.late = max(LEAST_LATE, LATE * pace)
        second = int(time)
        if second != self._second:
            self._close(second)
        self._keep(time, values)
        sums, counts, peaks = self._sums, self._counts, self._peaks
        for field, value in enumerate(values):
            if value is not None:
                sums[field] += value
                counts[field] += 1
                if value > peaks[field]:
                    peaks[field] = value
        self._values = values
        self.last = time
        self.until = time + self.late

    def shift(self, seconds: int) -> None:
        """Move everything into the past, by a multiple of ten seconds."""
        self.first -= seconds
        self.last -= seconds
        self.until -= seconds
        self._second -= seconds
        self._seconds.shift(seconds)
        self._tens.shift(seconds // 10)
        for place in range(len(self._times)):
            self._times[place] -= seconds

    def buckets(
        self, field: int, seconds: float, count: int, now: float, peak: bool
    ) -> list[float | None]:
        """The last ``count`` buckets, oldest first, the one that ``now`` is in included.

        Bucket ``k`` is the time from ``k * width`` to ``(k + 1) * width`` since the epoch, where
        the width is ``seconds / count``. ``None`` is unknown.
        """
        width = seconds / count
        first = math.floor(now / width) - count + 1
        if width < 1 and seconds <= RECENT_SPAN:
            return self._fine_buckets(field, first, count, width, peak)
        size, get = (10, self._ten) if width >= 10 or seconds > SECONDS_KEPT else (1, self._one)
        if width < size:
            slots = (int((first + place) * width / size) for place in range(count))
            return [_known(get(field, slot, peak)) for slot in slots]
        gathered: list[list[float]] = [[] for _ in range(count)]
        for slot in range(math.floor(first * width / size), math.floor(now / size) + 1):
            # A slot counts where it ends: a bucket that is past has no slot that is not.
            place = math.ceil((slot + 1) * size / width) - 1 - first
            if 0 <= place < count and not math.isnan(value := get(field, slot, peak)):
                gathered[place].append(value)
        return [_known(_summary(values, peak)) for values in gathered]

    def window(
        self, field: int, seconds: float, now: float, peak: bool
    ) -> Iterator[tuple[float, float]]:
        """The known values of the last ``seconds``, oldest first, as finely as they are kept."""
        start = now - seconds
        if seconds <= RECENT_SPAN:
            for number in self._recent_from(start):
                place = number % RECENT_SAMPLES
                if not math.isnan(value := self._recent[field][place]):
                    yield self._times[place], value
            return
        size, get = (10, self._ten) if seconds > SECONDS_KEPT else (1, self._one)
        for slot in range(math.ceil(start / size), self._second // size + 1):
            if not math.isnan(value := get(field, slot, peak)):
                yield float(slot * size), value

    def known_since(self, field: int, time: float) -> int:
        """How many of the newest ``RECENT_SAMPLES`` are no older than ``time`` and known."""
        column = self._recent[field]
        places = (number % RECENT_SAMPLES for number in self._recent_from(time))
        return sum(not math.isnan(column[place]) for place in places)

    def _keep(self, time: float, values: Sequence[float | None]) -> None:
        """Put a sample into the ring of the recent ones."""
        row = [time, *[_UNKNOWN if value is None else value for value in values]]
        _put(self._recent_columns, self._written % RECENT_SAMPLES, row)
        self._written += 1

    def _recent_from(self, time: float) -> range:
        """Numbers of the recent samples that are no older; each lies at its number's remainder."""
        kept = range(max(0, self._written - RECENT_SAMPLES), self._written)
        return kept[bisect_left(kept, time, key=lambda n: self._times[n % RECENT_SAMPLES]) :]

    def _close(self, second: int) -> None:
        """Put the open second away, then what its last value stood for, then the gap."""
        self._seconds.append(self._open_row())
        self._complete_ten()
        if second > self._seconds.end:
            self._pass_over(second)
        self._second = second
        self._sums = [0.0] * self._fields
        self._counts = [0] * self._fields
        self._peaks = [-math.inf] * self._fields

    def _pass_over(self, second: int) -> None:
        """Fill the seconds without a sample before the one that is to be open next."""
        standing = [_UNKNOWN if value is None else value for value in self._values] * 2
        self._fill(standing, min(second, math.ceil(self.until)))
        self._fill([_UNKNOWN] * len(standing), second)

    def _fill(self, row: Sequence[float], end: int) -> None:
        """Put the same row away for every second before ``end``."""
        whole = min(end, math.ceil(self._seconds.end / 10) * 10)
        if whole > self._seconds.end:
            self._seconds.fill(row, whole - self._seconds.end)
            self._complete_ten()
        tens = (end - self._seconds.end) // 10
        if tens > 0:
            self._seconds.fill(row, 10 * tens)
            self._tens.fill(row, tens)
        if end > self._seconds.end:
            self._seconds.fill(row, end - self._seconds.end)

    def _complete_ten(self) -> None:
        """Put ten seconds away if the last of them has just been."""
        if self._seconds.end % 10:
            return
        row = []
        for column in range(2 * self._fields):
            values = self._seconds.newest(column, 10)
            known = [value for value in values if not math.isnan(value)]
            row.append(_summary(known, column >= self._fields))
        self._tens.append(row)

    def _open_row(self) -> list[float]:
        """What the open second comes to so far, as a row of the slots."""
        counts = self._counts
        means = [s / n if n else _UNKNOWN for s, n in zip(self._sums, counts, strict=True)]
        return means + [p if n else _UNKNOWN for p, n in zip(self._peaks, counts, strict=True)]

    def _one(self, field: int, slot: int, peak: bool) -> float:
        """The value of a second, past, open, or one that the newest value still stands for."""
        column = field + self._fields * peak
        if slot < self._seconds.end:
            return self._seconds.get(column, slot)
        if slot == self._second:
            return self._open_row()[column]
        value = self._values[field]
        return _UNKNOWN if value is None or slot >= self.until else value

    def _ten(self, field: int, slot: int, peak: bool) -> float:
        """The value of ten seconds, likewise."""
        if slot < self._tens.end:
            return self._tens.get(field + self._fields * peak, slot)
        return self._ten_from_seconds(field, slot, peak)

    def _ten_from_seconds(self, field: int, slot: int, peak: bool) -> float:
        seconds = range(10 * slot, 10 * slot + 10)
        values = [self._one(field, second, peak) for second in seconds]
        return _summary([value for value in values if not math.isnan(value)], peak)

    def _fine_buckets(
        self, field: int, first: int, count: int, width: float, peak: bool
    ) -> list[float | None]:
        """Buckets shorter than a second, from the recent samples."""
        column = self._recent[field]
        gathered: dict[int, list[float]] = {}
        samples = self._recent_from(first * width)
        earlier = samples.start - 1
        for number in samples:
            bucket = math.floor(self._times[number % RECENT_SAMPLES] / width) - first
            gathered.setdefault(bucket, []).append(column[number % RECENT_SAMPLES])
        kept = earlier >= max(0, self._written - RECENT_SAMPLES)
        standing = column[earlier % RECENT_SAMPLES] if kept else _UNKNOWN
        result: list[float | None] = []
        for bucket in range(count):
            values = gathered.get(bucket)
            if values is not None:
                standing = values[-1]
                known = [value for value in values if not math.isnan(value)]
                result.append(_known(_summary(known, peak)))
            else:
                stands = (first + bucket) * width < self.until
                result.append(_known(standing) if stands else None)
        return result


def _put(columns: Sequence[array[float]], place: int, row: Sequence[float]) -> None:
    """Write a row into a ring that has perhaps not reached its bound yet."""
    if place == len(columns[0]):
        for number, value in enumerate(row):
            columns[number].append(value)
    else:
        for number, value in enumerate(row):
            columns[number][place] = value


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _summary(values: list[float], peak: bool) -> float:
    """The peak or the mean of what is known; NaN of nothing."""
    if not values:
        return _UNKNOWN
    return max(values) if peak else sum(values) / len(values)
