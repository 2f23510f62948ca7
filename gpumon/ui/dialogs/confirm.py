"""Dialogs that confirm something: only a key that was pressed after one stood on the screen counts.

Keys wait in many places: in the terminal, on the line, in the kernel and in this program. Those
that were typed before anybody could read the dialog were meant for something else.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, cast

from textual.events import Key, MouseDown, MouseUp
from textual.messages import Layout, Update
from textual.screen import ModalScreen, ScreenResultType

if TYPE_CHECKING:
    from typing import Any

    from textual.app import App
    from textual.events import Event
    from textual.geometry import Size
    from textual.widget import Widget

    from gpumon.ui.terminal.driver import TerminalDriver

_PAUSE = 0.25
"""Seconds without a key after which typing that began before the dialog was seen is over."""
_REPLY_SECONDS = 5.0
"""Seconds to wait for a terminal that replies. After that, what was written counts as shown."""
_CHECK_SECONDS = 0.02
_MOST_HELD = 1000


def terminal_driver(app: App[Any]) -> TerminalDriver | None:
    """The driver of the terminal; ``None`` without a terminal, as in tests of the screen."""
    driver = app._driver  # noqa: SLF001 - see ``TerminalDriver``
    # Its module cannot be imported on other systems.
    return cast("TerminalDriver", driver) if hasattr(driver, "watch_output") else None


class ConfirmDialog(ModalScreen[ScreenResultType], Generic[ScreenResultType]):
    """A dialog that drops keys and clicks which are older than its picture on the screen.

    Only keys that close it (action ``cancel``), or gpumon, always work. ``BaseApp`` asks ``admits``
    about each event.
    """

    def __init__(self) -> None:
        super().__init__()
        self._version = 0
        self._seen_at: float | None = None
        self._asked = False
        self._laid_out: bool | None = None
        self._dropped_at = float("-inf")
        self._held: list[Event] = []

    @property
    def confirms(self) -> tuple[Widget, ...]:
        """The widgets that show what would be confirmed."""
        raise NotImplementedError

    @property
    def is_complete(self) -> bool:
        """Whether it is known what would be confirmed; until then keys wait."""
        return True

    def show_ignored(self, ignored: bool) -> None:
        """Say that keys were ignored, or no longer."""
        raise NotImplementedError

    def rebuild(self) -> None:
        """What would be confirmed has changed: it must be seen before it can be confirmed."""
        self._version += 1
        self._seen_at, self._asked = None, False
        driver = terminal_driver(self.app)
        if driver is not None:
            driver.watch_output(self, on=True)
            self.set_timer(_CHECK_SECONDS, self._check)
        else:
            self._seen_at = float("-inf")

    def on_unmount(self) -> None:
        """Nothing is waited for any more."""
        driver = terminal_driver(self.app)
        if driver is not None:
            driver.watch_output(self, on=False)

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        # The layout itself marks widgets that it moves, and draws them.
        self._laid_out = self._is_posted()
        try:
            super()._refresh_layout(size, scroll)
        finally:
            self._laid_out = None

    def _compositor_refresh(self) -> None:
        # Textual draws here all changes that were posted to this screen.
        drawn = self._laid_out
        if drawn is None:
            drawn = self._is_posted() and self._is_laid_out()
        self._compositor.update_widgets(self._dirty_widgets)
        super()._compositor_refresh()
        if drawn and self.is_current and not self.app._batch_count:  # noqa: SLF001 - see ``TerminalDriver``
            self._ask()

    def _check(self) -> None:
        """Ask even if it was drawn otherwise, and no frame follows."""
        if self._seen_at is not None or self._asked or not self.is_attached:
            return
        undrawn = self._repaint_required or self._dirty_widgets
        if self._is_posted() and self._is_laid_out() and not undrawn:
            self._ask()
        self.set_timer(_CHECK_SECONDS, self._check)

    def _is_laid_out(self) -> bool:
        """Whether at least a row of each widget that shows what would be confirmed is visible."""
        if self._layout_required:
            return False
        visible = self._compositor.visible_widgets
        return all(
            it in visible and visible[it][0].intersection(visible[it][1]).area > 0
            for it in self.confirms
        )

    def _is_posted(self) -> bool:
        """Whether this screen knows all changes of what would be confirmed, and draws them next.

        A widget that is changed posts this screen a message once it is idle. One that was never
        drawn is drawn as it is.
        """
        confirms = [widget for widget in self.confirms if widget in self._compositor]
        if any(it._layout_required or it._repaint_required for it in confirms):  # noqa: SLF001 - see ``TerminalDriver``
            return False
        posted = [self._pending_message, *self._message_queue.values]
        return not any(isinstance(it, (Layout, Update)) and it.widget in confirms for it in posted)

    def _ask(self) -> None:
        """Ask when the last frame stands on the screen."""
        driver = terminal_driver(self.app)
        if self._seen_at is not None or self._asked or driver is None:
            return
        self._asked = True
        version = self._version

        def seen(at: float) -> None:
            self._take_seen(version, at)

        if driver.replies:
            driver.ask(seen)
            self.set_timer(_REPLY_SECONDS, lambda: seen(time.monotonic()))
        else:
            driver.when_written(seen)

    def _take_seen(self, version: int, at: float) -> None:
        if version != self._version or self._seen_at is not None:
            return
        self._seen_at = at
        driver = terminal_driver(self.app)
        if driver is not None:
            driver.watch_output(self, on=False)
        self.completed()

    def completed(self) -> None:
        """It may be seen and complete now: decide about the keys that wait."""
        self.app.call_later(self._replay)

    async def _replay(self) -> None:
        if self._seen_at is None or not self.is_complete:
            return
        held, self._held = self._held, []
        for event in held:
            if self.app.screen is self:
                await self.app.on_event(event)

    def admits(self, event: Event) -> bool:
        """Whether an event of the terminal takes effect."""
        if not isinstance(event, (Key, MouseDown, MouseUp)) or self._cancels(event):
            return True
        undecided = self._held or self._seen_at is None or not self.is_complete
        if undecided and not event.is_forwarded:
            if len(self._held) < _MOST_HELD:
                self._held.append(event)
            return False
        # One that was given to a screen beneath comes back, for what that screen does not know.
        early = self._seen_at is None or event.time <= self._seen_at
        early = early or (not event.is_forwarded and event.time - self._dropped_at < _PAUSE)
        if early:
            self._dropped_at = event.time
        self.show_ignored(early)
        return not early

    def _cancels(self, event: Event) -> bool:
        if not isinstance(event, Key):
            return False
        bound = self._bindings.key_to_bindings.get(event.key, ())
        above = self.app._bindings.key_to_bindings.get(event.key, ())  # noqa: SLF001 - Textual's
        return any(it.action == "cancel" for it in bound) or any(
            it.priority and it.action == "leave" for it in above
        )
