"""The times in logs of other programs, in whatever form the first rows have them."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.recording.csv.cells import read_moment
from gpumon.recording.csv.parsers import EARLIEST, LATEST
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?"
_HALF = r"(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?"
_ZONE = r"(?:\s*(?P<zone>[A-Za-z]{1,5}|[+-]\d\d:?\d\d))?"
_MONTH = r"(?P<name>[A-Za-z]{3})[a-z]*\.?"
_WEEKDAY = r"(?:[A-Za-z]{3,9},?\s+)?"
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]

_YEAR_FIRST = re.compile(
    r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})[T _]+"
    rf"{_CLOCK}{_HALF}{_ZONE}"
)
_COMPACT = re.compile(
    r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)[-_T ]*(?P<hour>\d\d):?(?P<minute>\d\d):?"
    rf"(?P<second>\d\d)(?:\.(?P<fraction>\d{{1,9}}))?{_ZONE}"
)
_DAY_FIRST = re.compile(
    rf"(?P<day>\d{{1,2}})\.(?P<month>\d{{1,2}})\.(?P<year>\d{{4}}),?\s+{_CLOCK}{_HALF}{_ZONE}"
)
_NAMED = (
    re.compile(
        rf"{_WEEKDAY}{_MONTH}\s+(?P<day>\d{{1,2}}),?\s+{_CLOCK}{_HALF}{_ZONE}\s+(?P<year>\d{{4}})"
    ),
    re.compile(
        rf"{_WEEKDAY}(?P<day>\d{{1,2}})[ -]{_MONTH}[ -](?P<year>\d{{4}}),?\s+{_CLOCK}{_HALF}{_ZONE}"
    ),
    re.compile(
        rf"{_WEEKDAY}{_MONTH}\s+(?P<day>\d{{1,2}}),?\s+(?P<year>\d{{4}}),?\s+{_CLOCK}{_HALF}{_ZONE}"
    ),
)
_SLASHES = re.compile(
    rf"(?P<first>\d{{1,2}})[/-](?P<other>\d{{1,2}})[/-](?P<year>\d{{4}}),?\s+{_CLOCK}{_HALF}{_ZONE}"
)
_HAS_ZONE = (
    r"(?i)(:\d\d|\d{6})([.,]\d+)?(\s*[ap]\.?m\b\.?)?\s*"
    r"([+-]\d\d(:?\d\d)?|(?![ap]m\b)[a-z]{1,5})(\s+\d{4})?$"
)
"""A zone follows the time of day; ``-2026`` after a month does not."""
_CUT_BY_SPREADSHEET = r"\d\d:\d\d[.,]\d"
"""What Excel shows, and saves, of ``2026/05/31 10:00:00.000``."""
_ONLY_DATE = r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}"
_SCIENTIFIC = r"\d(\.\d+)?[eE]\+?\d{1,2}"
_LEAST_CHANGE = 1800.0
"""Seconds by which clocks change at least when summer time ends."""
_EPOCH_UNITS = (1.0, 1e3, 1e6, 1e9)
_EPOCH_FROM, _EPOCH_TO = 5e8, LATEST
"""Seconds since the epoch in the years from 1985: less is a duration, or a spreadsheet's number."""
_SERIAL_FROM, _SERIAL_TO = 30_000.0, 80_000.0
"""Days since 1900, as a spreadsheet counts them, in the years 1982 to 2119."""
_SHOWN_CHARACTERS = 60
_MOSTLY = 0.8
"""Share of the first rows whose times must be readable in one form."""


class TimeFormat(Struct, frozen=True):
    """A form of times.

    Attributes:
        read: Seconds since the epoch; ``None`` for a text of another form.
        precision: Seconds to which the times are known.
        is_usual: Whether it is the form of gpumon and nvidia-smi.
        are_local: Whether they are local times without a zone, of which an hour comes twice when
            summer time ends. ``read`` takes such a time for the first of the two.
    """

    read: Callable[[str], float | None] = read_moment
    precision: float = 0.001
    is_usual: bool = True
    are_local: bool = False


class TimeFormatError(ValueError):
    """No time can be read; the message continues a sentence that begins with the file's name."""


def time_format(texts: Sequence[str]) -> TimeFormat:
    """The form of the times of a log, from those of its first rows.

    Raises:
        TimeFormatError: They cannot be read, or have two meanings.
    """
    if not texts:
        return TimeFormat()
    if _fits(lambda text: 0.0 if re.fullmatch(_ONLY_DATE, text.strip()) else None, texts):
        raise TimeFormatError(
            f"has dates without a time of day, such as {_shown(texts)}: write times as"
            " 2026-05-31 10:00:00, or the time of day in a column time beside the column date"
        )
    for number, read in enumerate((read_moment, read_any, *map(_epoch_in, _EPOCH_UNITS))):
        if _fits(read, texts):
            if (rounded := max(map(_rounded_to, texts))) > _EPOCH_UNITS[max(0, number - 2)]:
                raise TimeFormatError(_too_rounded(texts, rounded))
            if any(read(text) is None and _certain(text) is not None for text in texts):
                break
            is_usual, are_local = not number, number < 2 and not _fits(_zoned, texts)
            return TimeFormat(read, _precision(texts, read), is_usual, are_local)
    if _fits(_certain, texts):
        # Two programs wrote them, or one that was changed.
        are_local = not any(_zoned(text) or _number(text) for text in texts)
        precision = _precision(texts, _certain)
        return TimeFormat(_certain, precision, is_usual=False, are_local=are_local)
    if _fits(lambda text: _slashed(text, day_first=True) or _slashed(text, day_first=False), texts):
        read = _by_slashes(texts)
        are_local = not _fits(_zoned, texts)
        return TimeFormat(read, _precision(texts, read), is_usual=False, are_local=are_local)
    raise TimeFormatError(_unreadable(texts))


def second_reading(wall: float) -> float:
    """The time at which local clocks show the same as at another time for the second time.

    The same time if they do not.
    """
    return datetime.fromtimestamp(wall).replace(fold=1).timestamp()


def in_hour(wall: float, before: float, usual: float) -> float:
    """A local time, in the second of two hours that look alike if it is expected in that.

    Args:
        wall: The time, taken for the first one.
        before: The time of the sample before it.
        usual: The usual seconds between two samples.
    """
    expected = before + usual
    if wall > expected - _LEAST_CHANGE / 2:
        return wall
    second = second_reading(wall)
    return second if abs(second - expected) < expected - wall else wall


def _zoned(text: str) -> float | None:
    return None if re.search(_HAS_ZONE, text.strip()) is None else 1.0


def _certain(text: str) -> float | None:
    """The time in a text of any form; the ranges of the units of epochs do not overlap."""
    for read in (read_moment, read_any, *map(_epoch_in, _EPOCH_UNITS)):
        if (found := read(text)) is not None:
            return found
    return None


def _fits(read: Callable[[str], float | None], texts: Sequence[str]) -> bool:
    return sum(read(text) is not None for text in texts) >= _MOSTLY * len(texts)


def _precision(texts: Sequence[str], read: Callable[[str], float | None]) -> float:
    """Seconds to which the times are known: the last place that any of them has."""
    digits, has_seconds = 0, False
    for text in texts:
        if read(text) is None:
            continue
        clock = re.search(r"\d:\d\d(:\d\d)?(?:[.,](\d+))?", text)
        if clock is None:
            number = _plain(text.strip()).partition(".")
            # Of a whole number, the digits beyond the ten of seconds.
            digits = max(digits, len(number[2]), len(number[0]) - 10)
            has_seconds = True
        else:
            has_seconds = has_seconds or clock[1] is not None
            digits = max(digits, len(clock[2] or ""))
    return 10.0**-digits if has_seconds else 60.0


def _plain(text: str) -> str:
    """A number without an exponent, to the last place that it has."""
    if re.fullmatch(_SCIENTIFIC, text) is None:
        return text
    return f"{Decimal(text):f}"


def _rounded_to(text: str) -> float:
    """The last place of a number with an exponent; 0 of any other text."""
    if re.fullmatch(_SCIENTIFIC, text.strip()) is None:
        return 0.0
    return float(10.0 ** int(Decimal(text.strip()).as_tuple().exponent))


def _too_rounded(texts: Sequence[str], rounded: float) -> str:
    return (
        f"has times such as {_shown(texts)}, which are rounded to {rounded:g}: write them with all"
        " digits, or as 2026-05-31 10:00:00"
    )


def read_any(text: str) -> float | None:
    """The time in a text of any form whose meaning is certain."""
    stripped = text.strip()
    for form in (_YEAR_FIRST, _DAY_FIRST, _COMPACT, *_NAMED):
        found = form.fullmatch(stripped)
        if found is not None:
            return _moment(found)
    return None


def _moment(found: re.Match[str], month: int | None = None, day: int | None = None) -> float | None:
    parts = found.groupdict()
    if month is None:
        name = parts.get("name")
        if name is None:
            month = int(parts["month"])
        elif name.lower() in _MONTHS:
            month = 1 + _MONTHS.index(name.lower())
        else:
            return None
    hour = int(parts["hour"])
    half = (parts.get("half") or "").lower()
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "p" else 0)
    micro = int((parts["fraction"] or "0").ljust(6, "0")[:6])
    try:
        local = datetime(
            int(parts["year"]),
            month,
            int(parts["day"]) if day is None else day,
            hour,
            int(parts["minute"]),
            int(parts["second"] or 0),
            micro,
        )
        moment = _in_zone(local, parts.get("zone"))
    except (ValueError, OverflowError, OSError):
        return None
    return moment if moment is not None and EARLIEST <= moment <= LATEST else None


def _in_zone(local: datetime, zone: str | None) -> float | None:
    """Seconds since the epoch; ``None`` for a zone that this machine does not know."""
    if zone is None:
        return local.timestamp()
    if zone in time.tzname:
        # When summer time ends, the zone tells which of two times it is.
        both = (local.replace(fold=fold).timestamp() for fold in (0, 1))
        found = [moment for moment in both if time.localtime(moment).tm_zone == zone]
        west = time.timezone if zone == time.tzname[0] else time.altzone
        return found[0] if found else local.replace(tzinfo=timezone.utc).timestamp() + west
    if zone.upper() in ("Z", "UTC", "GMT"):
        return local.replace(tzinfo=timezone.utc).timestamp()
    if zone[0] not in "+-":
        return None
    digits = zone.replace(":", "")
    offset = timedelta(hours=int(digits[1:3]), minutes=int(digits[3:]))
    offset = -offset if zone[0] == "-" else offset
    return local.replace(tzinfo=timezone(offset)).timestamp()


def _epoch_in(unit: float) -> Callable[[str], float | None]:
    def read(text: str) -> float | None:
        seconds = _number(text)
        if seconds is None or not _EPOCH_FROM <= seconds / unit < _EPOCH_TO:
            return None
        return seconds / unit

    return read


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _slashed(text: str, *, day_first: bool) -> float | None:
    found = _SLASHES.fullmatch(text.strip())
    if found is None:
        return None
    first, other = int(found["first"]), int(found["other"])
    return _moment(found, *((other, first) if day_first else (first, other)))


def _by_slashes(texts: Sequence[str]) -> Callable[[str], float | None]:
    """The reading of ``5/1/2026``.

    Raises:
        TimeFormatError: Both readings are possible for all of them.
    """
    orders = [order for order in (True, False) if _fits(partial(_slashed, day_first=order), texts)]
    if len(orders) == 1:
        order = orders[0]
        return lambda text: _slashed(text, day_first=order)
    raise TimeFormatError(
        f"has times such as {_shown(texts)}, in which day and month cannot be distinguished:"
        " write them as 2026-05-31 10:00:00, or take the file as it was before the spreadsheet"
    )


def _unreadable(texts: Sequence[str]) -> str:
    numbers = [number for text in texts if (number := _number(text)) is not None]
    expected = "write them as 2026-05-31 10:00:00, or as seconds since 1970"
    if len(numbers) >= _MOSTLY * len(texts):
        if all(_SERIAL_FROM <= number <= _SERIAL_TO for number in numbers):
            return (
                f"has a spreadsheet's numbers, such as {_shown(texts)}, in place of times:"
                " format that column as yyyy-mm-dd hh:mm:ss there, and save the file again"
            )
        return (
            f"has numbers such as {_shown(texts)} in place of times, perhaps seconds since its"
            f" start: {expected}"
        )
    if _fits(lambda text: 0.0 if re.fullmatch(rf"\s*{_CLOCK}{_HALF}\s*", text) else None, texts):
        return f"has times of day without a date, such as {_shown(texts)}: {expected}"
    if _fits(lambda text: 0.0 if re.fullmatch(_CUT_BY_SPREADSHEET, text.strip()) else None, texts):
        return (
            f"has times without date and hour, such as {_shown(texts)}, as a spreadsheet saves"
            " them: take the file as it was before, or format that column as yyyy-mm-dd hh:mm:ss"
        )
    return f"has no time that can be read, only texts such as {_shown(texts)}: {expected}"


def _shown(texts: Sequence[str]) -> str:
    return repr(printable(texts[0].strip()[:_SHOWN_CHARACTERS]))
