"""The tables ``[[alerts]]`` of a file: what an alert can have, and how a table is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

from msgspec import Struct
from msgspec.structs import fields, replace

from gpumon.alerts.channels.apprise import Apprise
from gpumon.alerts.channels.channel import Channel, channels_by_name
from gpumon.alerts.channels.command import Command
from gpumon.alerts.channels.terminal import Bell, Desktop
from gpumon.alerts.channels.webhook import Webhook
from gpumon.alerts.when import STATE_COOLDOWN, WhenError, parse_when
from gpumon.config.settings import ConfigError
from gpumon.config.suggestions import did_you_mean
from gpumon.config.table import InvalidValue, as_number, read_switch, shown
from gpumon.config.toml_text import toml, toml_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.config.settings import AlertTable

MOST_ALERTS = 100
_LONGEST_NAME = 60
_LONGEST_TIME = 30 * 86400.0

CHANNELS = channels_by_name(Bell, Desktop, Command, Webhook, Apprise)
"""The channels by name, in the order of the documents."""
EXAMPLES = tuple(channel.example() for channel in CHANNELS.values())
_ADVICE = f"give {', '.join(EXAMPLES[:-1])} or {EXAMPLES[-1]}"
_TABLES = tuple(name for name, channel in CHANNELS.items() if channel.takes_table)


def _when(value: object) -> str:
    if not isinstance(value, str) or len(value) > 1000 or not value.isprintable():
        raise InvalidValue("give a text such as hot or idle>2h")
    try:
        parse_when(value)
    except WhenError as error:
        raise InvalidValue(str(error)) from None
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise InvalidValue("give a text on one line")
    if len(value) > _LONGEST_NAME:
        raise InvalidValue(f"give at most {_LONGEST_NAME} characters")
    return value.strip()


def _seconds(value: object) -> float:
    number = as_number(value, timespan=True)
    if not 0 <= number <= _LONGEST_TIME:
        raise InvalidValue('give seconds, or a time such as "90s", "10m" or "2h", up to "30d"')
    return number


def _without_values(entry: object) -> object:
    """An entry of ``do`` for an error: any value in it, such as a URL, can be a secret."""
    if isinstance(entry, dict):
        return dict.fromkeys(entry, "…")
    is_word = isinstance(entry, str) and entry.isalpha()
    return entry if is_word or not isinstance(entry, (str, list)) else "…"


def _channel(value: object, folder: Path) -> Channel:
    """Read an entry of ``do``; ``folder`` is that of the configuration file."""
    if isinstance(value, str):
        if value in CHANNELS and value not in _TABLES:
            return CHANNELS[value].read({}, folder)
        raise InvalidValue(f"{_ADVICE}{did_you_mean(value, CHANNELS)}")
    if not isinstance(value, dict):
        raise InvalidValue(_ADVICE)
    names = [name for name in _TABLES if name in value]
    if len(names) != 1:
        raise InvalidValue(f"{_ADVICE}{did_you_mean(next(iter(value), ''), _TABLES)}")
    (name,) = names
    channel = CHANNELS[name]
    for key in value:
        if key != name and key not in channel.keys:
            others = f"; there are {', '.join(channel.keys)}" if channel.keys else ""
            near = did_you_mean(key, channel.keys) or others
            raise InvalidValue(f"unknown key {toml_key(key)} of a {name}{near}")
    return channel.read(value, folder)


class Key(NamedTuple):
    """How a field of an alert is written in the file."""

    example: str
    """A value in TOML syntax, for the template."""
    about: str
    """What it settles, for the template and the documents, without a full stop."""
    read: Callable[..., Any]
    """Converts the value, or each entry of ``do``; raises ``InvalidValue``."""
    default: str = ""
    """Its default, for the documents, unless it is just that of the field."""
    name: str = ""
    """Its name in the file, if that is not the name of the field."""


class Alert(Struct, frozen=True, kw_only=True):
    """An alert: each field is a key of its table."""

    when: Annotated[
        str,
        Key(
            '"hot"',
            "the condition: a state such as `hot`, a filter such as `idle>2h mem>10G`, "
            "`xid critical`, `accident`, or `ends user:me`",
            _when,
            default="none: it is required",
        ),
    ]
    name: Annotated[
        str, Key('"hot GPUs"', "its name in notifications", _name, default="the text of `when`")
    ]
    for_seconds: Annotated[
        float,
        Key(
            '"10m"',
            "how long the condition must hold before you are notified",
            _seconds,
            name="for",
        ),
    ] = 0.0
    cooldown: Annotated[
        float,
        Key(
            '"6h"',
            "how long the same condition is not reported again",
            _seconds,
            default="`6h`; `30m` for `xid`, `accident`, `ends` and `free`",
        ),
    ] = STATE_COOLDOWN
    channels: Annotated[
        tuple[Channel, ...],
        Key(
            '["bell", { command = ["notify-send", "gpumon"] }]',
            f"how you are notified: {', '.join(EXAMPLES)}",
            _channel,
            default="`[]`: only listed on the page of alerts",
            name="do",
        ),
    ] = ()
    ended: Annotated[
        bool, Key("true", "true: also notify when the condition ends", read_switch)
    ] = False
    commands: Annotated[
        bool,
        Key(
            "false",
            "true: also send command lines of processes, which can hold secrets",
            read_switch,
        ),
    ] = False

    def in_terminal(self) -> Alert:
        """The alert with the channels of the terminal only."""
        channels = tuple(channel for channel in self.channels if channel.needs_terminal)
        return replace(self, channels=channels)


def _keys() -> dict[str, Key]:
    hints = get_type_hints(Alert, include_extras=True)
    found = {}
    for field in fields(Alert):
        (key,) = hints[field.name].__metadata__
        default = key.default or f"`{toml(field.default)}`"
        found[field.name] = key._replace(name=key.name or field.name, default=default)
    return found


KEYS = _keys()
"""The keys by field, in the order of the documents, with their names and defaults."""
KEY_NAMES = tuple(key.name for key in KEYS.values())


class ReadAlerts(NamedTuple):
    """The result of reading the tables."""

    alerts: tuple[Alert, ...]
    """The valid alerts."""
    errors: tuple[ConfigError, ...]
    """The errors. An alert without a valid ``when`` is left out; any other invalid value falls back
    to its default."""


def read_alerts(tables: Sequence[AlertTable], *, terminal: bool = True) -> ReadAlerts:
    """Read the alerts of a file; without a terminal some channels are left out, with an error."""
    alerts: dict[str, Alert] = {}
    errors: list[ConfigError] = []
    for number, table in enumerate(tables):
        if number == MOST_ALERTS:
            errors.append(ConfigError(table.place, f"only the first {MOST_ALERTS} alerts count."))
            break
        reader = _AlertReader(table, terminal=terminal)
        alert = reader.read()
        errors += reader.errors
        if alert is None:
            continue
        if alert.name in alerts:
            place = table.places.get("name", table.place)
            twice = f"two alerts have the name {shown(alert.name)}: rename one of them."
            errors.append(ConfigError(place, twice))
            continue
        alerts[alert.name] = alert
    return ReadAlerts(tuple(alerts.values()), tuple(errors))


class _AlertReader:
    """Reads a table."""

    def __init__(self, table: AlertTable, *, terminal: bool) -> None:
        self._table = table
        self._terminal = terminal
        self.errors: list[ConfigError] = []

    def read(self) -> Alert | None:
        """The alert; ``None`` without a valid ``when``."""
        for name in self._table.values:
            if name not in KEY_NAMES:
                near = did_you_mean(name, KEY_NAMES) or f"; there are {', '.join(KEY_NAMES)}"
                self._add(name, f"unknown key {toml_key(name)} of an alert{near}")
        if "when" not in self._table.values:
            self._add("", 'an alert needs a when, such as when = "hot"')
            return None
        values: dict[str, Any] = {}
        for field, key in KEYS.items():
            if key.name not in self._table.values:
                continue
            value = self._table.values[key.name]
            if field == "channels":
                values[field] = self._channels(value, key)
                continue
            try:
                values[field] = key.read(value)
            except InvalidValue as wrong:
                self._add(key.name, f"{key.name} cannot be {shown(value)}: {wrong}")
                if field == "when":
                    return None
        when = values["when"]
        usual = {
            "name": " ".join(when.split())[:_LONGEST_NAME],
            "cooldown": parse_when(when).cooldown,
        }
        return Alert(**{**usual, **values})

    def _add(self, name: str, what: str) -> None:
        self.errors.append(ConfigError(self._table.places.get(name, self._table.place), f"{what}."))

    def _channels(self, value: object, key: Key) -> tuple[Channel, ...]:
        folder = Path(self._table.places[key.name].partition(", line ")[0]).parent
        channels: list[Channel] = []
        for entry in value if isinstance(value, list) else [value]:
            written = shown(_without_values(entry))
            try:
                channel = key.read(entry, folder)
            except InvalidValue as wrong:
                self._add(key.name, f"{key.name} cannot have {written}: {wrong}")
                continue
            if channel.needs_terminal and not self._terminal:
                self._add(
                    key.name,
                    f"{written} needs a terminal, and gpumon watch has none: only the other "
                    "channels are used",
                )
            elif channel not in channels:
                channels.append(channel)
        return tuple(channels)


def template() -> str:
    """The lines of an alert with every key, its meaning and an example, all commented out."""
    import textwrap

    lines = ["# a table for each alert; docs/alerts.md describes it", "#[[alerts]]"]
    for key in KEYS.values():
        about = key.about.replace("`", "")
        lines += textwrap.wrap(about, 100, initial_indent="# ", subsequent_indent="# ")
        lines.append(f"#{key.name} = {key.example}")
    return "\n".join(lines) + "\n"
