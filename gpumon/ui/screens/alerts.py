"""The page of alerts: the notices, what is watched, and the alerts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from gpumon.alerts.notice import process_key
from gpumon.ui.keys import bindings_of
from gpumon.ui.screens.page import SCROLL, PageScreen
from gpumon.ui.view.alerts_page import alert_rows
from gpumon.ui.view.key_names import FooterKey, footer_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.binding import BindingType

    from gpumon.alerts.notice import Notice
    from gpumon.config.keymap import KeyScope
    from gpumon.model.processes import ProcessId
    from gpumon.text.cells import Row
    from gpumon.ui.workspace import Workspace


class AlertsScreen(PageScreen):
    """The notices, newest first, with a cursor that opens their subject, and what is watched."""

    scope: ClassVar[KeyScope] = "alerts"
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(scope)

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self._alerts = workspace.alerts
        self._notices: tuple[Notice, ...] = ()
        self._cursor: Notice | None = None
        self._owners: list[int | None] = []

    @property
    def heading(self) -> str:
        """See ``PageScreen.heading``."""
        return "alerts"

    @property
    def footer_keys(self) -> Sequence[FooterKey]:
        """See ``PaintedScreen.footer_keys``."""
        opened = [footer_key("open subject", label="open")] if self._notices else []
        return (footer_key("back"), footer_key("help"), *opened, SCROLL)

    @property
    def _chosen(self) -> int | None:
        """The index of the notice under the cursor."""
        return next(
            (index for index, notice in enumerate(self._notices) if notice is self._cursor), None
        )

    def follow(self) -> None:
        """Add the new notices; the cursor stays on its notice."""
        self._notices = tuple(self._alerts.notices)
        self._alerts.read()
        if self._chosen is None and self._notices:
            self._cursor = self._notices[0]

    def page(self, width: int) -> list[Row]:
        """See ``PageScreen.page``."""
        configured = self._alerts.alerts
        notes = (*self._alerts.troubles, *filter(None, (configured.note,)))
        rows, self._owners = alert_rows(
            self._notices,
            self._chosen,
            self._alerts.watch_list(),
            configured.alerts,
            notes,
            time.time(),
            width,
        )
        return rows

    # -- the cursor ------------------------------------------------------------------------------

    def _point_at(self, index: int) -> None:
        if not self._notices:
            return
        self._cursor = self._notices[max(0, min(index, len(self._notices) - 1))]
        self._rows = self.page(self._rows_width)
        own = [row for row, owner in enumerate(self._owners) if owner == self._chosen]
        last = len(self._rows) - 1 if self._chosen == len(self._notices) - 1 else own[-1]
        self._top = min(max(self._top, last - self.body_height + 1), own[0])
        self.draw()

    def action_scroll_rows(self, rows: int) -> None:
        """Move the cursor."""
        if self._chosen is None:
            super().action_scroll_rows(rows)
        else:
            self._point_at(self._chosen + rows)

    def action_scroll_pages(self, pages: int) -> None:
        """Move the cursor by a page less one row."""
        self.action_scroll_rows(pages * max(1, self.body_height - 1))

    def action_scroll_edge(self, edge: int) -> None:
        """Move the cursor to the newest or oldest notice."""
        if self._chosen is None:
            super().action_scroll_edge(edge)
        else:
            self._point_at(0 if edge < 0 else len(self._notices) - 1)

    def _click(self, part: str, x: int, y: int, *, again: bool) -> None:  # noqa: ARG002 - rows are whole
        """Select a clicked notice; a double click opens it."""
        row = self._top + y
        owner = self._owners[row] if part == "body" and row < len(self._owners) else None
        if owner is not None:
            self._point_at(owner)
            if again:
                self.action_open()

    # -- opening ---------------------------------------------------------------------------------

    def action_open(self) -> None:
        """Open the page of the process of the notice, or of its GPU."""
        notice, latest = self._cursor, self._history.latest
        if notice is None or latest is None:
            self.say("there are no notifications yet")
            return
        process = self._process_of(notice)
        if process is not None:
            self._workspace.open_page(process)
        elif any(gpu.uuid == notice.gpu_uuid for gpu in latest.gpus) and notice.gpu_uuid:
            self._workspace.open_page(notice.gpu_uuid)
        elif notice.pid is not None:
            self.say(f"process {notice.pid} is on no GPU any more")
        else:
            self.say("its GPU is not in the driver's list any more")

    def _process_of(self, notice: Notice) -> ProcessId | None:
        latest = self._history.latest
        listed = () if latest is None else latest.processes
        return next(
            (process.id for process in listed if process_key(process.id) == notice.key), None
        )
