"""``gpumon end``: finds the processes, asks, sends, and waits for their end and their memory.

A PID on a command line may be old, and name another process by now. So only a process that holds a
GPU is accepted by its PID alone. A launcher above such processes, or a child below one, holds none
itself, and nothing shows that it is the intended process: it needs its start time, too.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from gpumon.host.process_host import (
    Refusal,
    Refused,
    target_of,
    target_of_holder,
    target_of_relative,
)
from gpumon.host.refusals import signal_name
from gpumon.kill.end_output import Plan, as_json, plan_table, report_lines
from gpumon.kill.frozen import FROZEN
from gpumon.kill.outcome import Outcome, report_text
from gpumon.kill.session import TerminationSession
from gpumon.kill.target import descendants
from gpumon.sampling.enrichment import Lookup
from gpumon.sampling.gpu_sampler import PATIENCE, GpuSampler
from gpumon.system.ending_signals import exit_on_signals
from gpumon.text.formatting import counted, printable
from gpumon.text.status_line import StatusLine, columns, tell, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpumon.host.process_host import ProcessHost, RelatedProcess, Target
    from gpumon.kill.audit_log import AuditLog
    from gpumon.kill.outcome import TerminationReport
    from gpumon.model.processes import ProcessId, UnlistedHolder
    from gpumon.model.snapshot import Snapshot
    from gpumon.sampling.machine import Machine

EXIT_SOME = 1
"""Some have not ended, or nothing was sent."""
EXIT_USAGE = 2
_INTERRUPTED = 128 + 2
_INTERVAL = 0.5
_SOON = 0.1
"""Seconds between samples while memory is to come back."""
_STATUS_SECONDS = 0.1
_CLOSE_SECONDS = 2.0
_KILL_HINT = "--signal KILL ends them at once"


class EndResult(NamedTuple):
    """What ``end`` did."""

    # 0 if all have ended, 1 if some have not or nothing was sent, 2 if there is nobody to ask, 130
    # if interrupted
    status: int
    text: str = ""  # for standard output, safe to print; empty if nothing was sent


class EndRequest(NamedTuple):
    """Which processes to end, and how."""

    named: Sequence[ProcessId]  # their start times as far as the user says them
    number: int  # the signal
    children: bool  # whether their descendants get it, too
    dry_run: bool  # whether nothing is sent
    yes: bool  # whether not to ask
    as_json: bool
    timeout: float  # seconds to wait for the end of all, and before that for a driver


def end(machine: Machine, audit_log: AuditLog, request: EndRequest) -> EndResult:
    """End processes.

    Args:
        machine: The machine of the processes; its source is opened and closed here.
        audit_log: The log of signals.
        request: What to do.

    Raises:
        SourceError: There is no list of the processes on the GPUs.
    """
    asks = not (request.yes or request.dry_run)
    if asks and not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
        tell(
            "there is no terminal to ask on: --yes sends without asking, --dry-run only lists "
            "processes."
        )
        return EndResult(EXIT_USAGE)
    sampler = GpuSampler(machine.source, _INTERVAL)
    samples = _Samples(sampler)
    host = machine.processes
    with sampler:
        snapshot = Lookup(host).look_once(samples.first(min(PATIENCE, request.timeout)))
        try:
            selection = select(request.named, snapshot, host, children=request.children)
            plan = _plan(selection, host, request.number, machine.name)
        except ProcessSelectionError as error:
            for sentence in error.sentences:
                tell(sentence)
            return EndResult(EXIT_SOME)
        except Refused as refused:
            tell(printable(refused.sentence))
            return EndResult(EXIT_SOME)
        if request.dry_run:
            text = as_json(plan) if request.as_json else plan_table(plan, _width())
            return EndResult(EXIT_SOME if plan.obstacles else 0, text)
        if asks:
            try:
                refusal = _ask(plan, selection, host)
            except Refused as refused:
                refusal = [printable(refused.sentence)]
            if refusal:
                for sentence in refusal:
                    tell(sentence)
                return EndResult(EXIT_SOME)
        session = TerminationSession(host, plan.targets, audit_log=audit_log)
        return _send(plan, samples, session, request)


def _width() -> int | None:
    """Cells of standard output's terminal; ``None`` if it is not one."""
    return shutil.get_terminal_size().columns if _is_terminal(sys.stdout) else None


def _is_terminal(stream: object) -> bool:
    isatty = getattr(stream, "isatty", None)
    return isatty is not None and isatty()


# -- selection -------------------------------------------------------------------------------------


class ProcessSelectionError(Exception):
    """Not all processes were found."""

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__(" ".join(sentences))
        self.sentences = tuple(sentences)  # what is wrong, for each process, safe to print


class SelectedTargets(NamedTuple):
    """The processes to end."""

    targets: tuple[Target, ...]  # those that the user named, in that order
    children: tuple[Target, ...]  # their descendants, if these are to be ended, too
    programs: dict[ProcessId, object]  # what shows whether one has started another program

    @property
    def all(self) -> tuple[Target, ...]:
        """The processes to signal."""
        return self.targets + self.children


def select(
    named: Sequence[ProcessId], snapshot: Snapshot, host: ProcessHost, *, children: bool
) -> SelectedTargets:
    """Find the processes, and with ``children`` their descendants.

    Raises:
        ProcessSelectionError: One of them is not found, or is another process than the named one.
        Refused: The machine cannot be asked.
    """
    relatives = host.relatives([process.id for process in snapshot.processes if process.visible])
    holders = snapshot.holders
    if any(_listed(process, snapshot) is None for process in named):
        holders = host.scan(snapshot) or holders
    suspects = () if holders is None else holders.suspects
    targets, faults = [], []
    for process in named:
        found = _find(process, snapshot, suspects, relatives)
        if isinstance(found, str):
            faults.append(found)
        elif found not in targets:
            targets.append(found)
    if faults:
        raise ProcessSelectionError(faults)
    relatives = host.relatives([target.id for target in targets])
    below: list[Target] = []
    if children:
        ids = {target.id for target in targets}
        found_below = descendants(targets, relatives, snapshot.processes)
        below = [target for target in found_below if target.id not in ids]
    return SelectedTargets(tuple(targets), tuple(below), _programs(relatives))


def changed(selection: SelectedTargets, host: ProcessHost) -> list[str]:
    """The processes that have started another program meanwhile, a sentence each.

    Raises:
        Refused: The machine cannot be asked.
    """
    ids = [target.id for target in selection.all]
    now = _programs(host.relatives(ids))
    return [
        f"{id_.pid} has started another program meanwhile, so nothing was sent: check it again."
        for id_ in ids
        if id_ in now and id_ in selection.programs and now[id_] != selection.programs[id_]
    ]


def _programs(relatives: Sequence[RelatedProcess]) -> dict[ProcessId, object]:
    """What changes with every exec of a process; a command line alone may also be rewritten."""
    return {
        relative.id: relative.command if relative.stack_start is None else relative.stack_start
        for relative in relatives
    }


def _find(
    named: ProcessId,
    snapshot: Snapshot,
    suspects: Sequence[UnlistedHolder],
    relatives: Sequence[RelatedProcess],
) -> Target | str:
    """The target, or what is wrong in a sentence."""
    found = _listed(named, snapshot)
    if found is None:
        suspect = next((suspect for suspect in suspects if suspect.id.pid == named.pid), None)
        found = None if suspect is None else target_of_holder(suspect)
    relative = next((relative for relative in relatives if relative.id.pid == named.pid), None)
    if found is None and relative is not None:
        if named.start_time is None:
            return _needs_start(relative, snapshot, relatives)
        found = target_of_relative(relative)
    if found is None:
        return f"{named.pid} is on no GPU{_unknown(snapshot)}: to end it anyway, use kill."
    if named.start_time not in (None, found.id.start_time):
        return (
            f"{named.pid} is another process now; the one that started at {named.start_time} "
            "has ended."
        )
    return found


def _listed(named: ProcessId, snapshot: Snapshot) -> Target | None:
    listed = [process for process in snapshot.processes if process.id.pid == named.pid]
    # Two may be listed: one of another PID namespace, which the host refuses.
    best = next((process for process in listed if process.visible), None)
    if best is None:
        return target_of(listed[0]) if listed else None
    return target_of(best)


def _needs_start(
    relative: RelatedProcess, snapshot: Snapshot, relatives: Sequence[RelatedProcess]
) -> str:
    """What to write for a relative of a process on a GPU."""
    pid, name = relative.id.pid, printable(relative.name)
    on_gpus = {process.id for process in snapshot.processes}
    below = [
        target.id.pid
        for target in descendants([target_of_relative(relative)], relatives, ())
        if target.id in on_gpus
    ]
    what = (
        f"is an ancestor of {below[0]}, which is on one" if below else "belongs to a process on one"
    )
    return (
        f"{pid} ({name}) is on no GPU, but {what}: "
        f"if you mean it, write {pid}:{relative.id.start_time}."
    )


def _unknown(snapshot: Snapshot) -> str:
    """The GPUs whose processes are not known, if there are any."""
    unknown = [str(gpu.index) for gpu in snapshot.gpus if "processes" in gpu.unknown]
    return f" as far as known (not GPU {','.join(unknown)})" if unknown else ""


# -- before ----------------------------------------------------------------------------------------


def _plan(selection: SelectedTargets, host: ProcessHost, number: int, machine: str | None) -> Plan:
    obstacles = {
        target.id: refused
        for target in selection.all
        if (refused := _obstacle(target, host)) is not None
    }
    children = frozenset(target.id for target in selection.children)
    return Plan(number, selection.all, children, obstacles, machine)


def _obstacle(target: Target, host: ProcessHost) -> Refused | None:
    """Why a process would get no signal now: the kernel checks the permission for signal 0."""
    try:
        handle = host.open_handle(target)
        try:
            handle.send(0)
        finally:
            handle.close()
    except Refused as refused:
        if refused.reason is not Refusal.NOT_PERMITTED:
            return refused
        owner = printable(target.user or "another user")
        return Refused(refused.reason, f"{target.id.pid} is {owner}'s, and you may not signal it")
    return None


def _ask(plan: Plan, selection: SelectedTargets, host: ProcessHost) -> list[str]:
    """Ask whether to send; why not, if not."""
    write(plan_table(plan, columns()))
    reached = len(plan.targets) - len(plan.obstacles)
    name = signal_name(plan.number)
    if not reached:
        return [f"{name} was not sent: it would reach no process."]
    _forget_typed()
    where = "" if plan.machine is None else f" on {plan.machine}"
    write(f"Send {name} to {counted(reached, 'process', 'es')}{where}? [y/N] ")
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        write("\n")
    if answer.strip().lower() not in {"y", "yes"}:
        return [f"{name} was not sent."]
    return changed(selection, host)


def _forget_typed() -> None:
    """Drop what was typed before the question: it does not answer it."""
    import termios

    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


# -- sampling --------------------------------------------------------------------------------------


class _Samples:
    """The newest snapshot, and a session that takes each.

    Args:
        sampler: Samples the machine.
    """

    def __init__(self, sampler: GpuSampler) -> None:
        self._sampler = sampler
        self._newest: Snapshot | None = None
        self._session: TerminationSession | None = None
        sampler.collector.subscribe(self._take)

    def first(self, patience: float) -> Snapshot:
        """Wait for the first snapshot. Errors are those of ``GpuSampler.look``."""
        snapshot = self._sampler.first(patience)
        # ``_take`` gets it a moment later.
        self._newest = self._newest or snapshot
        return snapshot

    def watch(self, session: TerminationSession) -> None:
        """Pass the newest snapshot, and from now on each with a new process list."""
        self._sampler.collector.interval = _SOON
        if self._newest is not None:
            session.see(self._newest)
        self._session = session

    def _take(self, snapshot: Snapshot) -> None:
        before = self._newest
        # Process lists are read less often than memory: only in the first snapshot with a new list
        # do both have the same time.
        if (
            before is None
            or snapshot.processes_at is None
            or snapshot.processes_at != before.processes_at
        ):
            self._newest = snapshot
            if self._session is not None:
                self._session.see(snapshot)


# -- after -----------------------------------------------------------------------------------------


def _send(
    plan: Plan, samples: _Samples, session: TerminationSession, request: EndRequest
) -> EndResult:
    samples.watch(session)
    interrupted = False
    # However it ends, the session sends what it has begun to send.
    ending = exit_on_signals(signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    with ending as received, _suspending_in_order():
        try:
            session.send(plan.number, whole_tree=request.children)
            _wait(session, request.timeout, received)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            session.close()
            session.join(_CLOSE_SECONDS)
    if session.failure is not None:
        raise session.failure
    report = session.report
    text = as_json(plan, report) if request.as_json else report_lines(report, _KILL_HINT, _width())
    if interrupted:
        return EndResult(_INTERRUPTED, text)
    over = {Outcome.ENDED, Outcome.GONE}
    ended = report.outcomes and all(each.outcome in over for each in report.outcomes)
    return EndResult(0 if ended else EXIT_SOME, text)


@contextmanager
def _suspending_in_order() -> Iterator[None]:
    """Within the block, Ctrl+Z stops this program only while it keeps no other one stopped."""

    def suspend(*_: object) -> None:
        with FROZEN.suspended():
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, suspend)

    before = signal.signal(signal.SIGTSTP, suspend)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGTSTP, before)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)


def _wait(session: TerminationSession, timeout: float, received: list[int]) -> None:
    """Wait until all is known of the processes and their memory, or a signal was received."""
    deadline = time.monotonic() + timeout
    with StatusLine(sys.stderr) as status_line:
        while not (session.report.done or session.failure or received):
            report = session.report
            if time.monotonic() >= deadline and _waits(report):
                return
            if report.outcomes:
                status_line.show([report_text(report, _KILL_HINT).summary])
            time.sleep(_STATUS_SECONDS)


def _waits(report: TerminationReport) -> bool:
    """Whether a process has not ended yet; memory comes back, or does not, in bounded time."""
    return not report.outcomes or any(each.outcome is Outcome.WAITING for each in report.outcomes)
