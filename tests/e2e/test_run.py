"""``gpumon run`` with real commands: nobody meets anybody on a card, and a job is left as it is."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpumon.scheduling.locks import Locks
from tests.command import run_program
from tests.driver import GIB, Driver, Owner, h100, owners
from tests.known import known
from tests.lives import NEEDS_ALL_PIDS, needs
from tests.recording.csv.command import rows, wait_until
from tests.screen import PATIENCE, Screen

RUN = [sys.executable, "-m", "gpumon", "run"]
PATIENT = 120.0
"""Seconds for ten programs that start at once."""


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUMON_LOCK_DIR", str(tmp_path / "locks"))
    return tmp_path / "locks"


@pytest.fixture
def driver(locks: Path) -> Iterator[Driver]:
    """Two idle cards."""
    assert not locks.exists()
    with Driver([h100(), h100()]) as made:
        yield made


def start(driver: Driver, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*RUN, *arguments],
        env=driver.env(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(driver: Driver, *arguments: str) -> subprocess.CompletedProcess[str]:
    with ended(start(driver, *arguments)) as process:
        out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


@contextlib.contextmanager
def ended(*processes: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield processes[0]
    finally:
        for process in processes:
            # Its command ends with it.
            process.terminate()
        for process in processes:
            with contextlib.suppress(ValueError):
                process.communicate(timeout=PATIENCE)


def holders(driver: Driver, locks: Path) -> set[str]:
    """Which cards are reserved."""
    seen = Locks(str(locks), os.environ)
    try:
        return set(seen.holders([card.uuid for card in driver.cards]))
    finally:
        seen.close()


def wait_for_places(locks: Path, count: int) -> None:
    wait_until(lambda: len(list(locks.glob("waiting-*"))) == count, f"{count} in line")


def script(*lines: str) -> list[str]:
    return ["--", "sh", "-c", "; ".join(lines)]


def wait_for_file(path: Path) -> str:
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"), f"{path.name}")
    return path.read_text().strip()


# Nobody meets anybody


@pytest.mark.slow
def test_ten_at_once_share_no_card_and_all_have_their_turn(locks: Path, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    job = "; sleep 0.3; ".join(
        f'echo "{sign} $CUDA_VISIBLE_DEVICES" >> "{diary}"' for sign in ("+", "-")
    )
    with Driver([h100() for _ in range(4)]) as driver:
        started = [start(driver, "--wait", *script(job)) for _ in range(10)]
        with ended(*started):
            for process in started:
                _, words = process.communicate(timeout=PATIENT)
                assert process.returncode == 0, words
        uuids = {card.uuid for card in driver.cards}
    events = [line.split() for line in diary.read_text().splitlines()]
    assert len(events) == 20
    at_work: set[str] = set()
    for sign, uuid in events:
        assert uuid in uuids
        # In the order in which they happened: nobody begins where somebody still is.
        assert (uuid in at_work) == (sign == "-")
        at_work ^= {uuid}
    assert not [path for path in locks.iterdir() if path.name.startswith("waiting")]


@pytest.mark.slow
def test_those_who_wait_are_served_in_the_order_of_coming(
    driver: Driver, locks: Path, tmp_path: Path
) -> None:
    diary, go = tmp_path / "diary", tmp_path / "go"
    first = start(driver, "-n", "2", *script(f"while [ ! -e '{go}' ]; do sleep 0.05; done"))
    waiting = []
    with ended(first):
        wait_until(lambda: len(holders(driver, locks)) == 2, "both GPUs reserved")
        try:
            for n in range(3):
                job = script(f"echo {n} >> '{diary}'")
                waiting.append(start(driver, "--wait", "--gpus", "0", *job))
                wait_for_places(locks, n + 1)
            go.touch()
            for process in waiting:
                assert process.wait(PATIENCE) == 0
        finally:
            with ended(*waiting):
                pass
    assert diary.read_text().split() == ["0", "1", "2"]


@pytest.mark.slow
def test_a_card_stays_reserved_while_its_job_has_not_begun_to_use_it(
    driver: Driver, locks: Path
) -> None:
    with ended(start(driver, "--", "sleep", "60")) as process:
        wait_until(lambda: holders(driver, locks) == {driver.cards[0].uuid}, "a GPU reserved")
        assert run(driver, "--", "printenv", "CUDA_VISIBLE_DEVICES").stdout.strip() == (
            driver.cards[1].uuid
        )
        refused = run(driver, "-n", "2", "--", "true")
        assert refused.returncode == 1
        assert f", gpumon run {process.pid}: sleep\n" in refused.stderr
        too_late = run(driver, "-n", "2", "--wait=0.3", "--", "true")
        assert too_late.returncode == 124
        assert "gave up waiting after 0s: only 1 GPU fits; 2 GPUs requested." in too_late.stderr


@pytest.mark.slow
def test_kill_9_frees_the_cards_and_what_the_job_still_holds_is_seen(
    driver: Driver, locks: Path, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    with ended(start(driver, *script(f"echo $$ > '{pid_file}'", "exec sleep 60"))) as process:
        job = int(wait_for_file(pid_file))
        try:
            driver.cards[0].processes = [Owner(job, memory=9 * GIB)]
            driver.cards[0].memory_used = 9 * GIB
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE)
            assert holders(driver, locks) == set()
            found = run(driver, "--", "printenv", "CUDA_VISIBLE_DEVICES").stdout.strip()
            assert found == driver.cards[1].uuid
        finally:
            os.kill(job, signal.SIGKILL)


@pytest.mark.slow
def test_who_gives_up_waiting_is_not_waited_for(driver: Driver, locks: Path) -> None:
    with ended(start(driver, "-n", "2", "--", "sleep", "60")):
        wait_until(lambda: len(holders(driver, locks)) == 2, "both GPUs reserved")
        # The last one leaves its place behind, and nobody waits for it all the same.
        for name in ("SIGTERM", "SIGHUP", "SIGINT", "SIGKILL"):
            with ended(start(driver, "--wait", "--", "true")) as process:
                wait_for_places(locks, 1)
                process.send_signal(signal.Signals[name])
                _, words = process.communicate(timeout=PATIENCE)
                assert "Traceback" not in words
                expected = -signal.SIGKILL if name == "SIGKILL" else 128 + signal.Signals[name]
                assert process.returncode == expected
            wait_for_places(locks, int(name == "SIGKILL"))
    assert run(driver, "--", "true").returncode == 0


# A job is left as it is


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        (["true"], 0, "exit status 0"),
        (["sh", "-c", "exit 7"], 7, "exit status 7"),
        (["sh", "-c", "kill -KILL $$"], 137, "killed by SIGKILL"),
        (["sh", "-c", "kill -TERM $$"], 143, "killed by SIGTERM"),
        (["sh", "-c", "kill -INT $$"], 130, "killed by SIGINT"),
        (["no-such-program"], 127, "there is no command no-such-program"),
        (["/"], 126, "/ is a directory"),
    ],
)
def test_the_exit_status_is_the_command_s(
    driver: Driver, command: Sequence[str], status: int, words: str
) -> None:
    done = run(driver, "--", *command)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr


def test_input_output_and_environment_are_the_command_s_own(driver: Driver) -> None:
    command = [*RUN, "--tf-growth", "--jax-no-prealloc", "--", "sh", "-c", "cat; env; echo >&2 x"]
    done = subprocess.run(
        command,
        env={**driver.env(), "MINE": "kept"},
        input=b"\x00typed\xff",
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.startswith(b"\x00typed\xff")
    assert b"x\n" in done.stderr
    lines = done.stdout.decode(errors="replace").splitlines()
    assert "MINE=kept" in lines
    assert f"CUDA_VISIBLE_DEVICES={driver.cards[0].uuid}" in "\n".join(lines)
    assert "TF_FORCE_GPU_ALLOW_GROWTH=true" in lines
    assert "XLA_PYTHON_CLIENT_PREALLOCATE=false" in lines
    assert not [line for line in lines if line.startswith("CUDA_DEVICE_ORDER")]


def test_no_lock_and_nothing_of_ours_is_left_open_or_ignored_in_the_command(
    driver: Driver, locks: Path
) -> None:
    told = run(driver, *script("ls -l /proc/self/fd", "grep Sig /proc/self/status")).stdout
    assert str(locks) not in told
    masks = dict(re.findall(r"(Sig\w+):\s*([0-9a-f]+)", told))
    assert int(masks["SigBlk"], 16) == 0
    ignored = int(masks["SigIgn"], 16)
    for name in ("SIGPIPE", "SIGTTOU", "SIGTERM", "SIGINT", "SIGHUP"):
        assert not ignored >> (signal.Signals[name] - 1) & 1, name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGINT"])
def test_a_signal_reaches_the_command(driver: Driver, tmp_path: Path, name: str) -> None:
    ready, got = tmp_path / "ready", tmp_path / "got"
    trap = f"trap 'echo {name} > \"{got}\"; exit 5' {name.removeprefix('SIG')}"
    wait = f"echo $$ > '{ready}'; while :; do sleep 0.05; done"
    with ended(start(driver, *script(trap, wait))) as process:
        wait_for_file(ready)
        process.send_signal(signal.Signals[name])
        assert process.wait(PATIENCE) == 5
    assert wait_for_file(got) == name


def test_what_is_ignored_before_is_ignored_in_the_command(driver: Driver) -> None:
    job = shlex.join([*RUN, *script("kill -HUP $$", "echo survived")])
    done = run_program(["sh", "-c", f"trap '' HUP; exec {job}"], driver.env())
    assert done.stdout == "survived\n"


def test_a_script_that_names_no_program_is_run_by_the_shell(driver: Driver, tmp_path: Path) -> None:
    path = tmp_path / "job"
    path.write_text('echo "$1 on $CUDA_VISIBLE_DEVICES"\n')
    path.chmod(0o755)
    assert run(driver, "--", str(path), "it").stdout == f"it on {driver.cards[0].uuid}\n"


# At a terminal


BASH = ["bash", "--norc", "--noprofile", "-i"]


@contextlib.contextmanager
def shell(driver: Driver) -> Iterator[Screen]:
    """A shell with jobs, in a terminal."""
    env = {**driver.env(), "PS1": "$ ", "HISTFILE": "/dev/null"}
    with Screen(BASH, env, columns=150, lines=40) as screen:
        screen.wait_for(r"\$")
        screen.type(f"alias run={shlex.quote(shlex.join(RUN))}\n")
        yield screen
        screen.type("exit\n")
        screen.wait_end()


needs_bash = needs("bash")  # a shell with jobs


@needs_bash
def test_control_z_stops_both_and_fg_continues_both(driver: Driver) -> None:
    with shell(driver) as screen:
        screen.type("run -- sh -c 'stty -echo; read x; echo got-$x; read x; echo and-$x'\n")
        wait_until(lambda: not echoes(screen), "the job at the terminal")
        screen.press("one\n", "got-one")
        screen.press("\x1a", r"Stopped")
        wait_until(lambda: echoes(screen), "the shell's own mode")
        screen.type("fg\n")
        wait_until(lambda: not echoes(screen), "the job's mode again")
        screen.press("two\n", "and-two")
        screen.wait_for("exit status 0")
        wait_until(lambda: echoes(screen), "the shell's own mode")
        screen.press("echo status $?\n", "status 0")


def echoes(screen: Screen) -> bool:
    local = screen.attributes()[3]
    assert isinstance(local, int)
    # A shell that edits its line echoes by itself, and then not even whole lines are read.
    return bool(local & termios.ECHO) or not local & termios.ICANON


@needs_bash
def test_control_c_ends_the_job_and_the_loop_around_it(driver: Driver, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    with shell(driver) as screen:
        job = f"echo up > '{ready}'; exec sleep 60"
        screen.type(f"for i in 1 2; do run -- sh -c '{job}'; done\n")
        wait_for_file(ready)
        screen.press("\x03", "killed by SIGINT")
        screen.press("echo status $?\n", "status 130")
        assert screen.text().count("killed by SIGINT") == 1


@needs_bash
def test_a_job_in_the_background_asks_for_the_terminal_as_any_other(driver: Driver) -> None:
    with shell(driver) as screen:
        screen.type("run -- sh -c 'read x; echo got-$x' &\n")
        wait_until(lambda: pressed(screen, "jobs\n", "Stopped"), "it is stopped")
        screen.press("fg\n", r"\$ fg\n.* -- sh ")
        screen.press("it\n", "got-it")
        screen.wait_for("exit status 0")


def pressed(screen: Screen, keys: str, pattern: str) -> bool:
    screen.type(keys)
    time.sleep(0.2)
    return re.search(pattern, screen.text()) is not None


@needs_bash
def test_in_a_pipeline_the_terminal_is_everybody_s(driver: Driver, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    with shell(driver) as screen:
        job = f"echo up > '{ready}'; exec sleep 60"
        screen.type(f"run -- sh -c '{job}' | cat\n")
        wait_for_file(ready)
        screen.press("\x1a", "Stopped")
        wait_until(lambda: screen.foreground() == screen.process.pid, "the shell's terminal")
        screen.type("fg\n")
        # The shell names the job before it gives it the terminal; until then Ctrl+C is its own.
        wait_until(lambda: screen.foreground() != screen.process.pid, "the job at the terminal")
        screen.press("\x03", "killed by SIGINT")


def test_a_mode_that_the_job_left_behind_is_undone(driver: Driver) -> None:
    command = [*RUN, "--", "sh", "-c", "stty raw -echo; exit 3"]
    with Screen(command, driver.env()) as screen:
        assert screen.wait_end() == 3
        assert screen.attributes() == screen.attributes_before


def test_where_nobody_could_continue_it_control_z_does_not_hold_it(driver: Driver) -> None:
    command = [*RUN, "--", "sh", "-c", "echo up; read x; echo got-$x"]
    with Screen(command, driver.env()) as screen:
        screen.wait_for("up")
        screen.type("\x1a")
        screen.press("it\n", "got-it")
        assert screen.wait_end() == 0


# What came of it


class Job:
    """A ``gpumon run`` of a job that ends once it is told to."""

    def __init__(self, process: subprocess.Popen[str], pid: int, folder: Path) -> None:
        self.process, self.pid = process, pid
        self.log, self.listed = folder / "run.csv", folder / "run.processes.csv"
        self._go = folder / "go"

    def wait_for_samples(self, lines: int) -> None:
        """Wait until the log has more lines."""
        wait_until(
            lambda: self.log.exists() and len(self.log.read_text().splitlines()) > lines, "samples"
        )

    def wait_until_listed(self) -> None:
        """Wait until the log has the process of the job."""
        pid = f",{self.pid},"
        wait_until(lambda: self.listed.exists() and pid in self.listed.read_text(), "it is logged")

    def end(self, patience: float = PATIENCE) -> str:
        """Let the job end; returns what is said then."""
        self._go.touch()
        out, words = self.process.communicate(timeout=patience)
        assert out == ""
        return words


@contextlib.contextmanager
def job_on(
    driver: Driver, tmp_path: Path, *options: str, status: int = 0, logs: bool = True
) -> Iterator[Job]:
    """A job that ends with this status."""
    options += ("--log", str(tmp_path / "run.csv")) if logs else ()
    pid_file, go = tmp_path / "pid", tmp_path / "go"
    lines = script(
        f"echo $$ > '{pid_file}'", f"while [ ! -e '{go}' ]; do sleep 0.05; done", f"exit {status}"
    )
    with ended(start(driver, *options, *lines)) as process:
        yield Job(process, int(wait_for_file(pid_file)), tmp_path)


@pytest.mark.slow
def test_what_it_had_is_told_and_logged_and_nobody_else_s(driver: Driver, tmp_path: Path) -> None:
    card = driver.cards[0]
    with (
        owners(1, ["python", "other.py"]) as (other,),
        job_on(driver, tmp_path, "--free", "1G") as job,
    ):
        card.processes = [Owner(job.pid, memory=8 * GIB, sm=50), Owner(other.pid, memory=GIB, sm=9)]
        card.memory_used = 9 * GIB
        job.wait_until_listed()
        job.wait_for_samples(3)
        card.processes = [Owner(other.pid, memory=GIB)]
        card.memory_used = GIB
        words = job.end()
        assert job.process.returncode == 0
    assert re.search(r"sh ended after \d+\.\d s on GPU 0: exit status 0", words)
    assert re.search(r"GPU 0: memory peak 8\.0 GiB, mean \d\.\d GiB of 79\.6 GiB", words)
    assert re.search(r"SM mean \d+ % · not throttled · \d+\.\d\d Wh", words)
    assert "all its memory came back" in words
    assert "when it ended" not in words
    assert {row["pid"] for row in rows(job.listed)} == {str(job.pid)}
    assert {row["uuid"] for row in rows(job.log)} == {card.uuid}


def test_a_job_that_died_on_a_full_card_is_told_so(driver: Driver, tmp_path: Path) -> None:
    card, theirs = driver.cards[0], 41 * GIB
    total = known(card.memory_total)
    with (
        owners(1, ["python", "other.py"]) as (other,),
        job_on(driver, tmp_path, "--free", "1G", status=1) as job,
    ):
        rest = Owner(other.pid, memory=theirs)
        card.processes = [Owner(job.pid, memory=total - theirs - GIB, sm=50), rest]
        card.memory_used = total - GIB
        job.wait_until_listed()
        card.processes = [rest]
        card.memory_used = theirs
        words = job.end()
    assert job.process.returncode == 1
    assert re.search(r"GPU 0 had 0\.\d of 79\.6 GiB free when it ended; ", words), words
    assert re.search(rf"41\.0 GiB by \S+'s python \({other.pid}\)", words)


@pytest.mark.slow
def test_memory_that_does_not_come_back_is_told_and_not_waited_for_for_ever(
    driver: Driver, tmp_path: Path
) -> None:
    with job_on(driver, tmp_path, logs=False) as job:
        # The driver may go on listing who has ended.
        driver.cards[0].processes = [Owner(job.pid, memory=5 * GIB)]
        driver.cards[0].memory_used = 9 * GIB
        words = job.end(2 * PATIENCE)
    assert "9.0 GiB on GPU 0 have not come back" in words


def test_a_card_stays_reserved_until_its_memory_is_back(
    driver: Driver, locks: Path, tmp_path: Path
) -> None:
    card = driver.cards[0]
    with job_on(driver, tmp_path, logs=False) as job:
        card.memory_used = 9 * GIB
        (tmp_path / "go").touch()
        wait_until(lambda: not Path(f"/proc/{job.pid}").exists(), "the job has ended")
        assert holders(driver, locks) == {card.uuid}
        card.memory_used = 0
        words = job.end()
    assert "it left no memory in use" in words
    assert holders(driver, locks) == set()


def test_a_job_that_never_used_its_card_is_told_so(driver: Driver, tmp_path: Path) -> None:
    with job_on(driver, tmp_path) as job:
        job.wait_for_samples(4)
        words = job.end()
    assert job.process.returncode == 0
    assert words.startswith("gpumon: running on GPU 0\n")
    assert "gpumon: GPU 0: not used by the job" in words
    assert "gpumon: warning: the job never used GPU 0," in words
    assert "it may have run on the CPU" in words
    assert "came back" not in words
    assert "memory peak" not in words


def test_a_job_that_ended_before_a_look_is_not_said_to_have_used_its_card(driver: Driver) -> None:
    words = run(driver, "--", "true").stderr
    assert "warning: the job was not seen on GPU 0: whether it used that GPU is unknown" in words
    assert "came back" not in words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("logged", "where"),
    [(False, "(on GPU 0 )?"), (True, "on GPU 0 ")],
    ids=["at the end", "before"],
)
def test_the_values_from_before_a_card_hung_tell_nothing_of_a_job(
    driver: Driver, tmp_path: Path, logged: bool, where: str
) -> None:
    with job_on(driver, tmp_path) as job:
        job.wait_for_samples(2)
        driver.cards[0].hang()
        wait_until(lambda: not logged or "no answer" in job.log.read_text(), "the GPU hangs")
        words = job.end()
    assert job.process.returncode == 0
    assert "whether it used that GPU is unknown" in words
    assert re.search(f"whether its memory {where}came back is unknown", words)


def test_what_cannot_be_logged_is_not_run(driver: Driver, tmp_path: Path) -> None:
    done = run(driver, "--log", str(tmp_path / "no" / "run.csv"), "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot be written" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["-n", "3"], "this machine has 2 GPUs; 3 GPUs requested."),
        (["-n", "2", "--gpus", "1"], "only 1 GPU can fit; 2 GPUs requested."),
        (["--total", "1T"], "no GPU fits; 1 GPU requested."),
        (["--model", "a100"], "no GPU fits; 1 GPU requested."),
    ],
)
def test_nobody_waits_for_what_cannot_come(driver: Driver, asked: list[str], why: str) -> None:
    # The number is known of a lost card too; what it is may not be.
    driver.cards[0].lost = "-n" in asked
    done = run(driver, *asked, "--wait", "--", "true")
    assert done.returncode == 1
    assert f"gpumon: {why} Waiting does not change that.\n" in done.stderr


@pytest.mark.parametrize(
    ("allotted", "told"),
    [(None, "GPU 0: it is lost.*GPU 1: it is lost"), ("0", "which GPUs it leaves is uncertain")],
)
def test_who_waits_waits_for_lost_cards_too(
    driver: Driver, allotted: str | None, told: str
) -> None:
    for card in driver.cards:
        card.lost = True
    env = driver.env()
    if allotted is not None:
        env["CUDA_VISIBLE_DEVICES"] = allotted
    with Screen([*RUN, "--wait", "--", "true"], env, columns=250) as screen:
        screen.wait_for(told)
        for card in driver.cards:
            card.lost = False
        assert screen.wait_end() == 0


def test_a_card_that_stayed_free_for_as_long_as_asked_is_taken(driver: Driver) -> None:
    with Screen([*RUN, "--stable", "1s", "--", "true"], driver.env()) as screen:
        assert screen.wait_end() == 0, screen.text()
        assert b"it fits, watched for 0s of 1s" in screen.output


@NEEDS_ALL_PIDS
def test_why_it_waits_is_said_once_where_no_line_can_be_rewritten(driver: Driver) -> None:
    """Of a driver that does not name its GPUs, CUDA_VISIBLE_DEVICES cannot be resolved yet."""
    for card in driver.cards:
        card.fail("nvmlDeviceGetName", 999)
    env = {**driver.env(), "CUDA_VISIBLE_DEVICES": "0"}
    done = run_program([*RUN, "--wait=3s", "--", "true"], env)
    assert done.returncode == 124
    waiting, gave_up = done.stderr.splitlines()
    assert waiting.startswith("gpumon: waiting for 1 GPU: CUDA_VISIBLE_DEVICES is set")
    assert gave_up.startswith("gpumon: gave up waiting after 3s: CUDA_VISIBLE_DEVICES is set")
