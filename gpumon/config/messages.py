"""The configuration as text: a template with all defaults, and the effective settings."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING

from gpumon.config.keymap import ACTIONS
from gpumon.config.table import SETTINGS, value_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.config.settings import Loaded

_WIDTH = 100
_HEAD = """\
# What gpumon does unless told otherwise. A line without its # is in force; gpumon config check
# says what is wrong with it. The command line goes over GPUMON_… variables, those over this file.
"""


def toml(value: object) -> str:
    """A value in TOML syntax."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def commented() -> str:
    """A file with every setting, its meaning and its default, all commented out."""
    lines = [_HEAD]
    for table, names in _by_table():
        lines += [f"[{table}]"] if table else []
        for name in names:
            about = SETTINGS[name].about
            lines += textwrap.wrap(about, _WIDTH, initial_indent="# ", subsequent_indent="# ")
            lines.append(f"#{name.rpartition('.')[2]} = {toml(SETTINGS[name].default)}")
        lines.append("")
    lines.append("[keys]")
    lines.append('# a key or several for each: letters and signs, or "f5", "shift+up"')
    lines += [f"#{action.name} = {toml(action.keys)}" for action in ACTIONS.values()]
    return "\n".join(lines) + "\n"


def in_force(loaded: Loaded) -> str:
    """Every effective setting with its origin, as TOML."""
    settings, lines = loaded.settings, [f"# {loaded.path}"]
    for table, names in _by_table():
        lines += ["", f"[{table}]"] if table else []
        for name in names:
            value = value_of(settings, name)
            value = SETTINGS[name].default if value is None else value
            lines.append(_told(name.rpartition(".")[2], value, loaded.origins.get(name)))
    lines += ["", "[keys]"]
    for name, action in ACTIONS.items():
        keys = settings.keys.get(name, action.keys)
        lines.append(_told(name, keys, loaded.origins.get(f"keys.{name}")))
    return "\n".join(lines) + "\n"


def _told(key: str, value: object, origin: str | None) -> str:
    return f"{f'{key} = {toml(value)}':<40}  # {origin or 'default'}"


def _by_table() -> Iterator[tuple[str, list[str]]]:
    """Each table with its settings, the top level first."""
    tables = dict.fromkeys(name.rpartition(".")[0] for name in SETTINGS)
    for table in tables:
        yield table, [name for name in SETTINGS if name.rpartition(".")[0] == table]
