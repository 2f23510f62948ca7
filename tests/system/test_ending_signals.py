"""Signals that end a command are never lost."""

from __future__ import annotations

import os
import signal
import threading
from queue import SimpleQueue

import pytest

from gpumon.system.ending_signals import queue_ending_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_arrives_while_the_queue_is_waited_for_is_never_lost(
    number: signal.Signals,
) -> None:
    """Python runs its handlers on the main thread only, which a wait for a queue may block."""
    news: SimpleQueue[BaseException | None] = SimpleQueue()
    with queue_ending_signals(news):
        # As if the main thread had been about to wait: another thread receives the signal.
        threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), number)).start()
        assert news.get(timeout=60) is None


def test_an_ignored_signal_stays_ignored_and_the_handlers_of_before_return() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        handlers = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
        news: SimpleQueue[BaseException | None] = SimpleQueue()
        with queue_ending_signals(news):
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            assert news.get(timeout=60) is None
        assert news.empty()
        assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == handlers
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
