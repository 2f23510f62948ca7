"""Nobody who waits is passed by those who come later, and nobody waits for the idle."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from gpumon.choosing.judging import Allowance, Circumstances, judge
from gpumon.choosing.line import GATHERS_AFTER, TAKES_SECONDS, Line
from gpumon.choosing.requirements import Requirements
from gpumon.model import CardStatus
from gpumon.reserving.folder import Folder, shared_folder
from gpumon.selection import parse_selection
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.log.command import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CARDS = [gpu(index=index, memory_used=0, memory_reserved=0) for index in range(4)]
ANY = Requirements()
NOBODY_S = Circumstances()


class Clock:
    """The time of the tests: moved on by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = 0.0
        wall, steady = time.time, time.monotonic
        monkeypatch.setattr(time, "time", lambda: wall() + self.passed)
        monkeypatch.setattr(time, "monotonic", lambda: steady() + self.passed)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = shared_folder(str(tmp_path / "locks"))
    assert made is not None
    yield made
    made.close()


def wait(folder: Folder, asked: Requirements, allowance: Allowance | None = None) -> Line:
    waiting = Line(folder)
    waiting.join(asked, allowance or Allowance())
    return waiting


def owed(to: Line, *free: int) -> set[str]:
    """What is kept for others, where these cards are free and the others busy."""
    busy = tuple(one.index for one in CARDS if one.index not in free)
    on_them = (process(7, gpus=busy),) if busy else ()
    return set(to.owed(snapshot(NOON, *CARDS, processes=on_them), NOBODY_S))


def test_each_who_waits_is_left_one_card_in_the_order_of_coming(folder: Folder) -> None:
    waiting = [wait(folder, ANY) for _ in range(3)]
    assert owed(waiting[0], 1, 2) == set()
    assert owed(waiting[1], 1, 2) == {"GPU-1"}
    assert owed(waiting[2], 1, 2) == {"GPU-1", "GPU-2"}
    assert owed(Line(folder), 1, 2) == {"GPU-1", "GPU-2"}
    waiting[0].leave()
    assert owed(waiting[1], 1, 2) == set()
    for one in waiting[1:]:
        one.leave()


def test_a_card_that_does_not_suit_those_before_is_not_kept_for_them(folder: Folder) -> None:
    picky = wait(folder, Requirements(only=parse_selection("3"), total=80 * GIB))
    allotted = wait(folder, ANY, Allowance(frozenset({"GPU-2"})))
    assert owed(Line(folder), 0, 1) == set()
    assert owed(Line(folder), 0, 2, 3) == {"GPU-2", "GPU-3"}
    picky.leave()
    allotted.leave()


def test_what_is_kept_says_for_whom(folder: Folder) -> None:
    first = wait(folder, ANY)
    told = Line(folder).owed(snapshot(NOON, *CARDS), NOBODY_S)["GPU-0"]
    assert " has waited for it for 0s, gpumon run " in told
    circumstances = replace(NOBODY_S, owed={"GPU-0": told})
    refusal = judge(snapshot(NOON, *CARDS), ANY, circumstances)[0].refusal
    assert refusal is not None
    assert (refusal.kind, refusal.passing) == ("queue", True)
    first.leave()


def test_who_does_not_take_what_is_there_is_not_waited_for(folder: Folder, clock: Clock) -> None:
    asleep, awake = wait(folder, ANY), wait(folder, ANY)
    assert owed(awake, 0) == {"GPU-0"}
    clock.passed = TAKES_SECONDS + 1
    assert owed(awake, 0) == set()
    assert owed(awake) == set()
    assert owed(awake, 0) == {"GPU-0"}, "another chance"
    asleep.leave()
    awake.leave()


def test_who_is_stopped_is_not_waited_for_until_somebody_continues_it(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            with monkeypatch.context() as in_its_place:
                in_its_place.setattr(os, "getpid", lambda: sleeper.pid)
                stopped = wait(folder, ANY)
            assert owed(Line(folder), 0) == {"GPU-0"}
            sleeper.send_signal(signal.SIGSTOP)
            wait_until(lambda: owed(Line(folder), 0) == set(), "it is stopped")
            sleeper.send_signal(signal.SIGCONT)
            wait_until(lambda: owed(Line(folder), 0) == {"GPU-0"}, "it goes on")
        finally:
            sleeper.kill()
    stopped.leave()


def test_small_jobs_go_on_beside_a_large_one_but_not_for_ever(folder: Folder, clock: Clock) -> None:
    large = wait(folder, Requirements(least=3, most=3))
    hopeless = wait(folder, Requirements(least=9, most=9))
    small = wait(folder, ANY)
    assert owed(small, 0, 1) == set()
    assert len(owed(small, 0, 1, 2)) == 3
    clock.passed = GATHERS_AFTER + 60
    assert owed(small, 0, 1) == {"GPU-0", "GPU-1"}
    clock.passed += 10 * TAKES_SECONDS
    assert owed(small, 0, 1) == {"GPU-0", "GPU-1"}
    large.leave()
    assert owed(small, 0, 1) == set(), "nine cards never come"
    for one in (hopeless, small):
        one.leave()


def test_no_card_is_kept_for_who_waits_for_a_lost_one(folder: Folder, clock: Clock) -> None:
    all_four = wait(folder, Requirements(least=4, most=4))
    clock.passed = GATHERS_AFTER + 60
    lost = snapshot(NOON, *CARDS[:3], replace(CARDS[3], status=CardStatus.LOST))
    busy = snapshot(NOON, *CARDS, processes=(process(7, gpus=(3,)),))
    assert Line(folder).owed(lost, NOBODY_S) == {}
    assert len(Line(folder).owed(busy, NOBODY_S)) == 3
    all_four.leave()


def test_what_another_version_wrote_keeps_nothing(folder: Folder) -> None:
    from gpumon.reserving.queue import Waiting

    strange = Waiting(folder, b'{"wishes":[1,2]}')
    assert owed(Line(folder), 0, 1) == set()
    strange.close()
