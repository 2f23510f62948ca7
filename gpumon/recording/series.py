"""Values over time in bounded memory: fine resolution for minutes, coarse for hours.

A ``Series`` keeps several fields that are always read together, such as those of a GPU, in up to
three resolutions: the newest samples individually, then seconds, then tens of seconds. ``Depth``
defines how far back each goes. Seconds and tens are slots of absolute time (slot ``n`` of the tens
begins at ``10 * n`` since the epoch), so a slot never changes once it is past.

A value holds until the next one is due, which the series learns from the rate of its samples:
otherwise a screen that samples every five seconds would show gaps. A later sample leaves a gap, and
so does an unknown value. A gap is never filled.

Numbers are kept as 4-byte floats: seven digits, so 80 GiB have an accuracy of 8 KiB.
"""

from __future__ import annotations

import itertools
import math
from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Literal

    _Type = Literal["f", "d"]

RECENT_SPAN = 120.0
"""Seconds for which every sample is kept, where samples are kept one by one."""
RECENT_SAMPLES = 1300
"""Two minutes at ten samples a second, the fastest pace there is, and some that came early."""
LATE = 2.5
"""A sample is missing when it is later than this many times the pace ..."""
LEAST_LATE = 1.0
"""... and than this many seconds, so that a hiccup of a fast sampler is no gap."""
FIRST_LATE = 10.0
"""The second sample is missing when it is later than this; no pace is known before it."""

_UNKNOWN = math.nan


class Depth(Struct, frozen=True):
    """What a series keeps, and for how long."""

    fields: int  # Number of fields.
    # Number of fields, from the first, whose peak is kept for each slot in addition to the mean;
    # for the others the highest mean replaces the peak.
    peaks: int
    seconds: int  # Number of one-second slots: one more than a moving window needs.
    tens: int  # Number of ten-second slots, with one more too.
    # Number of samples kept individually: ``RECENT_SAMPLES``, or none if they arrive at most once a
    # second, because a one-second slot then has the same information.
    samples: int = 0


class SeriesRate:
    """How often samples arrive, learned from the last three distances.

    Attributes:
        late: Seconds after the last sample from which the next one is missing.
    """

    __slots__ = ("_newest", "late")

    def __init__(self) -> None:
        self.late = FIRST_LATE
        # Initial values, one above and one below any real distance.
        self._newest = (math.inf, -math.inf)

    def see(self, spacing: float) -> None:
        """Record the seconds from the last sample to this one."""
        older, newer = self._newest
        self._newest = newer, spacing
        low, high = (older, newer) if older < newer else (newer, older)
        # The lower median: a single late tick or suspend does not change the rate.
        pace = low if spacing < low else min(spacing, high)
        self.late = max(LEAST_LATE, LATE * pace)


class _Rows:
    """Numbered rows of numbers: a ring that grows to its bound, then drops the oldest row.

    Attributes:
        end: Number of the next row.
    """

    __slots__ = ("_capacity", "_columns", "_origin", "_type", "_values", "end")

    def __init__(self, columns: int, capacity: int, start: int, type_: _Type = "f") -> None:
        self.end = start
        self._columns = columns
        self._capacity = capacity
        self._origin = start
        self._type: _Type = type_
        self._values: array[float] = array(type_)

    @property
    def start(self) -> int:
        """Number of the oldest kept row."""
        return max(self._origin, self.end - self._capacity)

    def append(self, row: Sequence[float]) -> None:
        """Add the next row."""
        number = self.end - self._origin
        if number < self._capacity:
            self._values.extend(row)
        else:
            place = number % self._capacity * self._columns
            self._values[place : place + self._columns] = array(self._type, row)
        self.end += 1

    def packed(self, row: Sequence[float]) -> array[float]:
        """The row as it is kept."""
        return array(self._type, row)

    def fill(self, packed: array[float], count: int) -> None:
        """Add the same packed row that many times."""
        number = self.end - self._origin
        if number + count <= self._capacity:
            self._values.extend(packed * count)
            self.end += count
            return
        if count >= self._capacity:
            self._values = packed * self._capacity
            self.end += count
            self._origin = self.end - self._capacity
            return
        place = number % self._capacity
        before_the_turn = min(count, self._capacity - place)
        after_it = count - before_the_turn
        begin = place * self._columns
        self._values[begin : begin + before_the_turn * self._columns] = packed * before_the_turn
        if after_it:
            self._values[: after_it * self._columns] = packed * after_it
        self.end += count

    def column(self, column: int, first: int) -> array[float]:
        """A column of the kept rows from a number on, oldest first."""
        first = max(self.start, first)
        begin = (first - self._origin) % self._capacity * self._columns
        end = begin + (self.end - first) * self._columns
        turn = self._capacity * self._columns
        if end <= turn:
            return self._values[begin + column : end : self._columns]
        newer = self._values[column : end - turn : self._columns]
        return self._values[begin + column :: self._columns] + newer

    def newest(self, count: int) -> list[float]:
        """The values of the newest rows, row by row; there must be as many."""
        size = count * self._columns
        end = ((self.end - 1 - self._origin) % self._capacity + 1) * self._columns
        if end >= size:
            return self._values[end - size : end].tolist()
        return (self._values[end - size :] + self._values[:end]).tolist()

    def get(self, column: int, number: int) -> float:
        """A value of a row before ``end``; NaN if it is unknown or no longer kept."""
        if number < self._origin or number < self.end - self._capacity:
            return _UNKNOWN
        place = (number - self._origin) % self._capacity
        return self._values[place * self._columns + column]

    def renumber(self, lower: int) -> None:
        """Reduce the number of every row by that much."""
        self.end -= lower
        self._origin -= lower

    def reduce(self, seconds: float) -> None:
        """Reduce every value by that much."""
        for place in range(len(self._values)):
            self._values[place] -= seconds


class Series:
    """Several fields of one subject over time.

    Attributes:
        first: Time of the first sample.
        last: Time of the newest.
        pace: Their rate.
        until: Until when the newest value holds, unless another arrives.
    """

    __slots__ = (
        "_depth",
        "_open",
        "_recent",
        "_second",
        "_seconds",
        "_tens",
        "_times",
        "_values",
        "first",
        "last",
        "pace",
        "until",
    )

    def __init__(self, depth: Depth, time: float) -> None:
        self.first = time
        self.last = time
        self.pace = SeriesRate()
        self.until = time + FIRST_LATE
        self._depth = depth
        self._values: Sequence[float | None] = (None,) * depth.fields
        self._second = int(time)
        self._open: list[Sequence[float | None]] = []
        self._times = _Rows(1, depth.samples, 0, "d")
        self._recent = _Rows(depth.fields, depth.samples, 0)
        # A row of slots holds the means of all fields, then the peaks of the fields that have one.
        columns = depth.fields + depth.peaks
        self._seconds = _Rows(columns, depth.seconds, self._second)
        self._tens = _Rows(columns, depth.tens, self._second // 10)

    def add(self, time: float, values: Sequence[float | None]) -> None:
        """Add a sample that is not older than the newest; the time is seconds since the epoch."""
        if self._open:
            if time > self.until:
                self._keep(self.until, (None,) * self._depth.fields)
            self.pace.see(time - self.last)
        second = int(time)
        if second != self._second:
            self._close(second)
        self._keep(time, values)
        self._open.append(values)
        self._values = values
        self.last = time
        self.until = time + self.pace.late

    def shift(self, seconds: int) -> None:
        """Move all times into the past, by a multiple of ten seconds."""
        self.first -= seconds
        self.last -= seconds
        self.until -= seconds
        self._second -= seconds
        self._seconds.renumber(seconds)
        self._tens.renumber(seconds // 10)
        self._times.reduce(seconds)

    def reaches(self, time: float) -> bool:
        """Whether everything since a time is kept, at least in tens of seconds."""
        return self._tens.start * 10 <= max(time, self.first)

    def buckets(
        self, field: int, seconds: float, count: int, now: float, peak: bool
    ) -> list[float | None]:
        """The last ``count`` buckets, oldest first, including the one that contains ``now``.

        Bucket ``k`` is the time from ``k * width`` to ``(k + 1) * width`` since the epoch, where
        the width is ``seconds / count``. ``None`` is unknown. For a past ``now`` the buckets are as
        they were then, but coarser the older it is.
        """
        width = seconds / count
        first = math.floor(now / width) - count + 1
        if width < 1 and self._has_samples(seconds, now):
            return self._fine_buckets(field, first, count, width, now, peak)
        tens = width >= 10 or not self._has_seconds(seconds, now)
        size = 10 if tens else 1
        if width < size:
            slots = (int((first + place) * width / size) for place in range(count))
            return [_known(self._slot(field, slot, now, peak, tens=tens)) for slot in slots]
        begin, end = math.floor(first * width / size), math.floor(now / size) + 1
        values = self._slots(field, begin, end, peak, tens=tens)
        if now < self.last:
            values[-1] = self._slot(field, end - 1, now, peak, tens=tens)
        if width == size:
            # The sum of the known values is known.
            if math.isfinite(sum(values)):
                return list(values)
            return [None if math.isnan(value) else value for value in values]
        # A slot counts at its end, so a past bucket has only past slots.
        ends = [math.floor(bucket * width / size) - begin for bucket in range(first, first + count)]
        ends.append(min(math.floor((first + count) * width / size) - begin, len(values)))
        parts = itertools.pairwise(ends)
        has_empty = len(set(ends)) < len(ends)
        if has_empty or not math.isfinite(sum(values)):
            # A call for each of a chart's hundreds of buckets is slow.
            return [_mean_or_peak(values[low:high], peak) for low, high in parts]
        if peak:
            return [max(values[low:high]) for low, high in parts]
        return [sum(values[low:high]) / (high - low) for low, high in parts]

    def _slots(self, field: int, begin: int, end: int, peak: bool, *, tens: bool) -> list[float]:
        """The values of a range of slots, reading all closed ones at once."""
        rows, get = (self._tens, self._ten) if tens else (self._seconds, self._one)
        oldest, newest = min(max(begin, rows.start), end), max(begin, min(rows.end, end))
        stored = rows.column(self._column(field, peak), oldest)[: max(0, newest - oldest)]
        rest = [get(field, slot, peak) for slot in range(newest, end)]
        return [_UNKNOWN] * (oldest - begin) + stored.tolist() + rest

    def window(
        self, field: int, seconds: float, now: float, peak: bool
    ) -> Iterator[tuple[float, float]]:
        """The known values of the last ``seconds``, oldest first, in the finest kept resolution."""
        start = now - seconds
        if self._has_samples(seconds, now):
            for time, value in zip(*self._recent_values(field, start, now), strict=True):
                if not math.isnan(value):
                    yield time, value
            return
        tens = not self._has_seconds(seconds, now)
        size = 10 if tens else 1
        oldest = max(math.ceil(start / size), int(self.first) // size)
        for slot in range(oldest, min(self._second, int(now)) // size + 1):
            if not math.isnan(value := self._slot(field, slot, now, peak, tens=tens)):
                yield float(slot * size), value

    def known_since(self, field: int, time: float, now: float) -> int:
        """How many of the individually kept samples since a time have a value.

        For a ``now`` before those, the number of seconds or tens of seconds.
        """
        if self._has_samples(0.0, now):
            _, values = self._recent_values(field, time, now)
            return sum(not math.isnan(value) for value in values)
        return sum(1 for _ in self.window(field, now - time, now, peak=False))

    def _has_samples(self, seconds: float, now: float) -> bool:
        """Whether the last seconds before ``now`` are kept as samples."""
        times = self._times
        if times.start == times.end or seconds > RECENT_SPAN:
            return False
        return now >= self.last or times.get(0, times.start) <= max(now - seconds, self.first)

    def _has_seconds(self, seconds: float, now: float) -> bool:
        """Whether the last seconds before ``now`` are kept as seconds."""
        if seconds > self._depth.seconds:
            return False
        return now >= self.last or self._seconds.start <= max(now - seconds, self.first)

    def _keep(self, time: float, values: Sequence[float | None]) -> None:
        """Add a sample to the recent ones."""
        if self._depth.samples:
            self._times.append((time,))
            self._recent.append(_row(values))

    def _recent_values(
        self, field: int, since: float, now: float
    ) -> tuple[array[float], array[float]]:
        """Times and values of the individually kept samples in a time range."""
        first = self._first_since(since)
        times, values = self._times.column(0, first), self._recent.column(field, first)
        if now >= self.last:
            return times, values
        count = bisect_right(times, now)
        return times[:count], values[:count]

    def _first_since(self, time: float) -> int:
        """Number of the first recent sample that is not older."""
        times = self._times
        kept = range(times.start, times.end)
        return times.start + bisect_left(kept, time, key=lambda number: times.get(0, number))

    def _close(self, second: int) -> None:
        """Close the open second, then fill the time its last value holds for, then the gap."""
        is_alone = len(self._open) == 1 and second > self._second + 1
        # A sample alone in its second is filled in with the seconds that it holds for.
        if self._open and not is_alone:
            self._seconds.append(self._open_row())
            if not self._seconds.end % 10:
                self._complete_ten()
        if second > self._seconds.end:
            self._pass_over(second)
        self._second = second
        self._open = []

    def _pass_over(self, second: int) -> None:
        """Fill the seconds without a sample before the one that is opened next."""
        standing = _row(self._values)
        standing = [*standing, *standing[: self._depth.peaks]]
        self._fill(standing, min(second, math.ceil(self.until)))
        if second > self._seconds.end:
            self._fill([_UNKNOWN] * len(standing), second)

    def _fill(self, row: Sequence[float], end: int) -> None:
        """Add the same row for every second before ``end``."""
        seconds = self._seconds
        if end <= seconds.end:
            return
        packed = seconds.packed(row)
        # The seconds to the end of the ten that is open, if that comes first.
        whole = -seconds.end % 10
        if 0 < whole <= end - seconds.end:
            seconds.fill(packed, whole)
            self._complete_ten()
        if end > seconds.end:
            tens = 0 if seconds.end % 10 else (end - seconds.end) // 10
            seconds.fill(packed, end - seconds.end)
            if tens:
                self._tens.fill(packed, tens)

    def _complete_ten(self) -> None:
        """Close the ten-second slot whose last second has just been closed."""
        fields, columns = self._depth.fields, self._depth.fields + self._depth.peaks
        count = min(10, self._seconds.end - self._seconds.start)
        values = self._seconds.newest(count)
        row = []
        for column in range(columns):
            known = values[column::columns]
            total = sum(known)
            if not math.isfinite(total):
                known = [value for value in known if not math.isnan(value)]
                row.append(_summary(known, column >= fields))
            else:
                row.append(total / count if column < fields else max(known))
        self._tens.append(row)

    def _open_row(self) -> Sequence[float]:
        """The current content of the open second, as a row of the slots."""
        if len(self._open) == 1:
            row = _row(self._open[0])
            return [*row, *row[: self._depth.peaks]]
        columns = [[v for v in column if v is not None] for column in zip(*self._open, strict=True)]
        means = [_summary(known, False) for known in columns]
        return means + [_summary(known, True) for known in columns[: self._depth.peaks]]

    def _column(self, field: int, peak: bool) -> int:
        """The position of the mean or the peak of a field in a row of slots."""
        return self._depth.fields + field if peak and field < self._depth.peaks else field

    def _slot(self, field: int, slot: int, now: float, peak: bool, *, tens: bool) -> float:
        """The value of a one- or ten-second slot, without anything after ``now``."""
        size = 10 if tens else 1
        if now >= self.last or slot < now // size:
            return self._ten(field, slot, peak) if tens else self._one(field, slot, peak)
        if tens and self._has_seconds(10.0, now):
            seconds = range(10 * slot, int(now) + 1)
            values = [self._slot(field, second, now, peak, tens=False) for second in seconds]
        elif not tens and self._has_samples(1.0, now):
            values = self._recent_values(field, slot, now)[1].tolist()
        else:
            return self._ten(field, slot, peak) if tens else self._one(field, slot, peak)
        if not values:
            # The sample before this second still holds.
            return self._recent.get(field, self._first_since(slot) - 1)
        return _summary([value for value in values if not math.isnan(value)], peak)

    def _one(self, field: int, slot: int, peak: bool) -> float:
        """The value of a second: past, open, or one for which the newest value still holds."""
        if slot < self._seconds.end:
            return self._seconds.get(self._column(field, peak), slot)
        if slot == self._second:
            return self._open_row()[self._column(field, peak)] if self._open else _UNKNOWN
        value = self._values[field]
        return _UNKNOWN if value is None or slot >= self.until else value

    def _ten(self, field: int, slot: int, peak: bool) -> float:
        """The value of ten seconds: past, open, or one for which the newest value still holds."""
        if slot < self._tens.end:
            return self._tens.get(self._column(field, peak), slot)
        return self._ten_from_seconds(field, slot, peak)

    def _ten_from_seconds(self, field: int, slot: int, peak: bool) -> float:
        seconds = range(10 * slot, 10 * slot + 10)
        values = [self._one(field, second, peak) for second in seconds]
        return _summary([value for value in values if not math.isnan(value)], peak)

    def _fine_buckets(
        self, field: int, first: int, count: int, width: float, now: float, peak: bool
    ) -> list[float | None]:
        """Buckets shorter than a second, from the recent samples."""
        gathered: dict[int, list[float]] = {}
        begin = first * width
        for time, value in zip(*self._recent_values(field, begin, now), strict=True):
            gathered.setdefault(math.floor(time / width) - first, []).append(value)
        standing = self._recent.get(field, self._first_since(begin) - 1)
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


def _row(values: Sequence[float | None]) -> Sequence[float]:
    """The values as a row, with NaN for unknown."""
    return [_UNKNOWN if value is None else value for value in values]


def _mean_or_peak(values: list[float], peak: bool) -> float | None:
    """The mean or the peak of the known values; ``None`` if there are none."""
    total = sum(values)
    if values and math.isfinite(total):
        return max(values) if peak else total / len(values)
    return _known(_summary([value for value in values if not math.isnan(value)], peak))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _summary(values: list[float], peak: bool) -> float:
    """The peak or the mean of the known values; NaN if there are none."""
    if not values:
        return _UNKNOWN
    return max(values) if peak else sum(values) / len(values)
