"""How often to look, how long it may take, how somebody is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.host.handle import wait_for_any
from gpumon.model.processes import ProcessId
from gpumon.scheduling.choose import GAP_SECONDS
from gpumon.scheduling.wait import FASTEST, SLOWEST, CoolingEstimate, hold
from gpumon.scheduling.waiting import PollInterval
from tests.screen import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_samples_become_rare_while_nothing_changes_and_frequent_after_a_change() -> None:
    pace = PollInterval(FASTEST, SLOWEST)
    assert pace.after("a")
    seconds = [pace.seconds]
    for _ in range(10):
        assert not pace.after("a")
        seconds.append(pace.seconds)
    assert seconds[0] == FASTEST
    assert seconds == sorted(seconds)
    assert seconds[-1] == SLOWEST
    assert pace.after("b")
    assert pace.seconds == FASTEST


def test_the_slowest_interval_is_short_enough_for_stability() -> None:
    assert SLOWEST < GAP_SECONDS


@pytest.mark.parametrize(
    "celsius",
    [
        [80] * 30,
        [80 + step for step in range(30)],
        [80, 80, 79],
        [80, 60, 80, 60, 80, 61, 79, 60, 78, 59],
        [80, None, 79],
    ],
    ids=["steady", "rising", "too few", "to and fro", "unknown"],
)
def test_without_a_trend_there_is_no_estimate(celsius: list[int | None]) -> None:
    cooling = CoolingEstimate(50.0)
    told = [cooling.left("GPU-0", 2.0 * at, value) for at, value in enumerate(celsius)]
    assert told[-1] is None


@given(st.lists(st.one_of(st.none(), st.integers(20, 110)), max_size=80))
def test_a_cooling_estimate_is_a_time_or_none(celsius: list[int | None]) -> None:
    cooling = CoolingEstimate(50.0)
    for at, value in enumerate(celsius):
        left = cooling.left("GPU-0", float(at), value)
        assert left is None or left >= 0


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("with_pidfd", [True, False])
def test_a_process_is_held_until_it_ends(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, with_pidfd: bool
) -> None:
    if not with_pidfd:
        monkeypatch.delattr(os, "pidfd_open")
    life = hold(child.pid)
    assert life is not None
    assert not life.ended()
    assert f"({child.pid})" in life.words
    child.send_signal(signal.SIGKILL)
    until = time.monotonic() + PATIENCE
    while not life.ended():
        assert time.monotonic() < until
        wait_for_any([life], 1.0)
    # Not waited for yet, so a zombie: it has ended all the same, and none is taken hold of.
    assert hold(child.pid) is None
    life.close()


@pytest.mark.parametrize("with_pidfd", [True, False])
def test_the_number_of_a_thread_means_its_process(
    monkeypatch: pytest.MonkeyPatch, with_pidfd: bool
) -> None:
    if not with_pidfd:
        monkeypatch.delattr(os, "pidfd_open")
    go = threading.Event()
    with ThreadPoolExecutor() as pool:
        number = pool.submit(threading.get_native_id).result(PATIENCE)
        waits = pool.submit(go.wait)
        held = hold(number)
        go.set()
        waits.result(PATIENCE)
    assert held is not None
    assert held.id.pid == os.getpid() != number
    assert not held.ended()
    held.close()


def test_the_exit_of_a_process_is_noticed_at_once(child: subprocess.Popen[bytes]) -> None:
    life = hold(child.pid)
    assert life is not None
    child.kill()
    before = time.monotonic()
    wait_for_any([life], PATIENCE)
    assert time.monotonic() - before < PATIENCE / 2
    life.close()


def test_a_reused_pid_means_that_the_process_has_exited(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    life = hold(child.pid)
    assert life is not None
    assert not life.ended()
    assert life.id.start_time is not None
    life.id = ProcessId(child.pid, life.id.start_time - 1)
    assert life.ended()


def test_a_process_that_does_not_exist_cannot_be_held() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    assert hold(process.pid) is None
    itself = hold(os.getpid())
    assert itself is not None
    itself.close()
