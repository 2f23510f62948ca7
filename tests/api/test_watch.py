"""``gpumon.watch()``: a function is called with every new snapshot."""

from __future__ import annotations

import threading

import pytest

import gpumon
from tests.driver import Driver
from tests.screen import PATIENCE

pytestmark = pytest.mark.usefixtures("driver")


class Seen:
    """Keeps what a watch handed over."""

    def __init__(self) -> None:
        self.snapshots: list[gpumon.Snapshot] = []
        self._changed = threading.Condition()

    def __call__(self, snapshot: gpumon.Snapshot) -> None:
        with self._changed:
            self.snapshots.append(snapshot)
            self._changed.notify_all()

    def wait(self, many: int = 1, *, trouble: bool = False) -> None:
        """Until it has so many more, of which the last is, or is not, of a driver in trouble."""
        with self._changed:
            before = len(self.snapshots)
            assert self._changed.wait_for(
                lambda: (
                    len(self.snapshots) >= before + many
                    and (self.snapshots[-1].trouble is not None) is trouble
                ),
                PATIENCE,
            )


def test_the_function_gets_snapshots_until_the_block_ends() -> None:
    seen = Seen()
    with gpumon.watch(seen, 0.1) as watch:
        seen.wait(3)
        assert watch.running
    assert not watch.running
    count = len(seen.snapshots)
    assert [len(one.gpus) for one in seen.snapshots] == [3] * count
    watch.stop()
    assert len(seen.snapshots) == count


def test_a_slow_function_gets_the_newest_and_never_two_at_a_time() -> None:
    began, go_on = threading.Semaphore(0), threading.Semaphore(0)
    times: list[float] = []

    def slow(snapshot: gpumon.Snapshot) -> None:
        times.append(snapshot.time)
        began.release()
        assert go_on.acquire(timeout=PATIENCE)

    sampled = Seen()
    with gpumon.watch(slow, 0.1) as watch, gpumon.watch(sampled, 0.1):
        assert began.acquire(timeout=PATIENCE)
        sampled.wait(15)
        assert len(times) == 1
        go_on.release(1000)
        assert began.acquire(timeout=PATIENCE)
        watch.stop()
    # Fifteen samples of this pace were taken meanwhile; the next is none of the first of them.
    assert times[1] - times[0] > 0.7


def test_an_error_of_the_function_is_told_at_once_and_raised_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[threading.ExceptHookArgs] = []
    failed = threading.Event()

    def hook(arguments: threading.ExceptHookArgs) -> None:
        told.append(arguments)
        failed.set()

    monkeypatch.setattr(threading, "excepthook", hook)

    def wrong(_: gpumon.Snapshot) -> None:
        raise ZeroDivisionError

    watch = gpumon.watch(wrong, 0.1)
    assert failed.wait(PATIENCE)
    with pytest.raises(ZeroDivisionError):
        watch.stop()
    assert not watch.running
    failed.clear()
    with pytest.raises(ZeroDivisionError), gpumon.watch(wrong, 0.1):
        assert failed.wait(PATIENCE)
    # The error of the block itself is not replaced.
    failed.clear()

    def block() -> None:
        with gpumon.watch(wrong, 0.1):
            assert failed.wait(PATIENCE)
            raise KeyError

    with pytest.raises(KeyError):
        block()
    assert [one.exc_type for one in told] == [ZeroDivisionError] * 3


def test_the_function_may_stop_its_watch() -> None:
    ready, stopped = threading.Event(), threading.Event()

    def once(_: gpumon.Snapshot) -> None:
        assert ready.wait(PATIENCE)
        watch.stop()
        stopped.set()

    watch = gpumon.watch(once, 0.1)
    ready.set()
    assert stopped.wait(PATIENCE)
    watch.stop()
    assert not watch.running


def test_a_driver_that_goes_and_comes_back_is_seen(driver: Driver) -> None:
    seen = Seen()
    with gpumon.watch(seen, 0.1):
        seen.wait()
        driver.unload()
        seen.wait(trouble=True)
        assert seen.snapshots[-1].gpus == ()
        driver.reload()
        seen.wait()
        assert len(seen.snapshots[-1].gpus) == 3


def test_what_is_asked_wrongly_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0\.1 to 3600"):
        gpumon.watch(print, 0)
    with pytest.raises(gpumon.GpuError, match="no GPU 9"):
        gpumon.watch(print, gpus=9)
