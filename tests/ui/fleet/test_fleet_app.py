"""The application of many hosts: what it says of mistakes, bugs, and a host that dies."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from gpumon.fleet.demo import DemoFleet
from gpumon.fleet.summary import FleetSummaries, HostJudge
from gpumon.model.thresholds import DEFAULTS
from gpumon.ui.fleet_app import FleetApp, OpenHost
from gpumon.ui.session import SessionAlerts, SessionBuilder
from gpumon.ui.view.dashboard_view import StartupOptions
from tests.clock import HandClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.pilot import Pilot

    from gpumon.fleet.fleet import HostState
    from gpumon.fleet.summary import HostSummary

NAMES = [f"gpu-{number:02}" for number in range(1, 13)]
PATIENCE = 60.0


def made(
    fleet: DemoFleet, options: StartupOptions | None = None
) -> tuple[FleetApp, list[str], FleetSummaries]:
    """An application, the notes of its closed hosts, and what judges the hosts."""
    notes: list[str] = []

    def open_host(name: str) -> OpenHost:
        builder = SessionBuilder(fleet.machine(name), fleet.interval, DEFAULTS)
        session = builder.build(SessionAlerts(), demo=True)
        builder.collector.start()
        return OpenHost(session, lambda: notes.extend(builder.close()))

    summaries = FleetSummaries(fleet)
    return FleetApp(fleet, summaries, open_host, options or StartupOptions()), notes, summaries


async def until(pilot: Pilot[int], holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, what
        await pilot.pause(0.02)


def shown(app: FleetApp) -> str:
    """The rows of the visible screen."""
    from gpumon.ui.screens.painted import CellView

    rows = [row for view in app.screen.query(CellView) for row in view.rows]
    return "\n".join("".join(text for text, _ in row) for row in rows)


async def test_a_mistake_in_the_configuration_is_told_at_the_start() -> None:
    app, _, _ = made(DemoFleet(NAMES), StartupOptions(config_error="config.toml has a mistake"))
    async with app.run_test(size=(100, 24)) as pilot:
        await until(pilot, lambda: "config.toml has a mistake" in shown(app), "the sentence")


async def test_a_bug_while_hosts_are_judged_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    app, _, _ = made(DemoFleet(NAMES))

    def fail(_: HostJudge, __: HostState) -> HostSummary:
        raise ZeroDivisionError

    monkeypatch.setattr(HostJudge, "judge", fail)
    with pytest.raises(ZeroDivisionError):
        async with app.run_test(size=(100, 24)) as pilot:
            await until(pilot, lambda: app.return_code is not None, "the end")


async def test_an_open_host_that_stops_to_answer_says_so_and_keeps_its_picture() -> None:
    clock = HandClock()
    fleet = DemoFleet(NAMES, clock=clock)
    fleet.sample("gpu-12")
    app, _, _ = made(fleet)
    async with app.run_test(size=(100, 24)) as pilot:
        app.open_host("gpu-12")
        await until(pilot, lambda: "51022" in shown(app), "the dashboard")
        clock.now += 241
        fleet.sample("gpu-12")
        await until(pilot, lambda: "gpu-12 is down: the connection ended" in shown(app), "down")
        await until(pilot, lambda: "no answer for" in shown(app), "its age")
        assert "51022" in shown(app)
        clock.now += 20
        fleet.sample("gpu-12")
        await until(pilot, lambda: "gpu-12 answers again" in shown(app), "live")
        await until(pilot, lambda: "no answer for" not in shown(app), "new values")
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.fleet_screen, "all hosts")
        assert app.workspace is None


async def test_a_log_of_an_open_host_is_told_after_the_end(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    fleet = DemoFleet(NAMES)
    fleet.sample("gpu-01")
    app, notes, _ = made(fleet)
    async with app.run_test(size=(100, 24)) as pilot:
        app.open_host("gpu-01")
        await until(pilot, lambda: "51022" in shown(app), "the dashboard")
        await pilot.press("L")
        await until(pilot, lambda: "● log" in shown(app), "a log")
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.fleet_screen, "all hosts")
    assert len(notes) == 1
    assert "gpumon" in notes[0]


async def test_a_double_click_opens_the_host_under_the_pointer_and_no_other() -> None:
    app, _, _ = made(DemoFleet(NAMES))
    async with app.run_test(size=(100, 24)) as pilot:
        await until(pilot, lambda: "gpu-12" in shown(app), "the hosts")
        rows = shown(app).splitlines()
        line = next(y for y, row in enumerate(rows) if "gpu-03" in row)
        await pilot.press("down")
        await pilot.click(
            offset=(5, max(y for y, row in enumerate(rows) if "gpu-" in row) + 2), times=2
        )
        await pilot.pause()
        assert app.workspace is None, "below the last line"
        await pilot.click(offset=(5, line), times=2)
        await until(pilot, lambda: app.workspace is not None, "the host")
        assert app.workspace is not None
        assert app.workspace.session.collector.hostname == "gpu-03"
