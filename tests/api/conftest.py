"""A simulated machine for programs that use gpumon."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from gpumon.host.kernel_log import KernelLog
from tests.command import run_program
from tests.driver import GIB, Driver, Owner, h100
from tests.threads import wait_for_end


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Three cards: this process and another on the first, nobody on the second and the third."""
    # The thread that reads the kernel's log, for which each test waits, ends that soon.
    wait = KernelLog.wait
    monkeypatch.setattr(KernelLog, "wait", lambda log, _: wait(log, 0.05))
    before = set(threading.enumerate())
    with Driver([h100(), h100(), h100()]) as made:
        card = made.cards[0]
        card.memory_used = 30 * GIB
        card.power_usage = 300_000
        card.processes = [Owner(os.getpid(), memory=10 * GIB, sm=40), Owner(1, memory=20 * GIB)]
        made.attach()
        yield made
        # A thread that ends later would shut down NVML under the next test.
        wait_for_end(lambda thread: thread not in before)


@pytest.fixture
def program(driver: Driver) -> Callable[..., str]:
    """Runs a program on the machine and returns what it prints; a warning is an error."""

    def run(code: str, **variables: str) -> str:
        done = run_program(
            [sys.executable, "-W", "error", "-c", code], {**driver.env(), **variables}
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run
