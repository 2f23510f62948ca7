"""Shows the processes, asks, sends, and waits for their end and their memory."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from gpumon.host.process_host import Refusal, Refused
from gpumon.host.refusals import signal_name
from gpumon.kill.end.outputs import Plan, as_json, plan_table, report_lines
from gpumon.kill.end.selection import NamedProcess, ProcessSelectionError, changed, select
from gpumon.kill.frozen import FROZEN
from gpumon.kill.outcome import Outcome
from gpumon.kill.report_text import report_text
from gpumon.kill.session import TerminationSession
from gpumon.sampling.enrichment import Lookup
from gpumon.sampling.gpu_sampler import PATIENCE, GpuSampler
from gpumon.system.ending_signals import exit_on_signals
from gpumon.text.formatting import counted, printable
from gpumon.text.status_line import StatusLine, columns, tell, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpumon.host.process_host import ProcessHost, Target
    from gpumon.kill.audit_log import AuditLog
    from gpumon.kill.end.selection import SelectedTargets
    from gpumon.kill.outcome import TerminationReport
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

    named: Sequence[NamedProcess]
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
        tell("there is no terminal to ask on: --yes sends without asking, --dry-run shows whom.")
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
        return [f"{name} was not sent: it would reach none of them."]
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
    ended = report.outcomes and all(one.outcome in over for one in report.outcomes)
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
    return not report.outcomes or any(one.outcome is Outcome.WAITING for one in report.outcomes)
