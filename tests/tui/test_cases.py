"""From the question to the report, on screen: real processes, and exactly those that were named."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from textual.app import App
from textual.widgets import Button, Static

from gpumon.ending import Outcome, case
from gpumon.findings import conditions
from gpumon.history import History
from gpumon.host.journal import Journal
from gpumon.host.local import LocalHost
from gpumon.model import GpuUse, Place
from gpumon.tui import cases
from gpumon.tui.cases import Cases
from gpumon.tui.dialogs.end import EndDialog
from tests import build, lives
from tests.build import GIB

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from textual.pilot import Pilot

    from gpumon.ending import Report
    from gpumon.model import GpuProcess, Snapshot
    from gpumon.tui.session import Session
    from tests.lives import Family

DEAF = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(2):
    if not os.fork():
        while True:
            signal.pause()
print("ready", flush=True)
while True:
    signal.pause()
"""
"""A run that ignores TERM, and so do its two loaders."""


@pytest.fixture
def family() -> Iterator[Family]:
    with lives.family() as started:
        yield started


class Ending(App[int]):
    """What the ending of processes needs of the application."""

    def __init__(self, host: LocalHost, folder: Path) -> None:
        super().__init__()
        self.journal = Journal(folder)
        self.history = History(conditions())
        session = SimpleNamespace(history=self.history, host=host, journal=self.journal)
        self.said: list[str] = []
        self.cases = Cases(self, cast("Session", session), lambda: None, self.said.append)

    @property
    def send_label(self) -> str:
        """What the button would do, once it can be pressed; else nothing."""
        buttons = self.screen.query("#send").results(Button)
        return next((str(button.label) for button in buttons if not button.disabled), "")

    def logged(self) -> set[tuple[int, str]]:
        """To whom which signal was sent."""
        assert self.journal.flush(lives.PATIENCE)
        entries = map(msgspec.json.decode, self.journal.path.read_bytes().splitlines())
        return {(e["pid"], e["signal"]) for e in entries if e["outcome"] == "sent"}


@asynccontextmanager
async def opened(tmp_path: Path) -> AsyncIterator[tuple[Ending, Pilot[int]]]:
    app = Ending(LocalHost(), tmp_path / "state")
    try:
        async with app.run_test(size=(100, 30)) as pilot:
            yield app, pilot
    finally:
        app.cases.close()
        assert app.journal.flush(lives.PATIENCE)


async def until(pilot: Pilot[int], holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + lives.PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"never: {what}"
        await pilot.pause(0.01)


async def send(app: Ending, pilot: Pilot[int], label: str, *keys: str) -> None:
    """Press keys in the dialog, then the button, which has this label then."""
    await until(pilot, lambda: app.send_label, "that the children are known")
    await pilot.press(*keys)
    await until(pilot, lambda: app.send_label == label, f"{label}, not {app.send_label}")
    await pilot.press("right", "enter")
    await until(pilot, lambda: not isinstance(app.screen, EndDialog), "the end of the dialog")


def outcomes(report: Report) -> dict[int, Outcome]:
    return {fate.target.id.pid: fate.outcome for fate in report.fates}


async def test_a_second_dialog_reaches_those_alone_whom_it_names(
    family: Family, tmp_path: Path
) -> None:
    first, second = family.python(DEAF), family.python(DEAF)
    async with opened(tmp_path) as (app, pilot):
        app.cases.ask([lives.target(first.pid), lives.target(second.pid)])
        await send(app, pilot, "Send TERM to 2", "w")
        await until(pilot, lambda: len(app.cases.reports[0].fates) == 2, "the first report")

        app.cases.ask([lives.target(second.pid)])
        await send(app, pilot, "Send KILL", "w", "9")
        await until(pilot, lambda: app.cases.reports[-1].done, "the end of the second")
        assert outcomes(app.cases.reports[-1]) == {second.pid: Outcome.ENDED}
        assert {pid for pid, name in app.logged() if name == "KILL"} == {second.pid}
        assert first.poll() is None


@pytest.mark.parametrize("whole_tree", [True, False])
async def test_the_tree_of_the_second_dialog_counts_and_not_that_of_the_first(
    family: Family, tmp_path: Path, whole_tree: bool
) -> None:
    run = family.python(DEAF)
    loaders = set(lives.children(run.pid))
    async with opened(tmp_path) as (app, pilot):
        app.cases.ask([lives.target(run.pid)])
        await send(app, pilot, *(["Send TERM", "w"] if whole_tree else ["Send TERM to 3"]))
        await until(pilot, lambda: app.cases.reports[0].fates, "the first report")

        app.cases.ask([lives.target(run.pid)])
        await send(
            app, pilot, *(["Send KILL to 3", "9"] if whole_tree else ["Send KILL", "9", "w"])
        )
        await until(pilot, lambda: app.cases.reports[-1].done, "the end of the second")
        assert family.members() == (set() if whole_tree else loaders)


async def test_the_rest_is_killed_in_the_case_that_knows_them(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(case, "PATIENCE", 0.0)
    run = family.python(DEAF)
    async with opened(tmp_path) as (app, pilot):
        app.cases.ask([lives.target(run.pid)])
        await send(app, pilot, "Send TERM to 3")
        await until(pilot, lambda: app.cases.reports[0].offers_kill, "the offer")
        assert app.cases.ask_for_the_rest()
        await send(app, pilot, "Send KILL to 3")
        await until(pilot, lambda: app.cases.reports[0].done, "the end of all")
        (report,) = app.cases.reports
        assert set(outcomes(report).values()) == {Outcome.ENDED}
        assert not family.members()


@pytest.mark.parametrize("number", [signal.SIGCONT, signal.SIGSTOP, signal.SIGTERM])
async def test_kill_is_proposed_only_where_a_signal_was_given_time_to_end_it(
    family: Family, tmp_path: Path, number: signal.Signals
) -> None:
    process = family.python(DEAF)
    async with opened(tmp_path) as (app, pilot):
        app.cases.ask([lives.target(process.pid)])
        await until(pilot, lambda: app.send_label, "that the children are known")
        await app.screen.run_action(f"choose('{number.name.removeprefix('SIG')}')")
        await send(app, pilot, f"Send {number.name.removeprefix('SIG')}", "w")
        await until(pilot, lambda: app.cases.reports[0].fates, "the report")
        assert not app.cases.ask_for_the_rest()
        app.cases.ask([lives.target(process.pid)])
        await until(pilot, lambda: app.send_label, "that the children are known")
        assert app.send_label.startswith("Send TERM")


BECOMING = """
import os, sys
print("ready", flush=True)
sys.stdin.readline()
os.execv(sys.executable, [sys.executable, "-c", "print('there', flush=True); input()", "successor"])
"""
"""It becomes another program when it is told to."""


async def test_what_another_command_runs_by_now_is_shown_and_asked_about_again(
    family: Family, tmp_path: Path
) -> None:
    process = family.python(BECOMING)
    assert process.stdin is not None
    assert process.stdout is not None
    async with opened(tmp_path) as (app, pilot):
        app.cases.ask([lives.target(process.pid)])
        await until(pilot, lambda: app.send_label, "that the children are known")
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "there\n"
        await pilot.press("right", "enter")
        dialog = app.screen
        assert isinstance(dialog, EndDialog)
        await until(pilot, lambda: "its command has changed" in named(dialog), "another question")
        assert "successor" in named(dialog)
        assert dialog.focused is dialog.query_one("#cancel")
        assert process.poll() is None
        assert not app.cases.reports
        # Textual takes no second press of a button that still looks pressed.
        pressed = dialog.query_one("#send")
        await until(pilot, lambda: not pressed.has_class("-active"), "that it can be pressed")
        await send(app, pilot, "Send TERM")
        await until(pilot, lambda: app.cases.reports[0].done, "its end")
        assert process.wait(lives.PATIENCE) == -signal.SIGTERM
        target = app.cases.reports[0].fates[0].target
        assert target.command[-1] == "successor"


def named(dialog: EndDialog) -> str:
    return str(dialog.query_one("#named", Static).render())


async def test_one_that_writes_its_title_anew_is_asked_about_once(
    family: Family, tmp_path: Path
) -> None:
    """As setproctitle does; a step counter in the title would be asked about for ever."""
    process = family.python(TITLED)
    assert process.stdin is not None
    assert process.stdout is not None
    async with opened(tmp_path) as (app, pilot):
        app.cases.ask([lives.target(process.pid)])
        await until(pilot, lambda: app.send_label, "that the children are known")
        before = lives.target(process.pid).command
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "titled\n"
        assert lives.target(process.pid).command != before
        await send(app, pilot, "Send TERM")
        await until(pilot, lambda: app.cases.reports[0].done, "its end")
        assert process.wait(lives.PATIENCE) == -signal.SIGTERM


TITLED = """
import sys
print("ready", flush=True)
sys.stdin.readline()
with open("/proc/self/stat") as file:
    start = int(file.read().rpartition(")")[2].split()[45])
import ctypes
ctypes.memset(start, ord("x"), 4)
print("titled", flush=True)
input()
"""


async def test_children_of_what_gpumon_runs_in_are_not_named(
    family: Family, tmp_path: Path
) -> None:
    """Whoever started these tests is above gpumon, and above a process beside it."""
    process = family.sleeper()
    async with opened(tmp_path) as (app, pilot):
        app.cases.ask([lives.target(os.getpid()), lives.target(process.pid)])
        await send(app, pilot, "Send TERM")
        await until(pilot, lambda: app.cases.reports[0].done, "its end")
        assert outcomes(app.cases.reports[0]) == {process.pid: Outcome.ENDED}


async def test_children_are_named_with_what_they_hold_and_where_they_run(
    family: Family, tmp_path: Path
) -> None:
    run = family.python(DEAF)
    first, second = (lives.target(pid) for pid in lives.children(run.pid))
    listed = build.process(first.id.pid, start_time=first.id.start_time, memory_used=GIB)
    async with opened(tmp_path) as (app, pilot):
        app.history.add(build.snapshot(processes=(listed,)))
        app.cases.ask([lives.target(run.pid, place=Place(slurm_job="88123"))])
        await send(app, pilot, "Send KILL to 3", "9")

        def ended() -> bool:
            return [*outcomes(app.cases.reports[0]).values()] == [Outcome.ENDED] * 3

        await until(pilot, ended, "the end of all")
        found = {fate.target.id: fate.target for fate in app.cases.reports[0].fates}
        assert found[first.id].uses == listed.uses
        assert found[second.id].place == Place(slurm_job="88123")
        assert found[second.id].started_at is not None


@pytest.mark.parametrize("left", [0, 12 * GIB])
async def test_only_a_report_that_went_well_goes_by_itself(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    monkeypatch.setattr(cases, "_SHOWN_SECONDS", -1.0)
    seen = lives.target(family.sleeper().pid, uses=(GpuUse("GPU-0", 0, memory_used=40 * GIB),))

    def moment(ahead: float, memory_used: int) -> Snapshot:
        now = time.time() + ahead
        card = build.gpu(memory_used=memory_used, sampled_at=now)
        return build.snapshot(now, card, processes_at=now)

    async with opened(tmp_path) as (app, pilot):
        app.history.add(moment(-1, 40 * GIB))
        app.cases.ask([seen])
        await send(app, pilot, "Send TERM")
        await until(
            pilot, lambda: Outcome.ENDED in outcomes(app.cases.reports[0]).values(), "its end"
        )
        app.cases.take(moment(1, left))
        await until(pilot, lambda: app.cases.reports[0].returns[0].now == left, "the memory")
        if left:
            app.cases.take(moment(2, left))  # What is short must be seen twice.
        await until(pilot, lambda: app.cases.reports[0].done, "the end of the case")
        app.cases.take(moment(3, left))
        assert bool(app.cases.reports) == bool(left)


async def test_memory_is_compared_where_the_lists_are_as_new(
    family: Family, tmp_path: Path
) -> None:
    """What another process gave back since the last list is not counted to the one that ended."""
    process, other = family.sleeper(), build.process(9, memory_used=9 * GIB)
    seen = lives.target(process.pid, uses=(GpuUse("GPU-0", 0, memory_used=9 * GIB),))
    own = build.process(process.pid, memory_used=9 * GIB, start_time=seen.id.start_time)
    now = time.time()

    def moment(ahead: float, listed: float, used: int, *processes: GpuProcess) -> Snapshot:
        card = build.gpu(memory_used=used, sampled_at=now + ahead)
        return build.snapshot(now + ahead, card, processes=processes, processes_at=now + listed)

    async with opened(tmp_path) as (app, pilot):
        app.cases.take(moment(-1, -1, 18 * GIB, own, other))
        app.cases.ask([seen])
        await send(app, pilot, "Send TERM")
        await until(
            pilot, lambda: Outcome.ENDED in outcomes(app.cases.reports[0]).values(), "its end"
        )
        app.cases.take(moment(60, 60, 18 * GIB, other))
        await until(pilot, lambda: app.cases.reports[0].returns[0].now == 18 * GIB, "the list")
        app.cases.take(moment(60.5, 60, 9 * GIB, other))
        app.cases.take(moment(61, 61, 9 * GIB))
        await until(pilot, lambda: app.cases.reports[0].returns[0].settled, "the next list")
        (back,) = app.cases.reports[0].returns
        assert (back.returned, back.others) == (0, -9 * GIB)


async def test_cases_that_hang_keep_the_program_no_longer_than_one(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases, "_CLOSE_SECONDS", 1.0)
    monkeypatch.setattr(case, "PATIENCE", 0.0)
    answer = threading.Event()
    async with opened(tmp_path) as (app, pilot):
        for _ in range(4):
            app.cases.ask([lives.target(family.python(DEAF).pid)])
            await send(app, pilot, "Send TERM", "w")
            await until(pilot, lambda: app.cases.reports[-1].fates, "the report")
        monkeypatch.setattr(LocalHost, "families", lambda *_: answer.wait(lives.PATIENCE) and ())
        try:
            for case_ in app.cases._open:
                case_.send(signal.SIGTERM)
            await until(pilot, app.cases.dismiss, "one that offers KILL")
            begun = time.monotonic()
            app.cases.close()
            assert time.monotonic() - begun < 3
        finally:
            answer.set()


async def test_news_for_an_application_that_has_gone_are_dropped(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as (app, pilot):
        deliver = app.call_later

        def closed(callback: Callable[..., Any], *arguments: Any) -> bool:
            if callback == app.cases._changed:
                raise RuntimeError("Event loop is closed")
            return deliver(callback, *arguments)

        app.cases.ask([lives.target(family.sleeper().pid)])
        await until(pilot, lambda: app.send_label, "that the children are known")
        monkeypatch.setattr(app, "call_later", closed)
        await send(app, pilot, "Send TERM")
        await until(pilot, lambda: app.cases.reports[0].done, "its end")
