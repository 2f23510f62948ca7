"""The page of accidents, where its recording cannot be read any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gpumon.model.accidents import Accident, AccidentKind
from gpumon.recording.recording import Event, EventKind, RecordingError
from gpumon.ui.screens.accidents import AccidentsScreen
from tests.build import NOON

RESET = Accident(NOON, AccidentKind.RESET)


class Gone:
    """A recording whose file was replaced."""

    first, last = NOON, NOON + 60

    def __init__(self, *, events: bool) -> None:
        self._events = events

    def events(self, _: float, __: float) -> list[Event]:
        if not self._events:
            raise RecordingError("The log is gone.")
        return [Event(NOON, EventKind.ACCIDENT, "", "", (), RESET)]

    def at(self, _: float) -> None:
        raise RecordingError("The log is gone.")

    def step(self, time: float, _: int) -> float:
        return time


def page(recording: Gone) -> str:
    viewed: Any = SimpleNamespace(session=SimpleNamespace(recording=recording))
    workspace: Any = SimpleNamespace(viewed_time=viewed, renderer=None)
    screen = AccidentsScreen(workspace)
    screen.follow()
    return "\n".join("".join(text for text, _ in row).rstrip() for row in screen.page(60))


def test_a_recording_that_is_gone_is_said() -> None:
    assert page(Gone(events=False)) == "The log is gone."
    assert page(Gone(events=True)) == "The log is gone."
