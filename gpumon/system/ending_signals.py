"""Signals that end a command without a screen: ``log``, ``stream``, ``exporter``."""

from __future__ import annotations

import signal
from contextlib import contextmanager, suppress
from queue import Empty
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from queue import SimpleQueue

_LOOK_SECONDS = 0.5


@contextmanager
def queue_ending_signals(news: SimpleQueue[BaseException | None]) -> Iterator[None]:
    """Put ``None`` on a queue for each ending signal; signals that the parent ignores stay ignored.

    A second Ctrl+C takes effect at once, because a slow end may hang.
    """

    def tell(number: int, _: object) -> None:
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        news.put(None)

    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in ending}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, tell)
    # Writing to the terminal from the background must not stop the command, whatever
    # ``stty tostop`` says.
    before[signal.SIGTTOU] = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for_ending(news: SimpleQueue[BaseException | None]) -> BaseException | None:
    """Wait on the main thread, for as long as it takes, for the next item of the queue.

    Not with a plain ``get``: a signal that another thread receives, or that comes just before
    ``get`` blocks, does not interrupt it, so that its handler would never run.
    """
    while True:
        with suppress(Empty):
            return news.get(timeout=_LOOK_SECONDS)
