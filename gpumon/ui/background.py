"""Runs slow work outside the application's thread."""

from __future__ import annotations

import contextlib
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

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
