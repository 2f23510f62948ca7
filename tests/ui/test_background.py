"""Slow work beside the screen: its result comes to the screen's thread, or nowhere."""

from __future__ import annotations

import threading

import pytest
from textual.app import App

from gpumon.ui.background import run_in_thread
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
