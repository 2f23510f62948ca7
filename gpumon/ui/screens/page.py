"""The base of the pages over the dashboard: rows that scroll and are updated."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from gpumon.text.cells import fill
from gpumon.ui.keys import bindings_of
from gpumon.ui.screens.painted import MESSAGE_SECONDS, PaintedScreen
from gpumon.ui.view.header_footer import footer_row
from gpumon.ui.view.key_names import active_keys, footer_key
from gpumon.ui.view.page_layout import moment_text, page_header

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from gpumon.config.keymap import KeyAction, KeyScope
    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.history import History
    from gpumon.text.cells import Row
    from gpumon.ui.alert_controller import Subject
    from gpumon.ui.workspace import Workspace

SCROLL = footer_key("scroll up", "scroll down", label="scroll")
REBUILD_SECONDS = 0.5
"""Minimum seconds between two updates: a page is read, not watched."""
_CHROME = 2
_NOTHING: tuple[object, object, object] = (None, None, None)


class PageScreen(PaintedScreen):
    """A header, rows that scroll, and the keys. Subclasses provide the rows."""

    scope: ClassVar[KeyScope] = "page"
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(scope)

    DEFAULT_CSS = """
    PageScreen #body { height: 1fr; }
    """

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.renderer)
        self._workspace = workspace
        self._viewed_time = workspace.viewed_time
        self._rows: list[Row] = []
        self._rows_width = 0
        self._drawn_from = _NOTHING
        self._top = 0
        self._message = ""
        self._gone_at: float | None = None
        """When its subject was first missing in a snapshot."""

    # -- provided by subclasses ------------------------------------------------------------------

    @property
    @abstractmethod
    def heading(self) -> str:
        """The name of its subject, for the header."""

    def find(self, snapshot: Snapshot) -> bool:  # noqa: ARG002 - not every page has a subject
        """Update the subject from a snapshot; False if it is missing there."""
        return True

    @abstractmethod
    def page(self, width: int) -> list[Row]:
        """All rows of the page."""

    def follow(self) -> None:
        """Find the subject in the newest snapshot, or record since when it is missing."""
        latest = self._history.latest
        if latest is None:
            return
        if self.find(latest):
            self._gone_at = None
        elif self._gone_at is None:
            self._gone_at = latest.time

    def gone_text(self, sentence: str) -> str:
        """The sentence with the time since which the subject is missing; empty if it is not."""
        latest = self._history.latest
        if latest is None or self._gone_at is None:
            return ""
        return sentence.format(since=moment_text(self._gone_at, latest.time))

    def notify_of(self, subject: Subject | None, event: str) -> None:
        """Notify the user of an event of the subject (toggle); ``event`` is ``ends``."""
        if self._viewed_time.is_past:
            self.say(f"this is the past: nothing {event} in it")
        elif subject is not None:
            self._workspace.watch(subject)

    @property
    def _can_end(self) -> bool:
        """Whether a signal may be sent to what the page shows."""
        return not (
            self._viewed_time.session.machine.processes.readonly or self._viewed_time.is_past
        )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's signature
        """Disable ``end`` where no signal may be sent."""
        return action != "end" or self._can_end

    def active_keys(self) -> list[tuple[KeyAction, str]]:
        """The page's active keys, with descriptions."""
        return [
            (action, about)
            for action, about in active_keys(self.scope, "page")
            if self.check_action(action.method, ())
        ]

    # -- what is shown ---------------------------------------------------------------------------

    @property
    def message(self) -> str:
        """See ``PaintedScreen.message``."""
        return self._message

    @property
    def _history(self) -> History:
        return self._viewed_time.history

    def compose(self) -> ComposeResult:
        """Compose header, body and footer."""
        self._make_views(("header", "body", "footer"))
        yield from self._views.values()

    def on_mount(self) -> None:
        """Show it at once, then update it repeatedly."""
        self.rebuild()
        self.set_interval(REBUILD_SECONDS, self._refresh_page)

    def _refresh_page(self) -> None:
        """Rebuild the rows if their data has changed."""
        now = self._row_data()
        if any(source is not before for source, before in zip(now, self._drawn_from, strict=True)):
            self.rebuild()

    def _row_data(self) -> tuple[object, object, object]:
        """The data of the rows: for a past moment more data may arrive later."""
        settled, history = self._viewed_time.settled, self._history
        return history, history.latest, settled

    def rebuild(self) -> None:
        """Rebuild the rows and show them."""
        if not self.in_sight:
            return
        self._drawn_from = self._row_data()
        self._rows_width = self._room.width
        self.follow()
        self._rows = self.page(self._rows_width)
        self.draw()

    def draw(self) -> None:
        """Show the visible part of the rows."""
        if not self.in_sight:
            return
        if self._renderer.behind():
            self._drawn_from = _NOTHING
            return
        width, height = self._rows_width, self.body_height
        self._top = max(0, min(self._top, len(self._rows) - height))
        shown = self._rows[self._top : self._top + height]
        blank = fill((), width)
        body = [*shown, *([blank] * (height - len(shown)))]
        timeline = self._viewed_time.timeline
        source = "" if timeline is None else timeline.tag
        latest = self._history.latest
        header = page_header(self.heading, self._visible_range(height), latest, width, source)
        self._views["header"].show([header], width)
        self._views["body"].show(body, width)
        # A dialog on top has its own keys.
        keys = self.footer_keys if self.app.screen is self else ()
        self._views["footer"].show([footer_row(keys, self._message, width)], width)
        self._renderer.flush()
        self._message_drawn()

    @property
    def body_height(self) -> int:
        """Number of visible rows."""
        return max(0, self._room.height - _CHROME)

    def _visible_range(self, height: int) -> str:
        """The range of the visible rows; empty if all are visible."""
        count = len(self._rows)
        if count <= height:
            return ""
        return f"{self._top + 1}–{min(count, self._top + height)} of {count}"

    def say(self, message: str, *, lasting: bool = False) -> None:
        """Show a message in place of the footer: for a few seconds, or until the next key."""
        self._message = message
        self._expire_after(MESSAGE_SECONDS if message and not lasting else None)
        self.draw()

    def on_key(self) -> None:
        """Remove a message that stays until a key is pressed."""
        if self._message and self._message_stays:
            self.say("")

    # -- keys and mouse --------------------------------------------------------------------------

    def action_window(self, key: str) -> None:
        """Show another window in all charts."""
        self._workspace.show_window(key)
        self.rebuild()

    def action_close(self) -> None:
        """Close the page."""
        self.dismiss()

    def action_scroll_rows(self, rows: int) -> None:
        """Scroll by rows."""
        self._top += rows
        self.draw()

    def action_scroll_pages(self, pages: int) -> None:
        """Scroll by a page less one row, for orientation."""
        self.action_scroll_rows(pages * max(1, self.body_height - 1))

    def action_scroll_edge(self, edge: int) -> None:
        """Scroll to the top or to the end."""
        self._top = 0 if edge < 0 else len(self._rows)
        self.draw()

    def _scroll(self, _: events.MouseEvent, rows: int) -> None:
        self.action_scroll_rows(rows)
