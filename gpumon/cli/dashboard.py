"""``gpumon`` without a command: the dashboard, of this machine or of several.

Plain ``gpumon`` goes past argparse: nothing here imports it.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from gpumon.cli import values
from gpumon.cli.commands import Command
from gpumon.cli.machine_options import FleetOptions, SampleOptions
from gpumon.cli.option_groups import (
    ASCII,
    NO_COMMANDS,
    HistoryOption,
    OptionGroup,
    ReadonlyOption,
    ScreenOptions,
    SharedOption,
    interval_option,
)
from gpumon.cli.output import explain_source, fail, say
from gpumon.model.interval import LOG_INTERVAL

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from gpumon.config import Loaded
    from gpumon.fleet.fleet import Fleet
    from gpumon.model.thresholds import Thresholds
    from gpumon.ui.fleet_app import OpenHost
    from gpumon.ui.session import SessionAlerts

_DESCRIPTION = """\
Show what the GPUs of this machine do and who uses them.

examples:
  gpumon                                        the dashboard; ? lists all keys
  export CUDA_VISIBLE_DEVICES=$(gpumon select)  use a free GPU in this shell
  gpumon run --wait -- python train.py          run a job when a GPU is free
  gpumon log run.csv --for 8h                   log; gpumon replay shows the log
  gpumon report run.csv --by user               GPU hours and energy per user

If standard output is not a terminal, gpumon prints one sample as a table.
"""
_HOST_INTERVAL = 1.0
"""Seconds between samples of a host, unless the user names another number."""
_NO_ALERTS = "In a browser the alerts of the configuration are not checked: gpumon watch does it."
_ALERTS_ELSEWHERE = (
    "The alerts of the configuration are not checked for other machines: run gpumon watch there."
)

_SCREEN = ("--interval", "--readonly", "--no-commands", "--columns", "--theme")
"""The options of a screen, of one machine or several."""


class _ShownFleet(FleetOptions):
    """What is shown of other machines: on a terminal their dashboard, otherwise a sample."""

    def __init__(self) -> None:
        super().__init__((*_SCREEN, "--demo"), _SCREEN, reason="is for one machine")
        # Of --log it is said why a sample has none.
        self._sample = FleetOptions((*_SCREEN, "--log", "--user", "--filter"), (*_SCREEN, "--log"))

    def fault(self, options: argparse.Namespace, given: Iterable[argparse.Action]) -> str | None:
        if sys.stdout is not None and sys.stdout.isatty():
            return super().fault(options, given)
        return self._sample.fault(options, given)


class DashboardCommand(Command):
    """The dashboard."""

    description = _DESCRIPTION
    usage = "gpumon [options] [COMMAND ...]"
    without_gc = True
    machine = SampleOptions(user=True, filtered=True)
    interval = OptionGroup(
        interval_option(
            f", as in watch (default: 0.5 or that of the configuration, for a log {LOG_INTERVAL:g})"
        ),
        title="how often",
    )
    screen = ScreenOptions()
    readonly = ReadonlyOption(
        "never send a signal to any process, whatever key is pressed", title=ScreenOptions.TITLE
    )
    log = OptionGroup(
        SharedOption(
            "--log",
            metavar="FILE",
            help="log to this CSV file from the start; the key L stops and starts it",
        ),
        NO_COMMANDS,
        title=ScreenOptions.TITLE,
    )
    history = HistoryOption(title=ScreenOptions.TITLE)
    fleet = _ShownFleet()
    groups = (machine, ASCII, interval, readonly, log, history, screen, fleet)

    def defaults(self) -> dict[str, object]:
        """The options that may stand before a command: ``None``, until they are given."""
        options = [option for group in self.groups for option in group.options]
        return {option.name: None for option in options if isinstance(option, SharedOption)}

    def read_plainly(self, arguments: Sequence[str]) -> argparse.Namespace | None:
        """Parse ``gpumon`` and ``gpumon -n 0.5``; ``None`` if argparse must parse or refuse it.

        Most people type one of these, and argparse takes a tenth of the time until the first
        picture. ``tests/cli/test_command_line.py`` checks that argparse reads them in the same way.
        """
        interval = None
        if arguments:
            if len(arguments) != 2 or arguments[0] not in {"-n", "--interval"}:
                return None
            interval = values.seconds(arguments[1])
            if interval is None:
                return None
        read = SimpleNamespace(**{**self.defaults(), "interval": interval, "command": None})
        return cast("argparse.Namespace", read)

    def check(self, options: argparse.Namespace) -> None:
        """Read what the dashboard will read of its options; nothing is connected.

        Raises:
            UnknownThemeError: There is no such theme.
            FleetError: The hosts cannot be read.
        """
        from gpumon.config import load

        if self.fleet.asked(options) is not None:
            self.fleet.open(options, _HOST_INTERVAL)
        self.screen.theme(options, load().settings)

    def run(self, options: argparse.Namespace, *, visitor: bool = False) -> int:
        """Show the dashboard, or print one sample if standard output is not a terminal.

        A ``visitor`` only watches, in a browser.
        """
        if sys.stdout.isatty():
            fault = screen_fault()
            if fault is not None:
                return fail(fault)
            if self.fleet.asked(options) is not None:
                return self._show_fleet(options, visitor=visitor)
            return self._show(options, visitor=visitor)
        if options.log is not None:
            return fail(
                "standard output is not a terminal, so --log has no screen: use gpumon log."
            )
        from gpumon.cli.snapshot import print_sample

        self.screen.theme(options)
        return print_sample(options, "table", by_process=False)

    def _show(self, options: argparse.Namespace, *, visitor: bool) -> int:
        from gpumon.config import load
        from gpumon.makers.source import SourceError
        from gpumon.ui.session import SessionBuilder

        loaded = load()
        settings = loaded.settings
        theme = self.screen.theme(options, settings)
        readonly = visitor or self.readonly.holds(options, settings)
        machine = self.machine.open(options, readonly=readonly)
        interval = options.interval or settings.interval
        builder = SessionBuilder(
            machine,
            interval,
            settings.thresholds,
            log=options.log,
            user=options.user,
            commands=not options.no_commands,
            history=None
            if options.demo
            else self.history.finder(options, settings, machine.source.hostname),
        )
        fault = builder.logbook.begin()
        if fault is not None:
            return fail(fault)
        # The driver answers while the slower modules, findings and drawing, are imported.
        builder.collector.start()
        from gpumon.ui.terminal.terminal import Terminal

        try:
            with Terminal() as terminal:
                if theme.is_default and not visitor:
                    # So does the terminal.
                    terminal.query_background()
                first = builder.first_history()
                from gpumon.ui.startup import first_picture, theme_for_background
                from gpumon.ui.startup import run as run_screen
                from gpumon.ui.view.process_filter import ProcessFilter

                filter_ = ProcessFilter(user=options.user, filter=options.filter)
                demo = bool(options.demo)
                loaded, alerts = _alerts(
                    loaded, machine.source.hostname, demo=demo, visitor=visitor
                )
                chosen = self.screen.open(options, loaded, theme, visitor=visitor)
                chosen = theme_for_background(chosen, terminal)
                picture = first_picture(
                    *(terminal, first, interval, filter_, chosen),
                    readonly=machine.processes.readonly,
                )
                build_session = partial(builder.build, alerts, demo=demo)
                return run_screen(
                    terminal, builder.collector, build_session, picture, filter_, chosen
                )
        except SourceError as error:
            return explain_source(error)
        finally:
            for sentence in builder.logbook.close():
                say(sentence)

    def _show_fleet(self, options: argparse.Namespace, *, visitor: bool) -> int:
        from gpumon.config import load
        from gpumon.ui.startup import run_fleet
        from gpumon.ui.terminal.terminal import Terminal

        loaded = load()
        settings = loaded.settings
        theme = self.screen.theme(options, settings)
        fleet = self.fleet.open(options, options.interval or _HOST_INTERVAL)
        readonly = visitor or self.readonly.holds(options, settings)
        chosen = self.screen.open(options, loaded, theme, visitor=visitor)
        demo = bool(options.demo)
        notes: list[str] = []

        def open_host(name: str) -> OpenHost:
            return _open_host(
                *(fleet, name, settings.thresholds, notes),
                readonly=readonly,
                demo=demo,
                commands=not options.no_commands,
            )

        try:
            with Terminal() as terminal:
                if theme.is_default and not visitor:
                    terminal.query_background()
                return run_fleet(
                    *(terminal, fleet, settings.thresholds, open_host, chosen),
                    "DEMO" if demo else "",
                )
        finally:
            for note in notes:
                say(note)


def _open_host(
    fleet: Fleet,
    name: str,
    thresholds: Thresholds,
    notes: list[str],
    *,
    readonly: bool,
    demo: bool,
    commands: bool,
) -> OpenHost:
    """Open what the dashboard of one host shows; it takes seconds where its past is elsewhere."""
    from gpumon.ui.fleet_app import OpenHost
    from gpumon.ui.session import SessionAlerts, SessionBuilder

    machine = fleet.machine(name, readonly=readonly)
    builder = SessionBuilder(machine, fleet.interval, thresholds, commands=commands)
    session = builder.build(SessionAlerts(note=_ALERTS_ELSEWHERE), demo=demo)
    builder.collector.start()
    return OpenHost(session, lambda: notes.extend(builder.close()))


def screen_fault() -> str | None:
    """Why no screen can be shown here, in a sentence; ``None`` if one can."""
    if sys.stdin is None or not sys.stdin.isatty():
        return "standard input is not a terminal, so no key can be read: use gpumon snapshot."
    terminal = os.environ.get("TERM", "")
    if terminal in {"", "dumb"}:
        named = "TERM=dumb" if terminal else "TERM is not set"
        return f"this terminal ({named}) cannot move its cursor: use gpumon snapshot."
    return None


def _alerts(
    loaded: Loaded, host: str, *, demo: bool, visitor: bool
) -> tuple[Loaded, SessionAlerts]:
    """The alerts of the configuration for a dashboard, and the errors in them with the others.

    In a demo nothing leaves the terminal; for a visitor no alert is checked.
    """
    from gpumon.ui.session import SessionAlerts

    tables = loaded.settings.alerts
    if tables and visitor:
        # Each visitor would send the same notifications once more.
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
    note = "This is a demo: nothing leaves this terminal."
    return loaded, SessionAlerts(tuple(alert.in_terminal() for alert in alerts), note)
