"""Signals that end a command without a screen, or stop it for a while."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from queue import SimpleQueue
    from types import FrameType
    from typing import NoReturn

_CHUNK = 64
# Other systems lack some of them.
_DEFERRED = tuple(
    number for number in signal.Signals if number.name in {"SIGINT", "SIGTERM", "SIGHUP", "SIGTSTP"}
)


@contextmanager
def _handling(
    numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], object]
) -> Iterator[None]:
    """Handle these signals in this block, but those that the parent ignores."""
    before = {
        number: signal.signal(number, handler)
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Let signals that end or stop the program take effect after this block."""
    received: list[int] = []
    try:
        # A mask would be one thread's: other threads would receive the signal.
        with _handling(_DEFERRED, lambda number, _: received.append(number)):
            yield
    finally:
        for late in received:
            signal.raise_signal(late)


@contextmanager
def queue_ending_signals(news: SimpleQueue[BaseException | None]) -> Iterator[None]:
    """Put ``None`` on a queue for each ending signal; signals that the parent ignores stay ignored.

    A second Ctrl+C takes effect at once, because a slow end may hang.
    """

    def handle(number: int, _: object) -> None:
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # Python's own handler runs between two steps of the main thread, which may just have begun to
    # wait for the queue; the signal number is written to this pipe in any case.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def listen() -> None:
        while numbers := os.read(reader, _CHUNK):
            for number in numbers:
                if number in ending:
                    news.put(None)
        os.close(reader)

    threading.Thread(target=listen, name="gpumon-signals", daemon=True).start()
    # Writing to the terminal from the background must not stop the command, whatever
    # ``stty tostop`` says.
    at_terminal = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        with _handling(ending, handle):
            yield
    finally:
        signal.signal(signal.SIGTTOU, at_terminal)
        signal.set_wakeup_fd(woken)
        os.close(writer)


@contextmanager
def exit_on_signals(*numbers: signal.Signals) -> Iterator[list[int]]:
    """Within the block, these signals end the program as ``sys.exit`` does.

    Signals that the parent ignores stay ignored. The block gets those received: Python drops an
    exception that a handler raises during a callback, so a block that waits looks at them.
    """
    received: list[int] = []

    def end(number: int, _: FrameType | None) -> NoReturn:
        received.append(number)
        raise SystemExit(128 + number)

    with _handling(numbers, end):
        yield received
    if received:
        raise SystemExit(128 + received[0])
