"""Nobody who waits is passed by those who come later, and nobody waits for the idle."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpumon.model.selection import parse_selection
from gpumon.model.snapshot import GpuStatus
from gpumon.scheduling.choose import Chooser
from gpumon.scheduling.eligibility import Allowance, Circumstances, judge
from gpumon.scheduling.lock_folder import Folder, shared_folder
from gpumon.scheduling.locks import Locks
from gpumon.scheduling.queue import GATHERS_AFTER, TAKES_SECONDS, QueueEntry, WaitQueue, tickets
from gpumon.scheduling.requirements import Requirements
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.known import known
from tests.recording.csv.command import wait_until

Wait = Callable[..., WaitQueue]

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


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    with closing(known(shared_folder(str(tmp_path / "locks")))) as made:
        yield made


@pytest.fixture
def wait(folder: Folder) -> Iterator[Callable[..., WaitQueue]]:
    """Lets a job wait, until the end of the test at most."""
    with ExitStack() as ending:

        def join(asked: Requirements, *uuids: str) -> WaitQueue:
            waiting = WaitQueue(folder)
            waiting.join(asked, Allowance(frozenset(uuids)) if uuids else Allowance())
            ending.callback(waiting.leave)
            return waiting

        yield join


def reserved_for(to: WaitQueue, *free: int) -> set[str]:
    """What is kept for others, where these cards are free and the others busy."""
    busy = tuple(one.index for one in CARDS if one.index not in free)
    on_them = (process(7, gpus=busy),) if busy else ()
    return set(to.reserved_for(snapshot(NOON, *CARDS, processes=on_them), NOBODY_S))


def test_each_waiter_has_one_gpu_reserved_in_order_of_arrival(folder: Folder, wait: Wait) -> None:
    first, second, third = (wait(ANY) for _ in range(3))
    assert reserved_for(first, 1, 2) == set()
    assert reserved_for(second, 1, 2) == {"GPU-1"}
    assert reserved_for(third, 1, 2) == {"GPU-1", "GPU-2"}
    assert reserved_for(WaitQueue(folder), 1, 2) == {"GPU-1", "GPU-2"}
    first.leave()
    assert reserved_for(second, 1, 2) == set()


def test_a_gpu_unsuitable_for_earlier_waiters_is_not_kept_for_them(
    folder: Folder, wait: Wait
) -> None:
    wait(Requirements(only=parse_selection("3"), total=80 * GIB))
    wait(ANY, "GPU-2")
    assert reserved_for(WaitQueue(folder), 0, 1) == set()
    assert reserved_for(WaitQueue(folder), 0, 2, 3) == {"GPU-2", "GPU-3"}


def test_a_kept_gpu_names_its_waiter(folder: Folder, wait: Wait) -> None:
    wait(ANY)
    told = WaitQueue(folder).reserved_for(snapshot(NOON, *CARDS), NOBODY_S)["GPU-0"]
    assert " has waited for it for 0s, gpumon run " in told
    circumstances = replace(NOBODY_S, reserved_for={"GPU-0": told})
    refusal = known(judge(snapshot(NOON, *CARDS), ANY, circumstances)[0].refusal)
    assert (refusal.kind, refusal.passing) == ("queue", True)


def test_a_waiter_that_does_not_take_its_gpu_is_skipped(wait: Wait, clock: Clock) -> None:
    _asleep, awake = wait(ANY), wait(ANY)
    assert reserved_for(awake, 0) == {"GPU-0"}
    clock.passed = TAKES_SECONDS + 1
    assert reserved_for(awake, 0) == set()
    assert reserved_for(awake) == set()
    assert reserved_for(awake, 0) == {"GPU-0"}, "another chance"


def test_a_stopped_waiter_is_skipped_until_it_continues(
    folder: Folder, wait: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            with monkeypatch.context() as in_its_place:
                in_its_place.setattr(os, "getpid", lambda: sleeper.pid)
                wait(ANY)
            assert reserved_for(WaitQueue(folder), 0) == {"GPU-0"}
            sleeper.send_signal(signal.SIGSTOP)
            wait_until(lambda: reserved_for(WaitQueue(folder), 0) == set(), "it is stopped")
            sleeper.send_signal(signal.SIGCONT)
            wait_until(lambda: reserved_for(WaitQueue(folder), 0) == {"GPU-0"}, "it goes on")
        finally:
            sleeper.kill()


def test_small_jobs_pass_a_large_one_but_not_for_ever(wait: Wait, clock: Clock) -> None:
    large, _hopeless, small = (wait(Requirements(least=n, most=n)) for n in (3, 9, 1))
    assert reserved_for(small, 0, 1) == set()
    assert len(reserved_for(small, 0, 1, 2)) == 3
    clock.passed = GATHERS_AFTER + 60
    assert reserved_for(small, 0, 1) == {"GPU-0", "GPU-1"}
    clock.passed += 10 * TAKES_SECONDS
    assert reserved_for(small, 0, 1) == {"GPU-0", "GPU-1"}
    large.leave()
    assert reserved_for(small, 0, 1) == set(), "nine GPUs never come"


def test_no_gpu_is_kept_for_who_waits_for_a_lost_one(
    folder: Folder, wait: Wait, clock: Clock
) -> None:
    wait(Requirements(least=4, most=4))
    clock.passed = GATHERS_AFTER + 60
    lost = snapshot(NOON, *CARDS[:3], replace(CARDS[3], status=GpuStatus.LOST))
    busy = snapshot(NOON, *CARDS, processes=(process(7, gpus=(3,)),))
    assert WaitQueue(folder).reserved_for(lost, NOBODY_S) == {}
    assert len(WaitQueue(folder).reserved_for(busy, NOBODY_S)) == 3


@pytest.mark.parametrize("wants", [b'{"wishes":[1,2]}', b'{"requirements":{"maker":"ACME"}}'])
def test_an_entry_of_another_version_reserves_nothing(folder: Folder, wants: bytes) -> None:
    with closing(joined(folder, wants)):
        assert reserved_for(WaitQueue(folder), 0, 1) == set()


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
            (ticket,) = tickets(known(theirs.shared))
            assert b'"maker":"AMD"' in ticket.wants
        finally:
            first.leave_queue()


def names(folder: Folder) -> list[str]:
    return [ticket.name for ticket in tickets(folder)]


def joined(folder: Folder, wants: bytes) -> QueueEntry:
    entry = QueueEntry(folder)
    entry.join(wants)
    return entry


def test_waiters_are_in_the_order_of_their_arrival(folder: Folder) -> None:
    waiting = [joined(folder, b'{"n":%d}' % n) for n in range(5)]
    assert set(names(folder)) == {one.name for one in waiting}
    times = [ticket.order for ticket in tickets(folder)]
    assert times == sorted(times)
    first = tickets(folder)[0]
    assert (first.uid, first.pid) == (os.geteuid(), os.getpid())
    assert first.wants.startswith(b'{"n":')
    for one in waiting:
        one.close()
    assert tickets(folder) == []
    assert folder.names() == []


def test_a_killed_waiter_loses_its_place_and_leaves_no_file(folder: Folder) -> None:
    left = folder.path / "waiting-1-killed"
    left.write_text('{"pid":1,"wants":{}}')
    assert tickets(folder) == []
    assert left.exists(), "it may be about to be locked"


def test_what_is_no_queue_entry_is_ignored(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.path / "waiting-link").symlink_to("/etc/passwd")
    os.mkfifo(folder.path / "waiting-fifo")
    old = folder.path / "waiting-old"
    old.write_text("x")
    waiting = joined(folder, b"{}")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    assert names(folder) == [waiting.name]
    assert not old.exists()
    waiting.close()
