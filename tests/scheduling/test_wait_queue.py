"""Nobody who waits is passed by those who come later, and nobody waits for the idle."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from gpumon.model.selection import parse_selection
from gpumon.model.snapshot import GpuStatus
from gpumon.scheduling.choose import Chooser
from gpumon.scheduling.eligibility import Allowance, Circumstances, judge
from gpumon.scheduling.locks import Locks
from gpumon.scheduling.queue import GATHERS_AFTER, TAKES_SECONDS, WaitQueue, tickets
from gpumon.scheduling.requirements import Requirements
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.recording.csv.command import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.scheduling.lock_folder import Folder

CARDS = [gpu(index=index, memory_used=0, memory_reserved=0) for index in range(4)]
ANY = Requirements()
NOBODY_S = Circumstances()


class Clock:
    """The time of the tests: moved on by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = 0.0
        wall, monotonic = time.time, time.monotonic
        monkeypatch.setattr(time, "time", lambda: wall() + self.passed)
        monkeypatch.setattr(time, "monotonic", lambda: monotonic() + self.passed)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def wait(folder: Folder, asked: Requirements, allowance: Allowance | None = None) -> WaitQueue:
    waiting = WaitQueue(folder)
    waiting.join(asked, allowance or Allowance())
    return waiting


def reserved_for(to: WaitQueue, *free: int) -> set[str]:
    """What is kept for others, where these cards are free and the others busy."""
    busy = tuple(one.index for one in CARDS if one.index not in free)
    on_them = (process(7, gpus=busy),) if busy else ()
    return set(to.reserved_for(snapshot(NOON, *CARDS, processes=on_them), NOBODY_S))


def test_each_waiter_gets_one_gpu_reserved_in_the_order_of_arrival(folder: Folder) -> None:
    waiting = [wait(folder, ANY) for _ in range(3)]
    assert reserved_for(waiting[0], 1, 2) == set()
    assert reserved_for(waiting[1], 1, 2) == {"GPU-1"}
    assert reserved_for(waiting[2], 1, 2) == {"GPU-1", "GPU-2"}
    assert reserved_for(WaitQueue(folder), 1, 2) == {"GPU-1", "GPU-2"}
    waiting[0].leave()
    assert reserved_for(waiting[1], 1, 2) == set()
    for one in waiting[1:]:
        one.leave()


def test_a_gpu_unsuitable_for_earlier_waiters_is_not_reserved_for_them(folder: Folder) -> None:
    picky = wait(folder, Requirements(only=parse_selection("3"), total=80 * GIB))
    allotted = wait(folder, ANY, Allowance(frozenset({"GPU-2"})))
    assert reserved_for(WaitQueue(folder), 0, 1) == set()
    assert reserved_for(WaitQueue(folder), 0, 2, 3) == {"GPU-2", "GPU-3"}
    picky.leave()
    allotted.leave()


def test_a_kept_gpu_names_its_waiter(folder: Folder) -> None:
    first = wait(folder, ANY)
    told = WaitQueue(folder).reserved_for(snapshot(NOON, *CARDS), NOBODY_S)["GPU-0"]
    assert " has waited for it for 0s, gpumon run " in told
    circumstances = replace(NOBODY_S, reserved_for={"GPU-0": told})
    refusal = judge(snapshot(NOON, *CARDS), ANY, circumstances)[0].refusal
    assert refusal is not None
    assert (refusal.kind, refusal.passing) == ("queue", True)
    first.leave()


def test_a_waiter_that_does_not_take_its_gpu_is_skipped(folder: Folder, clock: Clock) -> None:
    asleep, awake = wait(folder, ANY), wait(folder, ANY)
    assert reserved_for(awake, 0) == {"GPU-0"}
    clock.passed = TAKES_SECONDS + 1
    assert reserved_for(awake, 0) == set()
    assert reserved_for(awake) == set()
    assert reserved_for(awake, 0) == {"GPU-0"}, "another chance"
    asleep.leave()
    awake.leave()


def test_a_stopped_waiter_is_skipped_until_it_continues(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            with monkeypatch.context() as in_its_place:
                in_its_place.setattr(os, "getpid", lambda: sleeper.pid)
                stopped = wait(folder, ANY)
            assert reserved_for(WaitQueue(folder), 0) == {"GPU-0"}
            sleeper.send_signal(signal.SIGSTOP)
            wait_until(lambda: reserved_for(WaitQueue(folder), 0) == set(), "it is stopped")
            sleeper.send_signal(signal.SIGCONT)
            wait_until(lambda: reserved_for(WaitQueue(folder), 0) == {"GPU-0"}, "it goes on")
        finally:
            sleeper.kill()
    stopped.leave()


def test_small_jobs_pass_a_large_one_but_not_for_ever(folder: Folder, clock: Clock) -> None:
    large = wait(folder, Requirements(least=3, most=3))
    hopeless = wait(folder, Requirements(least=9, most=9))
    small = wait(folder, ANY)
    assert reserved_for(small, 0, 1) == set()
    assert len(reserved_for(small, 0, 1, 2)) == 3
    clock.passed = GATHERS_AFTER + 60
    assert reserved_for(small, 0, 1) == {"GPU-0", "GPU-1"}
    clock.passed += 10 * TAKES_SECONDS
    assert reserved_for(small, 0, 1) == {"GPU-0", "GPU-1"}
    large.leave()
    assert reserved_for(small, 0, 1) == set(), "nine GPUs never come"
    for one in (hopeless, small):
        one.leave()


def test_no_gpu_is_kept_for_a_waiter_of_a_lost_one(folder: Folder, clock: Clock) -> None:
    all_four = wait(folder, Requirements(least=4, most=4))
    clock.passed = GATHERS_AFTER + 60
    lost = snapshot(NOON, *CARDS[:3], replace(CARDS[3], status=GpuStatus.LOST))
    busy = snapshot(NOON, *CARDS, processes=(process(7, gpus=(3,)),))
    assert WaitQueue(folder).reserved_for(lost, NOBODY_S) == {}
    assert len(WaitQueue(folder).reserved_for(busy, NOBODY_S)) == 3
    all_four.leave()


def test_an_entry_of_another_version_reserves_nothing(folder: Folder) -> None:
    from gpumon.scheduling.queue import QueueEntry

    strange = QueueEntry(folder)
    strange.join(b'{"wishes":[1,2]}')
    assert reserved_for(WaitQueue(folder), 0, 1) == set()
    strange.close()
    other = QueueEntry(folder)
    other.join(b'{"requirements":{"maker":"ACME"}}')
    assert reserved_for(WaitQueue(folder), 0, 1) == set()
    other.close()


def test_a_signal_while_the_file_is_made_leaves_no_place_behind(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``gpumon run`` ends by an exception of the signal's handler."""
    make = folder.make

    def interrupted(name: str, mode: int) -> int:
        os.close(make(name, mode=mode))
        raise SystemExit

    monkeypatch.setattr(folder, "make", interrupted)
    waiting = WaitQueue(folder)
    with pytest.raises(SystemExit):
        waiting.join(ANY, Allowance())
    waiting.leave()
    assert folder.names() == []


def test_a_waiter_keeps_gpus_of_the_maker_that_its_environment_names(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    folder.mkdir(mode=0o1777)
    folder.chmod(0o1777)
    amd = gpu(index=4, uuid="GPU-a", name="AMD Instinct MI210", memory_used=0, memory_reserved=0)
    seen = snapshot(NOON, CARDS[0], amd)
    with closing(Locks(str(folder), {})) as theirs, closing(Locks(str(folder), {})) as mine:
        first = Chooser(ANY, {"ROCR_VISIBLE_DEVICES": amd.uuid}, theirs)
        first.join_queue(seen)
        try:
            kinds = [one.refusal and one.refusal.kind for one in Chooser(ANY, {}, mine).judge(seen)]
            # NVIDIA's GPU is not kept for somebody who waits for AMD's.
            assert kinds == [None, "maker"]
            # Other versions of gpumon read this.
            assert theirs.shared is not None
            (ticket,) = tickets(theirs.shared)
            assert b'"maker":"AMD"' in ticket.wants
        finally:
            first.leave_queue()
