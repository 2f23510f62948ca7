"""The first minute with gpumon: a process is found and ended, then the screen goes back in time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from msgspec import Struct

from screenshots.animation import Frame, animated
from screenshots.cells import cells_of, text_of
from screenshots.scenes import MOMENT, ground_of, machine, new_app, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.pilot import Pilot

    from gpumon.ui.app import GpumonApp
    from gpumon.ui.session import Session

NAME = "first-minute"
_TITLE = "gpumon --demo: a process is found and ended, then the screen goes back in time"
_SIZE = (100, 24)
_POLL_SECONDS = 0.01
_INTERVAL = 0.5
_LONGEST_WAIT = 30.0


class MissingTextError(Exception):
    """The screen does not show what a caption says."""


class Step(Struct, frozen=True):
    """Keys, and the frame that shows what they did."""

    keys: tuple[str, ...]
    name: str  # Of the keys, in the caption.
    caption: str
    seconds: float  # How long the frame stays.
    shows: str  # A text that the screen must have, so that the caption stays true.
    later: float = 0.0  # Seconds of the demo between the keys and the frame.


_FIND = "To find a process, type a few letters of its command or notebook"
_STEPS = (
    Step((), "", "The dashboard: eight GPUs, and the processes on them", 4, "1 of 8 free"),
    Step(("slash",), "/", _FIND, 1.5, "Enter keep"),
    *(
        Step((letter,), "/", _FIND, 0.4, f"/{'noteb'[: number + 1]}")
        for number, letter in enumerate("noteb")
    ),
    Step((), "/", _FIND, 1.5, "1 of 18 processes"),
    Step(("enter",), "Enter", "The notebook has run nothing for 47 minutes", 3, "▸1 58204 ann"),
    Step(("k",), "k", "The dialog lists every process that will get the signal", 5, "will free"),
    Step(("right",), "→", "The arrow moves to the button Send TERM", 2.5, "Send TERM"),
    Step(
        ("enter",), "Enter", "The process ended, and its memory came back", 5, "came back", later=5
    ),
    Step(("escape", "escape"), "Esc", "All processes again", 3, "17 processes"),
    Step(("left_square_bracket",), "[", "Back in time: the bar shows the past", 4, "REWIND"),
    Step(
        ("shift+left",),
        "Shift+←",
        "Ten minutes earlier, GPU 6 still worked, and GPU 4 had a job",
        5,
        "6 H100 ● busy",
    ),
    Step(("end",), "End", "Now again: GPU 6 is lost", 3, "LOST since"),
)


class SteppedClock:
    """A clock that moves only when the story moves it."""

    def __init__(self) -> None:
        self._now = MOMENT

    def time(self) -> float:
        """See ``gpumon.system.clock.Clock``."""
        return self._now

    def monotonic(self) -> float:
        """See ``gpumon.system.clock.Clock``."""
        return self._now

    def wait(self, event: threading.Event, timeout: float) -> bool:
        """See ``gpumon.system.clock.Clock``."""
        until = self._now + timeout
        while self._now < until:
            if event.wait(_POLL_SECONDS):
                return True
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Move it on."""
        self._now += seconds


async def svg_of_story() -> str:
    """The animated picture."""
    clock = SteppedClock()
    with machine("0-7", clock) as session:
        app = new_app(session, "gpumon")
        async with app.run_test(size=_SIZE) as pilot:
            frames = [await _frame(step, app, session, clock, pilot) for step in _STEPS]
            return animated(frames, ground_of(app), _TITLE)


async def _frame(
    step: Step, app: GpumonApp, session: Session, clock: SteppedClock, pilot: Pilot[int]
) -> Frame:
    await pilot.press(*step.keys)
    await settle(app, pilot)
    if step.later:
        reports = app.workspace.kill_controller
        # The signal has been sent before time goes on.
        await _until(lambda: any(it.outcomes for it in reports.reports), pilot)
        for _ in range(round(step.later / _INTERVAL)):
            await _next_sample(session, clock, pilot)
        await _until(lambda: all(it.done for it in reports.reports), pilot)
        await settle(app, pilot)
    lines = cells_of(app)
    if not any(step.shows in text_of(line) for line in lines):
        raise MissingTextError(f"after {step.name!r} the screen does not show {step.shows!r}")
    return Frame(lines, step.name, step.caption, step.seconds)


async def _next_sample(session: Session, clock: SteppedClock, pilot: Pilot[int]) -> None:
    sampled = threading.Event()
    unsubscribe = session.collector.subscribe(lambda _: sampled.set())
    sampled.clear()
    clock.advance(_INTERVAL)
    await _until(sampled.is_set, pilot)
    unsubscribe()


async def _until(reached: Callable[[], bool], pilot: Pilot[int]) -> None:
    for _ in range(round(_LONGEST_WAIT / _POLL_SECONDS)):
        if reached():
            return
        await pilot.pause(_POLL_SECONDS)
    raise TimeoutError("the demo did not reach the next frame of the story")
