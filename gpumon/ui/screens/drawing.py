"""Draws the dashboard on screen: sends its rows to the widgets, and messages to the footer."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.ui.screens.timed import TimedScreen
from gpumon.ui.startup_options import USUAL, first_view
from gpumon.ui.view import update
from gpumon.ui.view.dashboard import Dashboard
from gpumon.ui.view.layout import Layout
from gpumon.ui.view.listing import Listing
from gpumon.ui.view.update import Said
from gpumon.ui.widgets.cell_view import CellView
from gpumon.ui.widgets.filter_bar import FilterBar

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.geometry import Size
    from textual.timer import Timer

    from gpumon.ui.kill_controller import KillController
    from gpumon.ui.session import Session
    from gpumon.ui.startup_options import StartupOptions
    from gpumon.ui.terminal.renderer import TerminalRenderer
    from gpumon.ui.theme import Palette
    from gpumon.ui.view.dashboard import Parts
    from gpumon.ui.view.listing import ProcessFilter
    from gpumon.ui.view.view import View
    from gpumon.ui.viewed_time import ViewedTime

_PARTS = (
    "header",
    "host",
    "cards",
    "graphs",
    "rule",
    "processes",
    "report",
    "timeline",
    "footer",
    "tiny",
)
_BY_URGENCY = (
    "processes",
    "footer",
    *(name for name in _PARTS if name not in {"processes", "footer"}),
)
"""Where a slow terminal has no room for all, keys are obeyed first."""
_MESSAGE_SECONDS = 3.0
_READING_SECONDS = 10.0
_CATCH_UP_SECONDS = 0.1
_BENEATH_SECONDS = 0.5
"""Seconds between two pictures while a dialog lies on top: Textual draws these, at its own cost."""
_BEHIND_SECONDS = 1.0
"""Likewise between two lists that the terminal has no room to show."""


class DrawingScreen(TimedScreen):
    """Draws a view of the newest snapshot, less often where the terminal is slow."""

    AUTO_FOCUS = ""

    def __init__(
        self,
        session: Session,
        stage: ViewedTime,
        cases: KillController,
        pen: TerminalRenderer,
        palette: Palette,
        narrowing: ProcessFilter,
        chosen: StartupOptions = USUAL,
    ) -> None:
        """Make the screen.

        Args:
            session: Whom to ask.
            stage: What to show.
            cases: Ends processes.
            pen: Writes changed cells.
            palette: Colours.
            narrowing: Which of the processes to show at first.
            chosen: What is settled for it: columns, order, keys.
        """
        super().__init__(stage)
        self._session = session
        self._cases = cases
        self._pen = pen
        self._palette = palette
        self._view = first_view(
            session.collector.interval, narrowing, chosen, readonly=session.host.readonly
        )
        self._layout = Layout(self._view)
        self._dashboard = Dashboard(stage.history)
        self._snapshot = stage.history.latest
        self._views: dict[str, CellView] = {}
        self._heights: tuple[int, ...] = ()
        self._bar = FilterBar()
        self._drawn_beneath = 0.0
        self._listed_behind = 0.0
        self._told_trouble = ""
        self._owed: Timer | None = None
        self._owed_to_key = False
        self._unsaying: Timer | None = None
        self._complaint = chosen.complaint

    def compose(self) -> ComposeResult:
        """The parts from the top down."""
        self._views = {name: CellView(self._pen, self._palette, id=name) for name in _PARTS}
        for name, view in self._views.items():
            if name == "footer":
                yield self._bar
            yield view

    def on_mount(self) -> None:
        """Give the parts their places before the first layout."""
        if self._complaint:
            self.say(self._complaint, lasting=True)
        else:
            self.draw()

    def on_resize(self) -> None:
        """Share the terminal out anew."""
        self.draw()

    def on_screen_resume(self) -> None:
        """Nothing was drawn while another screen lay on top."""
        self._drawn_beneath = 0.0
        self.draw()

    def on_screen_suspend(self) -> None:
        """The keys of the footer do not work under a dialog."""
        self.draw()

    def repaint(self, palette: Palette) -> None:
        """Take other colours."""
        self._palette = palette
        for view in self._views.values():
            view.repaint(palette)

    # -- what is shown ---------------------------------------------------------------------------

    def take(self) -> None:
        """Show the newest snapshot, unless the picture is held or the terminal is behind."""
        self._stage.follow()
        was_past = self._view.timeline is not None
        if self._view.paused and self._stage.player is None and not was_past:
            return
        # A past that is being made has nothing to show yet: what is shown stays until then.
        self._snapshot = self._stage.history.latest or self._snapshot
        self._tell_of_log()
        self.draw()

    def _tell_of_log(self) -> None:
        """Say why a log loses samples, once for each trouble."""
        note = self._session.logbook.note
        trouble = "" if note is None else note.trouble
        if trouble and trouble != self._told_trouble:
            self.say(trouble, lasting=True)
        self._told_trouble = trouble

    def draw(self) -> None:
        """Bring every part up to date; what did not change sends nothing.

        While the terminal has not taken what was written before, nothing is added to it: the frame
        is left out, and its changes come with the one that is drawn when there is room again.
        """
        if not self.is_attached or not self._is_seen():
            return
        # The first frame is due however slow the line: before it Textual draws blank rows.
        behind = bool(self._heights) and self._pen.behind()
        if behind and not self._is_due():
            return
        width, height = self._room()
        # Without the tree nobody sees its other processes, and so no tag of theirs stays.
        in_tree = self._view.listing is Listing.TREE and self._stage.player is None
        view = replace(
            self._view,
            covered=self.app.screen is not self,
            reports=self._cases.reports,
            kin=self._session.lookup.kin if in_tree else (),
            timeline=self._stage.timeline,
            log=self._session.logbook.note,
        )
        if self._stage.history.latest is not None:
            self._dashboard.look_at(self._stage.history)
        # The next key may be about what is listed now, though it cannot be seen yet.
        parts = self._dashboard.rows(self._snapshot, view, width, height)
        self._layout, self._view = parts.layout, parts.layout.view
        if behind:
            return
        moved, ready = self._place(parts), self._pen.ready(self.screen)
        for name in _BY_URGENCY:
            self._views[name].show(getattr(parts, name), width, moved=moved, ready=ready)
        self._pen.flush()

    def _room(self) -> Size:
        """Cells there are."""
        size = self.size
        # The screen has no size before its first layout; the terminal has.
        return size if size.width else self.app.size

    def _is_seen(self) -> bool:
        """Whether this screen is the current one, or lies beneath a dialog and may be drawn."""
        # Textual calls the screen right below a page current too.
        if self.app.screen is self:
            return True
        for screen in reversed(self.app.screen_stack):
            if screen is self:
                break
            if not screen.is_modal:
                return False
        now = time.monotonic()
        if now - self._drawn_beneath < _BENEATH_SECONDS:
            return False
        self._drawn_beneath = now
        return True

    def _is_due(self) -> bool:
        """Whether to list anew for a terminal that is behind: for a key, or once in a while."""
        if self._owed is None:
            self._owed = self.set_timer(_CATCH_UP_SECONDS, self._catch_up)
        self._owed_to_key |= not self._pen.leisurely
        now = time.monotonic()
        if self._pen.leisurely and now - self._listed_behind < _BEHIND_SECONDS:
            return False
        self._listed_behind = now
        return True

    def _catch_up(self) -> None:
        self._owed = None
        with nullcontext() if self._owed_to_key else self._pen.at_leisure():
            if self._pen.behind():
                self._owed = self.set_timer(_CATCH_UP_SECONDS, self._catch_up)
            else:
                self._owed_to_key = False
                self.draw()

    def _place(self, parts: Parts) -> bool:
        """Give each part its height; a layout pass only when one changes. Returns whether."""
        heights = (*(len(getattr(parts, name)) for name in _PARTS), int(self._view.editing))
        if heights == self._heights:
            return False
        self._heights = heights
        for name, view in self._views.items():
            height = len(getattr(parts, name))
            view.display = height > 0
            view.styles.height = height
        return True

    def _show(self, after: View | Said) -> None:
        """Draw the next view, and show its message if it has one."""
        if isinstance(after, Said):
            self._view = after.view
            self.say(after.message)
        else:
            self._view = after
            self.draw()

    def say(self, message: str, *, lasting: bool = False) -> None:
        """Put a message in the footer's place for a moment, or for one to read a path in."""
        self._show(replace(self._view, message=message))
        if self._unsaying is not None:
            self._unsaying.stop()
        self._unsaying = None
        if message:
            seconds = _READING_SECONDS if lasting else _MESSAGE_SECONDS
            self._unsaying = self.set_timer(seconds, self._unsay)

    def _unsay(self) -> None:
        self._show(replace(self._view, message=""))

    def _hush(self) -> None:
        """Something else is chosen now: what was said of the choice before is over."""
        self._view = update.quiet(self._view)
