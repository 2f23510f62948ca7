"""What the keys that lead through time say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.ui.viewed_time import ViewedTime
from tests.build import NOON, snapshot
from tests.recordings import ListTape


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
    recording = SimpleNamespace(events_complete=complete)
    session: Any = SimpleNamespace(player=player, recording=recording)

    message = ViewedTime(session, lambda: None).go_to_event(direction)

    known = f"no event is known {where} this moment"
    yet = "" if complete else ": the log has not been searched completely yet"
    assert message == known + yet
