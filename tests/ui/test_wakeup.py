"""Rings from any thread: heard on the application's, and those that come together once."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, cast

from gpumon.ui.wakeup import Wakeup
from tests.screen import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App

_RINGERS, _RINGS = 4, 50


class Home:
    """What a bell is told of an application."""

    def __init__(self) -> None:
        self.bugs: list[Exception] = []

    def call_later(self, _: Callable[[Exception], None], bug: Exception) -> None:
        self.bugs.append(bug)


def bell(hear: Callable[[], None], home: Home | None = None) -> Wakeup:
    made = Wakeup(cast("App[int]", home or Home()), hear)
    made.hang()
    return made


def ring_from_threads(bell: Wakeup) -> None:
    """Ring it many times on each of several threads, while this one hears nothing."""

    def ring() -> None:
        for _ in range(_RINGS):
            bell.ring()

    threads = [threading.Thread(target=ring) for _ in range(_RINGERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)


async def hear_what_was_rung() -> None:
    """Let the loop do what it was asked for up to now, and what that asked for."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_rings_that_were_not_yet_heard_are_one_and_the_next_is_another() -> None:
    heard: list[int] = []
    hung = bell(lambda: heard.append(threading.get_ident()))
    ring_from_threads(hung)
    await hear_what_was_rung()
    # Two threads that ring in the same moment may each be the first.
    assert 1 <= len(heard) <= _RINGERS
    before = len(heard)
    hung.ring()
    await hear_what_was_rung()
    assert len(heard) == before + 1
    assert set(heard) == {threading.get_ident()}


async def test_a_ring_that_comes_while_one_is_heard_is_heard_after_it() -> None:
    heard: list[int] = []

    def hear() -> None:
        heard.append(len(heard))
        if len(heard) == 1:
            ring_from_threads(hung)

    hung = bell(hear)
    hung.ring()
    await hear_what_was_rung()
    assert 2 <= len(heard) <= 1 + _RINGERS


async def test_one_that_was_taken_down_is_heard_no_longer() -> None:
    heard: list[bool] = []
    hung = bell(lambda: heard.append(True))
    hung.ring()
    hung.take_down()
    hung.ring()
    await hear_what_was_rung()
    assert heard == []


def test_one_whose_loop_is_closed_says_nothing() -> None:
    heard: list[bool] = []

    async def hang() -> Wakeup:
        return bell(lambda: heard.append(True))

    hung = asyncio.run(hang())
    hung.ring()
    assert heard == []


async def test_what_is_raised_while_it_is_heard_is_the_applications_to_tell() -> None:
    home, bug = Home(), ValueError("a bug")

    def fail() -> None:
        raise bug

    hung = bell(fail, home)
    for _ in range(2):
        hung.ring()
        await hear_what_was_rung()
    assert home.bugs == [bug, bug]


async def test_one_that_was_not_hung_is_silent() -> None:
    heard: list[bool] = []
    Wakeup(cast("App[int]", Home()), lambda: heard.append(True)).ring()
    await hear_what_was_rung()
    assert heard == []
