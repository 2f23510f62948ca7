"""Notices that nobody reads the stream any more."""

from __future__ import annotations

import os
import select
import stat
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queue import SimpleQueue

_INPUT, _OUTPUT = 0, 1
_FIRST_SECONDS = 5.0
"""A standard input that ends earlier than this was never open: ``ssh -n`` and ``ssh </dev/null``
give such a pipe, and the stream must go on."""
_BYTES = 2**12


def watch_ends(news: SimpleQueue[BaseException | None]) -> None:
    """Put ``None`` on the queue when the reader has closed the output, or the parent has ended.

    A closed output is noticed at once, not only by the next sample. Of the parent's end the closed
    standard input tells, if it is a pipe or a socket: another process may still have the output
    open. What arrives on standard input is ignored.
    """
    threading.Thread(target=_watch, args=(news,), name="gpumon-ends", daemon=True).start()


def _watch(news: SimpleQueue[BaseException | None]) -> None:
    began = time.monotonic()
    ends = select.poll()
    # Errors and hang-ups are always reported.
    ends.register(_OUTPUT, 0)
    kind = os.fstat(_INPUT).st_mode
    if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
        ends.register(_INPUT, select.POLLIN)
    while True:
        for descriptor, _ in ends.poll():
            if descriptor == _OUTPUT:
                news.put(None)
                return
            if not _is_at_end():
                continue
            if time.monotonic() - began >= _FIRST_SECONDS:
                news.put(None)
                return
            ends.unregister(_INPUT)


def _is_at_end() -> bool:
    """Read what arrived on standard input; whether it is closed."""
    try:
        return not os.read(_INPUT, _BYTES)
    except OSError:
        return True
