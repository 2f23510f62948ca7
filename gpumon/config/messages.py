"""The configuration as text: a template with all defaults, and the effective settings."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from gpumon.config.keymap import ACTIONS
from gpumon.config.table import SETTINGS, value_of
from gpumon.config.toml_text import toml, toml_key
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.config.settings import Loaded

_WIDTH = 100
_HEAD = """\
# The defaults of gpumon. Remove the # of a line to change it; gpumon config check reports errors.
# The command line overrides GPUMON_… variables, and these override this file.
"""


def template() -> str:
    """A file with every setting, its meaning and its default, all commented out.

    ``gpumon.alerts.alert.template`` has the alerts.
    """
    lines = [_HEAD]
    for table, names in _by_table():
        lines += [f"[{table}]"] if table else []
        for name in names:
            about = SETTINGS[name].about
            lines += textwrap.wrap(about, _WIDTH, initial_indent="# ", subsequent_indent="# ")
            lines.append(f"#{name.rpartition('.')[2]} = {toml(SETTINGS[name].default)}")
        lines.append("")
    # The table [keys] is the last one of these.
    lines[-1] = '# one key or several for each action: letters and signs, or "f5", "shift+up"'
    lines += [f"#{action.name} = {toml(action.keys)}" for action in ACTIONS.values()]
    return "\n".join(lines) + "\n"


def effective(loaded: Loaded) -> str:
    """Every effective setting with its origin, as TOML."""
    settings, lines = loaded.settings, [f"# {printable(loaded.path)}"]
    for table, names in _by_table():
        lines += ["", f"[{table}]"] if table else []
        for name in names:
            value = value_of(settings, name)
            value = SETTINGS[name].default if value is None else value
            lines.append(_told(name.rpartition(".")[2], value, loaded.origins.get(name)))
    # The table [keys] is the last one of these.
    for name, action in ACTIONS.items():
        keys = settings.keys.changed.get(name, action.usual_keys(settings.keys.preset))
        lines.append(_told(name, keys, loaded.origins.get(f"keys.{name}")))
    for table_ in settings.alerts:
        lines += ["", "[[alerts]]"]
        for name, value in table_.values.items():
            origin = table_.places[name].replace(loaded.path, "the file", 1)
            lines.append(_told(name, value, origin))
    return "\n".join(lines) + "\n"


def _told(key: str, value: object, origin: str | None) -> str:
    return f"{f'{toml_key(key)} = {toml(value)}':<40}  # {origin or 'default'}"


def _by_table() -> Iterator[tuple[str, list[str]]]:
    """Each table with its settings, the top level first."""
    tables = dict.fromkeys(name.rpartition(".")[0] for name in SETTINGS)
    for table in tables:
        yield table, [name for name in SETTINGS if name.rpartition(".")[0] == table]
