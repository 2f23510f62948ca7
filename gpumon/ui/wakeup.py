"""Calls the application's thread from any other, at half of what a message of Textual's costs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App


class Wakeup:
    """Rung on any thread, heard on the application's; rings that were not yet heard are one.

    Args:
        app: Whose thread it is.
        hear: Called there.
    """

    def __init__(self, app: App[int], hear: Callable[[], None]) -> None:
        self._app = app
        self._hear = hear
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rung = False

    def hang(self) -> None:
        """From now on it is heard. Called on the application's thread, in one of its handlers."""
        # Textual finds its application in the context of whatever runs.
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()

    def take_down(self) -> None:
        """It is heard no longer."""
        self._loop = None

    def ring(self) -> None:
        """Have it heard soon."""
        loop = self._loop
        if loop is None or self._rung:
            return
        self._rung = True
        # The loop may have been closed a moment ago.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._heard, context=self._context)

    def _heard(self) -> None:
        self._rung = False
        if self._loop is None:
            return
        try:
            self._hear()
        except Exception as bug:  # noqa: BLE001 - asyncio would write it into the screen and go on
            self._app.call_later(_raise, bug)


def _raise(bug: Exception) -> NoReturn:
    raise bug
