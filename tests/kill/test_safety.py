"""Whatever processes do meanwhile, a signal reaches what was shown and confirmed, and nothing else.

A session runs on a machine that hypothesis makes up: processes fork, exit and inherit numbers, also
while the table of processes is read, and the machine may become unreachable.
"""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast
from unittest.mock import Mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gpumon.host.process_host import (
    ProcessHost,
    ProcessStatus,
    Refusal,
    Refused,
    RelatedProcess,
    Target,
)
from gpumon.kill.audit_log import AuditLog
from gpumon.kill.outcome import Outcome
from gpumon.kill.session import TerminationSession
from gpumon.model.processes import ProcessId
from gpumon.system.system import System
from tests.lives import PATIENCE


class Turns:
    """A clock by which the session's thread runs only while the test waits for it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._parked, self._go = threading.Semaphore(0), threading.Semaphore(0)

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def wait(self, event: threading.Event, timeout: float) -> bool:
        if timeout < 0.1:  # in the middle of its work
            self.now += timeout
        else:
            self.park()
        return event.is_set()

    def park(self) -> None:
        self._parked.release()
        self._go.acquire()

    def until_parked(self, session: TerminationSession) -> None:
        """Wait until the thread waits, or has failed."""
        while not self._parked.acquire(timeout=0.05) and not session.join(0):
            pass

    def go(self) -> None:
        self._go.release()


class Process:
    """A process of the machine; ``born_of`` has it and all its ancestors."""

    def __init__(self, id_: ProcessId, parent: Process | None, is_deaf: bool) -> None:
        self.id, self.is_deaf = id_, is_deaf
        self.parent = 1 if parent is None else parent.id.pid
        self.born_of: set[ProcessId] = {id_} | (set() if parent is None else parent.born_of)
        self.is_frozen = False
        self.is_protected = False
        self.waits_in_kernel = False
        self.has_handle = True


class Handle:
    """A hold on one process, as a pidfd is."""

    def __init__(self, host: MadeUpHost, target: Target) -> None:
        self.host, self.target = host, target

    def _process(self) -> Process:
        self.host.reach()
        process = self.host.living(self.target.id)
        if process is None:
            raise Refused(Refusal.GONE, "it had ended")
        return process

    def send(self, number: int) -> None:
        process = self._process()
        self.host.may_signal(process, number)
        self.host.signalled.add(process.id)
        ends = number == signal.SIGKILL or (number == signal.SIGTERM and not process.is_deaf)
        if ends and not process.waits_in_kernel:
            self.host.end(process)

    def freeze(self) -> None:
        process = self._process()
        self.host.may_signal(process, signal.SIGKILL)
        process.is_frozen = True

    def thaw(self) -> bool:
        process = self.host.living(self.target.id)
        was_frozen = process is not None and process.is_frozen
        if process is not None:
            process.is_frozen = False
        return was_frozen

    def ended(self) -> bool:
        return self.host.living(self.target.id) is None

    def status(self) -> ProcessStatus | None:
        self.host.reach()
        process = self.host.living(self.target.id)
        return None if process is None else ProcessStatus("T" if process.is_frozen else "S")

    def close(self) -> None:
        self.thaw()


class MadeUpHost:
    """The processes, and what was shown and ordered."""

    def __init__(self) -> None:
        self.processes: dict[int, Process] = {}
        self.is_reachable, self.readonly = True, False
        self.clock = Turns()
        self.allowed: set[ProcessId] = set()
        self.whole_tree = False
        self.ordered: set[int] = set()
        self.signalled: set[ProcessId] = set()
        self.meanwhile: Callable[[], object] | None = None
        self._started = 0

    def start(self, pid: int, parent: Process | None, *, is_deaf: bool = False) -> Process:
        self._started += 1
        process = Process(ProcessId(pid, self._started), parent, is_deaf)
        self.processes[pid] = process
        return process

    def fork(self, parent: Process | None, *, is_deaf: bool = False) -> Process:
        return self.start(max(self.processes, default=99) + 1, parent, is_deaf=is_deaf)

    def end(self, process: Process) -> None:
        del self.processes[process.id.pid]
        for child in self.processes.values():
            if child.parent == process.id.pid:
                child.parent = 1

    def living(self, id_: ProcessId) -> Process | None:
        process = self.processes.get(id_.pid)
        return process if process is not None and process.id == id_ else None

    def reach(self) -> None:
        if not self.is_reachable:
            raise Refused(Refusal.UNREACHABLE, "the connection ended")

    def may_signal(self, process: Process, number: int) -> None:
        """The promise of this file."""
        assert not self.readonly
        assert not process.is_protected
        assert number in self.ordered
        is_child = self.whole_tree and bool(process.born_of & self.allowed)
        assert process.id in self.allowed or is_child, f"{process.id} was not confirmed"

    def relatives(self, roots: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:
        """All processes, read one after the other while others run; parents before children."""
        del roots
        self.reach()
        rows = [self._row(process) for process in self.processes.values()]
        if self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            happens()
            read = rows[::2]
            pids = {row.id.pid for row in read}
            later = (one for one in self.processes.values() if one.id.pid not in pids)
            rows = [*read, *map(self._row, later)]
        ordered = [row for row in rows if row.parent not in {other.id.pid for other in rows}]
        for parent in ordered:
            ordered += [row for row in rows if row.parent == parent.id.pid]
        return tuple(ordered)

    def _row(self, process: Process) -> RelatedProcess:
        return RelatedProcess(process.id, process.parent, 0, 0, "python")

    def open_handle(self, target: Target) -> Handle:
        self.reach()
        process = self.processes.get(target.id.pid)
        if self.readonly:
            raise Refused(Refusal.READ_ONLY, "read only")
        if process is None:
            raise Refused(Refusal.GONE, "it had ended")
        if process.is_protected:
            raise Refused(Refusal.PROTECTED, "it is gpumon")
        if process.id != target.id:
            raise Refused(Refusal.REUSED, "it is another process now")
        if not process.has_handle:
            raise OSError(errno.EMFILE, "Too many open files")
        return Handle(self, target)

    def wait(self, handles: Sequence[Handle], seconds: float) -> None:
        del handles, seconds
        self.clock.park()


class UnwrittenLog:
    """A log of signals that forgets them."""

    failure, pending = None, False

    def write(self, *_: object) -> None:
        pass


NUMBER = st.integers(0, 1000)


class Safety(RuleBasedStateMachine):
    """One session on a machine where anything may happen between, and in, its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.host = MadeUpHost()
        self.dead: list[int] = []
        self.targets: list[Target] = []
        self.session: TerminationSession | None = None

    @initialize(
        parents=st.lists(st.none() | st.integers(0, 3), min_size=2, max_size=8),
        shown=st.sets(st.integers(0, 3), min_size=1),
        protected=st.none() | st.none() | st.integers(0, 3),
        readonly=st.sampled_from([False, False, False, True]),
    )
    def show(
        self, parents: list[int | None], shown: set[int], protected: int | None, readonly: bool
    ) -> None:
        """The dialog, with which all begins."""
        for parent in parents:
            self.host.fork(None if parent is None else self.any_of(parent))
        if protected is not None and (process := self.any_of(protected)):
            process.is_protected = True
        chosen = {process.id: process for n in shown if (process := self.any_of(n))}
        self.targets = [Target(id_, 0, parent=one.parent) for id_, one in chosen.items()]
        self.host.readonly = readonly

    def any_of(self, number: int) -> Process | None:
        living = list(self.host.processes.values())
        return living[number % len(living)] if living else None

    @rule(number=NUMBER, is_deaf=st.booleans())
    def fork(self, number: int, is_deaf: bool) -> None:
        parent = self.any_of(number)
        if parent is None or not parent.is_frozen:
            self.host.fork(parent, is_deaf=is_deaf)

    @rule(number=NUMBER)
    def exit(self, number: int) -> None:
        if process := self.any_of(number):
            self.host.end(process)
            self.dead.append(process.id.pid)

    @rule(number=NUMBER, parent=st.none() | NUMBER)
    def reuse(self, number: int, parent: int | None) -> None:
        free = [pid for pid in self.dead if pid not in self.host.processes]
        if free:
            above = None if parent is None else self.any_of(parent)
            self.host.start(free[number % len(free)], above)

    @rule(number=NUMBER, parent=st.none() | NUMBER)
    def exchange_during_the_next_reading(self, number: int, parent: int | None) -> None:
        def happens() -> None:
            self.exit(number)
            self.reuse(-1, parent)
            self.fork(-1, is_deaf=False)

        self.host.meanwhile = happens

    @rule(number=NUMBER)
    def fork_during_the_next_reading(self, number: int) -> None:
        self.host.meanwhile = lambda: self.fork(number, is_deaf=False)

    @rule(number=NUMBER)
    def run_out_of_files(self, number: int) -> None:
        if process := self.any_of(number):
            process.has_handle = False

    @rule()
    def lose_the_connection(self) -> None:
        self.host.is_reachable = False
        for process in self.host.processes.values():
            process.is_frozen = False  # as the other side promises

    @rule(
        number=st.sampled_from([signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1]),
        whole_tree=st.booleans(),
    )
    def confirm(self, number: int, whole_tree: bool) -> None:
        host = self.host
        host.ordered.add(number)
        host.whole_tree |= whole_tree
        doomed = self.tree() if self.is_undisturbed and number == signal.SIGKILL else []
        if self.session is None:
            host.allowed = self.allowed()
            self.session = TerminationSession(
                cast("ProcessHost", host),
                self.targets,
                audit_log=cast("AuditLog", UnwrittenLog()),
                system=System(clock=host.clock),
            )
            self.session.send(number, whole_tree=whole_tree)
            host.clock.until_parked(self.session)
            doomed = self.tree() if doomed else []
        else:
            self.session.send(number, whole_tree=whole_tree)
            self.let_pass(1)
        assert not [process.id for process in doomed if whole_tree and host.living(process.id)]

    @property
    def is_undisturbed(self) -> bool:
        return self.host.meanwhile is None and self.host.is_reachable and not self.host.readonly

    def tree(self) -> list[Process]:
        """The confirmed processes, and what descends from them without a gap."""
        living = list(self.host.processes.values())
        usable = [
            one
            for one in living
            if one.has_handle and not one.is_protected and not one.waits_in_kernel
        ]
        found = [one for one in usable if one.id in self.host.allowed]
        for process in found:
            found += [one for one in usable if one.parent == process.id.pid and one not in found]
        return found

    def allowed(self) -> set[ProcessId]:
        """What was shown, without what is below gpumon itself or a process that was replaced."""
        replaced = {pid for pid, one in self.host.processes.items() if one.is_protected}
        barred = {
            target.id.pid
            for target in self.targets
            if target.id.pid in replaced
            or (target.id.pid in self.host.processes and self.host.living(target.id) is None)
        }
        while below := [
            one.id.pid
            for one in self.targets
            if one.parent in barred and one.id.pid not in barred and self.host.living(one.id)
        ]:
            barred |= set(below)
        return {target.id for target in self.targets if target.id.pid not in barred}

    @precondition(lambda self: self.session is not None)
    @rule(seconds=st.sampled_from([0.3, 1.1, 6.0]))
    def let_pass(self, seconds: float) -> None:
        assert self.session is not None
        self.host.clock.now += seconds
        self.host.clock.go()
        self.host.clock.until_parked(self.session)

    @invariant()
    def the_report_is_true(self) -> None:
        assert self.session is None or self.session.failure is None
        for outcome in () if self.session is None else self.session.report.outcomes:
            if outcome.outcome in (Outcome.ENDED, Outcome.GONE):
                assert self.host.living(outcome.target.id) is None
            if outcome.outcome is Outcome.REFUSED:
                assert outcome.target.id not in self.host.signalled

    def teardown(self) -> None:
        if self.session is None:
            return
        self.session.close()
        self.host.clock.go()
        assert self.session.join(PATIENCE)
        assert self.session.failure is None
        assert not any(process.is_frozen for process in self.host.processes.values())


class SafetyForLong(Safety):
    """The same with many more machines."""


TestSafety: Any = Safety.TestCase
TestSafety.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)
TestSafetyForLong: Any = pytest.mark.slow(SafetyForLong.TestCase)
TestSafetyForLong.settings = settings(max_examples=400, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize(
    ("parents", "exchanged", "parent"),
    [
        pytest.param([None, None], 0, None, id="of the target itself: its child is a stranger"),
        pytest.param([None, None, 1], 1, 0, id="by a child of the target: the older is no child"),
    ],
)
def test_a_number_that_is_used_again_while_the_table_is_read_makes_nobody_a_child(
    parents: list[int | None], exchanged: int, parent: int | None
) -> None:
    machine = Safety()
    machine.show(parents=parents, shown={0}, protected=None, readonly=False)
    machine.exchange_during_the_next_reading(number=exchanged, parent=parent)
    machine.confirm(number=signal.SIGKILL, whole_tree=True)
    machine.the_report_is_true()
    machine.let_pass(1.1)
    machine.the_report_is_true()
    machine.teardown()


def test_a_process_that_kill_has_reached_is_not_stopped_again_for_a_late_child() -> None:
    machine = Safety()
    machine.show(parents=[None], shown={0}, protected=None, readonly=False)
    (process,) = machine.host.processes.values()
    process.waits_in_kernel = True
    machine.confirm(number=signal.SIGKILL, whole_tree=True)
    child = machine.host.fork(process)
    machine.let_pass(1.1)
    machine.let_pass(1.1)
    assert machine.session is not None
    first, late = machine.session.report.outcomes
    assert (first.signal, first.outcome) == (signal.SIGKILL, Outcome.WAITING)
    assert (late.target.id, late.outcome) == (child.id, Outcome.ENDED)
    machine.teardown()


def test_a_process_without_a_start_time_has_its_place_among_others() -> None:
    machine = Safety()
    machine.show(parents=[None], shown={0}, protected=None, readonly=False)
    machine.targets.append(Target(ProcessId(5, None), 0))
    machine.confirm(number=signal.SIGTERM, whole_tree=False)
    machine.let_pass(1.1)
    assert machine.session is not None
    found = [(each.target.id.pid, each.outcome) for each in machine.session.report.outcomes]
    assert found == [(5, Outcome.GONE), (100, Outcome.ENDED)]
    machine.teardown()


def test_a_session_waits_two_seconds_for_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UnwrittenLog, "pending", True)
    monkeypatch.setattr(UnwrittenLog, "flush", lambda *_: False, raising=False)
    machine = Safety()
    machine.show(parents=[None], shown={0}, protected=None, readonly=False)
    machine.confirm(number=signal.SIGTERM, whole_tree=False)
    assert machine.session is not None
    for seconds, is_done in ((1.75, False), (0.25, True)):
        machine.let_pass(seconds)
        assert machine.session.report.done is is_done
    machine.teardown()


def test_a_report_in_which_nothing_is_new_is_made_once_a_second() -> None:
    machine = Safety()
    machine.show(parents=[None], shown={0}, protected=None, readonly=False)
    for process in machine.host.processes.values():
        process.is_deaf = True
    machine.confirm(number=signal.SIGTERM, whole_tree=False)
    machine.let_pass(1.1)
    assert machine.session is not None
    report = machine.session.report
    machine.let_pass(0.3)
    assert machine.session.report is report
    machine.let_pass(1.1)
    assert machine.session.report.seconds > report.seconds
    machine.teardown()


@pytest.mark.parametrize("error", [OSError("no"), Refused(Refusal.UNANSWERED, "no")])
def test_what_was_confirmed_is_ended_though_its_children_cannot_be_listed(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    machine = Safety()
    machine.show(parents=[None], shown={0}, protected=None, readonly=False)
    monkeypatch.setattr(machine.host, "relatives", Mock(side_effect=error))
    machine.confirm(number=signal.SIGKILL, whole_tree=True)
    machine.the_report_is_true()
    assert not machine.host.processes
    machine.teardown()


@pytest.mark.parametrize(
    ("lost", "outcome", "refusal"),
    [
        (Safety.lose_the_connection, Outcome.UNKNOWN, Refusal.UNREACHABLE),
        (lambda machine: machine.exit(number=0), Outcome.ENDED, None),
    ],
    ids=["unreachable", "ended"],
)
def test_a_second_signal_that_is_refused_is_reported_at_once(
    lost: Callable[[Safety], None], outcome: Outcome, refusal: Refusal | None
) -> None:
    machine = Safety()
    machine.show(parents=[None], shown={0}, protected=None, readonly=False)
    machine.confirm(number=signal.SIGUSR1, whole_tree=False)
    lost(machine)
    machine.confirm(number=signal.SIGUSR1, whole_tree=False)
    assert machine.session is not None
    (found,) = machine.session.report.outcomes
    assert (found.outcome, found.refusal) == (outcome, refusal)
    machine.teardown()
