"""The screens of one session: its dashboard, its pages, and the end of its processes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpumon.alerts.deliveries import Deliveries
from gpumon.config.keymap import DEFAULT_WINDOW, WINDOWS
from gpumon.findings.groups import JobGroup
from gpumon.makers.source import SourceError
from gpumon.ui.alert_controller import AlertController
from gpumon.ui.background import Wakeup, call_soon
from gpumon.ui.kill_controller import KillController
from gpumon.ui.screens.dashboard import DashboardScreen
from gpumon.ui.screens.page import PageScreen
from gpumon.ui.terminal.desktop import ScreenTerminal
from gpumon.ui.view.key_names import keycap
from gpumon.ui.view.kill_report import summary_text
from gpumon.ui.viewed_time import ViewedTime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.alerts.notice import Notice
    from gpumon.model.processes import ProcessId
    from gpumon.ui.alert_controller import Subject
    from gpumon.ui.app import BaseApp
    from gpumon.ui.session import Session
    from gpumon.ui.view.dashboard_view import StartupOptions
    from gpumon.ui.view.process_filter import ProcessFilter


_DELIVERY_SECONDS = 0.5
"""How long notices that are being sent may delay the end."""


class Workspace:
    """Shows the snapshots of a session, whose collector may be started later.

    Args:
        app: The application.
        session: The data sources.
        narrowing: The initial process filter.
        options: Columns, order, keys.
        failed: Called when there is nothing to show any more.
        leave: Called when the user leaves the dashboard, with nothing left on it to clear.
    """

    def __init__(
        self,
        app: BaseApp,
        session: Session,
        narrowing: ProcessFilter,
        options: StartupOptions,
        failed: Callable[[], None],
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        self._app = app
        self._leave = leave
        self._failed = failed
        self._wakeup = Wakeup(app, self._show_snapshots)
        self._unsubscribe: Callable[[], None] = lambda: None
        self.session = session
        self.window = DEFAULT_WINDOW
        """The time that all charts show."""
        self.renderer = app.renderer
        self.viewed_time = ViewedTime(session, self._wakeup.wake)
        self.kill_controller = KillController(app, session, self._show_reports, app.say)
        self.dashboard = DashboardScreen(self, narrowing, options)
        self._deliveries = Deliveries(
            ScreenTerminal(app, app.write_to_terminal),
            lambda sentence: call_soon(app, self.alerts.report, sentence),
        )
        self.alerts = AlertController(
            session.alerts,
            session.history,
            self._deliveries.send,
            self._show_notice,
            self._show_alerts,
            lambda sentence: app.say(sentence, lasting=True),
        )

    def show_window(self, key: str) -> None:
        """Show the time of a key of ``WINDOWS`` in all charts."""
        self.window = next(window for window in WINDOWS if window.key == key)

    def start(self) -> None:
        """Follow the snapshots; must be called on the application's thread."""
        self._wakeup.start()
        self._unsubscribe = self.session.collector.subscribe(
            lambda _: self._wakeup.wake(), lambda _: self._wakeup.wake(), full=False
        )
        self._wakeup.wake()

    def stop(self) -> None:
        """Stop to follow them."""
        self._wakeup.stop()
        self._unsubscribe()

    def close(self) -> None:
        """Send pending signals, and release everything; takes a few seconds at most."""
        self.viewed_time.close()
        self.kill_controller.close()
        self._deliveries.close(_DELIVERY_SECONDS)
        self.alerts.close()

    def _show_snapshots(self) -> None:
        """Show the newest snapshot, or end if the collector has failed."""
        collector, dashboard = self.session.collector, self.dashboard
        failure = collector.failure or self.viewed_time.failure
        if (
            isinstance(failure, SourceError)
            and failure is self.viewed_time.failure
            and self.viewed_time.is_live
        ):
            self.viewed_time.return_to_present()
            self._app.say(failure.sentence)
            dashboard.show_newest()
        elif isinstance(failure, SourceError):
            self._failed()
        elif failure is not None:
            raise failure
        elif collector.latest is not None:
            self.kill_controller.on_snapshot(collector.latest)
            if self.viewed_time.is_live:
                self.alerts.check()
            with self._app.renderer.in_background():
                dashboard.show_newest()

    def _show_reports(self) -> None:
        """Show the kill reports: the dashboard has lines for them, a page one message."""
        self.dashboard.draw()
        screen = self._app.screen
        if isinstance(screen, PageScreen) and self.kill_controller.reports:
            screen.say(summary_text(self.kill_controller.reports[-1]), lasting=True)

    def watch(self, subject: Subject) -> None:
        """Notify when a GPU is free, or a process or job has ended; or cancel that."""
        if self.viewed_time.is_live:
            self._app.say(self.alerts.toggle(subject), lasting=True)

    def _show_notice(self, notice: Notice, others: int) -> None:
        """Show a notice, on any screen."""
        more = f" (and {others} more: {keycap('alerts')})" if others else ""
        self._app.say(f"{notice.sentence}{more}", lasting=True)

    def _show_alerts(self) -> None:
        self.dashboard.show_alerts(self.alerts.watched, self.alerts.unread)

    # -- requests of the screens: after the keys that were read in the same packet ----------------

    def open_page(self, subject: ProcessId | JobGroup | str) -> None:
        """Open the page of a process, of a job, or of a GPU by its UUID."""
        self._app.call_later(self._push, partial(self._page_of, subject))

    def open_comparison(self, uuids: Sequence[str]) -> None:
        """Open the page that compares GPUs, by their UUIDs."""
        self._app.call_later(self._push, partial(self._comparison_of, tuple(uuids)))

    def open_alerts(self) -> None:
        """Open the page of alerts."""
        self._app.call_later(self._push, self._alerts_page)

    def open_topology(self) -> None:
        """Open the page of the topology."""
        self._app.call_later(self._push, self._topology_page)

    def open_accidents(self) -> None:
        """Open the page of accidents."""
        self._app.call_later(self._push, self._accidents_page)

    def leave(self) -> None:
        """Leave the dashboard for what lies under it, if there is something."""
        self._app.call_later(self._leave)

    def _push(self, make: Callable[[], PageScreen]) -> None:
        # The host may have been closed meanwhile.
        if self._app.workspace is self:
            with self._app.reporting_too_many_files():
                self._app.push_screen(make())

    def _page_of(self, subject: ProcessId | JobGroup | str) -> PageScreen:
        from gpumon.ui.screens.subjects import GpuScreen, ProcessScreen

        if isinstance(subject, JobGroup):
            from gpumon.ui.screens.subjects import JobScreen

            return JobScreen(self, subject)
        if isinstance(subject, str):
            return GpuScreen(self, subject)
        return ProcessScreen(self, subject)

    def _comparison_of(self, uuids: tuple[str, ...]) -> PageScreen:
        from gpumon.ui.screens.compare import CompareScreen

        return CompareScreen(self, uuids)

    def _alerts_page(self) -> PageScreen:
        from gpumon.ui.screens.alerts import AlertsScreen

        return AlertsScreen(self)

    def _topology_page(self) -> PageScreen:
        from gpumon.ui.screens.topology import TopologyScreen

        return TopologyScreen(self)

    def _accidents_page(self) -> PageScreen:
        from gpumon.ui.screens.accidents import AccidentsScreen

        return AccidentsScreen(self)
