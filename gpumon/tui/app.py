"""The application: takes snapshots from the collector's thread to the screen, and ends well."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, ClassVar

from rich.color import ColorSystem
from textual.app import App
from textual.binding import Binding, BindingType
from textual.message import Message

from gpumon.layout.cells import CellWriter
from gpumon.sources import SourceError
from gpumon.tui.pen import Pen
from gpumon.tui.screens.dashboard import DashboardScreen
from gpumon.tui.screens.help import HelpScreen
from gpumon.tui.terminal import Ending, Terminal
from gpumon.tui.theme import Palette, load_theme

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.app import SystemCommand
    from textual.messages import TerminalSupportsSynchronizedOutput
    from textual.screen import Screen
    from textual.theme import Theme

    from gpumon.collector import Collector
    from gpumon.history import History
    from gpumon.model import Snapshot

EXIT_NO_SOURCE = 1

_OPENING = 1.0
"""Seconds to wait for the driver before the screen says that it is being waited for."""


class SnapshotsArrived(Message, bubble=False):
    """There are snapshots to take; many such messages are as good as one."""

    def can_replace(self, message: Message) -> bool:
        """A waiting message of this kind need not be followed by another."""
        return isinstance(message, SnapshotsArrived)


class GpumonApp(App[int]):
    """The dashboard and what can be opened from it."""

    TITLE = "gpumon"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1", "help", "This page", key_display="?"),
        Binding("q", "leave", "Quit", key_display="q"),
        Binding("ctrl+c", "leave", "Quit", key_display="Ctrl+C", priority=True, system=True),
        Binding("ctrl+z", "suspend_process", "Suspend", key_display="Ctrl+Z"),
    ]

    def __init__(self, collector: Collector, history: History, user: str | None = None) -> None:
        """Make the application.

        Args:
            collector: Started or not; its snapshots are shown from the moment this runs.
            history: What the collector fills; only read here.
            user: The one user whose processes to show.
        """
        super().__init__()
        self._collector = collector
        self._loop: asyncio.AbstractEventLoop | None = None
        self._history = history
        self.ending: Ending | None = None
        """What forces the end of an application that does not end by itself."""
        self.register_theme(load_theme("gpumon"))
        self.theme = "gpumon"
        palette = self._palette()
        self._pen = Pen(self, palette.inks)
        self.dashboard = DashboardScreen(collector, history, self._pen, palette, user)

    def on_mount(self) -> None:
        """Take the screen, then the snapshots."""
        self.push_screen(self.dashboard)
        self.theme_changed_signal.subscribe(self, self._take_theme)
        self._unsubscribe = self._collector.subscribe(self._ring, self._ring_for)
        self.post_message(SnapshotsArrived())
        self._loop = asyncio.get_running_loop()

    def on_unmount(self) -> None:
        """No more snapshots."""
        self._unsubscribe()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Of Textual's commands those that do here what they say."""
        commands = super().get_system_commands(screen)
        return (command for command in commands if command.title in {"Theme", "Quit"})

    def _ring(self, _: Snapshot) -> None:
        """Called on the collector's threads: there is something to show."""
        self.post_message(SnapshotsArrived())

    def _ring_for(self, _: BaseException) -> None:
        """Likewise: the collector has failed."""
        self.post_message(SnapshotsArrived())

    def on_snapshots_arrived(self) -> None:
        """Show the newest snapshot, or end with what the collector failed of."""
        failure = self._collector.failure
        if isinstance(failure, SourceError):
            self._leave(EXIT_NO_SOURCE)
        elif failure is not None:
            raise failure
        elif self._collector.latest is not None:
            self.dashboard.take(self._collector.latest)

    def on_terminal_supports_synchronized_output(
        self, _: TerminalSupportsSynchronizedOutput
    ) -> None:
        """The terminal has answered Textual's question."""
        self._pen.synchronized = True

    def _palette(self) -> Palette:
        name = self.console.color_system
        systems = {
            "standard": ColorSystem.STANDARD,
            "256": ColorSystem.EIGHT_BIT,
            "truecolor": ColorSystem.TRUECOLOR,
        }
        plain = name is None or "NO_COLOR" in os.environ
        system = None if plain else systems.get(str(name))
        return Palette(self.get_css_variables(), system)

    def _take_theme(self, _: Theme) -> None:
        palette = self._palette()
        self._pen.writer = CellWriter(palette.inks)
        self.dashboard.repaint(palette)

    def action_help(self) -> None:
        """Open the help page."""
        if not isinstance(self.screen, HelpScreen):
            bindings = [
                *self.BINDINGS,
                *self.dashboard.BINDINGS,
            ]
            keys = [binding for binding in bindings if isinstance(binding, Binding)]
            self.push_screen(HelpScreen(keys, self._history))

    def action_leave(self) -> None:
        """Quit, whatever the driver or the terminal are doing."""
        self._leave(0)

    def leave_soon(self, status: int) -> bool:
        """End with this status, asked for from another thread; False when not running yet."""
        if self._loop is None:
            return False
        self._loop.call_soon_threadsafe(self._leave, status)
        return True

    def _leave(self, status: int) -> None:
        if self.ending is not None:
            self.ending.begin(status)
        self.exit(status, return_code=status)


def run(collector: Collector, history: History, user: str | None = None) -> int:
    """Show the dashboard until it is left.

    Returns:
        The exit status. A signal that ends it is delivered again once the terminal is restored, so
        that whoever waits for the program sees what ended it.

    Raises:
        SourceError: The source does not open.
    """
    collector.wait_open(_OPENING)
    app = GpumonApp(collector, history, user)
    with Terminal() as terminal, Ending(terminal, app.leave_soon) as ending:
        app.ending = ending
        try:
            app.run()
        finally:
            collector.stop()
    if isinstance(collector.failure, SourceError):
        raise collector.failure
    if ending.received is not None:
        os.kill(os.getpid(), ending.received)
    return app.return_code or 0
