"""``gpumon config``: find, create, check or show the configuration."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from gpumon.cli.commands import Command
from gpumon.cli.option_groups import Option
from gpumon.cli.output import configure_output, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from gpumon.config import Loaded

_COLUMNS = 100
"""Longest line of the template."""
_HEAD = """\
# The defaults of gpumon. Remove the # of a line to change it; gpumon config check reports errors.
# The command line overrides GPUMON_… variables, and these override this file.
"""


class ConfigCommand(Command):
    description = (
        "The configuration; docs/config.md describes it. The command line overrides the "
        "environment (GPUMON_INTERVAL, ...), the environment overrides the file, the file "
        "overrides the defaults."
    )
    options = (
        Option(
            "what",
            metavar="path|init|check|show",
            choices=("path", "init", "check", "show"),
            help="path: print the path of the file; init: create it with all defaults, commented "
            "out; check: report mistakes, with exit status 1 if there are any; show: print every "
            "setting and where it comes from",
        ),
    )

    def run(self, options: argparse.Namespace) -> int:
        configure_output(options, "toml")
        return _do(options.what)


def _do(what: str) -> int:
    """One of ``path``, ``init``, ``check`` and ``show``."""
    from gpumon.config import load

    loaded = load()
    if what == "path":
        print(loaded.path)  # noqa: T201 - the result
        return 0
    if what == "init":
        return _init(loaded.path)
    sentences = [error.sentence for error in loaded.errors]
    if what == "check":
        sentences += [*_about_the_theme(loaded), *_about_the_hosts(loaded)]
        sentences += _about_the_alerts(loaded)
    for sentence in sentences:
        say(sentence)
    if what == "show":
        sys.stdout.write(effective(loaded))
        return 0
    if sentences:
        return 1
    if os.path.lexists(loaded.path):
        print(f"{loaded.path} is valid.")  # noqa: T201 - the result
    else:
        print(f"{loaded.path} does not exist: the defaults apply.")  # noqa: T201 - the result
    return 0


def _about_the_theme(loaded: Loaded) -> list[str]:
    """Why the theme cannot be used; the dashboard reports this itself when it loads the theme."""
    from gpumon.config.themes import ThemeError, ThemeLibrary

    name, library = loaded.settings.theme, ThemeLibrary()
    if name is None:
        return []
    if name not in library.names():
        advice = library.advice(name)
        return [f"{_place(loaded, 'theme')}: there is no theme {name!r}; {advice}."]
    try:
        if library.path(name) is not None:  # Textual's own have none
            library.read(name)
    except ThemeError as error:
        return list(error.sentences)
    return []


def _about_the_hosts(loaded: Loaded) -> list[str]:
    """What cannot be read of the hosts; the commands with ``--hosts`` report this themselves."""
    from gpumon.fleet.fleet import FleetError
    from gpumon.fleet.host_names import read_hosts
    from gpumon.fleet.ssh import read_client

    settings = loaded.settings.hosts
    sentences = []

    def check(name: str, read: Callable[[], object]) -> None:
        try:
            read()
        except FleetError as error:
            sentences.append(f"{_place(loaded, name)}: {name}: {error}")

    check("hosts.ssh", lambda: read_client(settings.ssh))
    for group, hosts in settings.groups.items():
        check(f"hosts.groups.{group}", partial(read_hosts, hosts))
    for hosts in settings.commands:
        check(f"hosts.commands.{hosts}", partial(read_hosts, hosts, settings.groups))
    return sentences


def _place(loaded: Loaded, name: str) -> str:
    """Where a setting is from: the file with its line, or a variable."""
    return loaded.origins.get(name, "the file").replace("the file", loaded.path, 1)


def _about_the_alerts(loaded: Loaded) -> list[str]:
    """What cannot be read of the alerts; the dashboard and gpumon watch report this themselves."""
    if not loaded.settings.alerts:
        return []
    from gpumon.alerts.alert import read_alerts

    return [error.sentence for error in read_alerts(loaded.settings.alerts).errors]


def _init(path: str) -> int:
    from pathlib import Path

    from gpumon.alerts import alert

    try:
        # Other users must not read the folder (XDG Base Directory Specification).
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        say(f"{path} exists already and is not changed; to start over, rename it.")
        return 1
    except OSError as error:
        say(f"cannot write {path}: {error.strerror}.")
        return 1
    try:
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - it is open already
            file.write(f"{template()}\n{alert.template()}")
    except OSError as error:
        Path(path).unlink(missing_ok=True)
        say(f"cannot write {path}: {error.strerror}.")
        return 1
    print(path)  # noqa: T201 - what was written
    return 0


def template() -> str:
    """A file with every setting, its meaning and its default, all commented out.

    ``gpumon.alerts.alert.template`` has the alerts.
    """
    from gpumon.config.keymap import ACTIONS
    from gpumon.config.table import SETTINGS
    from gpumon.config.toml_text import toml

    lines = [_HEAD]
    for table, names in _by_table():
        lines += [f"[{table}]"] if table else []
        for name in names:
            setting = SETTINGS[name]
            lines += _comment(f"{setting.about} ({setting.valid})")
            lines.append(f"#{name.rpartition('.')[2]} = {toml(setting.default)}")
        lines.append("")
    # The table [keys] is the last one of these.
    lines[-1] = '# a key or several for each action: letters and signs, or "f5", "shift+up"'
    lines += [f"#{action.name} = {toml(action.keys)}" for action in ACTIONS.values()]
    return "\n".join(lines) + "\n"


def effective(loaded: Loaded) -> str:
    """Every effective setting with its origin, as TOML."""
    from gpumon.config.keymap import ACTIONS
    from gpumon.config.table import SETTINGS, value_of
    from gpumon.text.formatting import printable

    settings, lines = loaded.settings, [f"# {printable(loaded.path)}"]
    for table, names in _by_table():
        lines += ["", f"[{table}]"] if table else []
        for name in names:
            value = value_of(settings, name)
            value = SETTINGS[name].default if value is None else value
            lines.append(_line(name.rpartition(".")[2], value, loaded.origins.get(name)))
    # The table [keys] is the last one of these.
    for name, action in ACTIONS.items():
        keys = settings.keys.changed.get(name, action.usual_keys(settings.keys.preset))
        lines.append(_line(name, keys, loaded.origins.get(f"keys.{name}")))
    for alert in settings.alerts:
        lines += ["", "[[alerts]]"]
        for name, value in alert.values.items():
            origin = alert.places[name].replace(loaded.path, "the file", 1)
            lines.append(_line(name, value, origin))
    return "\n".join(lines) + "\n"


def _line(key: str, value: object, origin: str | None) -> str:
    from gpumon.config.toml_text import toml, toml_key

    return f"{f'{toml_key(key)} = {toml(value)}':<40}  # {origin or 'default'}"


def _comment(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, _COLUMNS, initial_indent="# ", subsequent_indent="# ")


def _by_table() -> Iterator[tuple[str, list[str]]]:
    """Each table with its settings, the top level first."""
    from gpumon.config.table import SETTINGS, TABLES

    for table in ("", *TABLES):
        yield table, [name for name in SETTINGS if name.rpartition(".")[0] == table]
