"""Slow work outside the application's thread, and calls of that thread from others."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App


T = TypeVar("T")


def call_soon(app: App[Any], call: Callable[..., None], *args: object) -> None:
    """Run a call on the application's thread, from any thread; not after the end."""
    # The event loop may close after Textual has checked it.
    with contextlib.suppress(RuntimeError):
        app.call_later(call, *args)


def run_in_thread(
    app: App[Any],
    work: Callable[[], T],
    done: Callable[[T], None],
    failed: Callable[[Exception], None] | None = None,
    name: str = "gpumon-background",
) -> None:
    """Run work on its own thread, and pass the result to the application's thread.

    The thread is a daemon, not part of an executor: Python joins executors at exit, so a read of
    ``/proc`` that hangs would block the exit. If the application has ended meanwhile, the result is
    dropped; ``done`` must check whether its screen still exists.

    Args:
        app: The application.
        work: The slow work; must not touch the screen.
        done: Receives the result.
        failed: Receives an exception of the work; by default it ends the application.
        name: Name of the thread.
    """

    def fail(error: Exception) -> None:
        raise error

    def run() -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - passed to the application's thread
            call_soon(app, failed or fail, error)
        else:
            call_soon(app, done, result)

    Thread(target=run, name=name, daemon=True).start()


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
