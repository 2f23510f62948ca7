"""From the question to the report, on screen: real processes, and exactly those that were named."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Button, Static

from gpumon.findings import conditions
from gpumon.host.process_host import Target
from gpumon.kill import session as case
from gpumon.kill.audit_log import AuditLog
from gpumon.kill.local_host import LocalHost
from gpumon.kill.outcome import Outcome, TerminationReport
from gpumon.kill.session import TerminationSession
from gpumon.model.processes import (
    GpuProcess,
    GpuUse,
    HolderScan,
    HoldReason,
    UnlistedHolder,
    Workload,
)
from gpumon.model.snapshot import Snapshot
from gpumon.recording.history import History
from gpumon.ui import kill_controller as cases
from gpumon.ui.dialogs.end import EndDialog
from gpumon.ui.kill_controller import KillController
from gpumon.ui.session import Session
from tests import build, lives
from tests.build import GIB
from tests.known import known
from tests.lives import Family
from tests.ui.waiting import until

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


class KillApp(App[int]):
    """What the ending of processes needs of the application."""

    def __init__(self, host: LocalHost, folder: Path) -> None:
        super().__init__()
        self.audit_log = AuditLog(folder)
        self.history = History(conditions())
        session = SimpleNamespace(
            machine=SimpleNamespace(processes=host),
            history=self.history,
            audit_log=self.audit_log,
        )
        self.said: list[str] = []
        self.pilot: Pilot[int]
        self.kill_controller = KillController(
            self, cast("Session", session), self.reports_changed, self.said.append
        )

    def reports_changed(self) -> None:
        """Called when a report has changed."""

    @property
    def reports(self) -> tuple[TerminationReport, ...]:
        """What came of each case, the oldest first."""
        return self.kill_controller.reports

    @property
    def outcomes(self) -> dict[int, Outcome]:
        """What came of each process of the newest case."""
        return {fate.target.id.pid: fate.outcome for fate in self.reports[-1].outcomes}

    @property
    def send_label(self) -> str:
        """What the button would do, once it can be pressed; else nothing."""
        buttons = self.screen.query("#send").results(Button)
        return next((str(button.label) for button in buttons if not button.disabled), "")

    def logged(self) -> set[tuple[int, str]]:
        """To whom which signal was sent."""
        assert self.audit_log.flush(lives.PATIENCE)
        entries = map(msgspec.json.decode, self.audit_log.path.read_bytes().splitlines())
        return {(e["pid"], e["signal"]) for e in entries if e["outcome"] == "sent"}

    async def until(self, holds: Callable[[], object], what: str) -> None:
        """Wait for a condition."""
        await until(self.pilot, holds, what)

    async def children_known(self) -> None:
        """Wait until the dialog names the children, and its button can be pressed."""
        await self.until(lambda: self.send_label, "that the children are known")

    async def ask(self, *processes: subprocess.Popen[str] | Target) -> None:
        """Ask what becomes of these, until the dialog can be answered."""
        self.kill_controller.ask(
            [one if isinstance(one, Target) else lives.target(one.pid) for one in processes]
        )
        await self.children_known()

    async def send(self, label: str, *keys: str) -> None:
        """Press keys in the dialog, then the button, which has this label then."""
        await self.children_known()
        await self.pilot.press(*keys)
        await self.until(lambda: self.send_label == label, f"{label}, not {self.send_label}")
        await self.pilot.press("right", "enter")
        await self.until(lambda: not isinstance(self.screen, EndDialog), "the end of the dialog")

    async def reported(self, count: int = 1) -> None:
        """Wait until the newest report names so many processes."""
        await self.until(lambda: len(self.reports[-1].outcomes) >= count, "the report")

    async def ended(self) -> dict[int, Outcome]:
        """Wait for the end of the newest case; returns what came of each process."""
        await self.until(lambda: self.reports[-1].done, "the end")
        return self.outcomes

    async def shows(self, name: str, words: str = "") -> str:
        """Wait until these words stand in a part of the dialog; returns all that does."""
        part = self.screen.query_one(f"#{name}", Static)
        await self.until(lambda: words in str(part.render()), words)
        return str(part.render())


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[KillApp]:
    app = KillApp(LocalHost(build.device_files), folder / "state")
    try:
        async with app.run_test(size=(100, 30)) as app.pilot:
            yield app
    finally:
        app.kill_controller.close()
        assert app.audit_log.flush(lives.PATIENCE)


@pytest.mark.slow
async def test_a_second_dialog_signals_only_the_processes_it_names(
    family: Family, tmp_path: Path
) -> None:
    first, second = family.python(DEAF), family.python(DEAF)
    async with opened(tmp_path) as app:
        await app.ask(first, second)
        await app.send("Send TERM to 2", "w")
        await app.reported(2)

        await app.ask(second)
        await app.send("Send KILL", "w", "9")
        assert await app.ended() == {second.pid: Outcome.ENDED}
        assert {pid for pid, name in app.logged() if name == "KILL"} == {second.pid}
        assert first.poll() is None


@pytest.mark.slow
@pytest.mark.parametrize("whole_tree", [True, False])
async def test_the_second_dialogs_tree_option_applies_and_not_the_firsts(
    family: Family, tmp_path: Path, whole_tree: bool
) -> None:
    run = family.python(DEAF)
    loaders = set(lives.children(run.pid))
    async with opened(tmp_path) as app:
        await app.ask(run)
        await app.send(*(["Send TERM", "w"] if whole_tree else ["Send TERM to 3"]))
        await app.reported()

        await app.ask(run)
        await app.send(*(["Send KILL to 3", "9"] if whole_tree else ["Send KILL", "9", "w"]))
        await app.ended()
        assert family.members() == (set() if whole_tree else loaders)


@pytest.mark.slow
async def test_kill_for_the_rest_continues_the_same_session(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(case, "PATIENCE", 0.0)
    run = family.python(DEAF)
    async with opened(tmp_path) as app:
        await app.ask(run)
        await app.send("Send TERM to 3")
        await app.until(lambda: app.reports[0].offers_kill, "the offer")
        assert app.kill_controller.ask_again()
        await app.send("Send KILL to 3")
        assert {*(await app.ended()).values()} == {Outcome.ENDED}
        assert len(app.reports) == 1
        assert not family.members()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGCONT, signal.SIGSTOP, signal.SIGTERM])
async def test_kill_is_proposed_only_after_another_signal_had_time(
    family: Family, tmp_path: Path, number: signal.Signals
) -> None:
    process, name = family.python(DEAF), number.name.removeprefix("SIG")
    async with opened(tmp_path) as app:
        await app.ask(process)
        await app.screen.run_action(f"choose('{name}')")
        await app.send(f"Send {name}", "w")
        await app.reported()
        assert not app.kill_controller.ask_again()
        await app.ask(process)
        assert app.send_label.startswith("Send TERM")


def answer_of(process: subprocess.Popen[str]) -> str:
    """Tell it to go on; returns what it says once it has."""
    print(file=process.stdin, flush=True)
    return known(process.stdout).readline()


BECOMING = """
import os, sys
print("ready", flush=True)
sys.stdin.readline()
os.execv(sys.executable, [sys.executable, "-c", "print('there', flush=True); input()", "successor"])
"""
"""It becomes another program when it is told to."""


@pytest.mark.slow
async def test_a_changed_command_is_shown_and_must_be_confirmed_again(
    family: Family, tmp_path: Path
) -> None:
    process = family.python(BECOMING)
    async with opened(tmp_path) as app:
        await app.ask(process)
        assert answer_of(process) == "there\n"
        await app.pilot.press("right", "enter")
        assert "successor" in await app.shows("named", "its command has changed")
        assert app.screen.focused is app.screen.query_one("#cancel")
        assert process.poll() is None
        assert not app.reports
        # Textual takes no second press of a button that still looks pressed.
        pressed = app.screen.query_one("#send")
        await app.until(lambda: not pressed.has_class("-active"), "that it can be pressed")
        await app.send("Send TERM")
        await app.ended()
        assert process.wait(lives.PATIENCE) == -signal.SIGTERM
        target = app.reports[0].outcomes[0].target
        assert target.command[-1] == "successor"


async def test_a_changed_process_title_needs_no_second_confirmation(
    family: Family, tmp_path: Path
) -> None:
    """As setproctitle does; a step counter in the title would be asked about for ever."""
    process = family.python(TITLED)
    async with opened(tmp_path) as app:
        await app.ask(process)
        before = lives.target(process.pid).command
        assert answer_of(process) == "titled\n"
        assert lives.target(process.pid).command != before
        await app.send("Send TERM")
        await app.ended()
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


async def test_children_of_gpumons_ancestors_are_not_named(family: Family, tmp_path: Path) -> None:
    """Whoever started these tests is above gpumon, and above a process beside it."""
    process = family.sleeper()
    async with opened(tmp_path) as app:
        await app.ask(lives.target(os.getpid()), process)
        await app.send("Send TERM")
        assert await app.ended() == {process.pid: Outcome.ENDED}


@pytest.mark.slow
async def test_children_are_named_with_what_they_hold_and_where_they_run(
    family: Family, tmp_path: Path
) -> None:
    run = family.python(DEAF)
    first, second = (lives.target(pid) for pid in lives.children(run.pid))
    listed = build.process(first.id.pid, start_time=first.id.start_time, memory_used=GIB)
    async with opened(tmp_path) as app:
        app.history.add(build.snapshot(processes=(listed,)))
        await app.ask(lives.target(run.pid, place=Workload(slurm_job="88123")))
        await app.send("Send KILL to 3", "9")
        assert [*(await app.ended()).values()] == [Outcome.ENDED] * 3
        found = {fate.target.id: fate.target for fate in app.reports[0].outcomes}
        assert found[first.id].uses == listed.uses
        assert found[second.id].place == Workload(slurm_job="88123")
        assert found[second.id].started_at is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (HoldReason.ORPHAN, "up to 31.0 GiB on GPU 0"),
        (HoldReason.HOLDS, "up to 31.0 GiB on GPU 0"),
        (HoldReason.OBSERVER, "no GPU"),
    ],
)
async def test_the_dialog_of_an_unlisted_holder_says_what_it_may_hold(
    reason: HoldReason, shown: str, family: Family, tmp_path: Path
) -> None:
    target = lives.target(family.sleeper().pid)
    listed = build.process(7, memory_used=9 * GIB)
    suspect = UnlistedHolder(target.id, ("GPU-0",), reason, "its parent ended")
    async with opened(tmp_path) as app:
        now = build.snapshot(build.NOON, build.gpu(memory_used=40 * GIB), processes=(listed,))
        scan = HolderScan(build.NOON, (suspect,))
        app.history.add(msgspec.structs.replace(now, holders=scan))
        # As its own page, or the tree, names it: without a GPU.
        await app.ask(target)
        assert shown in await app.shows("named")
        freed = "holds no GPU memory" if shown == "no GPU" else f"will free {shown}"
        assert await app.shows("sum") == freed


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 12 * GIB])
async def test_only_a_report_of_success_disappears_by_itself(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    monkeypatch.setattr(cases, "SHOWN_SECONDS", -1.0)
    seen = lives.target(family.sleeper().pid, uses=(GpuUse("GPU-0", 0, memory_used=40 * GIB),))

    def moment(ahead: float, memory_used: int) -> Snapshot:
        now = time.time() + ahead
        return build.snapshot(now, build.gpu(memory_used=memory_used, sampled_at=now))

    async with opened(tmp_path) as app:
        app.history.add(moment(-1, 40 * GIB))
        await app.ask(seen)
        await app.send("Send TERM")
        await app.until(lambda: Outcome.ENDED in app.outcomes.values(), "its end")
        app.kill_controller.on_snapshot(moment(1, left))
        await app.until(lambda: app.reports[0].memory[0].now == left, "the memory")
        if left:
            app.kill_controller.on_snapshot(moment(2, left))  # What is short must be seen twice.
        await app.ended()
        app.kill_controller.on_snapshot(moment(3, left))
        assert bool(app.reports) == bool(left)


@pytest.mark.slow
async def test_memory_is_compared_only_with_equally_new_process_lists(
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

    async with opened(tmp_path) as app:
        app.kill_controller.on_snapshot(moment(-1, -1, 18 * GIB, own, other))
        await app.ask(seen)
        await app.send("Send TERM")
        await app.until(lambda: Outcome.ENDED in app.outcomes.values(), "its end")
        app.kill_controller.on_snapshot(moment(60, 60, 18 * GIB, other))
        await app.until(lambda: app.reports[0].memory[0].now == 18 * GIB, "the list")
        app.kill_controller.on_snapshot(moment(60.5, 60, 9 * GIB, other))
        app.kill_controller.on_snapshot(moment(61, 61, 9 * GIB))
        await app.until(lambda: app.reports[0].memory[0].settled, "the next list")
        (back,) = app.reports[0].memory
        assert (back.returned, back.others) == (0, -9 * GIB)


@pytest.mark.slow
async def test_several_hung_sessions_delay_the_exit_no_longer_than_one(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases, "CLOSE_SECONDS", 3.0)
    monkeypatch.setattr(case, "PATIENCE", 0.0)
    sessions: list[TerminationSession] = []

    class Kept(TerminationSession):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            sessions.append(self)

    monkeypatch.setattr(cases, "TerminationSession", Kept)
    answer = threading.Event()
    async with opened(tmp_path) as app:
        for _ in range(4):
            await app.ask(family.python(DEAF))
            await app.send("Send TERM", "w")
            await app.reported()
        monkeypatch.setattr(LocalHost, "relatives", lambda *_: answer.wait(lives.PATIENCE) and ())
        try:
            for session in sessions:
                session.send(signal.SIGTERM)
            await app.until(app.kill_controller.dismiss, "one that offers KILL")
            begun = time.monotonic()
            app.kill_controller.close()
            # One after the other they would take twelve.
            assert time.monotonic() - begun < 11
        finally:
            answer.set()


async def test_reports_for_an_ended_application_are_dropped(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as app:
        deliver = app.call_later

        def closed(callback: Callable[..., Any], *arguments: Any) -> bool:
            if callback == app.reports_changed:
                raise RuntimeError("Event loop is closed")
            return deliver(callback, *arguments)

        await app.ask(family.sleeper())
        monkeypatch.setattr(app, "call_later", closed)
        await app.send("Send TERM")
        await app.ended()
