"""What the keys that lead through time say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.ui.screens.timed import TimedScreen
from tests.build import NOON, snapshot
from tests.recordings import ListTape


class Heard(TimedScreen):
    """A screen that keeps what it would say."""

    def __init__(self, stage: Any) -> None:
        super().__init__(stage)
        self.said: list[str] = []

    def say(self, message: str) -> None:
        self.said.append(message)

    def take(self) -> None:
        pass

    def _hush(self) -> None:
        pass


@pytest.mark.parametrize(("direction", "where"), [(1, "after"), (-1, "before")])
@pytest.mark.parametrize("complete", [True, False])
def test_while_a_log_is_looked_through_no_event_is_not_the_last_word(
    direction: int, where: str, complete: bool
) -> None:
    tape = ListTape([snapshot(NOON)])
    player = SimpleNamespace(to_mark=lambda *, forward, **_: tape.next_mark(NOON, forward=forward))
    stage = SimpleNamespace(player=player, rewind=lambda: player, marks_complete=complete)
    screen = Heard(stage)

    screen.action_event(direction)

    known = f"no event is known {where} this moment"
    yet = "" if complete else ": not all of the log has been looked through yet"
    assert screen.said == [known + yet]
