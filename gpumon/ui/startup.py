"""Opens the screens, and restores the terminal at the end.

The dashboard of one machine is painted as soon as there is a snapshot, without Textual, and
repainted until Textual draws the same rows (``docs/decisions/0001-first-picture.md``). If nothing
can be painted, the screen appears when Textual does.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import nullcontext, suppress
from threading import Event, Lock
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gpumon.config.themes.styles import resolve_styles
from gpumon.config.ui_state import load
from gpumon.kill.frozen import FROZEN
from gpumon.makers.source import SourceError
from gpumon.system.folders import state_folder
from gpumon.system.resource_errors import lack_behind, require_files
from gpumon.system.startup_imports import import_asyncio, replaced
from gpumon.ui.terminal.background import hinted_light
from gpumon.ui.terminal.cell_writer import CellWriter, RowPainter
from gpumon.ui.terminal.styles import early_colour_system, sgr_styles
from gpumon.ui.terminal.terminal import (
    ALTERNATE_SCREEN,
    EndedEarly,
    ShutdownWatchdog,
    mouse_is_free,
    read_leniently,
)
from gpumon.ui.view.dashboard_rows import Dashboard
from gpumon.ui.view.dashboard_view import first_view
from gpumon.ui.view.key_names import use_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from signal import Signals

    from gpumon.config.themes import ThemeFile
    from gpumon.fleet.fleet import Fleet
    from gpumon.model.snapshot import Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.history import History
    from gpumon.sampling.collector import Collector
    from gpumon.ui.app import BaseApp, GpumonApp
    from gpumon.ui.fleet_app import OpenHost
    from gpumon.ui.session import Session
    from gpumon.ui.terminal.styles import SgrStyles
    from gpumon.ui.terminal.terminal import Terminal
    from gpumon.ui.view.dashboard_view import StartupOptions, View
    from gpumon.ui.view.process_filter import ProcessFilter

_ENTER = f"{ALTERNATE_SCREEN}\x1b[?25l\x1b[?7l\x1b[H\x1b[2J"
_LEAVE = "\x1b[m\x1b[?7h\x1b[?1049l\x1b[?25h"

_OPENING = 1.0
"""Seconds to wait for the driver before the screen opens without data."""
_FIRST = 0.3
"""Seconds to wait for a first picture before Textual is imported."""
_FILES = 16
"""Files that must be available: the screen opens at most ten, modules and ``/proc`` the rest."""
_YOUNG = 5000
"""New objects before a garbage collection. Samples leave no garbage, and with Python's default of
700 a collection would run every second."""


class FirstPicture:
    """Paints snapshots on the sampling thread until it is handed over or closed.

    Args:
        history: The source of the graphs; it gets every snapshot before this does.
        view: The view.
        styles: The styles; ``None`` if nothing can be painted.
        terminal: The terminal.
    """

    def __init__(
        self, history: History, view: View, styles: SgrStyles | None, terminal: Terminal
    ) -> None:
        self._dashboard = Dashboard(history)
        self._view = view
        self._styles = styles
        self._painter = RowPainter()
        self._size = (0, 0)
        self._painting = Lock()
        self._seen = Event()
        self._terminal = terminal
        self._is_painted = False

    def __enter__(self) -> FirstPicture:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the alternate screen, unless it was handed over.

        This happens before a traceback is printed, which would vanish with it.
        """
        if self.hand_over():
            # If the terminal is gone, a signal reports it.
            with suppress(OSError):
                _write(_LEAVE)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Paint a snapshot."""
        if snapshot.gpus and self._styles is not None:
            with self._painting:
                if self._styles is not None:
                    with suppress(OSError):
                        self._paint(snapshot, self._styles)
            self._seen.set()

    def wait(self, seconds: float) -> None:
        """Wait for the first picture, because importing delays it."""
        if self._styles is not None:
            self._seen.wait(seconds)

    def hand_over(self) -> bool:
        """Stop painting; whether anything was painted, at the first call."""
        with self._painting:
            self._styles = None
            is_painted, self._is_painted = self._is_painted, False
        return is_painted

    def _paint(self, snapshot: Snapshot, styles: SgrStyles) -> None:
        if not self._is_painted:
            if not self._terminal.queue_keys():
                self._styles = None
                return
            self._is_painted = True
            _write(_ENTER)
        width, height = size = os.get_terminal_size(2)
        rows = self._dashboard.rows(snapshot, self._view, width, height).all()
        if size != self._size:
            self._painter, self._size = RowPainter(height), size
        writer = CellWriter(styles)
        self._painter.paint(rows, writer)
        _write(writer.take())


def first_styles(theme: ThemeFile | None, environ: Mapping[str, str]) -> SgrStyles | None:
    """The styles of the first picture.

    Returns:
        ``None`` for Textual's own themes, and where Textual has to find out what colours the
        terminal has.
    """
    system = early_colour_system(environ)
    if theme is None or system is None:
        return None
    return sgr_styles(resolve_styles(theme.variables), system)


def _write(text: str) -> None:
    assert sys.__stderr__ is not None  # noqa: S101 - it is the terminal
    sys.__stderr__.write(text)
    sys.__stderr__.flush()


def run(
    terminal: Terminal,
    collector: Collector,
    build_session: Callable[[], Session],
    picture: FirstPicture,
    narrowing: ProcessFilter,
    options: StartupOptions,
) -> int:
    """Show the dashboard until the user quits.

    Args:
        terminal: The terminal.
        collector: The started collector of the first picture's snapshots.
        build_session: Returns the data sources; called after the first picture.
        picture: The first picture, painted until Textual draws.
        narrowing: The process filter.
        options: The options.

    Returns:
        The exit status. A signal that ends it is sent again once the terminal is restored, so that
        the parent process sees which signal ended it.

    Raises:
        SourceError: The source cannot be opened.
        Exception: A resource is exhausted; see ``gpumon.system.resource_errors``.
    """
    collector.wait_open(_OPENING)
    session: Session | None = None
    unsubscribe: Callable[[], None] | None = None

    def make_app(watchdog: ShutdownWatchdog) -> GpumonApp:
        nonlocal session, unsubscribe
        unsubscribe = collector.subscribe(picture.on_snapshot, newest=True, full=False)
        picture.wait(_FIRST)
        session = build_session()
        watchdog.check()
        import_asyncio()
        import_textual()
        watchdog.check()
        from gpumon.ui import app as application
        from gpumon.ui.terminal.driver import driver_after

        driver = driver_after(terminal, picture.hand_over)
        app = application.GpumonApp(session, narrowing, options, driver)
        app.main_screen.remember_in(state_folder(), save=not options.visitor)
        return app

    def finish() -> None:
        if unsubscribe is not None:
            unsubscribe()
        collector.stop()
        if session is not None:
            session.lookup.stop()

    ended = run_app(terminal, make_app, picture, finish)
    if isinstance(collector.failure, SourceError):
        raise collector.failure
    return ended.status()


class Ended(NamedTuple):
    """How an application ended."""

    code: int  # Its exit status.
    signal: Signals | None  # The signal that ended it.

    def status(self) -> int:
        """The exit status; a signal is sent again, now that the terminal is restored."""
        if self.signal is not None:
            FROZEN.end()
            os.kill(os.getpid(), self.signal)
        return self.code


def run_app(
    terminal: Terminal,
    make_app: Callable[[ShutdownWatchdog], BaseApp],
    picture: AbstractContextManager[object],
    finish: Callable[[], None],
) -> Ended:
    """Run an application until the user quits.

    Args:
        terminal: The terminal.
        make_app: Makes the application; a signal interrupts it.
        picture: What has painted the terminal so far.
        finish: Releases everything that the application uses.

    Raises:
        Exception: A resource is exhausted; see ``gpumon.system.resource_errors``.
    """
    # Textual, asyncio and the threads that read keys and signals fail in many different ways.
    require_files(_FILES)
    app: BaseApp | None = None

    def leave_soon(status: int) -> bool:
        # Before the application exists, the main thread is interrupted.
        return app is None or app.leave_soon(status)

    with ShutdownWatchdog(terminal, leave_soon) as watchdog:
        try:
            with picture, suppress(EndedEarly):
                with watchdog.interrupting():
                    made = make_app(watchdog)
                    read_leniently()
                    made.watchdog = watchdog
                    app = made
                # Garbage collection was delayed. Modules are never garbage: exclude them from
                # collection.
                gc.freeze()
                gc.set_threshold(_YOUNG)
                gc.enable()
                app.run(mouse=mouse_is_free(os.environ))
                if app.resource_error is not None:
                    raise app.resource_error
        except Exception as error:
            # Textual may also have lacked a resource when it restored the terminal.
            resource_error = error if app is None else app.resource_error or error
            if lack_behind(resource_error) is None:
                raise
            terminal.restore()
            raise resource_error from None
        finally:
            if app is not None:
                app.stop_reading()
            finish()
            # A signal is sent again before the terminal's own end.
            terminal.leave()
    return Ended(0 if app is None else app.return_code or 0, watchdog.received)


def run_fleet(
    terminal: Terminal,
    fleet: Fleet,
    thresholds: Thresholds,
    open_host: Callable[[str], OpenHost],
    options: StartupOptions,
    source: str,
) -> int:
    """Show many hosts until the user quits.

    Args:
        terminal: The terminal.
        fleet: The fleet, which connects while modules are imported.
        thresholds: The thresholds of the findings.
        open_host: Starts the session of a host.
        options: The options.
        source: What the hosts are if they are not real.

    Returns:
        The exit status, as ``run`` does.
    """

    def make_app(watchdog: ShutdownWatchdog) -> BaseApp:
        fleet.start()
        import_asyncio()
        import_textual()
        watchdog.check()
        from gpumon.fleet.summary import FleetSummaries
        from gpumon.ui.fleet_app import FleetApp
        from gpumon.ui.terminal.driver import driver_after

        summaries = FleetSummaries(fleet, thresholds)
        driver = driver_after(terminal, lambda: False)
        suited = theme_for_background(options, terminal)
        return FleetApp(fleet, summaries, open_host, suited, driver, source)

    return run_app(terminal, make_app, nullcontext(), fleet.close).status()


def theme_for_background(options: StartupOptions, terminal: Terminal) -> StartupOptions:
    """The options with the theme for the terminal's background, unless the user chose a theme."""
    theme = options.theme
    if theme is None or not theme.is_default or options.visitor:
        return options
    is_light = terminal.background.wait()
    if is_light is None:
        is_light = hinted_light(os.environ)
    return replace(options, theme=theme.on_background(is_light=bool(is_light)))


def import_textual() -> None:
    """Import Textual's application without ``textual.types``, which lists names for documentation.

    Textual itself needs one of them, which is defined in ``textual._types``; the others would
    import four widgets that gpumon does not use, which take 10 ms and 0.9 MiB.
    """
    from textual import _types

    with replaced("textual.types", _types):
        import textual.app  # noqa: F401 - so that it is there


def first_picture(
    terminal: Terminal,
    history: History,
    interval: float,
    narrowing: ProcessFilter,
    options: StartupOptions,
    *,
    readonly: bool,
) -> FirstPicture:
    """The picture that is shown until Textual draws, if this terminal supports one.

    Args:
        terminal: The terminal.
        history: The source of the graphs; it gets every snapshot before the picture does.
        interval: Seconds between samples.
        narrowing: The process filter.
        options: The options.
        readonly: Whether every signal is refused.
    """
    styles = None
    if options.theme is not None:
        styles = first_styles(options.theme.file, os.environ)
    use_keys(options.keys, visitor=options.visitor)
    view = first_view(interval, narrowing, options, readonly=readonly)
    remembered = load(state_folder()).host_strip
    if remembered is not None:
        view = replace(view, host_strip=remembered)
    return FirstPicture(history, view, styles, terminal)
