"""Calls the application's thread from other threads, at half the cost of a Textual message."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App


class Wakeup:
    """Wakes the application from any thread; calls before the callback has run are merged.

    Args:
        app: The application.
        callback: Called on the application's thread.
    """

    def __init__(self, app: App[int], callback: Callable[[], None]) -> None:
        self._app = app
        self._callback = callback
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending = False

    def start(self) -> None:
        """Start; must be called on the application's thread, in one of its handlers."""
        # Textual finds the active application in the context of the running code.
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """Stop; later calls have no effect."""
        self._loop = None

    def wake(self) -> None:
        """Run the callback soon."""
        loop = self._loop
        if loop is None or self._pending:
            return
        self._pending = True
        # Another thread may have closed the loop meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._run_callback, context=self._context)

    def _run_callback(self) -> None:
        self._pending = False
        if self._loop is None:
            return
        try:
            self._callback()
        except Exception as bug:  # noqa: BLE001 - asyncio would print it onto the screen and continue
            self._app.call_later(_raise, bug)


def _raise(bug: Exception) -> NoReturn:
    raise bug
