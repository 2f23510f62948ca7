"""The application of one session: the dashboard of a machine or of a log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpumon.ui.base_app import BaseApp
from gpumon.ui.startup_options import DEFAULT_OPTIONS, StartupOptions
from gpumon.ui.view.table_entries import ProcessFilter
from gpumon.ui.workspace import Workspace

if TYPE_CHECKING:
    from textual.driver import Driver

    from gpumon.ui.screens.dashboard import DashboardScreen
    from gpumon.ui.session import Session

EXIT_NO_SOURCE = 1


class GpumonApp(BaseApp):
    """The dashboard, and the pages and dialogs that it opens."""

    workspace: Workspace

    def __init__(
        self,
        session: Session,
        narrowing: ProcessFilter | None = None,
        options: StartupOptions = DEFAULT_OPTIONS,
        driver_class: type[Driver] | None = None,
    ) -> None:
        """Make the application; the collector of the session may be started later."""
        super().__init__(options, driver_class)
        self.workspace = Workspace(
            self,
            session,
            narrowing or ProcessFilter(),
            options,
            partial(self.leave, EXIT_NO_SOURCE),
        )

    @property
    def main_screen(self) -> DashboardScreen:
        """See ``BaseApp.main_screen``."""
        return self.workspace.dashboard

    def on_mount(self) -> None:
        """Follow the snapshots. Textual also calls the handler of the base."""
        self.workspace.start()

    def on_unmount(self) -> None:
        """Stop everything that calls this application."""
        self.workspace.stop()
        self.workspace.close()
