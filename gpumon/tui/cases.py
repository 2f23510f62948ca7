"""The ending of processes, from the question to the memory that came back."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING

from gpumon.ending import Case, Outcome
from gpumon.host import target_of_kin
from gpumon.tui.dialogs.end import EndDialog
from gpumon.tui.errand import run_errand

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import App

    from gpumon.ending import Report
    from gpumon.host import Kin, Target
    from gpumon.model import ProcessId, Snapshot
    from gpumon.tui.dialogs.end import Choice
    from gpumon.tui.session import Session

_CLOSE_SECONDS = 2.0
"""How long the program's end waits for what was ordered, all cases together."""

_SHOWN_SECONDS = 60.0
"""How long the report of a case stays once all is well; what went wrong stays until Esc."""


class Cases:
    """Asks, sends, and stays with every case until it is dismissed.

    Args:
        app: Where the dialog opens.
        session: Whom to ask and what to write.
        changed: Called, on the screen's thread, when there is something new to show.
        say: Puts a sentence before the person.
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
        self._open: list[Case] = []
        self._leaving: list[Case] = []
        self._done_at: dict[int, float] = {}
        self._newest_listed: Snapshot | None = None

    @property
    def reports(self) -> tuple[Report, ...]:
        """How the cases stand, the oldest first."""
        return tuple(case.report for case in self._open)

    def take(self, snapshot: Snapshot) -> None:
        """Look in a newer snapshot for the memory that came back."""
        at, listed = snapshot.processes_at, self._newest_listed
        # Lists are read less often than memory: only in the first snapshot with a list are both of
        # one moment.
        if listed is None or at is None or at != listed.processes_at:
            self._newest_listed = snapshot
            for case in self._open:
                case.see(snapshot)
        now = time.monotonic()
        for case in list(self._open):
            report = case.report
            if not report.done:
                continue
            done_at = self._done_at.setdefault(id(case), now)
            if _went_well(report) and now - done_at > _SHOWN_SECONDS:
                self._forget(case)

    def ask(self, targets: Sequence[Target]) -> None:
        """Open the dialog for these processes; their children are looked up meanwhile.

        KILL is proposed once they were given time to end by what they were sent.
        """
        host = self._session.host
        if host.readonly:
            self._say("gpumon is read-only here: no signal is sent")
            return
        if isinstance(self._app.screen, EndDialog):
            return
        asked = [target.id for target in targets]
        offered = any(
            report.offers_kill and set(asked) <= _waiting(report) for report in self.reports
        )
        number = signal.SIGKILL if offered else signal.SIGTERM
        latest = self._session.history.latest
        now = None if latest is None else latest.time

        def look() -> Sequence[Kin]:
            return host.families(asked)

        dialog = EndDialog(targets, host.uid, number, now, look)
        self._app.push_screen(dialog, self._begin)

        def found(family: Sequence[Kin]) -> None:
            protected = {kin.id for kin in family if kin.protected}
            free = [target for target in targets if target.id not in protected]
            children = self._children(free, family)
            named = [one for one in children if one.id not in asked]
            dialog.add_children(named, protected, family)

        run_errand(
            self._app,
            look,
            found,
            lambda _: dialog.add_children(None),
            name="gpumon-families",
        )

    def ask_for_the_rest(self) -> bool:
        """Ask whether to kill what is left of the newest case that offers it; False without one."""
        for report in reversed(self.reports):
            if report.offers_kill:
                waiting = _waiting(report)
                self.ask([fate.target for fate in report.fates if fate.target.id in waiting])
                return True
        return False

    def dismiss(self) -> bool:
        """Put away the newest report that is complete, or that has waited long enough.

        Returns:
            False when there is none.
        """
        for case in reversed(self._open):
            if _is_told(case.report) or case.report.offers_kill:
                self._forget(case)
                return True
        return False

    def close(self) -> None:
        """Let go of every process, once what was ordered is sent.

        Raises:
            BaseException: A bug that a case has met.
        """
        cases = [*self._open, *self._leaving]
        for case in cases:
            case.close()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for case in cases:
            case.join(max(0.0, deadline - time.monotonic()))
        for case in cases:
            if case.failure is not None:
                raise case.failure

    def _children(self, roots: Sequence[Target], family: Sequence[Kin]) -> list[Target]:
        """Those below the roots, parents first."""
        latest = self._session.history.latest
        uses = {process.id: process.uses for process in (latest.processes if latest else ())}
        known = {kin.id for kin in family}
        places = {root.id.pid: root.place for root in roots if root.id in known}
        found = []
        for kin in family:
            if kin.parent in places:
                place = places.setdefault(kin.id.pid, places[kin.parent])
                found.append(target_of_kin(kin, uses.get(kin.id, ()), place))
        return found

    def _begin(self, choice: Choice | None) -> None:
        if choice is None:
            return
        case = self._case_of(choice.targets) or self._new_case(choice.targets)
        case.send(choice.number, whole_tree=choice.whole_tree)
        self._changed()

    def _case_of(self, targets: Sequence[Target]) -> Case | None:
        """The case whose next signal would reach all of these, as far as they live, and no other.

        One that was refused is tried again, and that takes a new case.
        """
        named = {target.id: target.command for target in targets}
        for case in self._open:
            waiting = _waiting(case.report)
            reached = {
                fate.target.id: fate.target.command
                for fate in case.report.fates
                if fate.outcome is not Outcome.REFUSED
            }
            # Another command is another question, and is to stand in the log of signals.
            if waiting and waiting <= named.keys() and named.items() <= reached.items():
                return case
        return None

    def _new_case(self, targets: Sequence[Target]) -> Case:
        session = self._session
        case = Case(session.host, targets, journal=session.journal, changed=self._ring)
        latest = self._newest_listed or session.history.latest
        if latest is not None:
            case.see(latest)
        self._open.append(case)
        return case

    def _forget(self, case: Case) -> None:
        case.close()
        self._leaving = [one for one in (*self._leaving, case) if not one.join(0)]
        self._open.remove(case)
        self._done_at.pop(id(case), None)

    def _ring(self) -> None:
        """On the case's thread: there is news."""
        # The loop may be closed between Textual's look at it and its use.
        with contextlib.suppress(RuntimeError):
            self._app.call_later(self._changed)


def _waiting(report: Report) -> set[ProcessId]:
    return {fate.target.id for fate in report.fates if fate.outcome is Outcome.WAITING}


def _is_told(report: Report) -> bool:
    """Whether the sum of a report is final; a zombie's parent or the log may be waited for."""
    over = report.fates and not _waiting(report) and all(card.settled for card in report.returns)
    return report.done or bool(over)


def _went_well(report: Report) -> bool:
    return (
        all(fate.outcome in {Outcome.ENDED, Outcome.GONE} for fate in report.fates)
        and not any(fate.sentence for fate in report.fates)
        and not any(card.short for card in report.returns)
        and not report.unlogged
    )
