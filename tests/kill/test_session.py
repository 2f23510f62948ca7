"""What is promised of ending processes: real ones are ended, memory comes back on paper."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from gpumon.host.handle import wait_for_any
from gpumon.host.process_host import (
    Details,
    ProcessHandle,
    ProcessStatus,
    Refusal,
    Refused,
    RelatedProcess,
    Target,
)
from gpumon.host.process_tree import read_relatives
from gpumon.kill.audit_log import AuditLog
from gpumon.kill.memory_reclaimed import WAIT_SECONDS
from gpumon.kill.outcome import (
    PATIENCE,
    TOLERANCE,
    MemoryReclaimed,
    Outcome,
    TargetOutcome,
    TerminationReport,
)
from gpumon.kill.session import TerminationSession
from gpumon.kill.signals import open_handle
from gpumon.model.processes import (
    GpuProcess,
    GpuUse,
    HolderScan,
    HoldReason,
    ProcessId,
    UnlistedHolder,
    Workload,
)
from gpumon.model.snapshot import Snapshot, Unknown
from gpumon.system.system import System, SystemClock
from gpumon.ui.view.kill_report import summary_text
from tests import build, lives
from tests.build import GIB
from tests.command import run_program
from tests.host.programs import go_on, state
from tests.known import known
from tests.lives import Family


class Host:
    """This machine, with a scan of the test's own."""

    uid = os.geteuid()
    user = "ann"

    def __init__(self, readonly: bool = False) -> None:
        self.readonly = readonly
        self.suspects: tuple[UnlistedHolder, ...] = ()
        self.scans = 0

    def workloads(self, processes: Sequence[GpuProcess]) -> dict[ProcessId, Workload]:
        raise NotImplementedError

    def details(self, process: ProcessId) -> Details | None:
        raise NotImplementedError

    def scan(self, snapshot: Snapshot) -> HolderScan | None:
        self.scans += 1
        return HolderScan(snapshot.time, self.suspects)

    def relatives(self, roots: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:
        return read_relatives(roots)

    def open_handle(self, target: Target) -> ProcessHandle:
        return open_handle(target, readonly=self.readonly)

    def wait(self, grips: Sequence[ProcessHandle], seconds: float) -> None:
        wait_for_any(grips, seconds)


class Clock(SystemClock):
    """The machine's time, which a test can stop and put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.stopped_at: float | None = None

    def monotonic(self) -> float:
        now = super().monotonic() if self.stopped_at is None else self.stopped_at
        return now + self.ahead


class Bench:
    """Opens cases on this machine and closes them."""

    def __init__(self, folder: Path) -> None:
        self.host = Host()
        self.clock = Clock()
        self.audit_log = AuditLog(folder)
        self.changes = 0
        self._cases: list[TerminationSession] = []

    def case(self, *targets: Target) -> TerminationSession:
        case = TerminationSession(
            self.host,
            targets,
            audit_log=self.audit_log,
            system=System(clock=self.clock),
            changed=self._count,
        )
        self._cases.append(case)
        return case

    def sent(
        self, number: int, *targets: Target | int, whole_tree: bool = False
    ) -> TerminationSession:
        """A case of these targets, or PIDs, to which a signal is on its way."""
        case = self.case(*(lives.target(one) if isinstance(one, int) else one for one in targets))
        case.send(number, whole_tree=whole_tree)
        return case

    def _count(self) -> None:
        self.changes += 1

    def logged(self) -> list[tuple[int, str, str]]:
        """Whom, what and with what outcome, in the order of sending."""
        assert self.audit_log.flush(lives.PATIENCE)
        lines = self.audit_log.path.read_bytes().splitlines()
        entries = [msgspec.json.decode(line) for line in lines]
        return [(entry["pid"], entry["signal"], entry["outcome"]) for entry in entries]

    def close(self) -> None:
        for case in self._cases:
            case.close()
        assert all(case.join(lives.PATIENCE) for case in self._cases)
        assert self.audit_log.flush(lives.PATIENCE)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "state")
    yield bench
    bench.close()


def wait_for(
    case: TerminationSession, condition: Callable[[TerminationReport], object], what: str
) -> TerminationReport:
    """The report of a case, once it says what is waited for."""
    lives.until(lambda: condition(case.report), f"{what}: {case.report}")
    return case.report


def done(case: TerminationSession) -> TerminationReport:
    return wait_for(case, lambda report: report.done, "the end of the case")


def fate(report: TerminationReport, pid: int) -> TargetOutcome:
    (found,) = [fate for fate in report.outcomes if fate.target.id.pid == pid]
    return found


def outcomes(report: TerminationReport) -> set[Outcome]:
    return {fate.outcome for fate in report.outcomes}


LOADERS = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(3):
    if not os.fork():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(2, b".")
        while True:
            signal.pause()
print("ready", flush=True)
signal.pause()
"""
"""A run whose data loaders ignore TERM."""


DEAF = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
signal.pause()
"""


def start_loaders(family: Family) -> tuple[subprocess.Popen[str], list[int]]:
    reader, writer = os.pipe()
    run = family.python(LOADERS, stderr=writer)
    os.close(writer)
    for _ in range(3):
        assert os.read(reader, 1)
    os.close(reader)
    return run, lives.children(run.pid)


def test_loaders_that_ignore_term_are_offered_kill_and_end_by_it(
    family: Family, bench: Bench
) -> None:
    run, loaders = start_loaders(family)
    # In the wrong order, as a table may be sorted.
    case = bench.sent(signal.SIGTERM, *loaders, run.pid, whole_tree=True)
    report = wait_for(
        case, lambda report: report.outcomes and fate(report, run.pid).seconds, "the end of the run"
    )
    assert report.outcomes[0].target.id.pid == run.pid, "parents come first"
    assert not report.offers_kill
    bench.clock.ahead += PATIENCE
    report = wait_for(case, lambda report: report.offers_kill, "the offer")
    assert not report.done
    left = [fate for fate in report.outcomes if fate.outcome is Outcome.WAITING]
    assert [fate.target.id.pid for fate in left] == loaders
    assert left[0].sentence == (
        f"{loaders[0]} still runs 5s after TERM: it ignores the signal, or is still cleaning up"
    )
    case.send(signal.SIGKILL)
    report = done(case)
    assert outcomes(report) == {Outcome.ENDED}
    assert not family.members()
    assert report.signal == signal.SIGKILL
    assert [entry for entry in bench.logged() if entry[1:] == ("TERM", "sent")] == [
        (pid, "TERM", "sent") for pid in [run.pid, *loaders]
    ]
    assert (run.pid, "KILL", "sent") not in bench.logged(), "it had ended"


def test_only_what_was_named_is_signalled_unless_the_whole_tree_is_meant(
    family: Family, bench: Bench
) -> None:
    run, loaders = start_loaders(family)
    case = bench.sent(signal.SIGKILL, run.pid)
    report = done(case)
    assert [fate.target.id.pid for fate in report.outcomes] == [run.pid]
    assert family.members() == set(loaders)


def test_children_that_were_not_named_belong_to_the_whole_tree(
    family: Family, bench: Bench
) -> None:
    run, loaders = start_loaders(family)
    case = bench.sent(signal.SIGKILL, run.pid, whole_tree=True)
    report = done(case)
    assert outcomes(report) == {Outcome.ENDED}
    assert {fate.target.id.pid: fate.late for fate in report.outcomes} == {
        run.pid: False,
        **dict.fromkeys(loaders, True),
    }
    assert fate(report, loaders[0]).target.parent == run.pid


ORPHANING = """
import os, signal
if os.fork():
    os._exit(0)
print("ready", flush=True)
signal.pause()
"""


def test_an_orphan_is_ended(family: Family, bench: Bench) -> None:
    parent = family.python(ORPHANING)
    parent.wait()
    (orphan,) = family.members()
    case = bench.sent(signal.SIGTERM, orphan)
    # Whoever takes over orphans here may be slow to take notice, or never do: it counts as ended.
    assert outcomes(done(case)) == {Outcome.ENDED}
    assert not family.members()


CARELESS = """
import os, signal
child = os.fork()
if not child:
    signal.pause()
print("ready", flush=True)
signal.pause()
"""
"""It never takes notice of the end of its child."""


def test_a_zombie_has_ended_and_its_parent_is_told(family: Family, bench: Bench) -> None:
    parent = family.python(CARELESS)
    (child,) = lives.children(parent.pid)
    seen = lives.target(child)
    case = bench.sent(signal.SIGTERM, seen)
    ended = fate(done(case), child)
    assert ended.outcome is Outcome.ENDED
    name = lives.target(parent.pid).name
    listed = f"its parent {parent.pid} ({name}) has not reaped it yet"
    assert ended.sentence == f"{child} has ended; {listed}"

    second = bench.sent(signal.SIGTERM, seen)
    gone = fate(done(second), child)
    assert (gone.outcome, gone.refusal) == (Outcome.GONE, Refusal.GONE)
    assert gone.sentence == f"{child} had ended already; {listed}"


def test_a_stopped_process_is_told_as_stopped(family: Family, bench: Bench) -> None:
    process = family.sleeper()
    stop = bench.sent(signal.SIGSTOP, process.pid)
    assert outcomes(done(stop)) == {Outcome.WAITING}, "nobody waits for the end of a stopped one"
    case = bench.sent(signal.SIGTERM, process.pid)
    report = wait_for(case, lambda report: any(f.sentence for f in report.outcomes), "a word")
    assert report.outcomes[0].sentence == (
        f"{process.pid} is stopped: TERM acts once it is continued (kill -CONT {process.pid}), "
        "KILL at once"
    )
    case.send(signal.SIGCONT)
    assert outcomes(done(case)) == {Outcome.ENDED}


class Asleep:
    """A grip on a process that waits inside the kernel."""

    def __init__(self, grip: ProcessHandle, status: ProcessStatus) -> None:
        self._grip = grip
        self._status = status
        self.target = grip.target
        self.send, self.ended, self.close = grip.send, grip.ended, grip.close
        self.freeze, self.thaw = grip.freeze, grip.thaw

    def status(self) -> ProcessStatus | None:
        return self._status


def test_a_process_waiting_in_the_kernel_is_reported_with_its_wait_channel(
    family: Family, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = family.python(DEAF)
    asleep = ProcessStatus("D", wait_channel="nvidia_close")
    take = bench.host.open_handle
    monkeypatch.setattr(bench.host, "open_handle", lambda target: Asleep(take(target), asleep))
    case = bench.sent(signal.SIGTERM, process.pid)
    report = wait_for(case, lambda report: any(f.sentence for f in report.outcomes), "a word")
    assert report.outcomes[0].sentence == (
        f"{process.pid} waits inside the kernel (nvidia_close): no signal reaches it until that "
        "ends"
    )
    assert report.outcomes[0].status == asleep


def test_a_tree_is_killed_though_its_states_cannot_be_asked_any_more(
    family: Family, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mute(Asleep):
        def status(self) -> ProcessStatus | None:
            raise Refused(Refusal.UNREACHABLE, "the connection ended")

    run, _ = start_loaders(family)
    take, unused = bench.host.open_handle, ProcessStatus("S")
    monkeypatch.setattr(bench.host, "open_handle", lambda target: Mute(take(target), unused))
    case = bench.sent(signal.SIGKILL, run.pid, whole_tree=True)
    # A slow end is not seen any more.
    assert outcomes(done(case)) <= {Outcome.ENDED, Outcome.UNKNOWN}
    lives.until(lambda: not family.members(), "the end of all")


FORKING = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for n in range(300):
    if n == 50:
        print("ready", flush=True)
    if not os.fork():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if sys.argv[1:] and not os.fork():
            signal.pause()
        signal.pause()
signal.pause()
"""
"""It forks as fast as it can, so many times at most; with an argument its children do once, too.

Each process is an open file, of which 1024 are usual."""


@pytest.mark.parametrize("further", [[], ["further"]])
def test_a_process_that_forks_while_it_is_killed_leaves_no_child(
    family: Family, bench: Bench, further: list[str]
) -> None:
    process = family.python(FORKING, *further)
    seen = lives.target(process.pid)
    case = bench.sent(signal.SIGKILL, seen, whole_tree=True)
    report = done(case)
    assert outcomes(report) == {Outcome.ENDED}
    assert not family.members()
    late = [fate for fate in report.outcomes if fate.late]
    assert len(late) >= 50
    assert len(report.outcomes) == len(late) + 1


CHAIN = """
import os, signal, time
print("ready", flush=True)
for _ in range(40):
    if os.fork():
        break
    time.sleep(0.05)
signal.pause()
"""
"""Each process forks one, for two seconds."""


def test_a_busy_machine_whose_list_of_processes_is_old_when_it_comes_leaves_no_child(
    family: Family, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = family.python(CHAIN)
    relatives = bench.host.relatives

    def slow(roots: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:
        found = relatives(roots)
        time.sleep(0.4)
        return found

    monkeypatch.setattr(bench.host, "relatives", slow)
    case = bench.sent(signal.SIGKILL, process.pid, whole_tree=True)
    assert outcomes(done(case)) == {Outcome.ENDED}
    assert not family.members()


def test_children_forked_after_term_are_found_and_sent_the_same(
    family: Family, bench: Bench
) -> None:
    process = family.python(
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        # A signal that comes before it can end the child waits.
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "if not os.fork():\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
        "    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])\n"
        "signal.pause()\n"
    )
    case = bench.sent(signal.SIGTERM, process.pid, whole_tree=True)
    wait_for(case, lambda report: report.outcomes and report.outcomes[0].signal, "the first signal")
    go_on(process)
    report = wait_for(
        case,
        lambda report: any(f.late and f.seconds is not None for f in report.outcomes),
        "a child",
    )
    (late,) = [fate for fate in report.outcomes if fate.late]
    assert (late.outcome, late.signal) == (Outcome.ENDED, signal.SIGTERM)
    assert report.outcomes[0].outcome is Outcome.WAITING


SURVIVING = """
import os, signal, sys
for name in ("INT", "USR1"):
    signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
print("ready", flush=True)
sys.stdin.readline()
if not os.fork():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    signal.pause()
print("forked", flush=True)
signal.pause()
"""
"""It takes INT and USR1 for something else than its end, and works on with another child."""


@pytest.mark.parametrize(("number", "seconds"), [(signal.SIGINT, PATIENCE), (signal.SIGUSR1, 0)])
def test_children_of_a_process_that_survives_the_signal_are_left_alone(
    family: Family, bench: Bench, number: int, seconds: float
) -> None:
    process = family.python(SURVIVING)
    case = bench.sent(number, process.pid, whole_tree=True)
    wait_for(case, lambda report: report.outcomes and report.outcomes[0].signal, "the signal")
    bench.clock.ahead += seconds
    go_on(process)
    assert known(process.stdout).readline() == "forked\n"
    for _ in range(3):
        seen = bench.changes
        bench.clock.ahead += 2
        lives.until(lambda at=seen: bench.changes > at, "another report")  # type: ignore[misc]  # a default binds the value
    assert [fate.target.id.pid for fate in case.report.outcomes] == [process.pid]
    assert len(family.members()) == 2


def test_a_process_that_is_no_descendant_of_a_living_target_is_never_signalled(
    family: Family, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of processes is read while numbers change hands: it may say what never was."""
    parent, stranger = family.sleeper(), family.sleeper()
    older = family.sleeper()
    child, elder = known(lives.look(stranger.pid)), known(lives.look(older.pid))
    seen = lives.target(parent.pid)
    before = ProcessId(older.pid, known(seen.id.start_time) - 1)

    def relatives(roots: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:
        found = read_relatives(roots)
        parent.kill()  # between the table and the hold
        parent.wait()
        return (
            *found,
            msgspec.structs.replace(child, parent=parent.pid),
            msgspec.structs.replace(elder, id=before, parent=parent.pid),
        )

    monkeypatch.setattr(bench.host, "relatives", relatives)
    case = bench.sent(signal.SIGKILL, seen, whole_tree=True)
    report = done(case)
    assert [fate.target.id.pid for fate in report.outcomes] == [parent.pid]
    assert stranger.poll() is None
    assert older.poll() is None


def test_a_process_older_than_its_parent_is_no_child(
    family: Family, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = family.sleeper()
    elder = known(lives.look(older.pid))
    lives.until(lambda: now_in_ticks() > (elder.id.start_time or 0) + 1, "a later moment")
    parent = family.sleeper()
    monkeypatch.setattr(
        bench.host,
        "relatives",
        lambda roots: (*read_relatives(roots), msgspec.structs.replace(elder, parent=parent.pid)),
    )
    case = bench.sent(signal.SIGKILL, parent.pid, whole_tree=True)
    assert [fate.target.id.pid for fate in done(case).outcomes] == [parent.pid]
    assert older.poll() is None


def now_in_ticks() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")


def test_a_number_that_was_reused_since_the_dialog_is_refused(family: Family, bench: Bench) -> None:
    process = family.sleeper()
    seen = lives.target(process.pid)
    earlier = ProcessId(process.pid, known(seen.id.start_time) - 1)
    case = bench.case(msgspec.structs.replace(seen, id=earlier))
    case.send(signal.SIGKILL, whole_tree=True)
    refused = fate(done(case), process.pid)
    assert (refused.outcome, refused.refusal) == (Outcome.REFUSED, Refusal.REUSED)
    assert refused.signal is None
    assert process.poll() is None
    assert bench.logged() == [(process.pid, "KILL", "reused")]


LAUNCHER = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(2):
    if not os.fork():
        if not os.fork():
            signal.pause()
        signal.pause()
print("ready", flush=True)
signal.pause()
"""
"""Two children with a child each."""


def below(pid: int) -> list[int]:
    children = lives.children(pid)
    return [*children, *(one for child in children for one in below(child))]


@pytest.mark.parametrize("reason", [Refusal.PROTECTED, Refusal.REUSED])
def test_descendants_of_a_refused_process_get_no_signal(
    family: Family, bench: Bench, monkeypatch: pytest.MonkeyPatch, reason: Refusal
) -> None:
    launcher, other = family.python(LAUNCHER), family.sleeper()
    lives.until(lambda: len(below(launcher.pid)) == 4, "all of them")

    def grip(target: Target) -> ProcessHandle:
        if target.id.pid == launcher.pid:
            raise Refused(reason, "no")
        return open_handle(target)

    monkeypatch.setattr(bench.host, "open_handle", grip)
    children = below(launcher.pid)
    case = bench.sent(signal.SIGTERM, launcher.pid, *children, other.pid, whole_tree=True)
    report = done(case)
    assert fate(report, other.pid).outcome is Outcome.ENDED
    for child in children:
        refused = fate(report, child)
        assert (refused.outcome, refused.refusal) == (Outcome.REFUSED, reason)
        assert f"choose {child} by itself" in refused.sentence
    assert family.members() == {launcher.pid, *children}


AS_ANOTHER = """
import os, pathlib, signal, sys, threading
import msgspec, psutil, platformdirs
from gpumon.kill.session import TerminationSession
from gpumon.host.process_host import Target
from gpumon.kill.audit_log import AuditLog
from tests.kill.test_session import Host

targets = msgspec.json.decode(sys.argv[1], type=list[Target])
os.setuid(1)
told = threading.Event()
audit_log = AuditLog(pathlib.Path(sys.argv[2]))
case = TerminationSession(Host(), targets, audit_log=audit_log, changed=told.set)
case.send(signal.SIGTERM, whole_tree=True)
while not case.report.done:
    told.wait()
    told.clear()
for fate in case.report.outcomes:
    print(fate.outcome.name, fate.refusal and fate.refusal.name, fate.sentence)
case.close()
assert case.join(60)
"""


@pytest.mark.root
def test_a_process_of_another_user_is_reported_with_its_owner(
    family: Family, tmp_path: Path
) -> None:
    process = family.python("import os; os.setuid(65534); print(1, flush=True); input()")
    seen = lives.target(process.pid, user="chen")
    ran = run_program(
        [
            sys.executable,
            "-c",
            AS_ANOTHER,
            msgspec.json.encode([seen]).decode(),
            str(tmp_path / "state"),
        ],
        check=True,
    )
    pid = process.pid
    assert ran.stdout == (
        f"REFUSED NOT_PERMITTED {pid} is chen's, not yours: ask chen, or sudo kill -TERM {pid}\n"
    )
    assert process.poll() is None


MANY = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(200):
    if not os.fork():
        while True:
            signal.pause()
print("ready", flush=True)
signal.pause()
"""


def test_two_hundred_end_at_once(family: Family, bench: Bench) -> None:
    parent = family.python(MANY)
    targets = [lives.target(pid) for pid in lives.children(parent.pid)]
    assert len(targets) == 200
    case = bench.sent(signal.SIGTERM, *targets)
    report = done(case)
    assert outcomes(report) == {Outcome.ENDED}
    assert [line for _, _, line in bench.logged()].count("sent") == 200
    assert family.members() == {parent.pid}


def hanging_table(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Make the process table hang until the returned event is set."""
    answer = threading.Event()

    def relatives(roots: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:
        answer.wait(lives.PATIENCE)
        return read_relatives(roots)

    monkeypatch.setattr(bench.host, "relatives", relatives)
    return answer


def test_the_screen_is_never_blocked(
    family: Family, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process table that does not answer blocks this session only."""
    answer = hanging_table(bench, monkeypatch)
    process = family.sleeper()
    case = bench.sent(signal.SIGTERM, process.pid)
    case.see(build.snapshot())
    assert not case.report.done
    assert process.poll() is None, "it is still being looked up"
    answer.set()
    done(case)


def test_closing_a_session_that_hangs_takes_no_time(
    family: Family, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = hanging_table(bench, monkeypatch)
    process = family.sleeper()
    case = bench.sent(signal.SIGTERM, process.pid)
    begun = time.monotonic()
    case.close()
    assert time.monotonic() - begun < lives.PATIENCE / 4
    assert not case.join(0)
    answer.set()
    assert case.join(lives.PATIENCE)
    assert process.wait(lives.PATIENCE) == -signal.SIGTERM, "what was ordered is sent"


def test_a_bug_on_the_thread_reaches_the_owner(
    family: Family, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def relatives(_: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:
        raise ValueError("a bug")

    monkeypatch.setattr(bench.host, "relatives", relatives)
    case = bench.sent(signal.SIGTERM, family.sleeper().pid)
    assert case.join(lives.PATIENCE)
    with pytest.raises(ValueError, match="a bug"):
        case.see(build.snapshot())


def test_a_bug_between_stop_and_kill_continues_what_was_stopped(
    family: Family, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = family.sleeper()
    root = family.python(LOADERS, stderr=subprocess.DEVNULL)
    lives.until(lambda: len(lives.children(root.pid)) == 3, "its children")
    child = lives.children(root.pid)[0]
    for pid in (stopped.pid, child):
        os.kill(pid, signal.SIGSTOP)

    lives.until(lambda: [state(stopped.pid), state(child)] == ["T", "T"], "the stop by its user")

    def relatives(roots: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:
        if state(root.pid) == "T":
            raise ValueError("a bug")
        return read_relatives(roots)

    monkeypatch.setattr(bench.host, "relatives", relatives)
    case = bench.sent(signal.SIGKILL, root.pid, stopped.pid, whole_tree=True)
    assert case.join(lives.PATIENCE)
    assert isinstance(case.failure, ValueError)
    continued = [root.pid, *(pid for pid in lives.children(root.pid) if pid != child)]
    lives.until(lambda: {state(pid) for pid in continued} == {"S"}, "their continuation")
    # What its user had stopped before stays so.
    assert [state(stopped.pid), state(child)] == ["T", "T"]
    assert (root.pid, "CONT", "sent") in bench.logged()
    assert (stopped.pid, "CONT", "sent") not in bench.logged()


def test_the_audit_log_has_the_outcome(family: Family, bench: Bench) -> None:
    process, deaf = family.sleeper(), family.python(DEAF)
    case = bench.sent(signal.SIGTERM, process.pid, deaf.pid)
    wait_for(case, lambda report: Outcome.ENDED in outcomes(report), "the end of one")
    case.close()
    assert case.join(lives.PATIENCE)
    first, second, ended, last = bench.logged()
    assert {first, second} == {(process.pid, "TERM", "sent"), (deaf.pid, "TERM", "sent")}
    assert ended[:2] == (process.pid, "TERM")
    assert re.fullmatch(r"ended after \d+\.\d s", ended[2])
    assert last == (deaf.pid, "TERM", "still there")


def test_a_stopped_process_is_not_logged_as_still_there(family: Family, bench: Bench) -> None:
    process = family.sleeper()
    case = bench.sent(signal.SIGSTOP, process.pid)
    done(case)
    case.close()
    assert case.join(lives.PATIENCE)
    assert bench.logged() == [(process.pid, "STOP", "sent")]


def test_a_pending_signal_is_sent_even_if_the_session_is_closed(
    family: Family, bench: Bench
) -> None:
    process = family.sleeper()
    case = bench.case(lives.target(process.pid))
    # As if the thread began so late.
    case.close()
    case.send(signal.SIGKILL)
    assert process.wait(lives.PATIENCE) == -signal.SIGKILL


def test_a_report_is_published_every_second_while_waiting(family: Family, bench: Bench) -> None:
    bench.clock.stopped_at = time.monotonic()
    case = bench.sent(signal.SIGTERM, family.python(DEAF).pid)
    wait_for(case, lambda report: report.outcomes, "the first report")
    for second in (1, 2, 3, 4):
        bench.clock.ahead += 1
        wait_for(case, lambda report, at=second: report.seconds == at, "another report")  # type: ignore[misc]  # a default binds the value


def test_kill_is_offered_for_a_process_that_ignores_term_even_after_cont(
    family: Family, bench: Bench
) -> None:
    case = bench.sent(signal.SIGTERM, family.python(DEAF).pid)
    case.send(signal.SIGCONT)
    wait_for(case, lambda report: report.signal == signal.SIGCONT, "the second signal")
    bench.clock.ahead += PATIENCE
    report = wait_for(case, lambda report: report.offers_kill, "the offer")
    assert not report.outcomes[0].sentence


def test_a_process_without_a_handle_does_not_stop_the_others_from_ending(
    family: Family, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlucky, other = family.sleeper(), family.sleeper()

    def grip(target: Target) -> ProcessHandle:
        if target.id.pid == unlucky.pid:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_handle(target)

    monkeypatch.setattr(bench.host, "open_handle", grip)
    case = bench.sent(signal.SIGTERM, unlucky.pid, other.pid)
    report = done(case)
    refused = fate(report, unlucky.pid)
    assert refused.outcome is Outcome.REFUSED
    assert refused.sentence == f"{unlucky.pid} cannot be opened: Too many open files; try again"
    assert fate(report, other.pid).outcome is Outcome.ENDED


def test_an_invalid_signal_number_is_an_error(bench: Bench) -> None:
    with pytest.raises(ValueError, match="no signal 4711"):
        bench.case().send(4711)


def test_a_log_that_cannot_be_written_is_reported_and_stops_nothing(
    family: Family, bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "state").touch()
    case = bench.sent(signal.SIGTERM, family.sleeper().pid)
    report = wait_for(case, lambda report: report.unlogged, "a word on the log")
    assert report.unlogged.startswith("Signals were sent, but are missing in the log")
    assert outcomes(done(case)) == {Outcome.ENDED}


# The memory that comes back. The card had 40 GiB in use, 30 of them of the process that is ended.

USED, HELD = 40 * GIB, 30 * GIB
OTHER = build.process(9, memory_used=9 * GIB)


def on_gpu(target: Target, memory: int | None = HELD) -> Target:
    return msgspec.structs.replace(target, uses=(GpuUse("GPU-0", 0, memory_used=memory),))


def moment(
    ahead: float,
    memory_used: int | None,
    *processes: GpuProcess,
    processes_ahead: float | None = None,
) -> Snapshot:
    """A snapshot so many seconds from now."""
    now = time.time()
    return build.snapshot(
        now + ahead,
        build.gpu(memory_used=memory_used, sampled_at=now + ahead),
        processes=processes,
        processes_at=now + (ahead if processes_ahead is None else processes_ahead),
    )


def as_listed(target: Target, memory: int | None = HELD) -> GpuProcess:
    return build.process(target.id.pid, memory_used=memory, start_time=target.id.start_time)


class Ended:
    """A process with memory on a card that has been ended, and whose memory is waited for."""

    def __init__(self, family: Family, bench: Bench, memory: int | None = HELD) -> None:
        self.target = on_gpu(lives.target(family.sleeper().pid), memory)
        self.listed = as_listed(self.target, memory)
        self.case = bench.case(self.target)
        self.case.see(moment(-1, USED, OTHER, self.listed))
        self.case.send(signal.SIGKILL)
        wait_for(self.case, lambda report: outcomes(report) == {Outcome.ENDED}, "its end")

    def back(self) -> MemoryReclaimed:
        (back,) = self.case.report.memory
        return back

    def see(self, snapshot: Snapshot) -> MemoryReclaimed:
        """How the card stands once a snapshot was taken in."""
        self.case.see(snapshot)
        (gpu,) = snapshot.gpus
        lives.until(lambda: self.back().now == gpu.memory_used, "that the snapshot is taken in")
        return self.back()


@pytest.fixture
def ended(family: Family, bench: Bench) -> Ended:
    return Ended(family, bench)


def await_another_report(ended: Ended, bench: Bench) -> MemoryReclaimed:
    seen = bench.changes
    bench.clock.ahead += 2
    lives.until(lambda: bench.changes > seen, "another report")
    return ended.back()


def test_reclaimed_memory_is_counted(bench: Bench, ended: Ended) -> None:
    assert ended.back() == msgspec.structs.replace(
        ended.back(), expected=HELD, before=USED, now=None, settled=False
    )
    back = ended.see(moment(1, USED - HELD, OTHER))
    assert (back.returned, back.settled, back.missing) == (HELD, True, 0)
    assert done(ended.case).memory == (back,)
    assert bench.host.scans == 0


def test_a_sample_from_before_the_signal_is_ignored(family: Family, bench: Bench) -> None:
    before = moment(0, 1 * GIB, OTHER)
    ended = Ended(family, bench)
    ended.case.see(before)
    assert await_another_report(ended, bench).now is None


def test_missing_memory_is_explained(bench: Bench, ended: Ended) -> None:
    held = ("GPU-0",)
    stranger = UnlistedHolder(
        ProcessId(1, 1), held, HoldReason.ORPHAN, "its parent 7 ended 22m ago"
    )
    elsewhere = UnlistedHolder(ProcessId(2, 1), ("GPU-1",), HoldReason.ORPHAN, "…")
    monitor = UnlistedHolder(ProcessId(3, 1), held, HoldReason.OBSERVER, "…")
    loader = UnlistedHolder(ProcessId(4, 1), held, HoldReason.CHILD, "…", parent=OTHER.id)
    own = UnlistedHolder(ProcessId(5, 1), held, HoldReason.CHILD, "…", parent=ended.target.id)
    weak = UnlistedHolder(ProcessId(6, 1), held, HoldReason.HOLDS, "…")
    bench.host.suspects = (stranger, elsewhere, monitor, loader, own, weak)

    short = USED - HELD + 12 * GIB
    assert not ended.see(moment(1, short, OTHER)).settled, "seen once only"
    ended.case.see(moment(2, short, OTHER))
    report = done(ended.case)
    (back,) = report.memory
    assert (back.settled, back.missing) == (True, 12 * GIB)
    assert back.remaining == (own, stranger)
    assert bench.host.scans == 1

    own_alone = msgspec.structs.replace(
        moment(3, short, OTHER), holders=HolderScan(time.time() + 1, (own,))
    )
    ended.case.see(own_alone)
    lives.until(lambda: ended.back().remaining == (own,), "that the other has let go of it")
    assert bench.host.scans == 1


def test_memory_of_an_unlisted_target_is_counted_when_it_exits(
    family: Family, bench: Bench
) -> None:
    run, loader = on_gpu(lives.target(family.sleeper().pid)), family.python(DEAF)
    case = bench.case(run, lives.target(loader.pid))
    case.see(moment(-1, USED, OTHER, as_listed(run)))
    case.send(signal.SIGTERM)
    wait_for(case, lambda report: Outcome.ENDED in outcomes(report), "the first end")
    short = USED - HELD + 12 * GIB
    case.see(moment(1, short, OTHER))
    wait_for(case, lambda report: report.memory[0].now == short, "the first sample")
    case.see(moment(2, short, OTHER))
    wait_for(case, lambda report: report.memory[0].settled, "that the GPU is given up")
    case.send(signal.SIGKILL)
    wait_for(case, lambda report: outcomes(report) == {Outcome.ENDED}, "the second end")
    case.see(moment(3, USED - HELD, OTHER))
    (back,) = done(case).memory
    assert (back.returned, back.missing, back.remaining) == (HELD, 0, ())


def test_the_same_sample_twice_settles_nothing(bench: Bench, ended: Ended) -> None:
    snapshot = moment(1, USED, OTHER)
    ended.see(snapshot)
    ended.case.see(msgspec.structs.replace(snapshot, time=snapshot.time + 1))
    assert not await_another_report(ended, bench).settled


def test_nothing_is_settled_while_the_driver_lists_an_ended_process(
    bench: Bench, ended: Ended
) -> None:
    ended.see(moment(1, USED, OTHER, ended.listed))
    ended.case.see(moment(2, USED, OTHER, ended.listed))
    assert not await_another_report(ended, bench).settled
    for ahead in (3, 4):
        ended.case.see(moment(ahead, USED, OTHER, processes_ahead=-1))
        assert not await_another_report(ended, bench).settled, "an old list says nothing"


@pytest.mark.parametrize("start_time", [None, 7])
def test_a_listed_pid_of_an_ended_process_is_not_another_process(
    bench: Bench, start_time: int | None, ended: Ended
) -> None:
    """Once it has left /proc its number stands without a start time there, or with another's."""
    pid = ended.target.id.pid
    listed = build.process(pid, memory_used=HELD, start_time=start_time)
    ended.see(moment(1, USED, OTHER, listed))
    bench.clock.ahead += WAIT_SECONDS
    (back,) = done(ended.case).memory
    assert (back.returned, back.others, back.missing) == (0, 0, HELD)
    assert back.listed == (pid,)
    assert bench.host.scans == 0, "it is known who"

    ended.case.see(moment(2, USED - HELD, OTHER))
    lives.until(lambda: not ended.back().short, "that it is told when it comes back all the same")
    assert (ended.back().returned, ended.back().listed) == (HELD, ())


def test_values_from_before_a_gpu_was_lost_do_not_count(bench: Bench, ended: Ended) -> None:
    ended.see(moment(1, USED - 12 * GIB, OTHER, ended.listed))
    ended.see(moment(2, None, OTHER))
    bench.clock.ahead += WAIT_SECONDS
    (back,) = done(ended.case).memory
    assert (back.now, back.returned, back.missing) == (None, None, None)


def test_a_thread_is_refused_and_does_not_count_as_ended(family: Family, bench: Bench) -> None:
    process = family.python(THREADED)
    (thread,) = {int(one.name) for one in Path(f"/proc/{process.pid}/task").iterdir()} - {
        process.pid
    }
    case = bench.sent(signal.SIGTERM, thread)
    report = done(case)
    refused = fate(report, thread)
    assert (refused.outcome, refused.refusal) == (Outcome.REFUSED, Refusal.THREAD)
    assert f"{thread} is a thread of {process.pid}" in refused.sentence
    assert summary_text(report) == "TERM was not sent"
    assert process.poll() is None


THREADED = """
import threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
print("ready", flush=True)
input()
"""


def test_the_wait_for_a_silent_gpu_has_a_limit(bench: Bench, ended: Ended) -> None:
    bench.clock.ahead += WAIT_SECONDS
    (back,) = done(ended.case).memory
    assert (back.settled, back.now, back.returned, back.missing) == (True, None, None, None)
    assert bench.host.scans == 0


@pytest.mark.parametrize(
    ("used", "of_others", "expected"),
    [
        pytest.param(41, 40, (30, 31, 0), id="others took some"),
        pytest.param(10 + TOLERANCE / GIB, 9, (30 - TOLERANCE / GIB, 0, TOLERANCE / GIB), id="few"),
    ],
)
def test_memory_that_came_back_starts_no_search_for_holders(
    used: float, of_others: int, expected: tuple[float, int, float], family: Family, bench: Bench
) -> None:
    back = settled(family, bench, used, of_others)
    assert (back.returned, back.others, back.missing) == tuple(size * GIB for size in expected)
    assert bench.host.scans == 0


def test_memory_freed_by_others_is_not_credited_to_the_targets(
    family: Family, bench: Bench
) -> None:
    back = settled(family, bench, 20, 1)
    assert (back.returned, back.others, back.missing) == (12 * GIB, -8 * GIB, 18 * GIB)


def settled(family: Family, bench: Bench, used: float, of_others: int) -> MemoryReclaimed:
    """The GPU of an ended process after two samples with so many GiB in use."""
    ended = Ended(family, bench)
    other = build.process(9, memory_used=of_others * GIB)
    ended.see(moment(1, int(used * GIB), other))
    ended.case.see(moment(2, int(used * GIB), other))
    (back,) = done(ended.case).memory
    assert back.settled
    return back


def test_memory_freed_by_others_settles_nothing(bench: Bench, ended: Ended) -> None:
    """Before a list newer than the end says so, nobody knows whose the memory was."""
    ended.case.see(moment(1, 5 * GIB, OTHER, ended.listed, processes_ahead=-1))
    assert not await_another_report(ended, bench).settled
    smaller = build.process(9, memory_used=1 * GIB)
    ended.case.see(moment(2, 10 * GIB, smaller))
    assert not await_another_report(ended, bench).settled
    ended.case.see(moment(3, 2 * GIB, smaller))
    (back,) = done(ended.case).memory
    assert (back.settled, back.returned) == (True, 30 * GIB)


def test_memory_of_others_is_unknown_without_a_process_list(ended: Ended) -> None:
    snapshot = moment(1, USED - HELD)
    card = msgspec.structs.replace(snapshot.gpus[0], unknown={"processes": Unknown.NOT_SUPPORTED})
    assert ended.see(msgspec.structs.replace(snapshot, gpus=(card,))).others is None


def test_with_unknown_sizes_memory_settles_once_it_is_stable(family: Family, bench: Bench) -> None:
    ended = Ended(family, bench, memory=None)
    assert ended.back().expected is None
    assert not ended.see(moment(1, 10 * GIB, OTHER)).settled
    assert not ended.see(moment(2, 8 * GIB, OTHER)).settled, "it still moves"
    ended.case.see(moment(3, 8 * GIB, OTHER))
    (back,) = done(ended.case).memory
    assert (back.returned, back.missing) == (USED - 8 * GIB, None)


@pytest.mark.parametrize("seen", [(), (None,)], ids=["no snapshot", "no memory"])
def test_the_report_has_no_memory_that_was_not_known_before(
    seen: tuple[None, ...], family: Family, bench: Bench
) -> None:
    case = bench.case(on_gpu(lives.target(family.sleeper().pid)))
    for memory in seen:
        case.see(moment(-1, memory, OTHER))
    case.send(signal.SIGKILL)
    assert done(case).memory == ()


def test_memory_of_refused_processes_is_not_expected(family: Family, bench: Bench) -> None:
    mine = on_gpu(lives.target(family.sleeper().pid, parent=None), 10 * GIB)
    itself = on_gpu(lives.target(os.getpid()), 20 * GIB)
    case = bench.case(mine, itself)
    case.see(moment(-1, USED, OTHER, as_listed(mine, 10 * GIB), as_listed(itself, 20 * GIB)))
    case.send(signal.SIGTERM)
    report = wait_for(case, lambda report: report.memory, "a GPU")
    assert fate(report, os.getpid()).refusal is Refusal.PROTECTED
    assert report.memory[0].expected == 10 * GIB
    case.see(moment(1, USED - 10 * GIB, OTHER, as_listed(itself, 20 * GIB)))
    assert done(case).memory[0].settled


def test_memory_of_late_children_is_expected_too(family: Family, bench: Bench) -> None:
    run, loaders = start_loaders(family)
    children = [lives.target(pid) for pid in loaders]
    case = bench.case(on_gpu(lives.target(run.pid)))
    listed = [as_listed(lives.target(run.pid)), *(as_listed(child, GIB) for child in children)]
    case.see(moment(-1, USED, OTHER, *listed))
    case.send(signal.SIGKILL, whole_tree=True)
    report = wait_for(case, lambda report: outcomes(report) == {Outcome.ENDED}, "the end of all")
    assert report.memory[0].expected == HELD + 3 * GIB
