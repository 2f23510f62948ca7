"""Something that is done again and again beside a test."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def repeating(act: Callable[[], object], seconds: float, name: str) -> Iterator[None]:
    """Calls it every so many seconds, on a thread with this name, until the block ends."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(seconds):
            act()

    thread = threading.Thread(target=run, name=name)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
