"""What the process reader promises, mostly on real processes."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from gpumon.host.processes import COMMAND_BYTES, ProcessReader
from gpumon.model.process_states import ENDED
from gpumon.model.processes import GpuProcess, ProcessId
from gpumon.system.system import System
from tests import lives
from tests.host.fakes import PAGE_BYTES, FakeProc
from tests.known import known

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Child:
    """A Python process that does what it is told, line by line, and answers each line."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVANT, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.answer()
        self.reader = ProcessReader()

    @property
    def pid(self) -> int:
        return self.process.pid

    def read(self, now: float = 0.0) -> GpuProcess:
        return facts(self.reader, self.pid, now)

    def answer(self) -> str:
        return known(self.process.stdout).readline().strip()

    def do(self, statement: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(statement + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


SERVANT = """
import os, sys, threading, time
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child("an argument", "", "zwölf")
    yield child
    child.end()


def facts(reader: ProcessReader, pid: int, now: float = 0.0) -> GpuProcess:
    return known(reader.read(pid, now))


class FakeProcess:
    """Process 42 of a ``/proc`` of files, whose every field a test can choose."""

    pid = 42

    def __init__(self, root: Path) -> None:
        self._proc = FakeProc(root)
        self._facts: dict[str, Any] = {"command": b"python\0train.py\0", "start_time": 1000}
        self.reader = ProcessReader(self._proc.system)

    def read(self, now: float = 0.0, **changes: object) -> GpuProcess:
        """What is read of it after these changes, which last."""
        self._facts |= changes
        self._proc.add(self.pid, **self._facts)
        return facts(self.reader, self.pid, now)


@pytest.fixture
def fake(tmp_path: Path) -> FakeProcess:
    return FakeProcess(tmp_path)


def test_a_process_is_told_as_psutil_tells_it(child: Child) -> None:
    told = child.read()
    peer = psutil.Process(child.pid)
    assert told.id.pid == child.pid
    assert (told.name, told.user, told.uid) == (peer.name(), peer.username(), peer.uids().effective)
    assert list(told.command) == peer.cmdline()
    assert told.command[-3:] == ("an argument", "", "zwölf")
    assert told.rss == pytest.approx(peer.memory_info().rss, rel=0.05)
    # psutil's own start of the machine is cut to whole seconds.
    assert told.started_at == pytest.approx(peer.create_time(), abs=1.1)


def test_the_start_time_is_now_for_a_process_started_now() -> None:
    before = time.time()
    child = Child()
    told = child.read()
    child.end()
    tick = 1 / TICKS_PER_SECOND
    assert before - 2 * tick <= known(told.started_at) <= time.time() + 2 * tick


def test_cpu_percent_is_unknown_at_first_and_then_what_was_used_since(child: Child) -> None:
    assert child.read(100.0).cpu_percent is None
    before = sum(psutil.Process(child.pid).cpu_times()[:2])
    child.do("end = time.process_time() + 0.2")
    child.do("while time.process_time() < end: pass")
    used = sum(psutil.Process(child.pid).cpu_times()[:2]) - before
    assert used >= 0.15
    percent = child.read(102.0).cpu_percent
    assert percent == pytest.approx(used / 2.0 * 100, abs=2.0)


def test_cpu_percent_of_several_cores_exceeds_100(fake: FakeProcess) -> None:
    fake.read(10.0)
    assert fake.read(12.0, ticks=4 * TICKS_PER_SECOND).cpu_percent == pytest.approx(200.0)


def test_two_readings_at_one_moment_lose_no_cpu_time(fake: FakeProcess) -> None:
    fake.read(10.0)
    assert fake.read(10.0, ticks=TICKS_PER_SECOND).cpu_percent is None
    assert fake.read(11.0).cpu_percent == pytest.approx(100.0)
    assert fake.read(11.0).cpu_percent == pytest.approx(100.0)


def test_a_reused_pid_is_another_process(fake: FakeProcess) -> None:
    fake.read(10.0, ticks=500)
    told = fake.read(11.0, start_time=2000, ticks=3, command=b"another\0")
    assert (told.id, told.command) == (ProcessId(fake.pid, 2000), ("another",))
    assert told.cpu_percent is None


@pytest.mark.parametrize(
    "name", ["a) S (b", "( )", ") R 1 2 3", "two words", "line\nfeed", "back\\slash", "\\n", ")))"]
)
def test_a_name_chosen_to_confuse_is_told_as_it_is(child: Child, name: str) -> None:
    before = child.read()
    child.do(f"open('/proc/self/comm', 'w').write({name!r})")
    told = child.read()
    assert (told.name, told.id, told.command) == (name, before.id, before.command)
    assert told.rss == pytest.approx(before.rss, rel=0.1)


def test_the_command_is_read_again_after_an_exec(child: Child) -> None:
    before = child.read()
    script = "echo ready; read line"
    child.do(f"os.execvp('sh', ['sh', '-c', {script!r}])")
    told = child.read()
    assert (told.id, told.name, told.command) == (before.id, "sh", ("sh", "-c", script))


def test_an_exec_of_the_same_program_is_noticed_too(child: Child) -> None:
    before = child.read()
    child.do(f"os.execv({sys.executable!r}, [{sys.executable!r}, '-c', {SERVANT!r}, 'second'])")
    told = child.read()
    assert (told.id, told.name) == (before.id, before.name)
    assert told.command[-1] == "second"


def test_the_command_is_not_read_again_without_an_exec(fake: FakeProcess) -> None:
    fake.read()
    assert fake.read(1.0, command=b"not looked at\0").command == ("python", "train.py")
    assert fake.read(2.0, stack=7).command == ("not looked at",)


def test_a_command_line_caught_in_the_middle_of_an_exec_is_read_again(fake: FakeProcess) -> None:
    assert fake.read(command=b"").command == ()
    assert fake.read(1.0, command=b"train\0").command == ("train",)


def test_a_kernel_thread_has_no_command_and_is_not_asked_again(fake: FakeProcess) -> None:
    assert fake.read(rss_pages=0, command=b"").command == ()
    assert fake.read(1.0, command=b"never read\0").command == ()


def test_a_command_of_megabytes_is_cut(fake: FakeProcess) -> None:
    command = fake.read(command=b"python\0" + b"x" * 2**20).command
    assert len("\0".join(command)) == COMMAND_BYTES
    assert command[0] == "python"


def test_bytes_that_are_no_utf8_are_replaced(fake: FakeProcess) -> None:
    told = fake.read(name="\udcff\udcfe", command=b"a\xffb\0\x1b[31m\0")
    assert told.name == "\N{REPLACEMENT CHARACTER}" * 2
    assert told.command == ("a\N{REPLACEMENT CHARACTER}b", "\x1b[31m")


def test_a_self_written_title_has_no_empty_tail(fake: FakeProcess) -> None:
    assert fake.read(command=b"ray::IDLE" + b"\0" * 200).command == ("ray::IDLE",)


def test_a_zombie_has_its_command_where_that_was_read_before(child: Child) -> None:
    alive = child.read()
    child.process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    told = child.read()
    assert (told.id, told.user, told.command) == (alive.id, alive.user, alive.command)
    assert (told.state, told.rss) == ("Z", 0)
    first = facts(ProcessReader(), child.pid)
    assert (first.name, first.state, first.command) == (alive.name, "Z", ())


def test_memory_is_unknown_where_only_the_main_thread_died(child: Child) -> None:
    assert child.read().rss
    child.do("threading.Thread(target=time.sleep, args=(60,)).start()")
    assert child.process.stdin is not None
    # Ends this thread only: the system call exit, not exit_group.
    child.process.stdin.write(f"import ctypes; ctypes.CDLL(None).syscall({_exit_number()}, 0)\n")
    child.process.stdin.flush()
    lives.until(lambda: child.read().state == "Z", "the end of its main thread")
    assert child.read().rss is None


def _exit_number() -> int:
    return 60 if os.uname().machine == "x86_64" else 93


def test_a_process_that_was_seen_to_end_is_told_as_ended_until_it_is_forgotten(
    child: Child,
) -> None:
    before = child.read()
    child.end()
    ended = child.read(1.0)
    assert ended == msgspec.structs.replace(before, state=ENDED, cpu_percent=None, rss=None)
    assert child.read(2.0) is ended
    child.reader.keep_only(())
    assert child.reader.read(child.pid, 3.0) is None


def test_a_process_that_becomes_hidden_has_not_ended(
    child: Child, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (4, 4))  # none is kept open
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / str(child.pid)).symlink_to(f"/proc/{child.pid}")
    reader = ProcessReader(System(str(proc)))
    facts(reader, child.pid)
    (proc / str(child.pid)).unlink()
    assert reader.read(child.pid, 1.0) is None


@pytest.mark.usefixtures("fresh_user_names")
def test_an_owner_without_a_name_is_told_by_number(
    fake: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def nobody(uid: int) -> None:
        asked.append(uid)
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    told = fake.read()
    assert (told.uid, told.user) == (os.getuid(), str(os.getuid()))
    fake.read(start_time=1001)
    assert asked == [os.getuid()], "the name service is asked once for each user"


def test_setting_the_clock_moves_start_times_and_leaves_ages(
    fake: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    before = known(fake.read(1.0).started_at)
    monkeypatch.setattr(time, "time", lambda: real() + 0.01)
    assert fake.read(2.0).started_at == before, "a clock kept in step moves nothing"
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    assert fake.read(3.0).started_at == pytest.approx(before + 3600, abs=0.01)


def test_forgetting_a_process_starts_its_measurements_anew(fake: FakeProcess) -> None:
    fake.read(1.0)
    fake.reader.keep_only({fake.pid})
    assert fake.read(2.0).cpu_percent == 0.0
    fake.reader.keep_only(set())
    assert fake.read(3.0).cpu_percent is None


def test_memory_is_in_bytes(fake: FakeProcess) -> None:
    assert fake.read(rss_pages=3).rss == 3 * PAGE_BYTES


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_one_that_does_nothing_is_told_by_the_same_facts(fake: FakeProcess) -> None:
    first, second, third = (fake.read(now) for now in (0.0, 1.0, 2.0))
    assert (first.cpu_percent, second.cpu_percent) == (None, 0)
    assert third is second
    assert fake.read(4.0, ticks=TICKS_PER_SECOND).cpu_percent == pytest.approx(50)


def test_files_are_kept_open_for_those_that_stay_only(child: Child) -> None:
    before = open_files()
    child.read()
    kept = open_files()
    child.read(1.0)
    assert open_files() == kept > before
    child.reader.keep_only(())
    assert open_files() == before


def test_files_of_one_that_ended_are_closed() -> None:
    before = open_files()
    reader = ProcessReader()
    with subprocess.Popen(["sleep", "60"]) as process:
        facts(reader, process.pid)
        process.kill()
    assert facts(reader, process.pid, 1.0).state == ENDED
    assert open_files() == before


def test_of_few_files_most_are_left_to_others(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (8, 8))
    reader, other = ProcessReader(), Child()
    before = open_files()
    for now in (0.0, 1.0):
        assert facts(reader, child.pid, now).id.pid == child.pid
        assert facts(reader, other.pid, now).user == lives.user_name(os.geteuid())
    assert open_files() == before + 2
    other.end()
    assert facts(reader, other.pid, 2.0).state == ENDED
