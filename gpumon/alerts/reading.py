"""Reads the tables ``[[alerts]]`` of a file: the valid alerts, and errors for the rest."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, get_args
from urllib.parse import urlsplit

from gpumon.alerts.alert import (
    EVENT_COOLDOWN,
    STATE_COOLDOWN,
    Alert,
    AlertCommand,
    Apprise,
    Bell,
    Desktop,
    Webhook,
    WebhookFormat,
)
from gpumon.alerts.when import WhenError, is_event, parse_when
from gpumon.config.alert_tables import ALERT_KEYS
from gpumon.config.settings import ConfigError
from gpumon.config.suggestions import did_you_mean
from gpumon.config.table import InvalidValue, as_number, read_switch, shown
from gpumon.config.toml_text import toml_key
from gpumon.system.files import FileFault, read_secret_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.alerts.alert import Way
    from gpumon.config.settings import AlertTable

MOST_ALERTS = 100
_LONGEST_NAME = 60
_LONGEST_TIME = 30 * 86400.0
_FORMATS = get_args(WebhookFormat)
_WAYS = (
    'give "bell", "desktop", { command = ["prog", "arg"] }, { webhook = "https://…" } or '
    '{ apprise = "…" }'
)
_T = TypeVar("_T")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


class ReadAlerts(NamedTuple):
    """What the tables come to.

    Attributes:
        alerts: The valid alerts.
        errors: The errors. An alert without a valid ``when`` is left out; of another invalid value
            the default applies.
    """

    alerts: tuple[Alert, ...]
    errors: tuple[ConfigError, ...]


def read_alerts(tables: Sequence[AlertTable], *, terminal: bool = True) -> ReadAlerts:
    """Read the alerts of a file.

    Args:
        tables: Its tables.
        terminal: Whether there is one, for ``bell`` and ``desktop``.
    """
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
            errors.append(
                ConfigError(place, f"there are two alerts {shown(alert.name)}: name one otherwise.")
            )
            continue
        alerts[alert.name] = alert
    return ReadAlerts(tuple(alerts.values()), tuple(errors))


class _AlertReader:
    """Reads one table.

    Args:
        table: The table.
        terminal: See ``read_alerts``.
    """

    def __init__(self, table: AlertTable, *, terminal: bool) -> None:
        self._table = table
        self._terminal = terminal
        self.errors: list[ConfigError] = []

    def read(self) -> Alert | None:
        """The alert; ``None`` without a valid ``when``."""
        for key in self._table.values:
            if key not in ALERT_KEYS:
                near = did_you_mean(key, ALERT_KEYS) or f"; there are {', '.join(ALERT_KEYS)}"
                self._add(self._place(key), f"unknown key {toml_key(key)} of an alert{near}")
        if "when" not in self._table.values:
            self._add(self._table.place, 'an alert needs a when, such as when = "hot"')
            return None
        when = self._value("when", _when, "")
        if not when:
            return None
        usual = EVENT_COOLDOWN if is_event(parse_when(when)) else STATE_COOLDOWN
        return Alert(
            name=self._value("name", _name, " ".join(when.split())[:_LONGEST_NAME]),
            when=when,
            ways=self._ways(),
            lasting=self._value("for", _seconds, 0.0),
            cooldown=self._value("cooldown", _seconds, usual),
            ended=self._value("ended", read_switch, default=False),
            commands=self._value("commands", read_switch, default=False),
        )

    def _place(self, key: str) -> str:
        return self._table.places.get(key, self._table.place)

    def _add(self, place: str, what: str) -> None:
        self.errors.append(ConfigError(place, f"{what}."))

    def _value(self, key: str, read: Callable[[object], _T], default: _T) -> _T:
        if key not in self._table.values:
            return default
        value = self._table.values[key]
        try:
            return read(value)
        except InvalidValue as wrong:
            self._add(self._place(key), f"{key} cannot be {shown(value)}: {wrong}")
            return default

    def _ways(self) -> tuple[Way, ...]:
        value = self._table.values.get("do", [])
        ways: list[Way] = []
        for one in value if isinstance(value, list) else [value]:
            try:
                way = _way(one, Path(self._place("do").partition(", line ")[0]).parent)
            except InvalidValue as wrong:
                self._add(self._place("do"), f"do cannot have {shown(one)}: {wrong}")
                continue
            if isinstance(way, (Bell, Desktop)) and not self._terminal:
                self._add(
                    self._place("do"),
                    f"{shown(one)} needs a terminal, and gpumon watch has none: it is told in the "
                    "other ways",
                )
            elif way not in ways:
                ways.append(way)
        return tuple(ways)


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise InvalidValue("give a text on one line")
    if len(value) > _LONGEST_NAME:
        raise InvalidValue(f"give at most {_LONGEST_NAME} characters")
    return value.strip()


def _when(value: object) -> str:
    if not isinstance(value, str) or len(value) > 1000 or not value.isprintable():
        raise InvalidValue("give a text such as hot or idle>2h")
    try:
        parse_when(value)
    except WhenError as error:
        raise InvalidValue(str(error)) from None
    return value


def _seconds(value: object) -> float:
    number = as_number(value, timespan=True)
    if not 0 <= number <= _LONGEST_TIME:
        raise InvalidValue('give seconds, or a time such as "90s", "10m" or "2h", up to "30d"')
    return number


def _way(value: object, folder: Path) -> Way:
    """A way.

    Args:
        value: As it stands in the file.
        folder: The folder of the file, for the paths in it.
    """
    if value == "bell":
        return Bell()
    if value == "desktop":
        return Desktop()
    if isinstance(value, str):
        near = did_you_mean(value, ["bell", "desktop", "command", "webhook", "apprise"])
        raise InvalidValue(f"{_WAYS}{near}")
    if not isinstance(value, dict):
        raise InvalidValue(_WAYS)
    kinds = [key for key in ("command", "webhook", "apprise") if key in value]
    if len(kinds) != 1:
        key = next(iter(value), "")
        raise InvalidValue(f"{_WAYS}{did_you_mean(key, ['command', 'webhook', 'apprise'])}")
    options = ("format", "headers", "header_files") if kinds == ["webhook"] else ()
    for key in value:
        if key not in (*kinds, *options):
            near = did_you_mean(key, options) or (
                f"; there are {', '.join(options)}" if options else ""
            )
            raise InvalidValue(f"unknown key {toml_key(key)} of a {kinds[0]}{near}")
    if kinds == ["command"]:
        return AlertCommand(_arguments(value["command"]))
    if kinds == ["apprise"]:
        return Apprise(_apprise(value["apprise"]))
    form = value.get("format", "gpumon")
    if form not in _FORMATS:
        near = did_you_mean(form, _FORMATS)
        raise InvalidValue(f"its format is {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}{near}")
    headers = _headers(value.get("headers", {}), "headers")
    for name, path in _headers(value.get("header_files", {}), "header_files").items():
        headers[name] = _secret(folder / os.path.expanduser(path))  # noqa: PTH111 - Path's raises for an unknown user
    return Webhook(_url(value["webhook"]), form, headers)


def _arguments(value: object) -> tuple[str, ...]:
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(part, str) and "\0" not in part for part in value)
        or not value[0].strip()
    ):
        raise InvalidValue('a command is a list, such as ["mail", "-s", "gpumon", "ann"]')
    return tuple(value)


def _url(value: object) -> str:
    advice = (
        "a webhook is a URL with http:// or https://, a host and, if any, a port from 1 to 65535"
    )
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise InvalidValue(advice)
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidValue(advice) from None
    if parts.scheme not in {"http", "https"} or not host or port == 0:
        raise InvalidValue(advice)
    return value


def _apprise(value: object) -> str:
    if not isinstance(value, str) or "://" not in value or not value.isprintable():
        raise InvalidValue("apprise takes a URL, such as mailto://…")
    return value


def _headers(value: object, what: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(
        _HEADER_NAME.fullmatch(name)
        and isinstance(text, str)
        and text.strip()
        and text.isprintable()
        and (what == "header_files" or text.isascii())
        for name, text in value.items()
    ):
        example = "secret" if what == "headers" else "/path/of/a/file"
        raise InvalidValue(f'{what} is a table of texts, such as {{ Authorization = "{example}" }}')
    return dict(value)


def _secret(path: Path) -> str:
    try:
        return read_secret_line(str(path))
    except FileFault as fault:
        raise InvalidValue(f"{path} {fault}") from None
