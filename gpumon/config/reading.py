"""Reads the file and the variables: the valid settings, and errors for the rest."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from gpumon.config.settings import VARIABLES, AlertTable, ConfigError, Loaded, Settings
from gpumon.config.suggestions import did_you_mean, nearest
from gpumon.config.table import SETTINGS, TABLES, InvalidValue, read_variable, shown
from gpumon.config.toml_text import line_of, lines_of, toml_key
from gpumon.system.files import MIB, FileFault, read_text
from gpumon.text.formatting import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpumon.config.settings import Preset

_LONGEST = 1000
"""Maximum length of an error message."""


def read(path: str, environ: Mapping[str, str]) -> Loaded:
    """Read the file, if it exists, then the variables, which override it."""
    reader = _Reader(path)
    reader.read_file()
    for name in VARIABLES:
        if text := environ.get(name):
            try:
                values = read_variable(name, text)
            except InvalidValue as wrong:
                reader.add_error(name, f"it cannot be {shown(text)}: {wrong}")
            else:
                for setting, value in values.items():
                    reader.apply(setting, value, name, name)
    return reader.loaded()


def read_alert_file(path: str) -> Loaded:
    """Read a file that has only tables ``[[alerts]]``, which must exist."""
    reader = _Reader(path)
    reader.read_alerts()
    return reader.loaded()


class _Reader:
    """Collects the settings and the errors."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._values: dict[str, object] = {}
        self._origins: dict[str, str] = {}
        self._errors: list[ConfigError] = []
        self._lines: dict[str, int] = {}
        self._alerts: tuple[AlertTable, ...] = ()

    def loaded(self) -> Loaded:
        """The result."""
        settings = replace(Settings(), alerts=self._alerts)
        for name, value in self._values.items():
            table, _, key = name.rpartition(".")
            # Each value was checked when it was read: msgspec.convert would take 3 ms.
            inner = {table: replace(getattr(settings, table), **{key: value})} if table else {}
            settings = replace(settings, **(inner or {key: value}))
        return Loaded(self._path, settings, tuple(self._errors), self._origins)

    def add_error(self, place: str, what: str) -> None:
        """Record an error; the default applies."""
        # A name in the file may be as long as the file.
        self._errors.append(ConfigError(place, f"{shortened(what, _LONGEST)}."))

    def apply(self, name: str, value: object, place: str, origin: str) -> None:
        """Apply a setting from the file or a variable."""
        try:
            self._values[name] = SETTINGS[name].read(value)
        except InvalidValue as wrong:
            subject = "it" if place in VARIABLES else name
            self.add_error(place, f"{subject} cannot be {shown(value)}: {wrong}")
        else:
            self._origins[name] = origin

    def read_file(self) -> None:
        """Read the whole file."""
        for key, value in self._tree().items():
            if key == "keys" and isinstance(value, dict):
                self._read_keys(value)
            elif key == "alerts":
                self._read_alerts(value)
            elif key in TABLES and isinstance(value, dict):
                for name, inner in value.items():
                    self._read_setting(key, name, inner)
            elif key in TABLES:
                self.add_error(self._place(key), f"{key} is a table: write [{key}] on a line alone")
            else:
                self._read_setting("", key, value)

    def read_alerts(self) -> None:
        """Read a file that has only alerts."""
        for key, value in self._tree(must_exist=True).items():
            if key == "alerts":
                self._read_alerts(value)
            else:
                near = did_you_mean(key, ["alerts"])
                self.add_error(
                    self._place(key),
                    f"unknown table or key {toml_key(key)}{near}: this file has only [[alerts]]",
                )

    def _tree(self, *, must_exist: bool = False) -> dict[str, object]:
        """What is in the file; nothing if it cannot be read."""
        try:
            text = read_text(self._path, MIB, "configuration of gpumon")
        except FileFault as fault:
            if not fault.is_absent:
                self.add_error(self._path, f"it {fault}")
            elif os.path.lexists(self._path):
                self.add_error(self._path, "it is a link to a file that is not there")
            elif must_exist:
                self.add_error(self._path, "there is no such file")
            return {}
        try:
            tree: dict[str, object] = msgspec.toml.decode(text)
        except (ValueError, RecursionError) as error:
            self.add_error(*_syntax(self._path, error))
            return {}
        self._lines = lines_of(text)
        return tree

    def _read_alerts(self, value: object) -> None:
        if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
            self.add_error(
                self._place("alerts"),
                "alerts is a list of tables: write [[alerts]] on a line alone for each",
            )
            return
        self._alerts = tuple(
            AlertTable(
                table,
                self._place(f"alerts[{number}]"),
                {key: self._place(f"alerts[{number}].{key}") for key in table},
            )
            for number, table in enumerate(value)
        )

    def _read_setting(self, table: str, key: str, value: object) -> None:
        name = f"{table}.{key}" if table else key
        place = self._place(name)
        if name in SETTINGS and "." not in key:
            self.apply(name, value, place, self._origin(name))
            inner = value if isinstance(value, dict) else {}
            self._origins |= {f"{name}.{each}": self._origin(f"{name}.{each}") for each in inner}
            return
        names = {known.rpartition(".")[2]: known for known in SETTINGS}
        if key in names:
            home = names[key].rpartition(".")[0]
            where = f"under [{home}]" if home else "before the first table"
            self.add_error(place, f"{key} belongs {where}")
            return
        # A missing or wrong table name must not hide which setting was meant.
        names |= {} if table else {known: known for known in (*TABLES, "alerts")}
        if found := nearest(key, names):
            near = f" (did you mean {names[found]}?)"
        else:
            here = [name for name, known in names.items() if known.rpartition(".")[0] == table]
            near = f"; there are {', '.join(here)}"
        unknown = f"{table}.{toml_key(key)}" if table else toml_key(key)
        self.add_error(place, f"unknown setting {unknown}{near}")

    def _read_keys(self, table: Mapping[str, object]) -> None:
        from gpumon.config.key_changes import read_keys, settle
        from gpumon.config.keymap import ACTIONS

        wanted: dict[str, tuple[str, ...]] = {}
        for name, value in table.items():
            place = self._place(f"keys.{name}")
            if name == "preset":
                self._read_setting("keys", name, value)
                continue
            if name not in ACTIONS:
                near = did_you_mean(name, [*ACTIONS, "preset"]) or (
                    f"; the nearest is {nearest(name, ACTIONS, 0)}, "
                    "and gpumon config show lists all"
                )
                self.add_error(place, f"unknown key action {toml_key(name)}{near}")
                continue
            try:
                wanted[name] = read_keys(value)
            except InvalidValue as wrong:
                self.add_error(place, f"keys.{name} cannot be {shown(value)}: {wrong}")
        preset: Preset = "vim" if self._values.get("keys.preset") == "vim" else "default"
        granted, refused = settle(wanted, preset)
        for name, why in refused.items():
            self.add_error(self._place(f"keys.{name}"), f"keys.{name}: {why}")
        self._values["keys.changed"] = granted
        for name in granted:
            self._origins[f"keys.{name}"] = self._origin(f"keys.{name}")

    def _place(self, name: str) -> str:
        return f"{self._path}{self._at_line(name)}"

    def _origin(self, name: str) -> str:
        return f"the file{self._at_line(name)}"

    def _at_line(self, name: str) -> str:
        line = line_of(name, self._lines)
        return "" if line is None else f", line {line}"


_AT = re.compile(r"(?P<what>.*) \(at (?:line (?P<line>\d+), column \d+|end of document)\)")


def _syntax(path: str, error: Exception) -> tuple[str, str]:
    """The position of a TOML syntax error, and that the whole file is ignored."""
    none = "so the whole file is ignored"
    if isinstance(error, RecursionError):
        return path, f"it is nested too deeply, {none}"
    found = _AT.fullmatch(str(error))
    if found is None:
        return path, f"it is not TOML ({error}), {none}"
    place = path if found["line"] is None else f"{path}, line {found['line']}"
    what = found["what"][:1].lower() + found["what"][1:]
    return place, f"this is not TOML ({what}), {none}"
