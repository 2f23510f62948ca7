"""``gpumon end``, as it is run: on the simulated driver, with real processes and terminals."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import fork_server, lives
from tests.command import GPUMON, run_here
from tests.driver import GIB, Driver, Owner, buried, h100, owners
from tests.known import known
from tests.lives import Family
from tests.screen import PATIENCE, Screen

END = [*GPUMON, "end"]


class Machine:
    """Two cards with real processes on the second, and what is run there."""

    def __init__(self, driver: Driver, state: Path) -> None:
        self._driver = driver
        self._log = state / "gpumon/signals.jsonl"
        self.env = {**driver.env(), "XDG_STATE_HOME": str(state)}

    def holds(self, *pids: int) -> None:
        """The n-th of these processes holds 10 (n + 1) GiB."""
        card = self._driver.cards[1]
        card.processes = [Owner(pid, memory=10 * (n + 1) * GIB) for n, pid in enumerate(pids)]
        card.memory_used = sum(owner.memory or 0 for owner in card.processes) + GIB // 4

    def end(
        self, *arguments: object, command: Sequence[str] = END
    ) -> subprocess.CompletedProcess[str]:
        return fork_server.run([*command, *map(str, arguments)], self.env, timeout=PATIENCE)

    @property
    def logged(self) -> list[tuple[int, str, str]]:
        """Whom, what and with what outcome."""
        if not self._log.exists():
            return []
        entries = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [(entry["pid"], entry["signal"], entry["outcome"]) for entry in entries]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with Driver([h100(), h100()], driver_version="570.124.06") as driver, buried(driver):
        yield Machine(driver, tmp_path / "state")


@contextmanager
def trainings(machine: Machine, count: int = 1, **how: Any) -> Iterator[list[int]]:
    """Processes on the second card; their PIDs."""
    with owners(count, ["python", "train.py", "--lr", "3e-4"], **how) as started:
        pids = [process.pid for process in started]
        machine.holds(*pids)
        yield pids


@pytest.fixture
def pid(machine: Machine) -> Iterator[int]:
    """A process on the second card."""
    with trainings(machine) as (number,):
        yield number


@pytest.fixture
def screen(machine: Machine, pid: int) -> Iterator[Screen]:
    """A terminal in which it is to be ended."""
    with Screen([*END, str(pid)], machine.env, 100, 20) as shown:
        yield shown


def lives_on(pid: int) -> bool:
    relative = lives.look(pid)
    return relative is not None and relative.state != "Z"


def start_of(pid: int) -> int:
    return known(known(lives.look(pid)).id.start_time)


def test_it_ends_the_process_and_says_what_came_back(machine: Machine) -> None:
    with trainings(machine, 2) as (pid, other):
        done = machine.end(pid, "--yes")
        assert done.stdout.splitlines()[0] == "1 of 1 ended, 10.0 GiB came back on GPU 1"
        assert (done.returncode, done.stderr) == (0, "")
        assert not lives_on(pid)
        assert lives_on(other)
        assert machine.logged[0] == (pid, "TERM", "sent")
        assert machine.logged[1][2].startswith("ended after")


def test_a_terminal_shows_whom_and_asks(screen: Screen, pid: int) -> None:
    screen.wait_for(rf"{pid}:{start_of(pid)} +\S+ +1 +10\.0  python train\.py --lr 3e-4")
    screen.wait_for(r"TERM would reach 1 process, which holds 10\.0 GiB on GPU 1\.")
    screen.wait_for(r"Send TERM to 1 process\? \[y/N\]")
    assert lives_on(pid)
    screen.press("y\r", r"1 of 1 ended, 10\.0 GiB came back on GPU 1")
    assert screen.wait_end() == 0
    assert not lives_on(pid)


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["\r", "n\r", "yes please\r", "\x04"])
def test_any_other_answer_sends_nothing(
    machine: Machine, screen: Screen, pid: int, answer: str
) -> None:
    screen.wait_for(r"\[y/N\]")
    screen.press(answer, "gpumon: TERM was not sent")
    assert screen.wait_end() == 1
    assert lives_on(pid)
    assert not machine.logged


@pytest.mark.parametrize(
    ("before", "then", "status"),
    [(b"y\ry\r", "\r", 1), (b"", "\x03", 130)],
    ids=["Enter", "Ctrl+C"],
)
def test_what_was_typed_before_the_question_is_no_answer_and_ctrl_c_sends_nothing(
    screen: Screen, pid: int, before: bytes, then: str, status: int
) -> None:
    screen.send(before)
    screen.wait_for(r"\[y/N\]")
    assert lives_on(pid)
    screen.type(then)
    assert screen.wait_end() == status
    assert lives_on(pid)


SWITCHES = """
import os, sys
print("ready", flush=True)
sys.stdin.readline()
os.execvp("sleep", ["sleep", "1000"])
"""


def test_a_process_that_started_another_program_meanwhile_gets_nothing(
    machine: Machine, family: Family
) -> None:
    process = family.python(SWITCHES)
    machine.holds(process.pid)
    with Screen([*END, str(process.pid)], machine.env, 100, 20) as screen:
        screen.wait_for(r"\[y/N\]")
        stdin = known(process.stdin)
        stdin.write("\n")
        stdin.flush()
        lives.until(lambda: known(lives.look(process.pid)).name == "sleep", "the other program")
        screen.type("y\r")
        screen.wait_for(f"{process.pid} has started another program meanwhile, so nothing was sent")
        assert screen.wait_end() == 1
    assert process.poll() is None


def test_without_a_terminal_nobody_can_be_asked(machine: Machine, pid: int) -> None:
    done = machine.end(pid)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpumon: there is no terminal to ask on: --yes sends")
    assert lives_on(pid)


def test_a_dry_run_names_whom_it_would_reach_and_sends_nothing(machine: Machine) -> None:
    with trainings(machine, 2, children=2) as (pid, other):
        done = machine.end(pid, other, "--children", "--dry-run")
        assert done.returncode == 0
        lines = done.stdout.splitlines()
        assert lines[-1] == "TERM would reach 6 processes, which hold 30.0 GiB on GPU 1."
        assert [line.split(":")[0] for line in lines[1:3]] == [str(pid), str(other)]
        assert {line.split(":")[0] for line in lines[3:7]} == {
            str(child) for one in (pid, other) for child in lives.children(one)
        }
        assert all("child: " in line for line in lines[3:7])
        assert all(map(lives_on, [pid, other, *lives.children(pid), *lives.children(other)]))
        assert not machine.logged


def test_a_dry_run_says_what_is_not_permitted(machine: Machine, pid: int) -> None:
    # What gpumon was started from is protected: here, this test.
    machine.holds(pid, os.getpid())
    done = machine.end(pid, os.getpid(), "--dry-run")
    assert done.returncode == 1
    assert f"gpumon was started from {os.getpid()}:" in done.stdout
    assert "TERM would reach 1 process of 2, which holds 10.0 GiB on GPU 1." in done.stdout


@pytest.mark.slow
@pytest.mark.root
@lives.needs("setpriv")
def test_another_users_process_is_not_permitted(machine: Machine, family: Family) -> None:
    process = family.python("import os; os.setuid(65534); print(1, flush=True); input()")
    machine.holds(process.pid)
    # Root without its right to signal everybody.
    command = ["setpriv", "--bounding-set", "-kill", *END]
    owner = lives.user_name(65534)
    done = machine.end(process.pid, "--dry-run", command=command)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[-2:] == [
        f"{process.pid} is {owner}'s, and you may not signal it.",
        "TERM would reach 0 processes of 1.",
    ]
    done = machine.end(process.pid, "--yes", command=command)
    assert done.returncode == 1
    assert f"{process.pid} is {owner}'s, not yours: ask {owner}, or sudo kill" in done.stdout
    assert process.poll() is None
    assert machine.logged == [(process.pid, "TERM", "not permitted")]
    done = machine.end(process.pid, "--yes", "--format", "json", command=command)
    (told,) = json.loads(done.stdout)["processes"]
    assert (told["outcome"], told["reason"]) == ("refused", "not_permitted")


def test_readonly_sends_nothing(machine: Machine, pid: int) -> None:
    done = machine.end(pid, "--yes", command=[*GPUMON, "--readonly", "end"])
    assert done.returncode == 1
    assert "gpumon runs with --readonly: it sends no signal" in done.stdout
    machine.env["GPUMON_READONLY"] = "true"
    assert machine.end(pid, "--yes").returncode == 1
    assert lives_on(pid)


def test_a_process_on_no_gpu_is_refused_and_then_nobody_gets_a_signal(
    machine: Machine, pid: int, family: Family
) -> None:
    bystander = family.sleeper()
    done = machine.end(pid, bystander.pid, "--yes")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (f"gpumon: {bystander.pid} is on no GPU: to end it anyway, use kill.\n")
    assert lives_on(pid)
    assert bystander.poll() is None


def test_a_launcher_is_ended_only_if_its_start_is_named(machine: Machine, family: Family) -> None:
    launcher = family.start("sh", "-c", "sleep 1000 & echo ready; wait")
    (worker,) = lives.children(launcher.pid)
    machine.holds(worker)
    done = machine.end(launcher.pid, "--yes")
    assert done.returncode == 1
    named = f"{launcher.pid}:{start_of(launcher.pid)}"
    assert done.stderr == (
        f"gpumon: {launcher.pid} (sh) is on no GPU, but is an ancestor of {worker}, which is on "
        f"one: if you mean it, write {named}.\n"
    )
    assert launcher.poll() is None
    done = machine.end(named, "--yes", "--children")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2 of 2 ended, 10.0 GiB came back on GPU 1")


def test_a_reused_number_gets_nothing(machine: Machine, pid: int) -> None:
    before = start_of(pid) - 1
    done = machine.end(f"{pid}:{before}", "--yes")
    assert done.returncode == 1
    assert done.stderr == (
        f"gpumon: {pid} is another process now; the one that started at {before} has ended.\n"
    )
    assert lives_on(pid)
    assert machine.end(f"{pid}:{start_of(pid)}", "--yes").returncode == 0


def test_what_ignores_term_is_told_and_kill_ends_it(machine: Machine) -> None:
    with trainings(machine, stubborn=True) as (pid,):
        done = machine.end(pid, "--yes", "--timeout", "0.5s")
        assert done.returncode == 1
        assert re.fullmatch(
            rf"TERM sent \S+ ago · 0 of 1 ended\n{pid} has not ended\n", done.stdout
        )
        assert lives_on(pid)
        done = machine.end(pid, "--yes", "--signal", "sigkill")
        assert done.returncode == 0
        assert done.stdout.startswith("1 of 1 ended, 10.0 GiB came back on GPU 1\n")


def test_a_program_reads_who_it_was_and_what_became_of_them(machine: Machine, pid: int) -> None:
    start = start_of(pid)
    planned = json.loads(machine.end(pid, "--dry-run", "--format", "json").stdout)
    done = json.loads(machine.end(pid, "--yes", "--format", "json").stdout)
    plan = [planned[key] for key in ("schema", "dry_run", "signal")]
    assert plan == ["gpumon.end/1", True, "TERM"]
    assert planned["processes"][0]["outcome"] == "would_send"
    (process,) = done["processes"]
    assert process["seconds"] >= 0
    assert {key: process[key] for key in ("pid", "start_time", "outcome", "reason", "child")} == {
        "pid": pid,
        "start_time": start,
        "outcome": "ended",
        "reason": None,
        "child": False,
    }
    assert process["command"] == ["python", "train.py", "--lr", "3e-4"]
    assert process["gpus"][0]["memory_used_bytes"] == 10 * GIB
    (card,) = done["memory"]
    assert (card["index"], card["returned_bytes"], card["missing_bytes"]) == (1, 10 * GIB, 0)
    assert done.keys() == planned.keys()
    assert process.keys() == planned["processes"][0].keys()


def test_hostile_names_are_only_text(machine: Machine) -> None:
    with owners(1, ["python", "\x1b]52;c;eA==\x07", "\u202e\x9b31m", "\nTERM would reach"]) as (
        process,
    ):
        machine.holds(process.pid)
        for form in ("table", "json"):
            done = machine.end(process.pid, "--dry-run", "--format", form)
            assert done.returncode == 0
            assert all(char == "\n" or char.isprintable() for char in done.stdout)
            assert "TERM would reach 1 process" in done.stdout or form == "json"


def test_the_status_is_true_though_nobody_reads_the_report(machine: Machine) -> None:
    with trainings(machine, stubborn=True) as (pid,):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [*END, str(pid), "--yes", "--timeout", "0.2s"],
            env=machine.env,
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
        os.close(writer)
        assert (done.returncode, done.stderr) == (1, b"")


def test_ctrl_c_while_it_waits_tells_what_is_known(machine: Machine) -> None:
    with trainings(machine, stubborn=True) as (pid,):
        with Screen([*END, str(pid), "--yes"], machine.env, 100, 20) as screen:
            screen.wait_for("TERM sent")
            screen.press("\x03", f"{pid} has not ended")
            assert screen.wait_end() == 130
        logged = [entry[1:] for entry in machine.logged]
        assert logged == [("TERM", "sent"), ("TERM", "still there")]


def test_the_demo_has_processes_to_end() -> None:
    listed = run_here("snapshot", "--demo", "--format", "json", "--user", "ann")
    pid = json.loads(listed.stdout)["processes"][0]["pid"]
    done = fork_server.run([*END, "--demo", str(pid), "--dry-run"])
    assert f"{pid}:" in done.stdout


def test_many_processes_end_together(machine: Machine) -> None:
    # Together they hold less than the GPU has.
    with trainings(machine, 3) as pids:
        done = machine.end(*pids, "--yes")
        assert done.stdout.startswith("3 of 3 ended, 60.0 GiB came back on GPU 1")
        assert done.returncode == 0
        assert [entry[1:] for entry in machine.logged].count(("TERM", "sent")) == 3
