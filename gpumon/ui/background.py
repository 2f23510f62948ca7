"""Slow work off the screen's thread."""

from __future__ import annotations

import contextlib
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App

T = TypeVar("T")


def run_errand(
    app: App[Any],
    work: Callable[[], T],
    done: Callable[[T], None],
    failed: Callable[[Exception], None] | None = None,
    name: str = "gpumon-errand",
) -> None:
    """Do some work on a thread of its own, and deliver what it gives on the application's.

    The thread is a daemon and no executor's: an executor is joined at the end of the program, and
    a look at ``/proc`` that hangs would keep that from coming. When the application has gone
    meanwhile the result is dropped; whether a screen is still there is for ``done`` to see.

    Args:
        app: Where the result is wanted.
        work: What takes time; touches nothing of the screen.
        done: Takes the result.
        failed: Takes what the work raised; without it that ends the application as any other fault
            of its own does.
        name: The thread's.
    """

    def fail(error: Exception) -> None:
        raise error

    def run() -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - told on the application's thread
            deliver(failed or fail, error)
        else:
            deliver(done, result)

    def deliver(take: Callable[[Any], None], result: object) -> None:
        # The loop may be closed between Textual's look at it and its use.
        with contextlib.suppress(RuntimeError):
            app.call_later(take, result)

    Thread(target=run, name=name, daemon=True).start()
