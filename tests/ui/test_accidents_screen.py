"""The page of accidents, whose recording may hang, grow, or be gone."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace
from textual.pilot import Pilot

from gpumon.model.accidents import Accident, AccidentKind
from gpumon.model.snapshot import Snapshot
from gpumon.model.thresholds import DEFAULTS
from gpumon.recording.memory.recording import MemoryRecording
from gpumon.recording.recording import Event, RecordingError
from gpumon.ui.screens.accidents import AccidentsScreen
from tests.build import NOON, gpu, process, snapshot
from tests.ui.test_pages import history_of, opened, workspace_of
from tests.ui.waiting import shown, text, until

_MANY = 8
"""More than are joined at once."""


class Slow(MemoryRecording):
    """A recording on a disk that answers when the test says so, or not at all any more."""

    def __init__(self, *, is_gone: bool = False) -> None:
        super().__init__(DEFAULTS.full_share)
        self.answers = threading.Event()
        self.reads = 0
        self.is_gone = is_gone
        # As after an error of each of eight GPUs, by processes that end.
        faults = tuple(
            Accident(NOON + 10, AccidentKind.ERROR_CODE, f"GPU-{index}", 31, 4000 + index, "python")
            for index in range(_MANY)
        )
        gpus = [gpu(index=index) for index in range(_MANY)]
        there = tuple(process(4000 + index, gpus=(index,), user="chen") for index in range(_MANY))
        for second in range(60):
            is_before = second < 11
            sample = snapshot(NOON + second, *gpus, processes=there if is_before else ())
            # The driver's events come before the lines of the kernel log.
            known = tuple(fault.bare() for fault in faults) if second == 11 else faults
            self.add(sample if is_before else replace(sample, accidents=known))

    def events(self, first: float, last: float) -> Sequence[Event]:
        self.reads += 1
        if not self.answers.wait(30):
            raise AssertionError("the test has forgotten it")
        if self.is_gone:
            raise RecordingError("The log is gone.")
        return super().events(first, last)

    def at(self, time: float) -> Snapshot | None:
        self.answers.wait(30)
        return super().at(time)


@asynccontextmanager
async def page_of(recording: Slow) -> AsyncIterator[Pilot[int]]:
    """The page, opened."""
    try:
        async with opened((120, 24)) as (app, pilot):
            workspace = workspace_of(app, history_of())
            workspace.viewed_time.session.recording = recording
            app.push_screen(AccidentsScreen(workspace))
            await shown(pilot, "accidents")
            yield pilot
    finally:
        recording.answers.set()


async def test_keys_work_while_the_recording_is_read() -> None:
    recording = Slow()
    async with page_of(recording) as pilot:
        await shown(pilot, "reading …")
        await pilot.press("down", "enter")
        # The answer to the key, too: that there are none is not known.
        await until(pilot, lambda: text(pilot.app).count("reading …") == 2, "waiting for the key")
        recording.answers.set()
        await shown(pilot, "XID 31")


async def test_every_accident_of_one_moment_is_joined() -> None:
    recording = Slow()
    recording.answers.set()
    async with page_of(recording) as pilot:
        for index in range(_MANY):
            await shown(pilot, f" {4000 + index} of chen")
        # They stay joined when they are read again.
        reads = recording.reads
        page = pilot.app.screen
        assert isinstance(page, AccidentsScreen)
        page.rebuild()
        await until(pilot, lambda: recording.reads > reads, "waiting for the next read")
        await pilot.pause(0.1)
        assert text(pilot.app).count(" of chen") >= 2 * _MANY


async def test_an_answer_for_a_closed_page_is_dropped_and_nothing_more_is_read() -> None:
    recording = Slow()
    async with page_of(recording) as pilot:
        await shown(pilot, "reading …")
        await pilot.press("escape")
        await until(
            pilot, lambda: len(pilot.app.screen_stack) == 1, "waiting for the page to close"
        )
        (reader,) = [it for it in threading.enumerate() if it.name == "gpumon-accidents"]
        recording.answers.set()
        reader.join()
        await pilot.pause()
        await pilot.pause()
        assert "XID" not in text(pilot.app)
        assert recording.reads == 1


async def test_a_recording_that_is_gone_is_said() -> None:
    recording = Slow(is_gone=True)
    recording.answers.set()
    async with page_of(recording) as pilot:
        await shown(pilot, "The log is gone.")
