"""Terminates processes, from the dialog to the reclaimed memory."""

from __future__ import annotations

import signal
import time
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from gpumon.findings.memory import memory_account
from gpumon.host.process_host import Target, target_of
from gpumon.kill.outcome import Outcome
from gpumon.kill.session import TerminationSession
from gpumon.kill.target import descendants
from gpumon.model.processes import GpuUse, HoldReason
from gpumon.ui.background import call_soon, run_in_thread
from gpumon.ui.dialogs.end import EndDialog
from gpumon.ui.view.dashboard_layout import TOO_SMALL, is_tiny

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import App

    from gpumon.findings.groups import JobGroup
    from gpumon.host.process_host import RelatedProcess
    from gpumon.kill.outcome import TerminationReport
    from gpumon.model.processes import ProcessId
    from gpumon.model.snapshot import Snapshot
    from gpumon.ui.dialogs.end import SignalChoice
    from gpumon.ui.session import Session


_HOLDS_NOTHING = (HoldReason.OBSERVER, HoldReason.CHILD)
"""Why a process has the file of a GPU open, and no memory there that the driver does not list."""

CLOSE_SECONDS = 2.0
"""Maximum seconds to wait at exit for pending signals of all terminations."""

SHOWN_SECONDS = 60.0
"""Seconds for which the report of a successful termination is shown; others stay until Esc."""


class KillController:
    """Opens the dialog, starts terminations, and keeps their reports until they are dismissed.

    It calls ``changed`` on the application's thread when a report has changed.
    """

    def __init__(
        self,
        app: App[int],
        session: Session,
        changed: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._app = app
        self._session = session
        self._changed = changed
        self._say = say
        self._open: list[TerminationSession] = []
        self._closing: list[TerminationSession] = []
        self._done_at: dict[int, float] = {}
        self._newest_listed: Snapshot | None = None

    @property
    def reports(self) -> tuple[TerminationReport, ...]:
        """The reports, oldest first."""
        return tuple(termination.report for termination in self._open)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Pass a newer snapshot, to find reclaimed memory in it."""
        at, listed = snapshot.processes_at, self._newest_listed
        # Process lists are read less often than memory: only in the first snapshot with a new list
        # do both have the same time.
        if listed is None or at is None or at != listed.processes_at:
            self._newest_listed = snapshot
            for termination in self._open:
                termination.see(snapshot)
        now = time.monotonic()
        for termination in list(self._open):
            report = termination.report
            if not report.done:
                continue
            done_at = self._done_at.setdefault(id(termination), now)
            if _went_well(report) and now - done_at > SHOWN_SECONDS:
                self._forget(termination)

    def ask(self, targets: Sequence[Target], name: str = "") -> None:
        """Open the dialog for these processes; their children are read meanwhile.

        KILL is proposed if an earlier signal has not ended them in time. The name is what they are
        together, such as a job.
        """
        host = self._session.machine.processes
        if host.readonly:
            self._say("gpumon is read-only here: no signal is sent")
            return
        if isinstance(self._app.screen, EndDialog):
            return
        if is_tiny(*self._app.size):
            self._say(TOO_SMALL)
            return
        targets = tuple(map(self._with_held_gpus, targets))
        asked = [target.id for target in targets]
        offered = any(
            report.offers_kill and set(asked) <= _waiting(report) for report in self.reports
        )
        number = signal.SIGKILL if offered else signal.SIGTERM
        latest = self._session.history.latest
        now = None if latest is None else latest.time

        def look() -> Sequence[RelatedProcess]:
            return host.relatives(asked)

        unattributed = self._unattributed(targets)
        dialog = EndDialog(targets, host.uid, number, now, look, name, unattributed)
        self._app.push_screen(dialog, self._begin)

        def found(family: Sequence[RelatedProcess]) -> None:
            protected = {relative.id for relative in family if relative.protected}
            free = [target for target in targets if target.id not in protected]
            latest = self._session.history.latest
            children = descendants(free, family, latest.processes if latest else ())
            named = [child for child in children if child.id not in asked]
            dialog.add_children(named, protected, family)

        run_in_thread(
            self._app,
            look,
            found,
            lambda _: dialog.add_children(None),
            name="gpumon-relatives",
        )

    def _with_held_gpus(self, target: Target) -> Target:
        """The target with the GPUs that it holds unlisted, of which the memory is unknown."""
        latest = self._session.history.latest
        if target.uses or latest is None or latest.holders is None:
            return target
        held = {
            uuid
            for suspect in latest.holders.suspects
            for uuid in suspect.gpu_uuids
            if suspect.id == target.id and suspect.reason not in _HOLDS_NOTHING
        }
        uses = tuple(
            GpuUse(gpu.uuid, gpu.index, memory_used=None) for gpu in latest.gpus if gpu.uuid in held
        )
        return msgspec.structs.replace(target, uses=uses)

    def _unattributed(self, targets: Sequence[Target]) -> dict[int, int]:
        """Bytes without an owner on the GPUs where it is unknown what the targets hold."""
        history = self._session.history
        unknown = {
            use.gpu_uuid for target in targets for use in target.uses if use.memory_used is None
        }
        gpus = () if history.latest is None else history.latest.gpus
        accounts = [
            (gpu.index, memory_account(history, gpu)) for gpu in gpus if gpu.uuid in unknown
        ]
        return {index: account.unattributed for index, account in accounts if account.unattributed}

    def ask_again(self) -> bool:
        """Propose KILL for the newest termination that offers it; False if there is none."""
        for report in reversed(self.reports):
            if report.offers_kill:
                waiting = _waiting(report)
                targets = [fate.target for fate in report.outcomes if fate.target.id in waiting]
                self.ask(targets, report.name)
                return True
        return False

    def dismiss(self) -> bool:
        """Dismiss the newest report that is complete or offers KILL; False if there is none."""
        for termination in reversed(self._open):
            if _is_final(termination.report) or termination.report.offers_kill:
                self._forget(termination)
                return True
        return False

    def close(self) -> None:
        """Send pending signals, and release all processes.

        Raises:
            BaseException: A bug in one of the terminations.
        """
        terminations = [*self._open, *self._closing]
        for termination in terminations:
            termination.close()
        deadline = time.monotonic() + CLOSE_SECONDS
        for termination in terminations:
            termination.join(max(0.0, deadline - time.monotonic()))
        for termination in terminations:
            if termination.failure is not None:
                raise termination.failure

    def _begin(self, choice: SignalChoice | None) -> None:
        if choice is None:
            # The dialog closes by itself where it could no longer name the processes.
            if is_tiny(*self._app.size):
                self._say(TOO_SMALL)
            return
        termination = self._termination_of(choice.targets) or self._new_termination(choice)
        termination.send(choice.number, whole_tree=choice.whole_tree)
        self._changed()

    def _termination_of(self, targets: Sequence[Target]) -> TerminationSession | None:
        """The termination that has exactly these living processes.

        A refused process needs a new termination, which tries it again.
        """
        named = {target.id: target.command for target in targets}
        for termination in self._open:
            waiting = _waiting(termination.report)
            reached = {
                fate.target.id: fate.target.command
                for fate in termination.report.outcomes
                if fate.outcome is not Outcome.REFUSED
            }
            # A process with another command is confirmed anew, and logged with that command.
            if waiting and waiting <= named.keys() and named.items() <= reached.items():
                return termination
        return None

    def _new_termination(self, choice: SignalChoice) -> TerminationSession:
        session = self._session
        termination = TerminationSession(
            session.machine.processes,
            choice.targets,
            audit_log=session.audit_log,
            changed=partial(call_soon, self._app, self._changed),
            name=choice.name,
        )
        latest = self._newest_listed or session.history.latest
        if latest is not None:
            termination.see(latest)
        self._open.append(termination)
        return termination

    def _forget(self, termination: TerminationSession) -> None:
        termination.close()
        self._closing = [
            session for session in (*self._closing, termination) if not session.join(0)
        ]
        self._open.remove(termination)
        self._done_at.pop(id(termination), None)


def _waiting(report: TerminationReport) -> set[ProcessId]:
    return {fate.target.id for fate in report.outcomes if fate.outcome is Outcome.WAITING}


def _is_final(report: TerminationReport) -> bool:
    """Whether a report's result is final; zombies or the audit log may still be pending."""
    over = report.outcomes and not _waiting(report) and all(gpu.settled for gpu in report.memory)
    return report.done or bool(over)


def _went_well(report: TerminationReport) -> bool:
    return (
        all(fate.outcome in {Outcome.ENDED, Outcome.GONE} for fate in report.outcomes)
        and not any(fate.sentence for fate in report.outcomes)
        and not any(gpu.short for gpu in report.memory)
        and not report.unlogged
    )


def targets_of_job(job: JobGroup) -> tuple[Target, ...]:
    """The launcher of a job, which could restart its workers, and the processes on GPUs.

    Of a launcher on no GPU only the identity is known; the dialog looks up the rest.
    """
    targets = tuple(map(target_of, job.processes))
    if job.launcher is None or any(target.id == job.launcher for target in targets):
        return targets
    return Target(job.launcher, None, name=job.launcher_name), *targets
