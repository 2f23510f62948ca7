"""Functions that several commands use: sources, settings, standard output."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from gpumon.cli.messages import say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gpumon.config import Loaded, Settings
    from gpumon.config.themes import ThemeChoice
    from gpumon.host.process_host import ProcessHost
    from gpumon.sources.links import Links
    from gpumon.sources.source import Source
    from gpumon.ui.session import SessionAlerts
    from gpumon.ui.startup_options import StartupOptions


_NO_ALERTS = "In a browser the alerts of the configuration are not checked: gpumon watch does it."


def codeset(options: argparse.Namespace) -> str:
    """The encoding of text for a person."""
    from gpumon.text.charset import ASCII, codeset_of, environment

    return ASCII if options.ascii else codeset_of(environment())


def fleet_option(options: argparse.Namespace) -> str | None:
    """The option that names other machines; ``None`` if there is none: this machine is meant."""
    for name in ("hosts", "prometheus"):
        if getattr(options, name, None) is not None:
            return f"--{name}"
    return None


def source_and_host(
    options: argparse.Namespace, *, profiled: bool = True
) -> tuple[Source, ProcessHost]:
    """The source of snapshots of this machine, and its processes.

    Args:
        options: The options of the command.
        profiled: See ``this_machine``; False for commands that take one sample, which is not
            enough.
    """
    from gpumon.api import local
    from gpumon.model.selection import ALL

    _require_this_machine(options)
    return local.source_and_host(
        options.gpus or ALL,
        demo=bool(options.demo),
        readonly=bool(options.readonly),
        profiled=profiled,
        backend=options.backend,
    )


def whole_machine(options: argparse.Namespace) -> tuple[Source, Callable[[], Links] | None]:
    """A source of every GPU of this machine, and a function that reads the links between them."""
    from gpumon.api import local

    _require_this_machine(options)
    return local.whole_machine(demo=bool(options.demo), backend=options.backend)


def _require_this_machine(options: argparse.Namespace) -> None:
    """A command that forgets other machines fails here instead of acting on this one."""
    asked = fleet_option(options)
    if asked is not None:
        raise RuntimeError(f"{asked} was given, and this machine would be used")


def take_output(options: argparse.Namespace, form: str) -> None:
    """Set up standard output for a format.

    Args:
        options: The command line.
        form: A ``table`` gets characters that the terminal can show; in other formats characters
            that the encoding lacks are replaced. JSON and Prometheus' format are UTF-8 by
            definition.
    """
    if form == "table":
        from gpumon.text.charset import take_stream

        take_stream(sys.stdout, codeset(options))
    elif isinstance(sys.stdout, io.TextIOWrapper):
        encoding = "utf-8" if form in {"json", "prometheus"} else None
        sys.stdout.reconfigure(encoding=encoding, errors="replace")


def take_settings() -> Settings:
    """Load the configuration, report its mistakes and use its units."""
    from gpumon.config import load
    from gpumon.text.units import use_units

    loaded = load()
    for error in loaded.errors:
        say(error.sentence)
    use_units(loaded.settings.units)
    return loaded.settings


def take_alerts(
    loaded: Loaded, host: str, *, demo: bool, visitor: bool
) -> tuple[Loaded, SessionAlerts]:
    """The alerts of the configuration for a dashboard, and the errors in them with the others.

    Args:
        loaded: The configuration.
        host: The name of the machine.
        demo: Whether the machine is simulated: then nothing leaves the terminal.
        visitor: Whether the user only looks on, in a browser: then no alert is checked.
    """
    from gpumon.ui.session import SessionAlerts

    tables = loaded.settings.alerts
    if tables and visitor:
        # Each visitor would send the same once more.
        return loaded, SessionAlerts(note=_NO_ALERTS)
    if not tables:
        return loaded, SessionAlerts()
    from msgspec.structs import replace

    from gpumon.alerts.alert import read_alerts
    from gpumon.alerts.memory import memory_path

    alerts, errors = read_alerts(tables)
    loaded = replace(loaded, errors=(*loaded.errors, *errors))
    if not demo:
        return loaded, SessionAlerts(alerts, state=memory_path(host))
    note = "This is a demo: no command, webhook or apprise is used."
    return loaded, SessionAlerts(tuple(alert.in_terminal() for alert in alerts), note)


def startup_options(
    loaded: Loaded,
    theme: ThemeChoice,
    columns: tuple[str, ...] | None,
    *,
    visitor: bool = False,
) -> StartupOptions:
    """The initial state of the screens.

    Args:
        loaded: The configuration.
        theme: The selected theme.
        columns: The columns of the command line, which override the configuration.
        visitor: Whether the user only looks on, in a browser.
    """
    from gpumon.config.columns import DEFAULT_COLUMNS
    from gpumon.config.key_changes import keys_in_force
    from gpumon.text.units import use_units
    from gpumon.ui.startup_options import StartupOptions
    from gpumon.ui.view.process_table import Sort

    settings = loaded.settings
    use_units(settings.units)
    return StartupOptions(
        columns=columns or settings.columns or DEFAULT_COLUMNS,
        sort=Sort(settings.sort.column, settings.sort.descending),
        keys=keys_in_force(settings.keys.preset, settings.keys.changed),
        config_error=loaded.brief,
        theme=theme,
        graph=settings.graph,
        host_strip=settings.host_strip,
        visitor=visitor,
    )


def screen_fault() -> str | None:
    """Why no screen can be shown here, in a sentence; ``None`` if one can."""
    if sys.stdin is None or not sys.stdin.isatty():
        return "standard input is not a terminal, so no key can be read: use gpumon snapshot."
    terminal = os.environ.get("TERM", "")
    if terminal in {"", "dumb"}:
        named = "TERM=dumb" if terminal else "TERM is not set"
        return f"this terminal ({named}) cannot move its cursor: use gpumon snapshot."
    return None


def print_text(text: str) -> int:
    """Write a text to standard output; the exit status."""
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0
