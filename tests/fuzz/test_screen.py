"""Random keys, mouse and sizes over simulated time: nothing raises, nobody else is signalled.

The whole application runs without a terminal, on the simulated driver and on real processes; only
the one function through which a signal leaves is replaced. All clocks but those of the looks at
``/proc`` and of a log that is played are in hand, and what a seed does next hangs on nothing that
is seen. Two seeds play five minutes each wherever tests are run, one thing after the other;
``FUZZ_SEED=7 FUZZ_MINUTES=120 pytest -n 0 tests/fuzz/test_screen.py`` plays two hours of another
one, in a hurry. What was found has a test of its own.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest
from textual import _time, timer
from textual.pilot import Pilot

from gpumon.host.process_host import target_of
from gpumon.kill.signals import open_handle
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.inputs import FilterBar
from tests.driver import GIB, Owner
from tests.fuzz.hand import Hand, Move
from tests.fuzz.machine import Guard, Machine, machine
from tests.screen import PATIENCE
from tests.threads import wait_for_end

SECONDS = 60 * float(os.environ.get("FUZZ_MINUTES", "5"))
HUNTED = "FUZZ_SEED" in os.environ
"""Whether somebody looks for what is not known: then much is done before what was done before has
had its effect. That finds more, and not always the same."""
SEEDS = [int(os.environ["FUZZ_SEED"])] if HUNTED else [17, 19]
"""Of the first 24, those that have seen every screen after the fewest moves."""
SCREENS = {
    *("DashboardScreen", "GpuScreen", "CompareScreen", "ProcessScreen", "JobScreen", "HelpScreen"),
    *(
        "CommandsDialog",
        "EndDialog",
        "ThemesDialog",
        "ColumnsDialog",
        "MomentDialog",
        "TimespanDialog",
    ),
    *("the filter line", "the past", "a log that is played", "a signal that leaves"),
}
"""Every one that there is: a run goes on until it has seen all of them, but not for ever."""
_LONGEST = 20
"""How many times the time a run may take, to see them."""
LIVED, REPLAYED = 25, 10
"""Moves after which a screen is closed in any case, whatever is open and under way."""
_QUIET = 3
"""Looks in a row that find nothing more to do."""
_GLANCE = 0.001
ERRANDS = {"gpumon-relatives", "gpumon-details", "gpumon-logbook", "gpumon-remember"}


class ScreenTime:
    """The time of Textual's timers, which passes when it is told to, and else as it does."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._ahead = 0.0
        self._asleep: set[asyncio.Future[None]] = set()
        patch.setattr(_time, "get_time", self._now)
        patch.setattr(timer, "sleep", self._sleep)

    def pass_by(self, seconds: float) -> None:
        """So much of it passes at once."""
        self._ahead += seconds
        for sleeper in self._asleep:
            _wake(sleeper)

    def _now(self) -> float:
        return time.monotonic() + self._ahead

    async def _sleep(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = self._now() + seconds
        while (left := until - self._now()) > 0:
            sleeper: asyncio.Future[None] = loop.create_future()
            self._asleep.add(sleeper)
            alarm = loop.call_later(left, _wake, sleeper)
            try:
                await sleeper
            finally:
                alarm.cancel()
                self._asleep.discard(sleeper)


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


class Run:
    """One seed on one machine: screens that are opened, used and left until the time is over."""

    def __init__(self, made: Machine, guard: Guard, seed: int, screen_time: ScreenTime) -> None:
        self._machine, self._guard = made, guard
        self._screen_time = screen_time
        self._hand = Hand(random.Random(f"hand {seed}"))
        self._chance = random.Random(f"machine {seed}")
        self._begun = made.spent
        self._opened = 0
        self.done: list[str] = []
        self.seen: set[str] = set()

    @property
    def over(self) -> bool:
        """Whether the time has passed and all was seen, or too much of it has passed."""
        turns = (self._machine.spent - self._begun) / SECONDS
        return turns >= (1 if self.seen >= SCREENS else _LONGEST)

    async def play(self) -> None:
        """Open a screen and use it until it is left or the time is over."""
        self._opened += 1
        replay = self._opened % 3 == 2
        with self._machine.session(replay=replay) as session:
            app = GpumonApp(session)
            app.workspace.dashboard.remember_in(self._machine.state)
            async with app.run_test(size=(100, 30)) as pilot:
                for _ in range(REPLAYED if replay else LIVED):
                    if self.over or app._exit:
                        break
                    self._screen_time.pass_by(self._machine.tick(self._chance))
                    await self._do(pilot, self._hand.move())
                app.exit()

    async def _do(self, pilot: Pilot[int], move: Move) -> None:
        driver = pilot.app._driver
        assert driver is not None
        for one in move.inputs:
            self.done.append(str(one))
            for event in one.events(pilot.app.size):
                driver.process_message(event)
            if move.patient:
                await settled(pilot)
                self._look(pilot.app)
        if move.patient or not HUNTED:
            await settled(pilot)
        else:
            await asyncio.sleep(0)

    def _look(self, app: object) -> None:
        """Note what is on the screen."""
        assert isinstance(app, GpumonApp)
        if not app.screen_stack:
            return
        self.seen.add(type(app.screen).__name__)
        if app.workspace.dashboard.query_one(FilterBar).display:
            self.seen.add("the filter line")
        if self._guard.sent:
            self.seen.add("a signal that leaves")
        if app.workspace.viewed_time.is_past:
            self.seen.add(
                "the past" if app.workspace.viewed_time.is_live else "a log that is played"
            )


async def settled(pilot: Pilot[int]) -> None:
    """Wait until what was done has had its effect, that of errands included."""
    app = pilot.app
    deadline = time.monotonic() + PATIENCE
    quiet = 0
    # A message that was taken may have sent another one, to whoever had been asked before.
    while quiet < _QUIET and not app._exit and app._exception is None:
        assert time.monotonic() < deadline
        if any(thread.name in ERRANDS for thread in threading.enumerate()):
            await asyncio.sleep(_GLANCE)
            quiet = 0
        await pilot._wait_for_screen(PATIENCE)
        pumps = (app, *app.screen_stack)
        quiet = quiet + 1 if all(one.message_queue_size == 0 for one in pumps) else 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_is_pressed_nothing_raises_and_nobody_else_is_signalled(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    guard = Guard(monkeypatch)
    before = {*threading.enumerate()}
    with machine(tmp_path) as made:
        run = Run(made, guard, seed, ScreenTime(monkeypatch))
        try:
            while not run.over:
                await run.play()
        finally:
            print(f"seed {seed}, what was done last:", *run.done[-60:], sep="\n")
        assert made.collector.failure is None
    assert not guard.wrong
    assert run.seen >= SCREENS
    wait_for_end(lambda thread: thread not in before)


@pytest.mark.slow
async def test_the_guard_sees_a_signal_that_was_asked_for_and_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = Guard(monkeypatch)
    with machine(tmp_path) as made, made.session(replay=False) as session:
        pids = [one.pid for one in made.processes]
        made.driver.cards[0].processes = [Owner(pid, memory=GIB) for pid in pids]
        made.sample()
        app = GpumonApp(session)
        async with app.run_test(size=(100, 30)) as pilot:
            await pilot.press("down", "k")
            deadline = time.monotonic() + PATIENCE
            while not guard.sent:
                assert time.monotonic() < deadline
                await pilot.press("right", "enter")
                await pilot.pause(0.05)
        (pid, number), *_ = guard.sent
        assert pid in pids
        assert number == signal.SIGTERM
        assert not guard.wrong
        latest = made.history.latest
        assert latest is not None
        grip = open_handle(target_of(latest.processes[0]))
        grip.send(signal.SIGKILL)
        grip.close()
        assert guard.wrong
