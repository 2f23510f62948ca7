"""The charts on a card's page: which time they show, whose marks, and when they are not drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.screen import Screen

from gpumon.findings import conditions
from gpumon.recording.history import History
from gpumon.recording.recording import Event, EventKind
from gpumon.ui.screens import page
from gpumon.ui.screens.subjects import GpuScreen
from tests.build import NOON
from tests.ui.test_pages import MANY_UPDATES, UPDATE_SECONDS, Pages, at, history_of, workspace_of
from tests.ui.waiting import shown, text, until

if TYPE_CHECKING:
    import pytest

    from gpumon.recording.history import ViewedSeries


def page_of(app: Pages, history: History, happened: tuple[Event, ...] = ()) -> GpuScreen:
    workspace = workspace_of(app, history)
    workspace.viewed_time.happened = list(happened)
    return GpuScreen(workspace, "GPU-1")


async def test_the_keys_choose_how_much_of_the_past_is_shown() -> None:
    app = Pages()
    async with app.run_test(size=(100, 30)) as pilot:
        app.push_screen(page_of(app, history_of()))
        await shown(pilot, "The last 5 minutes")
        await shown(pilot, "2[5m] 3 30m  4 all")
        for key, title in (
            ("1", "The last minute"),
            ("3", "The last 30 minutes"),
            ("4", "All that was seen: 0s"),
        ):
            await pilot.press(key)
            await shown(pilot, title)


async def test_only_events_of_the_gpu_are_marked() -> None:
    app = Pages()
    history = history_of()
    history.add(at(60))
    here = Event(NOON + 30, EventKind.CAME, "x", "one came", ("GPU-0", "GPU-1"))
    there = Event(NOON + 40, EventKind.ERROR, "GPU-0", "broken", ("GPU-0",))
    async with app.run_test(size=(100, 30)) as pilot:
        app.push_screen(page_of(app, history, (here, there)))
        await shown(pilot, "─+─")
        assert "✖" not in text(app)


class Counted(History):
    """Counts what is asked of it to draw."""

    asked = 0

    def gpu_series(self, uuid: str) -> ViewedSeries:
        self.asked += 1
        return super().gpu_series(uuid)


async def test_a_hidden_page_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "REBUILD_SECONDS", UPDATE_SECONDS)
    app = Pages()
    history = Counted(conditions())
    history.add(at(0))
    async with app.run_test(size=(100, 30)) as pilot:
        screen = page_of(app, history)
        app.push_screen(screen)
        await until(pilot, lambda: history.asked > 0, "waiting for the charts")
        app.push_screen(Screen())
        await until(pilot, lambda: not screen.in_sight, "waiting for the other screen")
        history.asked = 0
        history.add(at(10))
        screen.rebuild()
        await pilot.pause(MANY_UPDATES)
        assert history.asked == 0
        app.pop_screen()
        await until(pilot, lambda: history.asked > 0, "waiting for its return")
