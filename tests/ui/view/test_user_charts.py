"""Below the list of users: what one of them has over time, and what is idle since when."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from gpumon.findings import conditions
from gpumon.model.snapshot import Snapshot
from gpumon.recording.history import History, ViewedSeries
from gpumon.text.cells import row_width
from gpumon.ui.view.dashboard_rows import Dashboard
from gpumon.ui.view.dashboard_view import View
from gpumon.ui.view.process_table import Listing
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.ui.view.drawing import history_of, text_of

pytestmark = pytest.mark.usefixtures("utc")

CARDS = (gpu(), gpu(index=1))
ANN = process(4001, user="ann", gpus=(0, 1), memory_used=40 * GIB, sm=50, started_at=NOON)
BO = process(4002, user="bo", gpus=(1,), memory_used=10 * GIB, sm=0, started_at=NOON)
USERS = View(interval=1.0, listing=Listing.USERS)
BO_CHOSEN = replace(USERS, cursor="user:bo")


def seen(seconds: int = 600, more: int = 0) -> tuple[History, list[Snapshot]]:
    """Ann is on two GPUs; Bo comes after 60 s and is idle at once."""
    everybody = (ANN, BO, *(replace(BO, id=process(4100 + n).id) for n in range(more)))
    shown = [
        snapshot(NOON + second, *CARDS, processes=everybody[: 1 if second < 60 else None])
        for second in range(0, seconds, 5)
    ]
    return history_of(*shown), shown


def below(
    history: History, now: Snapshot, view: View = BO_CHOSEN, width: int = 100, height: int = 40
) -> list[str]:
    """The rows below the list of users."""
    rows = Dashboard(history).rows(now, view, width, height).processes
    assert {row_width(row) for row in rows} == {width}
    lines = [text_of(row).rstrip() for row in rows]
    place = next((place for place, line in enumerate(lines) if line.startswith("── ")), len(lines))
    return [line for line in lines[place:] if line]


@pytest.mark.parametrize("size", [(200, 50), (120, 35), (100, 30), (80, 32), (60, 36)])
def test_the_user_under_the_cursor_is_shown_over_time(size: tuple[int, int]) -> None:
    history, shown = seen()
    lines = below(history, shown[-1], BO_CHOSEN, *size)
    assert lines[0].startswith("── bo the last 5 minutes ")
    text = "\n".join(lines)
    assert "GPU memory  10.0G" in text
    assert "GPUs  1" in text
    assert re.search(r"-\dm .*now", text)
    assert lines[-1].startswith(" idle since 12:01         10.0G on GPU 1  4002  ")


def test_without_a_cursor_the_first_user_is_shown() -> None:
    history, shown = seen()
    lines = below(history, shown[-1], USERS)
    assert lines[0].startswith("── ann ")
    assert "GPU memory  80.0G" in lines[1]
    assert "GPUs  2" in lines[1]
    assert lines[-1] == " nothing idle"


def test_the_table_comes_first_and_little_room_has_lines_in_place_of_charts() -> None:
    history, shown = seen()
    crowd = tuple(process(5000 + number, user=f"user{number}") for number in range(12))
    now = snapshot(NOON + 600, *CARDS, processes=(ANN, BO, *crowd))
    history.add(now)
    for height in range(15, 61):
        rows = Dashboard(history).rows(now, BO_CHOSEN, 100, height).processes
        listed = sum("user" in text for row in rows for text, style in row if style == "user")
        assert listed == len(crowd) or below(history, now, BO_CHOSEN, 100, height) == []
    assert below(history, now, BO_CHOSEN, 100, 60)
    few = next(
        lines
        for height in range(15, 41)
        if len(lines := below(history, shown[-1], BO_CHOSEN, 100, height)) == 4
    )
    assert few[1].startswith(" GPU memory   10.0G ")
    assert few[2].startswith(" GPUs         1 ")
    assert "▇" in few[1]


def test_idle_processes_that_do_not_fit_are_counted() -> None:
    history, shown = seen(more=30)
    lines = below(history, shown[-1])
    assert any(line.startswith(" idle since 12:01") for line in lines)
    hidden = 31 - sum("idle since" in line for line in lines)
    assert lines[-1] == f" +{hidden} more idle, {hidden * 10}.0G"


def test_a_past_or_paused_moment_shows_what_was_known_then() -> None:
    history, shown = seen()
    then = shown[20]
    during = below(seen(105)[0], then)
    past = below(history.as_of(then), then)
    paused = below(history, then, replace(BO_CHOSEN, paused=True))
    assert "idle since" not in "".join(during), "for less than a minute"
    assert during == past
    # Minutes later, "now" would be wrong.
    assert " now" in "".join(past)
    assert " now" not in "".join(paused)
    assert "12:01" in "".join(paused)
    is_axis = re.compile(r"┬| now|\d\d:\d\d").search
    assert [line for line in during if not is_axis(line)] == [
        line for line in paused if not is_axis(line)
    ]


def test_the_charts_are_drawn_no_more_than_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []

    class Counted(History):
        def user_series(self, user: str | None) -> ViewedSeries:
            asked.append(self.now)
            return super().user_series(user)

    history = Counted(conditions())
    dashboard = Dashboard(history)
    monkeypatch.setattr(history, "as_of", lambda _: history)
    for tenth in range(100):
        now = snapshot(NOON + tenth / 10, *CARDS, processes=(ANN,), processes_at=NOON + tenth // 10)
        history.add(now)
        dashboard.rows(now, replace(USERS, interval=0.1), 100, 40)
    assert len(asked) <= 2 * 11
