"""The application of many hosts: what it says of mistakes, bugs, and a host that dies."""

from __future__ import annotations

import pytest

from gpumon.fleet.demo import DemoFleet
from gpumon.fleet.fleet import HostState
from gpumon.fleet.summary import FleetSummaries, HostJudge, HostSummary
from gpumon.model.thresholds import DEFAULTS
from gpumon.ui.fleet_app import FleetApp, OpenHost
from gpumon.ui.session import SessionAlerts, SessionBuilder
from gpumon.ui.view.dashboard_view import StartupOptions
from tests.clock import HandClock
from tests.known import known
from tests.ui.waiting import press, shown, text, until

NAMES = [f"gpu-{number:02}" for number in range(1, 13)]


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


async def test_a_mistake_in_the_configuration_is_told_at_the_start() -> None:
    app, _, _ = made(DemoFleet(NAMES), StartupOptions(config_error="config.toml has a mistake"))
    async with app.run_test(size=(100, 24)) as pilot:
        await shown(pilot, "config.toml has a mistake")


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
        await shown(pilot, "51022")
        clock.now += 241
        fleet.sample("gpu-12")
        await shown(pilot, "gpu-12 is down: the connection ended", "no answer for")
        assert "51022" in text(app)
        clock.now += 20
        fleet.sample("gpu-12")
        await shown(pilot, "gpu-12 answers again")
        await until(pilot, lambda: "no answer for" not in text(app), "new values")
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
        await shown(pilot, "51022")
        await press(pilot, "L", shows="● log")
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.fleet_screen, "all hosts")
    assert len(notes) == 1
    assert "gpumon" in notes[0]


async def test_a_double_click_opens_the_host_under_the_pointer_and_no_other() -> None:
    app, _, _ = made(DemoFleet(NAMES))
    async with app.run_test(size=(100, 24)) as pilot:
        await shown(pilot, "gpu-12")
        rows = text(app).splitlines()
        line = next(y for y, row in enumerate(rows) if "gpu-03" in row)
        await pilot.press("down")
        await pilot.click(
            offset=(5, max(y for y, row in enumerate(rows) if "gpu-" in row) + 2), times=2
        )
        await pilot.pause()
        assert app.workspace is None, "below the last line"
        await pilot.click(offset=(5, line), times=2)
        await until(pilot, lambda: app.workspace is not None, "the host")
        assert known(app.workspace).session.collector.hostname == "gpu-03"
