"""Cards that somebody wants to be told of."""

from __future__ import annotations

import msgspec

from gpumon.findings import conditions
from gpumon.model.snapshot import Reserved
from gpumon.recording.history import History
from gpumon.ui.free_gpu_watch import FreeGpuWatch
from tests.build import GIB, NOON, gpu, process, snapshot

BUSY = gpu(memory_used=20 * GIB, utilization_gpu=90)


def busy_history() -> History:
    history = History(conditions())
    history.add(snapshot(NOON, BUSY, processes=(process(),)))
    return history


def test_a_notification_comes_once_when_the_gpu_is_free() -> None:
    history, awaited = busy_history(), FreeGpuWatch()
    assert "when GPU 0 is free" in awaited.toggle(BUSY, history)
    assert awaited.cards == {"GPU-0"}
    assert awaited.check(history) == []
    history.add(snapshot(NOON + 1, gpu()))
    assert awaited.check(history) == ["GPU 0 is free"]
    assert awaited.cards == frozenset()
    assert awaited.check(history) == []


def test_the_same_key_again_stops_watching() -> None:
    history, awaited = busy_history(), FreeGpuWatch()
    awaited.toggle(BUSY, history)
    assert "no longer" in awaited.toggle(BUSY, history)
    history.add(snapshot(NOON + 1, gpu()))
    assert awaited.check(history) == []


def test_a_free_gpu_is_not_watched() -> None:
    history, awaited = busy_history(), FreeGpuWatch()
    history.add(snapshot(NOON + 1, gpu()))
    assert awaited.toggle(gpu(), history) == "GPU 0 is free"
    assert awaited.cards == frozenset()


def test_a_reserved_gpu_is_not_free() -> None:
    history, awaited = busy_history(), FreeGpuWatch()
    awaited.toggle(BUSY, history)
    kept = snapshot(NOON + 1, gpu())
    history.add(msgspec.structs.replace(kept, reserved=(Reserved("GPU-0", user="bo"),)))
    assert awaited.check(history) == []
    history.add(snapshot(NOON + 2, gpu()))
    assert awaited.check(history) == ["GPU 0 is free"]


def test_a_missing_gpu_is_watched_until_it_is_back() -> None:
    history, awaited = busy_history(), FreeGpuWatch()
    awaited.toggle(BUSY, history)
    history.add(snapshot(NOON + 1, gpu(index=1)))
    assert awaited.check(history) == []
    history.add(snapshot(NOON + 2, gpu()))
    assert awaited.check(history) == ["GPU 0 is free"]
