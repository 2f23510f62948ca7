"""The page of alerts: the notices, what is watched, and the alerts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from gpumon.alerts.notice import process_key
from gpumon.ui.keys import bindings_of
from gpumon.ui.screens.cursor_page import CursorPage
from gpumon.ui.screens.page import SCROLL
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


class AlertsScreen(CursorPage["Notice"]):
    """The notices, newest first, with a cursor that opens their subject, and what is watched."""

    scope: ClassVar[KeyScope] = "alerts"
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(scope)

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self._alerts = workspace.alerts

    @property
    def heading(self) -> str:
        """See ``PageScreen.heading``."""
        return "alerts"

    @property
    def footer_keys(self) -> Sequence[FooterKey]:
        """See ``PaintedScreen.footer_keys``."""
        opened = [footer_key("open subject", label="open")] if self._items else []
        return (footer_key("back"), footer_key("help"), *opened, SCROLL)

    def follow(self) -> None:
        """Add the new notices; the cursor stays on its notice."""
        self._list(tuple(self._alerts.notices))
        self._alerts.read()

    def page(self, width: int) -> list[Row]:
        """See ``PageScreen.page``."""
        configured = self._alerts.alerts
        notes = (*self._alerts.troubles, *filter(None, (configured.note,)))
        rows, self._owners = alert_rows(
            self._items,
            self._chosen,
            self._alerts.watch_list(),
            configured.alerts,
            notes,
            time.time(),
            width,
        )
        return rows

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
            self.say(f"process {notice.pid} is no longer on a GPU")
        else:
            self.say("its GPU is not in the driver's list any more")

    def _process_of(self, notice: Notice) -> ProcessId | None:
        latest = self._history.latest
        listed = () if latest is None else latest.processes
        return next(
            (process.id for process in listed if process_key(process.id) == notice.key), None
        )
