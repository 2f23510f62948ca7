"""Slow work beside the screen, and calls from any thread: the screen's thread hears of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import cast

import pytest
from textual.app import App

from gpumon.ui.background import Wakeup, run_in_thread
from tests.screen import PATIENCE
from tests.ui.waiting import until


async def test_a_result_is_delivered_on_the_applications_thread() -> None:
    async with App[int]().run_test() as pilot:
        here = threading.get_ident()
        seen: list[tuple[object, bool, bool]] = []
        run_in_thread(
            pilot.app,
            lambda: (threading.get_ident() != here, threading.current_thread().daemon),
            lambda found: seen.append((*found, threading.get_ident() == here)),
        )
        await until(pilot, lambda: bool(seen), "waiting for the result")
        assert seen == [(True, True, True)]


def fail() -> None:
    raise OSError("no such thing")


async def test_an_exception_is_delivered() -> None:
    async with App[int]().run_test() as pilot:
        errors: list[Exception] = []
        run_in_thread(pilot.app, fail, lambda _: None, errors.append)
        await until(pilot, lambda: bool(errors), "waiting for the failure")
        assert str(errors[0]) == "no such thing"


async def test_an_exception_without_a_handler_ends_the_application() -> None:
    async def run() -> None:
        async with App[int]().run_test() as pilot:
            run_in_thread(pilot.app, fail, lambda _: None)
            await until(pilot, lambda: not pilot.app.is_running, "waiting for the end")

    with pytest.raises(OSError, match="no such thing"):
        await run()


async def test_a_late_result_is_dropped() -> None:
    go = threading.Event()
    delivered: list[object] = []
    try:
        async with App[int]().run_test() as pilot:
            run_in_thread(pilot.app, go.wait, delivered.append, name="late-errand")
            late = [one for one in threading.enumerate() if one.name == "late-errand"]
            assert len(late) == 1
    finally:
        go.set()
    late[0].join(PATIENCE)
    assert not late[0].is_alive()
    assert delivered == []


_RINGERS, _RINGS = 4, 50


class Home:
    """What a bell is told of an application."""

    def __init__(self) -> None:
        self.bugs: list[Exception] = []

    def call_later(self, _: Callable[[Exception], None], bug: Exception) -> None:
        self.bugs.append(bug)


def bell(callback: Callable[[], None], home: Home | None = None) -> Wakeup:
    made = Wakeup(cast("App[int]", home or Home()), callback)
    made.start()
    return made


def ring_from_threads(bell: Wakeup) -> None:
    """Ring it many times on each of several threads, while this one hears nothing."""

    def wake() -> None:
        for _ in range(_RINGS):
            bell.wake()

    threads = [threading.Thread(target=wake) for _ in range(_RINGERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)


async def hear_what_was_rung() -> None:
    """Let the loop do what it was asked for up to now, and what that asked for."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_pending_calls_are_merged_and_a_later_call_is_separate() -> None:
    heard: list[int] = []
    hung = bell(lambda: heard.append(threading.get_ident()))
    ring_from_threads(hung)
    await hear_what_was_rung()
    # Two threads that ring in the same moment may each be the first.
    assert 1 <= len(heard) <= _RINGERS
    before = len(heard)
    hung.wake()
    await hear_what_was_rung()
    assert len(heard) == before + 1
    assert set(heard) == {threading.get_ident()}


async def test_a_call_during_the_callback_runs_it_again() -> None:
    heard: list[int] = []

    def callback() -> None:
        heard.append(len(heard))
        if len(heard) == 1:
            ring_from_threads(hung)

    hung = bell(callback)
    hung.wake()
    await hear_what_was_rung()
    assert 2 <= len(heard) <= 1 + _RINGERS


async def test_a_stopped_wakeup_calls_nothing() -> None:
    heard: list[bool] = []
    hung = bell(lambda: heard.append(True))
    hung.wake()
    hung.stop()
    hung.wake()
    await hear_what_was_rung()
    assert heard == []


def test_a_closed_loop_raises_nothing() -> None:
    heard: list[bool] = []

    async def start() -> Wakeup:
        return bell(lambda: heard.append(True))

    hung = asyncio.run(start())
    hung.wake()
    assert heard == []


async def test_an_exception_of_the_callback_reaches_the_application() -> None:
    home, bug = Home(), ValueError("a bug")

    def fail() -> None:
        raise bug

    hung = bell(fail, home)
    for _ in range(2):
        hung.wake()
        await hear_what_was_rung()
    assert home.bugs == [bug, bug]


async def test_a_wakeup_that_was_not_started_calls_nothing() -> None:
    heard: list[bool] = []
    Wakeup(cast("App[int]", Home()), lambda: heard.append(True)).wake()
    await hear_what_was_rung()
    assert heard == []
