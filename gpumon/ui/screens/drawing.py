"""Draws the dashboard: passes its rows to the widgets, and messages to the footer."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.ui.screens.timed import TimedScreen
from gpumon.ui.startup_options import DEFAULT_OPTIONS, first_view
from gpumon.ui.view.dashboard_rows import Dashboard, Parts
from gpumon.ui.view.table_entries import Listing

if TYPE_CHECKING:
    from textual.timer import Timer

    from gpumon.ui.kill_controller import KillController
    from gpumon.ui.startup_options import StartupOptions
    from gpumon.ui.terminal.renderer import TerminalRenderer
    from gpumon.ui.view.table_entries import ProcessFilter
    from gpumon.ui.viewed_time import ViewedTime

_IN_TABLE = ("processes", "footer")
_ON_GPUS = ("gpus", *_IN_TABLE)
"""The parts that show the effect of keys, by the place of the cursor: first on a slow line."""
_CATCH_UP_SECONDS = 0.1
_BENEATH_SECONDS = 0.5
"""Seconds between two frames under a dialog: Textual draws these, which is slower."""
_BEHIND_SECONDS = 1.0
"""Seconds between two updates of the table while the terminal accepts no output."""


class DrawingScreen(TimedScreen):
    """Draws a view of the newest snapshot, less often on a slow terminal."""

    parts = Parts.__struct_fields__[1:]

    def __init__(
        self,
        viewed_time: ViewedTime,
        kill_controller: KillController,
        renderer: TerminalRenderer,
        narrowing: ProcessFilter,
        options: StartupOptions = DEFAULT_OPTIONS,
    ) -> None:
        """Make the screen.

        Args:
            viewed_time: The session, and the source of snapshots and history.
            kill_controller: Ends processes.
            renderer: Writes changed cells.
            narrowing: The initial process filter.
            options: Columns, order, keys.
        """
        session = viewed_time.session
        view = first_view(
            session.collector.interval, narrowing, options, readonly=session.host.readonly
        )
        super().__init__(viewed_time, renderer, replace(view, message=options.config_error))
        self._session = session
        self._kill_controller = kill_controller
        self._dashboard = Dashboard(viewed_time.history)
        self._snapshot = viewed_time.history.latest
        self._drawn_beneath = 0.0
        self._listed_behind = 0.0
        self._shown_trouble = ""
        self._catch_up_timer: Timer | None = None
        self._key_pending = False

    def on_screen_resume(self) -> None:
        """Draw at once, also beneath a dialog. Textual also calls the handler of the base."""
        self._drawn_beneath = 0.0

    # -- what is shown ---------------------------------------------------------------------------

    def take(self) -> None:
        """Show the newest snapshot, unless the view is paused or the terminal is slow."""
        self._viewed_time.follow()
        was_past = self._view.timeline is not None
        if self._view.paused and self._viewed_time.player is None and not was_past:
            return
        # A new player has no snapshot yet: keep the current one until then.
        self._snapshot = self._viewed_time.history.latest or self._snapshot
        self._show_log_trouble()
        self.draw()

    def _show_log_trouble(self) -> None:
        """Show why a log loses samples, or what is damaged of a replayed one: once for each."""
        note = self._session.logbook.note
        trouble = self._session.damage() if note is None else note.trouble
        if trouble and trouble != self._shown_trouble:
            self.say(trouble, lasting=True)
        self._shown_trouble = trouble

    def draw(self) -> None:
        """Update all parts; unchanged cells are not sent.

        While the terminal has not accepted the previous output, the frame is dropped, and a later
        frame contains its changes.
        """
        if not self._is_seen():
            return
        # The first frame is always drawn, because Textual draws blank rows before it.
        behind = bool(self._heights) and self._renderer.behind()
        if behind and not self._is_due():
            return
        width, height = self._room
        # Relatives are visible, and can be tagged, only in the tree.
        in_tree = self._view.listing is Listing.TREE and self._viewed_time.player is None
        view = replace(
            self._view,
            dialog_open=self.app.screen is not self,
            reports=self._kill_controller.reports,
            relatives=self._session.lookup.kin if in_tree else (),
            timeline=self._viewed_time.timeline,
            log=self._session.logbook.note,
        )
        if self._viewed_time.history.latest is not None:
            self._dashboard.use_history(self._viewed_time.history)
        # The next key may refer to these rows, even if the terminal does not show them yet.
        parts = self._dashboard.rows(self._snapshot, view, width, height)
        self._layout, self._view = parts.layout, parts.layout.view
        if behind:
            return
        moved, ready = self._place(parts), self._renderer.ready(self.screen)
        urgent = _IN_TABLE if self._view.gpu is None else _ON_GPUS
        for name in (*urgent, *(name for name in self.parts if name not in urgent)):
            self._views[name].show(getattr(parts, name), width, moved=moved, ready=ready)
        self._renderer.flush()

    def _is_seen(self) -> bool:
        """Whether this screen is on top, or lies beneath a dialog and may be drawn."""
        if not self.in_sight:
            return False
        if self.app.screen is self:
            return True
        now = time.monotonic()
        if now - self._drawn_beneath < _BENEATH_SECONDS:
            return False
        self._drawn_beneath = now
        return True

    def _is_due(self) -> bool:
        """Whether to update the table on a slow terminal: after a key, or once in a while."""
        if self._catch_up_timer is None:
            self._catch_up_timer = self.set_timer(_CATCH_UP_SECONDS, self._catch_up)
        self._key_pending |= self._renderer.interactive
        now = time.monotonic()
        if not self._renderer.interactive and now - self._listed_behind < _BEHIND_SECONDS:
            return False
        self._listed_behind = now
        return True

    def _catch_up(self) -> None:
        self._catch_up_timer = None
        with nullcontext() if self._key_pending else self._renderer.in_background():
            if self._renderer.behind():
                self._catch_up_timer = self.set_timer(_CATCH_UP_SECONDS, self._catch_up)
            else:
                self._key_pending = False
                self.draw()
