"""Terminates processes on its own thread, and follows them until they have exited.

Older processes get the signal first, so parents come before their children, because no child is
older than its parent. Otherwise torchrun, a shell loop or a supervisor would restart workers that
die first, and the parent of a DataLoader would report a crash; a parent that gets the signal first
ends its children itself. The children get the same signal a moment later in case it does not.
multiprocessing's resource tracker ignores TERM and INT, and removes shared memory once all the
others have exited, so it loses nothing by being last.

SIGKILL gives a parent no time to end its children, and a process that forks while the others die
leaves orphans that cannot be traced. So a whole tree is stopped before it is killed: stopped
processes can be counted. Other signals work through the programs themselves and are sent to running
processes. Children that appear later are searched for every second and get the same signal: as long
as KILL takes, but only for a few seconds after a signal that asks for an end, because a program
that survives it (a notebook that was interrupted) then forks for other work.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from gpumon.host.process_host import Refusal, Refused, target_of_relative
from gpumon.kill.memory_reclaimed import MemoryWatch
from gpumon.kill.outcome import PATIENCE, TerminationReport
from gpumon.kill.target import TargetState, ends, requests_end
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.host.process_host import ProcessHost, RelatedProcess, Target
    from gpumon.kill.audit_log import AuditLog
    from gpumon.kill.outcome import MemoryReclaimed
    from gpumon.model.processes import ProcessId
    from gpumon.model.snapshot import Snapshot
    from gpumon.system.system import System

_SLICE_SECONDS = 0.1
"""Maximum seconds that a new order is delayed while the thread waits for exits."""
_CHECK_SECONDS = 1.0
_FIRST_CHECK_SECONDS = 0.2
_FREEZE_SECONDS = 10.0
"""A tree of hundreds that fork on a busy machine takes some seconds to stop."""
_STOP_SECONDS = 1.0
"""So long processes that were sent SIGSTOP may go on running."""
_STILL = "TtZXD"
"""States without forks; a process that waits in the kernel stops before it returns."""
_IDLE_SECONDS = 3600.0
_LOG_SECONDS = 2.0


class TerminationSession:
    """Processes to terminate, from the first signal until all outcomes are known.

    A system call may hang, and then only the thread of this session hangs. A bug there is never
    silent: ``failure`` holds it, and ``see`` raises it.

    Args:
        host: The processes of the machine.
        targets: The processes to signal: exactly those shown to the user.
        audit_log: The audit log.
        system: The operating system.
        changed: Called on the session's thread when the report has changed, and every second while
            it waits.
        name: What the targets are together, for the report.
    """

    def __init__(
        self,
        host: ProcessHost,
        targets: Sequence[Target],
        *,
        audit_log: AuditLog,
        system: System = THIS_SYSTEM,
        changed: Callable[[], None] = lambda: None,
        name: str = "",
    ) -> None:
        self._host = host
        self._audit_log = audit_log
        self._clock = system.clock
        self._changed = changed
        self._states = {target.id: TargetState(target) for target in sorted(targets, key=_age)}
        self._relatives = set(self._states)
        self._orders: deque[tuple[int, bool]] = deque()
        self._news = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._newest: Snapshot | None = None
        self._before: Snapshot | None = None
        self._watch: MemoryWatch | None = None
        self._scanned_at = 0.0
        self._number = 0
        self._whole_tree = False
        self._expects_exit = False
        self._sent_at = 0.0
        self._next_check_at = 0.0
        self._published_at = 0.0
        self._logged_at = 0.0
        self._failure: BaseException | None = None
        self._report = TerminationReport(0, 0.0, (), name=name)

    @property
    def failure(self) -> BaseException | None:
        """The bug that ended the session's thread."""
        return self._failure

    @property
    def report(self) -> TerminationReport:
        """The current state. Thread-safe."""
        return self._report

    def send(self, number: int, *, whole_tree: bool = False) -> None:
        """Send a signal to all targets that are still alive. Returns at once.

        Args:
            number: The signal.
            whole_tree: Whether to include children forked since the dialog was shown.

        Raises:
            ValueError: There is no such signal.
        """
        if number not in signal.valid_signals():
            raise ValueError(f"there is no signal {number}")
        if ends(number) and self._before is None:
            self._before = self._newest
        self._orders.append((number, whole_tree))
        self._news.set()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run_guarded, name="gpumon-ending", daemon=True
            )
            self._thread.start()

    def see(self, snapshot: Snapshot) -> None:
        """Pass a newer snapshot, to find reclaimed memory in it. Thread-safe.

        The process lists should be as new as the GPU values: otherwise allocations of other
        processes between the two would be attributed to the targets.

        Raises:
            BaseException: The bug that is in ``failure``, if there is one.
        """
        if self._failure is not None:
            raise self._failure
        self._newest = snapshot
        if not self._report.done or any(gpu.open for gpu in self._report.memory):
            self._news.set()

    def close(self) -> None:
        """Send pending signals, then release all handles. Returns at once."""
        self._closing.set()
        self._news.set()

    def join(self, seconds: float) -> bool:
        """Wait until that is done; False if it takes longer."""
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run_guarded(self) -> None:
        """Run the thread; an exception is kept for the owner."""
        try:
            self._run()
        except BaseException as failure:  # noqa: BLE001 - a thread has nobody above it to see this
            self._failure = failure
        finally:
            for state in self._states.values():
                self._thaw(state)
                state.release()

    def _run(self) -> None:
        while self._orders or not self._closing.is_set():
            self._news.clear()
            while self._orders:
                self._execute(*self._orders.popleft())
            self._update()
            self._publish_report()
            self._wait()
        for state in self._states.values():
            if self._expects_exit and state.waiting and state.signal is not None:
                self._log(state, state.signal, "still there")

    def _wait(self) -> None:
        """Wait for the next exit, order or snapshot."""
        handles = [
            state.handle for state in self._states.values() if state.waiting and state.handle
        ]
        if self._closing.is_set():
            return
        if self._report.done:
            self._clock.wait(self._news, _IDLE_SECONDS)
        elif handles and not self._news.is_set():
            self._host.wait(handles, _SLICE_SECONDS)
        else:
            self._clock.wait(self._news, _FIRST_CHECK_SECONDS)

    def _execute(self, number: int, whole_tree: bool) -> None:
        """Send a signal to all living targets."""
        first, self._number = not self._number, number
        self._whole_tree = whole_tree and requests_end(number)
        if first:
            for state in self._states.values():
                self._open_handle(state)
            self._refuse_descendants()
        self._find_children()
        if number == signal.SIGKILL and self._whole_tree:
            self._freeze()
        if ends(number):
            self._expects_exit = True
            if self._watch is None and self._before is not None:
                self._watch = MemoryWatch(self._before, self._clock.time())
        for state in self._states.values():
            self._send(state, number)
        self._sent_at = self._clock.monotonic()
        self._next_check_at = self._sent_at + _FIRST_CHECK_SECONDS

    def _open_handle(self, state: TargetState) -> None:
        try:
            state.handle = self._host.open_handle(state.target)
        except Refused as refused:
            self._refuse(state, refused, self._number)
        except OSError as error:
            self._fail(state, error, self._number)

    def _refuse_descendants(self) -> None:
        """Refuse the descendants of a process that is protected or was replaced."""
        barred: dict[int | None, Refusal] = {
            state.target.id.pid: state.refusal
            for state in self._states.values()
            if state.refusal in (Refusal.PROTECTED, Refusal.REUSED)
        }
        while below := [
            state
            for state in self._states.values()
            if state.handle and state.target.parent in barred
        ]:
            for state in below:
                pid, parent = state.target.id.pid, state.target.parent
                reason = barred[pid] = barred[parent]
                sentence = (
                    f"{pid} is a descendant of {parent}, which gets no signal: choose {pid} by "
                    "itself"
                )
                self._refuse(state, Refused(reason, sentence), self._number)

    def _thaw(self, state: TargetState) -> None:
        """Continue a process that was stopped for SIGKILL, and gets none."""
        if state.handle is not None and state.handle.thaw():
            self._log(state, signal.SIGCONT, "sent")

    def _refuse(self, state: TargetState, refused: Refused, number: int) -> None:
        self._thaw(state)
        state.refuse(refused)
        self._log(state, number, refused.reason.value)

    def _fail(self, state: TargetState, error: OSError, number: int) -> None:
        self._thaw(state)
        state.fail(error)
        self._log(state, number, error.strerror or str(error))

    def _log(self, state: TargetState, number: int, outcome: str) -> None:
        self._logged_at = self._clock.monotonic()
        self._audit_log.write(state.target, number, outcome)

    def _send(self, state: TargetState, number: int, *, freeze: bool = False) -> None:
        if not state.waiting or state.handle is None:
            return
        try:
            if freeze:
                state.handle.freeze()
            else:
                state.handle.send(number)
        except Refused as refused:
            self._refuse(state, refused, number)
        except OSError as error:
            self._fail(state, error, number)
        else:
            state.sent(number, self._clock.monotonic())
            self._log(state, number, "sent")

    def _freeze(self) -> None:
        """Stop the whole tree, including processes forked meanwhile."""
        deadline = self._clock.monotonic() + _FREEZE_SECONDS
        pause = threading.Event()
        stopped: set[ProcessId] = set()
        # A fork that was in progress when its parent was stopped shows in the second scan.
        scans_without_children = 0
        while scans_without_children < 2 and self._clock.monotonic() < deadline:
            for id_, state in list(self._states.items()):
                if id_ not in stopped and state.signal != signal.SIGKILL:
                    stopped.add(id_)
                    self._send(state, signal.SIGSTOP, freeze=True)
            still_at = min(deadline, self._clock.monotonic() + _STOP_SECONDS)
            while self._any_running() and self._clock.monotonic() < still_at:
                self._clock.wait(pause, 0.001)
            scans_without_children = 0 if self._find_children() else scans_without_children + 1

    def _any_running(self) -> bool:
        statuses = (state.handle.status() for state in self._states.values() if state.handle)
        try:
            return any(status and status.state not in _STILL for status in statuses)
        except Refused:
            return False  # The signals that follow are refused, too.

    def _find_children(self) -> list[TargetState]:
        """Open handles on new descendants, if the whole tree is to be terminated.

        A parent PID in the process table is reliable only if that parent was alive all the time. So
        a process counts as a child only of one that is held and is alive after the table was read.
        """
        roots = [id_ for id_, state in self._states.items() if state.alive]
        if not roots:
            return []
        try:
            relatives = self._host.relatives(roots)
        except (OSError, Refused):
            return []  # The targets were confirmed: they get the signal, late children do not.
        parents = {id_.pid: id_ for id_ in roots if self._states[id_].alive}
        found = []
        for relative in relatives:
            parent = parents.get(relative.parent)
            if parent is None or (relative.id.start_time or 0) < (parent.start_time or 0):
                continue
            self._relatives.add(relative.id)
            if not self._whole_tree:
                parents[relative.id.pid] = relative.id
                continue
            state = self._states.get(relative.id)
            if state is None and (state := self._add_child(relative, parent)) is not None:
                found.append(state)
            if state is not None and state.alive:
                parents[relative.id.pid] = relative.id
        return found

    def _add_child(self, relative: RelatedProcess, parent: ProcessId) -> TargetState | None:
        """Add a late child to the session, unless it has exited already."""
        listed = () if self._newest is None else self._newest.processes
        uses = next((process.uses for process in listed if process.id == relative.id), ())
        state = TargetState(
            target_of_relative(relative, uses, self._states[parent].target.place), late=True
        )
        try:
            state.handle = self._host.open_handle(state.target)
        except OSError:
            return None  # Too many open files; it is found again once others have exited.
        except Refused as refused:
            if refused.reason is Refusal.GONE:
                return None
            self._refuse(state, refused, self._number)
        self._states[relative.id] = state
        return state

    def _update(self) -> None:
        """Update the outcomes: often for exits, every second for the rest."""
        now, time = self._clock.monotonic(), self._clock.time()
        for state in self._states.values():
            if state.update(now, time) and state.signal is not None:
                self._log(state, state.signal, f"ended after {state.seconds:.1f} s")
        if now >= self._next_check_at:
            self._next_check_at = now + _CHECK_SECONDS
            for state in self._states.values():
                self._read_status(state)
            if self._number == signal.SIGKILL or now - self._sent_at < PATIENCE:
                self._signal_late_children()

    def _read_status(self, state: TargetState) -> None:
        try:
            state.read_status()
        except Refused as refused:
            self._refuse(state, refused, self._number)

    def _signal_late_children(self) -> None:
        if not self._whole_tree or not self._find_children():
            return
        if self._number == signal.SIGKILL:
            self._freeze()
        for state in self._states.values():
            if state.late and state.signal in (None, signal.SIGSTOP):
                self._send(state, self._number)

    def _reclaimed(self, now: float) -> tuple[MemoryReclaimed, ...]:
        if self._watch is None:
            return ()
        states, time = list(self._states.values()), self._clock.time()
        memory = self._watch.update(self._newest, states, now, time)
        if self._newest is None:
            return memory
        if self._watch.unexplained:
            scan = self._host.scan(self._newest)
        else:
            scan = self._newest.holders
            if scan is None or scan.at <= self._scanned_at:
                return memory
        self._scanned_at = time
        self._watch.explain(scan, self._relatives)
        return self._watch.update(self._newest, states, now, time)

    def _publish_report(self) -> None:
        """Make a new report, and announce it if it has changed."""
        now = self._clock.monotonic()
        states = self._states.values()
        memory = self._reclaimed(now)
        waiting = self._expects_exit and any(state.waiting for state in states)
        done = (
            not waiting
            and all(gpu.settled for gpu in memory)
            and all(state.waiting or state.settled(now) for state in states)
            and self._logged(now)
            and not self._orders
        )
        report = TerminationReport(
            self._number,
            now - self._sent_at,
            tuple(state.result(now) for state in states),
            memory,
            offers_kill=waiting and now - self._sent_at >= PATIENCE,
            done=done,
            unlogged=self._audit_log.failure or self._report.unlogged,
            name=self._report.name,
        )
        as_before = msgspec.structs.replace(report, seconds=self._report.seconds) == self._report
        if as_before and (report.done or now - self._published_at < _CHECK_SECONDS):
            return
        self._report, self._published_at = report, now
        self._changed()

    def _logged(self, now: float) -> bool:
        """Whether the audit log is complete, or has not answered within its time."""
        if not self._audit_log.pending:
            return True
        if now - self._logged_at < _LOG_SECONDS:
            return False
        self._audit_log.flush(0)  # It announces that itself from now on.
        return True


def _age(target: Target) -> tuple[int, int]:
    return target.id.start_time or 0, target.id.pid
