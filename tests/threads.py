"""Waits for the threads that a test has started."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tests.screen import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_for_end(waited_for: Callable[[threading.Thread], bool]) -> None:
    """Wait until no such thread is left, nor one that is being started, which cannot be joined."""
    deadline = time.monotonic() + PATIENCE
    while left := [thread for thread in threading.enumerate() if waited_for(thread)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.001)
