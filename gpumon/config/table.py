"""The one table of settings: a line each, from which the file, the checks and the help are made."""

from __future__ import annotations

import math
from datetime import date, time
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.config.settings import Settings
from gpumon.layout.processes import CHOSEN, COLUMN, with_command
from gpumon.quantity import TIMESPAN, QuantityError
from gpumon.theming import DEFAULT as DEFAULT_THEME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

LEAST_INTERVAL = 0.1
LONGEST_INTERVAL = 3600.0
_SHOWN = 40


class Wrong(Exception):  # noqa: N818 - becomes a Complaint where its place is known
    """A value that cannot be used; the text says what to give."""


class Setting(Struct, frozen=True):
    """Something that can be settled.

    Attributes:
        name: Its key in the file, after that of its table: ``units.memory``.
        about: What it settles, a sentence without an end, and what it takes.
        read: Makes the value of what stands in the file; raises ``Wrong``.
    """

    name: str
    about: str
    read: Callable[[object], object]

    @property
    def default(self) -> object:
        """What holds where nothing is settled."""
        if self.name == "columns":
            return CHOSEN
        if self.name == "theme":
            return DEFAULT_THEME
        return value_of(Settings(), self.name)


def value_of(settings: Settings, name: str) -> object:
    """What a setting is set to."""
    value: object = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def nearest(word: object, names: Iterable[str], likeness: float = 0.6) -> str | None:
    """The name that was probably meant, if it is as like the word as that; 0 takes any."""
    from difflib import get_close_matches

    if not isinstance(word, str):
        return None
    lower = {name.lower(): name for name in names}
    found = get_close_matches(word.lower(), lower, n=1, cutoff=likeness)
    return lower[found[0]] if found else None


def meant(word: object, names: Iterable[str]) -> str:
    """`` (did you mean interval?)``, or nothing where no name is near."""
    near = nearest(word, names)
    return "" if near is None else f" (did you mean {near}?)"


def shown(value: object) -> str:
    """What was written, as far as that is short."""
    if isinstance(value, bool):
        return str(value).lower()
    try:
        text = value.isoformat() if isinstance(value, (date, time)) else repr(value)
    except ValueError:
        # A hexadecimal one may have more digits than Python writes.
        return "so large a number"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _number(
    least: float, most: float, words: str, *, timespan: bool = False
) -> Callable[[object], float]:
    def read(value: object) -> float:
        number = math.nan
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            # A whole number may have more digits than a float takes.
            number = float(value) if abs(value) < 1e300 else math.inf
        elif timespan and isinstance(value, str):
            try:
                number = TIMESPAN.read(value)[0]
            except QuantityError:
                number = math.nan
        if not least <= number <= most:
            raise Wrong(f"give {words} from {least:g} to {most:g}")
        return number

    return read


def _seconds(least: float, most: float) -> Callable[[object], float]:
    return _number(least, most, 'seconds, or a time such as "90s" or "10m",', timespan=True)


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise Wrong("give true or false")
    return value


def _choice(*names: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in names:
            near = meant(value, names) if len(names) > 2 else ""
            raise Wrong(f"give {', '.join(names[:-1])} or {names[-1]}{near}")
        return value

    return read


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Wrong("give the name of a theme")
    return value


def _column(value: object) -> str:
    if not isinstance(value, str) or value not in COLUMN:
        raise Wrong(f"give a column{meant(value, COLUMN)}; there are {', '.join(COLUMN)}")
    return value


def _columns(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise Wrong('give a list of columns, such as ["pid", "user", "memory_used"]')
    for key in value:
        if not isinstance(key, str) or key not in COLUMN:
            raise Wrong(
                f"{shown(key)} is no column{meant(key, COLUMN)}; there are {', '.join(COLUMN)}"
            )
    return with_command(value)


SETTINGS: dict[str, Setting] = {
    line.name: line
    for line in (
        Setting(
            "interval",
            "seconds between samples of the dashboard, 0.1 to 3600",
            _seconds(LEAST_INTERVAL, LONGEST_INTERVAL),
        ),
        Setting(
            "columns", f"columns of the process table, in order: {', '.join(COLUMN)}", _columns
        ),
        Setting("theme", "colours, by their name", _name),
        Setting("readonly", "true: never send a signal to any process", _switch),
        Setting(
            "graph",
            "what the small graph of a card shows at first: util, memory, power or temperature",
            _choice("util", "memory", "power", "temperature"),
        ),
        Setting("host_strip", "true: show the strip of the host at first", _switch),
        Setting("sort.column", "the column that the processes are sorted by at first", _column),
        Setting("sort.descending", "true: the largest first", _switch),
        Setting(
            "units.memory",
            "GiB, powers of 1024 as nvidia-smi counts, or GB, powers of 1000; on screen only",
            _choice("GiB", "GB"),
        ),
        Setting("units.temperature", "C or F; on screen only", _choice("C", "F")),
        Setting(
            "thresholds.hot_margin",
            "a card is hot from so many degrees Celsius below its own slowdown temperature on",
            _number(0, 100, "degrees Celsius"),
        ),
        Setting(
            "thresholds.hot_unknown",
            "and from this temperature on where it does not tell that, degrees Celsius",
            _number(0, 200, "degrees Celsius"),
        ),
        Setting(
            "thresholds.full_share",
            "a card is full below this share of free memory, 0 to 1",
            _number(0, 1, "a share"),
        ),
        Setting(
            "thresholds.idle_after",
            "seconds without work from which on a card or a process is idle",
            _seconds(1, 604800),
        ),
        Setting(
            "thresholds.stuck_utilization",
            "a card is perhaps stuck from this utilisation on, percent",
            _number(1, 100, "percent"),
        ),
        Setting(
            "thresholds.stuck_power_share",
            "and at less than this share of its power limit, 0 to 1",
            _number(0, 1, "a share"),
        ),
        Setting(
            "thresholds.stuck_after",
            "when both have held for so many seconds",
            _seconds(1, 604800),
        ),
    )
}

TABLES = ("sort", "units", "thresholds", "keys")
"""Tables of the file; all else stands before them."""


class Variable(Struct, frozen=True):
    """A variable of the environment.

    Attributes:
        example: What it may be set to.
        names: The settings it goes over.
        read: Makes of its text what could stand in the file, by setting; raises ``Wrong``.
    """

    example: str
    names: tuple[str, ...]
    read: Callable[[str], Mapping[str, object]]


_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def _readonly(text: str) -> Mapping[str, object]:
    if text.lower() not in _TRUE + _FALSE:
        raise Wrong("give 1 or 0")
    return {"readonly": text.lower() in _TRUE}


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


_UNITS = {
    "GiB": "units.memory",
    "GB": "units.memory",
    "C": "units.temperature",
    "F": "units.temperature",
}


def _units(text: str) -> Mapping[str, object]:
    for unit in _listed(text):
        if unit not in _UNITS:
            raise Wrong("give GiB or GB, C or F, or one of each with a comma between: GB,F")
    return {_UNITS[unit]: unit for unit in _listed(text)}


BY_VARIABLE: dict[str, Variable] = {
    "GPUMON_INTERVAL": Variable("0.2", ("interval",), lambda text: {"interval": text}),
    "GPUMON_COLUMNS": Variable(
        "pid,user,command", ("columns",), lambda text: {"columns": _listed(text)}
    ),
    "GPUMON_THEME": Variable("gpumon", ("theme",), lambda text: {"theme": text}),
    "GPUMON_READONLY": Variable("1", ("readonly",), _readonly),
    "GPUMON_UNITS": Variable("GB,F", ("units.memory", "units.temperature"), _units),
}
"""By the names in ``gpumon.config.VARIABLES``."""
