"""What the keys that lead through time say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.ui.screens.timed import TimedScreen
from gpumon.ui.view.view import View
from tests.build import NOON, snapshot
from tests.recordings import ListTape


class Heard(TimedScreen):
    """A screen that keeps what it would say."""

    def __init__(self, viewed_time: Any) -> None:
        drawn_with: Any = None
        super().__init__(viewed_time, drawn_with, View(interval=1.0))
        self.said: list[str] = []

    def say(self, message: str, *, lasting: bool = False) -> None:  # noqa: ARG002 - see PaintedScreen
        self.said.append(message)

    def take(self) -> None:
        pass


@pytest.mark.parametrize(("direction", "where"), [(1, "after"), (-1, "before")])
@pytest.mark.parametrize("complete", [True, False])
def test_no_event_is_qualified_while_the_log_is_still_searched(
    direction: int, where: str, complete: bool
) -> None:
    tape = ListTape([snapshot(NOON)])
    source = SimpleNamespace(
        to_event=lambda *, forward, **_: tape.next_event(NOON, forward=forward)
    )
    player = SimpleNamespace(source=source)
    session = SimpleNamespace(recording=SimpleNamespace(events_complete=complete))
    viewed_time = SimpleNamespace(player=player, rewind=lambda: player, session=session)
    screen = Heard(viewed_time)  # type: ignore[abstract]  # it draws nothing

    screen.action_event(direction)

    known = f"no event is known {where} this moment"
    yet = "" if complete else ": the log has not been searched completely yet"
    assert screen.said == [known + yet]
