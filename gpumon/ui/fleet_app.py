"""The application of many hosts: their screen, and the dashboard of the host that is open.

It is one application, because a second one in its place would clear the terminal and lose keys.
"""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.fleet.fleet import HostStatus
from gpumon.system.folders import state_folder
from gpumon.system.system import THIS_SYSTEM
from gpumon.ui.app import BaseApp
from gpumon.ui.background import Wakeup, run_in_thread
from gpumon.ui.screens.fleet import FleetScreen
from gpumon.ui.view.dashboard_view import DEFAULT_OPTIONS, StartupOptions
from gpumon.ui.view.fleet_view import FleetView
from gpumon.ui.view.process_filter import ProcessFilter
from gpumon.ui.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.driver import Driver

    from gpumon.fleet.fleet import Fleet, HostState
    from gpumon.fleet.summary import FleetSummaries
    from gpumon.model.processes import ProcessId
    from gpumon.system.system import Clock
    from gpumon.ui.screens.painted import PaintedScreen
    from gpumon.ui.session import Session

_CLOSE_SECONDS = 3.0
"""Maximum seconds to wait at exit for hosts that are being closed: signals may be on their way."""
_STATUS_SECONDS = 0.5
"""Seconds between two looks whether the open host still answers."""


class OpenHost(Struct, frozen=True):
    """The session of one host of a fleet."""

    session: Session  # Its collector has been started.
    close: Callable[[], None]  # Ends it; may take a second.


class FleetApp(BaseApp):
    """The hosts of a fleet; one of them at a time is open as at home."""

    def __init__(
        self,
        fleet: Fleet,
        summaries: FleetSummaries,
        open_host: Callable[[str], OpenHost],
        options: StartupOptions = DEFAULT_OPTIONS,
        driver_class: type[Driver] | None = None,
        source: str = "",
        clock: Clock = THIS_SYSTEM.clock,
    ) -> None:
        """Make the application.

        Args:
            fleet: The fleet, started.
            summaries: Judges its hosts; not started yet.
            open_host: Starts the session of a host.
            options: Columns, order, keys, theme.
            driver_class: The terminal driver; Textual's choice by default.
            source: What the hosts are if they are not real, such as ``DEMO``.
            clock: That ages are computed with.
        """
        super().__init__(options, driver_class)
        self._fleet = fleet
        self._summaries = summaries
        self._open_host = open_host
        self._options = options
        self._open: OpenHost | None = None
        self._is_opening = False
        self._reported: HostStatus | None = None
        self._hosts_closing: list[Event] = []
        self.fleet_screen = FleetScreen(
            summaries,
            FleetView(
                interval=fleet.interval, columns=options.columns, message=options.config_error
            ),
            self.renderer,
            clock,
            self.open_host,
            source,
            fleet.title,
        )
        self._wakeup = Wakeup(self, self.fleet_screen.look)

    @property
    def main_screen(self) -> PaintedScreen:
        """See ``BaseApp.main_screen``."""
        return self.fleet_screen if self.workspace is None else self.workspace.dashboard

    def on_mount(self) -> None:
        """Follow the hosts. Textual also calls the handler of the base."""
        self._wakeup.start()
        self._summaries.start(self._wakeup.wake)
        self.set_interval(_STATUS_SECONDS, self._check_host)

    def on_unmount(self) -> None:
        """Stop everything that calls this application."""
        self._wakeup.stop()
        self._summaries.close()
        workspace, opened = self.workspace, self._open
        if workspace is not None and opened is not None:
            workspace.stop()
            workspace.close()
            opened.close()
        for closed in self._hosts_closing:
            closed.wait(_CLOSE_SECONDS)

    def open_host(self, name: str, process: ProcessId | None = None) -> None:
        """Open a host; its connection exists already, but its past may have to be read."""
        if self.workspace is not None or self._is_opening:
            return
        self._is_opening = True
        run_in_thread(
            self,
            lambda: self._open_host(name),
            lambda opened: self._show_host(opened, process),
            name="gpumon-open-host",
        )

    def _show_host(self, opened: OpenHost, process: ProcessId | None) -> None:
        self._is_opening = False
        close = self._close_host
        workspace = Workspace(
            self, opened.session, ProcessFilter(), self._options, failed=close, leave=close
        )
        self._open, self.workspace, self._reported = opened, workspace, HostStatus.LIVE
        workspace.dashboard.remember_in(state_folder(), save=not self._options.visitor)
        if process is not None:
            workspace.dashboard.point_at(process)
        self.push_screen(workspace.dashboard)
        workspace.start()

    def _close_host(self) -> None:
        """Return from a host to all hosts."""
        workspace, opened = self.workspace, self._open
        if workspace is None or opened is None or self.screen is not workspace.dashboard:
            return
        workspace.stop()
        # From here on it is not the main screen, which is never closed.
        self.workspace = self._open = None
        self.pop_screen()

        closed = Event()
        self._hosts_closing = [
            *(closing for closing in self._hosts_closing if not closing.is_set()),
            closed,
        ]

        def close() -> None:
            try:
                workspace.close()
                opened.close()
            finally:
                closed.set()

        # Signals that are on their way and a sample that is being taken come to their end.
        run_in_thread(self, close, lambda _: None, name="gpumon-close-host")

    def _check_host(self) -> None:
        """Report a bug of the thread that judges; tell once when the open host stops to answer."""
        if self._summaries.failure is not None:
            raise self._summaries.failure
        workspace = self.workspace
        if workspace is None:
            return
        state = self._state_of(workspace.session.collector.hostname)
        if state.status is self._reported:
            return
        self._reported = state.status
        if state.status is HostStatus.LIVE:
            workspace.dashboard.say(f"{state.name} answers again")
        else:
            why = f": {state.sentence}" if state.sentence else ""
            workspace.dashboard.say(f"{state.name} is {state.status.value}{why}", lasting=True)

    def _state_of(self, name: str) -> HostState:
        return next(host for host in self._fleet.latest().hosts if host.name == name)
