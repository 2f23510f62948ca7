"""The table of settings, which defines the file, its checks and its help."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, get_args

from msgspec import Struct

from gpumon.config.columns import COLUMN, COLUMN_SETS, DEFAULT_COLUMNS, GPU_COLUMN, whole_choice
from gpumon.config.settings import GraphName, Settings
from gpumon.config.suggestions import did_you_mean
from gpumon.config.themes import DEFAULT as DEFAULT_THEME
from gpumon.config.toml_text import toml
from gpumon.model.interval import MAX_INTERVAL, MIN_INTERVAL
from gpumon.text.unit_parsing import TIMESPAN, QuantityError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SHOWN = 40


class InvalidValue(Exception):  # noqa: N818 - becomes a ConfigError once its place is known
    """A value is invalid; the text says what is valid."""


class Setting(Struct, frozen=True):
    """A setting.

    Attributes:
        name: The names of its table and key in the file: ``units.memory``.
        about: Its effect and valid values, without a full stop.
        read: Converts the value from the file; raises ``InvalidValue``.
    """

    name: str
    about: str
    read: Callable[[object], object]

    @property
    def default(self) -> object:
        """The default value."""
        if self.name == "columns":
            return DEFAULT_COLUMNS
        if self.name == "theme":
            return DEFAULT_THEME
        return value_of(Settings(), self.name)


def value_of(settings: Settings, name: str) -> object:
    """The value of a setting."""
    value: object = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def shown(value: object) -> str:
    """The written value, shortened."""
    try:
        text = repr(value) if isinstance(value, str) else toml(value)
    except RecursionError:
        return "a value that is nested so deeply"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def as_number(value: object, *, timespan: bool) -> float:
    """A number in the file, or with ``timespan`` a time as text; not a number for all else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        # An integer may have more digits than a float can hold.
        return float(value) if abs(value) < 1e300 else math.inf
    if timespan and isinstance(value, str):
        with suppress(QuantityError):
            return TIMESPAN.read(value)[0]
    return math.nan


def _number(
    least: float, most: float, words: str, *, timespan: bool = False
) -> Callable[[object], float]:
    def read(value: object) -> float:
        number = as_number(value, timespan=timespan)
        if not least <= number <= most:
            raise InvalidValue(f"give {words} from {least:g} to {most:g}")
        return number

    return read


def _seconds(least: float, most: float) -> Callable[[object], float]:
    return _number(least, most, 'seconds, or a time such as "90s" or "10m",', timespan=True)


def read_switch(value: object) -> bool:
    """True or false; raises ``InvalidValue``."""
    if not isinstance(value, bool):
        raise InvalidValue("give true or false")
    return value


def _choice(*names: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in names:
            near = did_you_mean(value, names) if len(names) > 2 else ""
            raise InvalidValue(f"give {', '.join(names[:-1])} or {names[-1]}{near}")
        return value

    return read


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidValue("give the name of a theme")
    return value


def _command(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise InvalidValue("give a command as in a shell, on one line")
    return value


def _line(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise InvalidValue("give a text on one line")
    return value


def _lists(example: str) -> Callable[[object], Mapping[str, str]]:
    def read(value: object) -> Mapping[str, str]:
        if not isinstance(value, dict) or not all(
            key.strip() and isinstance(text, str) and text.strip() and text.isprintable()
            for key, text in value.items()
        ):
            raise InvalidValue(f"give a table of texts, such as {example}")
        return value

    return read


def _column(value: object) -> str:
    if not isinstance(value, str) or value not in COLUMN:
        near = did_you_mean(value, COLUMN)
        raise InvalidValue(f"give a column{near}; there are {', '.join(COLUMN)}")
    return value


def read_columns(value: object) -> tuple[str, ...]:
    """The columns for a list of keys, or for the name of a set; raises ``InvalidValue``."""
    keys = [value] if isinstance(value, str) else value
    if not isinstance(keys, list) or not keys:
        raise InvalidValue('give a list of columns, such as ["pid", "user", "memory_used"]')
    known = (*COLUMN, *GPU_COLUMN, *COLUMN_SETS)
    for key in keys:
        if not isinstance(key, str) or key not in known:
            near = did_you_mean(key, known)
            raise InvalidValue(
                f"{shown(key)} is no column{near}; there are {', '.join(COLUMN)}, "
                f"for the GPUs {', '.join(GPU_COLUMN)}, and the sets {' and '.join(COLUMN_SETS)}"
            )
    return whole_choice(keys)


SETTINGS: dict[str, Setting] = {
    line.name: line
    for line in (
        Setting(
            "interval",
            "seconds between samples of the dashboard, 0.1 to 3600",
            _seconds(MIN_INTERVAL, MAX_INTERVAL),
        ),
        Setting(
            "columns",
            f"columns of the process table, in order: {', '.join(COLUMN)}; "
            f"added to the list of GPUs: {', '.join(GPU_COLUMN)}; "
            f"or the name of a set: {' or '.join(COLUMN_SETS)}",
            read_columns,
        ),
        Setting("theme", "the name of the theme", _name),
        Setting("readonly", "true: never send a signal to any process", read_switch),
        Setting(
            "graph",
            "the metric of the small graphs at start: util, memory, power, temperature, "
            "sm (SMs active) or dram (DRAM active)",
            _choice(*get_args(GraphName)),
        ),
        Setting("host_strip", "true: show the line of the host at start", read_switch),
        Setting("sort.column", "the column by which the processes are sorted at start", _column),
        Setting("sort.descending", "true: sort the largest first", read_switch),
        Setting(
            "units.memory",
            "GiB, powers of 1024 as nvidia-smi counts, or GB, powers of 1000; on screen only",
            _choice("GiB", "GB"),
        ),
        Setting("units.temperature", "C or F; on screen only", _choice("C", "F")),
        Setting(
            "thresholds.hot_margin",
            "a GPU is hot from this many degrees Celsius below its slowdown temperature",
            _number(0, 100, "degrees Celsius"),
        ),
        Setting(
            "thresholds.hot_unknown",
            "a GPU that does not report its slowdown temperature is hot from here, degrees Celsius",
            _number(0, 200, "degrees Celsius"),
        ),
        Setting(
            "thresholds.full_share",
            "a GPU is full below this share of free memory, 0 to 1",
            _number(0, 1, "a share"),
        ),
        Setting(
            "thresholds.idle_after",
            "seconds without work after which a GPU or a process is idle",
            _seconds(1, 604800),
        ),
        Setting(
            "thresholds.stuck_utilization",
            "a GPU may be stuck from this utilisation, percent",
            _number(1, 100, "percent"),
        ),
        Setting(
            "thresholds.stuck_power_share",
            "and below this share of its power limit, 0 to 1",
            _number(0, 1, "a share"),
        ),
        Setting(
            "thresholds.stuck_after",
            "after both have held for this many seconds",
            _seconds(1, 604800),
        ),
        Setting(
            "hosts.groups",
            'lists of hosts, such as { lab = "gpu-[01-16],ann@box" }; --hosts group:lab names one, '
            "group:all all of them",
            _lists('{ lab = "gpu-[01-16]" }'),
        ),
        Setting("hosts.ssh", "the command of the ssh client, such as ssh -F lab_config", _command),
        Setting(
            "hosts.command",
            "the command of gpumon on a host, such as /opt/gpumon/bin/gpumon",
            _command,
        ),
        Setting(
            "hosts.commands",
            'other commands for some hosts, such as { "gpu-[03-04]" = "sudo -n gpumon" }',
            _lists('{ "gpu-03" = "sudo -n gpumon" }'),
        ),
        Setting(
            "prometheus.url",
            "the server of --prometheus without a URL, and the only one that gets the password or "
            "the token below; without them in it",
            _line,
        ),
        Setting("prometheus.match", 'matchers of PromQL, such as job="dcgm", as --match', _line),
        Setting("prometheus.user", "the user of basic authentication", _line),
        Setting("prometheus.password_file", "the file with the password", _line),
        Setting("prometheus.token_file", "the file with a bearer token", _line),
        Setting(
            "prometheus.ca_file",
            "the file with the authorities to trust, instead of those of this machine",
            _line,
        ),
        Setting(
            "keys.preset",
            "the usual keys: default, or vim, in which h j k l g G move",
            _choice("default", "vim"),
        ),
    )
}

TABLES = ("sort", "units", "thresholds", "hosts", "prometheus", "keys")
"""Tables of the file; all other settings come before them."""


class Variable(Struct, frozen=True):
    """An environment variable.

    Attributes:
        example: An example value.
        names: The settings that it overrides.
        read: Converts its text to values as in the file, by setting; raises ``InvalidValue``.
    """

    example: str
    names: tuple[str, ...]
    read: Callable[[str], Mapping[str, object]]


_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def _readonly(text: str) -> Mapping[str, object]:
    if text.lower() not in _TRUE + _FALSE:
        raise InvalidValue("give 1 or 0")
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
            raise InvalidValue("give GiB or GB, C or F, or one of each with a comma between: GB,F")
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
"""The variables of ``gpumon.config.VARIABLES``."""
