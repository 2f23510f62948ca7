"""Ends processes on a thread of its own, and stays with them.

Order: older first, which is parents before their children, since no child is older than its parent.
torchrun, a shell's loop or a supervisor would start anew the workers that die before it does, and a
DataLoader's parent would report a crash; told first, each of them takes its children along. The
children get the same signal a moment later in case it does not. multiprocessing's resource tracker
ignores TERM and INT, and removes shared memory once all the others have gone: nothing is lost by
its coming last.

SIGKILL gives a parent no time to take anybody along, and whoever forks while the others die leaves
orphans that nobody can trace. So a whole tree is stopped before it is killed: those that stand
still can be counted. The other signals act through the programs themselves and are sent to what
lives. Children that come later are looked for every second, and sent the same: as long as KILL
takes, and after a signal that asks for an end for a few seconds only, since a program that survives
it (a notebook that was interrupted) forks for other work by then.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from gpumon.clock import SystemClock
from gpumon.ending.life import Life, asks_for_the_end, ends
from gpumon.ending.memory import MemoryWatch
from gpumon.ending.report import PATIENCE, Report
from gpumon.host import Refusal, Refused, target_of_kin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.clock import Clock
    from gpumon.ending.report import Return
    from gpumon.host import Kin, ProcessHost, Target
    from gpumon.host.journal import Journal
    from gpumon.model import ProcessId, Snapshot

_SLICE_SECONDS = 0.1
"""How long an order, another signal say, may wait while the ends of processes are waited for."""
_LOOK_SECONDS = 1.0
_FIRST_LOOK_SECONDS = 0.2
_FREEZE_SECONDS = 1.0
_STILL = "TtZXD"
"""States in which nobody forks; who waits inside the kernel stops before leaving it."""
_IDLE_SECONDS = 3600.0
_LOG_SECONDS = 2.0


class Case:
    """Some processes to be ended, from the first signal until all is known.

    What the operating system is asked may hang, and then hangs the thread of this case only. A bug
    there is never silent: ``failure`` holds it, and ``see`` raises it.

    Args:
        host: The processes of the machine.
        targets: Whom to signal: exactly those that the person was shown.
        journal: Where every signal is written.
        clock: Where the time comes from.
        changed: Called on the thread of this case when the report has changed, and every second
            while something is waited for.
    """

    def __init__(
        self,
        host: ProcessHost,
        targets: Sequence[Target],
        *,
        journal: Journal,
        clock: Clock | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._host = host
        self._journal = journal
        self._clock = clock or SystemClock()
        self._changed = changed
        self._lives = {target.id: Life(target) for target in sorted(targets, key=_age)}
        self._kin = set(self._lives)
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
        self._to_end = False
        self._sent_at = 0.0
        self._look_at = 0.0
        self._told_at = 0.0
        self._logged_at = 0.0
        self._failure: BaseException | None = None
        self._report = Report(0, 0.0, ())

    @property
    def failure(self) -> BaseException | None:
        """The bug that ended the thread of this case."""
        return self._failure

    @property
    def report(self) -> Report:
        """How it stands; any thread may ask."""
        return self._report

    def send(self, number: int, *, whole_tree: bool = False) -> None:
        """Send a signal to all, or to those that are left. Returns at once.

        Args:
            number: The signal.
            whole_tree: Whether children that were forked since the person looked are meant too.

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
            self._thread = threading.Thread(target=self._guarded, name="gpumon-ending", daemon=True)
            self._thread.start()

    def see(self, snapshot: Snapshot) -> None:
        """Take a newer snapshot, to look in for the memory that comes back. Any thread may.

        The process lists should be as new in it as the cards: between two lists others take and
        give back memory unseen, which would be counted to the processes that were ended.

        Raises:
            BaseException: The bug that is in ``failure``, if there is one.
        """
        if self._failure is not None:
            raise self._failure
        self._newest = snapshot
        if not self._report.done or any(card.open for card in self._report.returns):
            self._news.set()

    def close(self) -> None:
        """Send what was ordered, then let go of all. Returns at once."""
        self._closing.set()
        self._news.set()

    def join(self, seconds: float) -> bool:
        """Wait until that is done; False when it takes longer."""
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _guarded(self) -> None:
        """Run the thread; what ends it early is kept for the owner."""
        try:
            self._run()
        except BaseException as failure:  # noqa: BLE001 - a thread has nobody above it to see this
            self._failure = failure
        finally:
            for life in self._lives.values():
                life.release()

    def _run(self) -> None:
        while self._orders or not self._closing.is_set():
            self._news.clear()
            while self._orders:
                self._obey(*self._orders.popleft())
            self._look()
            self._tell()
            self._rest()
        for life in self._lives.values():
            if self._to_end and life.waiting and life.signal is not None:
                self._log(life, life.signal, "still there")

    def _rest(self) -> None:
        """Wait for what comes next: an end, an order, a snapshot."""
        grips = [life.grip for life in self._lives.values() if life.waiting and life.grip]
        if self._closing.is_set():
            return
        if self._report.done:
            self._clock.wait(self._news, _IDLE_SECONDS)
        elif grips and not self._news.is_set():
            self._host.wait(grips, _SLICE_SECONDS)
        else:
            self._clock.wait(self._news, _FIRST_LOOK_SECONDS)

    def _obey(self, number: int, whole_tree: bool) -> None:
        """Send a signal to all that live."""
        first, self._number = not self._number, number
        self._whole_tree = whole_tree and asks_for_the_end(number)
        if first:
            for life in self._lives.values():
                self._take_hold(life)
            self._let_families_be()
        self._find_children()
        if number == signal.SIGKILL and self._whole_tree:
            self._freeze()
        if ends(number):
            self._to_end = True
            if self._watch is None and self._before is not None:
                self._watch = MemoryWatch(self._before, self._clock.time())
        for life in self._lives.values():
            self._send(life, number)
        self._sent_at = self._clock.monotonic()
        self._look_at = self._sent_at + _FIRST_LOOK_SECONDS

    def _take_hold(self, life: Life) -> None:
        try:
            life.grip = self._host.grip(life.target)
        except Refused as refused:
            self._refuse(life, refused, self._number)
        except OSError as error:
            self._fail(life, error, self._number)

    def _let_families_be(self) -> None:
        """Refuse those below one that is protected, or not who it was: they are its family."""
        barred: dict[int | None, Refusal] = {
            life.target.id.pid: life.refusal
            for life in self._lives.values()
            if life.refusal in (Refusal.PROTECTED, Refusal.REUSED)
        }
        while below := [
            life for life in self._lives.values() if life.grip and life.target.parent in barred
        ]:
            for life in below:
                pid, parent = life.target.id.pid, life.target.parent
                reason = barred[pid] = barred[parent]
                sentence = f"{pid} is below {parent}, which gets no signal: choose {pid} by itself"
                self._refuse(life, Refused(reason, sentence), self._number)

    def _refuse(self, life: Life, refused: Refused, number: int) -> None:
        life.refuse(refused)
        self._log(life, number, refused.reason.value)

    def _fail(self, life: Life, error: OSError, number: int) -> None:
        life.fail(error)
        self._log(life, number, error.strerror or str(error))

    def _log(self, life: Life, number: int, outcome: str) -> None:
        self._logged_at = self._clock.monotonic()
        self._journal.write(life.target, number, outcome)

    def _send(self, life: Life, number: int) -> None:
        if not life.waiting or life.grip is None:
            return
        try:
            life.grip.send(number)
        except Refused as refused:
            self._refuse(life, refused, number)
        except OSError as error:
            self._fail(life, error, number)
        else:
            life.sent(number, self._clock.monotonic())
            self._log(life, number, "sent")

    def _freeze(self) -> None:
        """Stop the whole tree, those included that are forked while it is being stopped."""
        deadline = self._clock.monotonic() + _FREEZE_SECONDS
        moment = threading.Event()
        stopped: set[ProcessId] = set()
        # A fork that was under way when its parent was stopped shows at the second look.
        looks_without_news = 0
        while looks_without_news < 2 and self._clock.monotonic() < deadline:
            for id_, life in list(self._lives.items()):
                if id_ not in stopped:
                    stopped.add(id_)
                    self._send(life, signal.SIGSTOP)
            while self._some_run() and self._clock.monotonic() < deadline:
                self._clock.wait(moment, 0.001)
            looks_without_news = 0 if self._find_children() else looks_without_news + 1

    def _some_run(self) -> bool:
        standings = (life.grip.standing() for life in self._lives.values() if life.grip)
        return any(standing and standing.state not in _STILL for standing in standings)

    def _find_children(self) -> list[Life]:
        """Take hold of the descendants that are new, where the whole tree is to end.

        A number in the table means the parent it seems to only if that one lived all along. So each
        is taken for a child only of one that is held and lives after the table was read.
        """
        roots = [id_ for id_, life in self._lives.items() if life.lives]
        if not roots:
            return []
        family = self._host.families(roots)
        parents = {id_.pid: id_ for id_ in roots if self._lives[id_].lives}
        found = []
        for kin in family:
            parent = parents.get(kin.parent)
            if parent is None or (kin.id.start_time or 0) < (parent.start_time or 0):
                continue
            self._kin.add(kin.id)
            if not self._whole_tree:
                parents[kin.id.pid] = kin.id
                continue
            life = self._lives.get(kin.id)
            if life is None and (life := self._take_in(kin, parent)) is not None:
                found.append(life)
            if life is not None and life.lives:
                parents[kin.id.pid] = kin.id
        return found

    def _take_in(self, kin: Kin, parent: ProcessId) -> Life | None:
        """Make a late child part of the case, unless it has ended already."""
        listed = () if self._newest is None else self._newest.processes
        uses = next((process.uses for process in listed if process.id == kin.id), ())
        life = Life(target_of_kin(kin, uses, self._lives[parent].target.place), late=True)
        try:
            life.grip = self._host.grip(life.target)
        except OSError:
            return None  # Too many open files; it is found again once others have ended.
        except Refused as refused:
            if refused.reason is Refusal.GONE:
                return None
            self._refuse(life, refused, self._number)
        self._lives[kin.id] = life
        return life

    def _look(self) -> None:
        """See what has become of all: often for their ends, every second for the rest."""
        now, time = self._clock.monotonic(), self._clock.time()
        for life in self._lives.values():
            if life.look(now, time) and life.signal is not None:
                self._log(life, life.signal, f"ended after {life.seconds:.1f} s")
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            for life in self._lives.values():
                life.look_closely()
            if self._number == signal.SIGKILL or now - self._sent_at < PATIENCE:
                self._end_late_children()

    def _end_late_children(self) -> None:
        if not self._whole_tree or not self._find_children():
            return
        if self._number == signal.SIGKILL:
            self._freeze()
        for life in self._lives.values():
            if life.late and life.signal in (None, signal.SIGSTOP):
                self._send(life, self._number)

    def _returns(self, now: float) -> tuple[Return, ...]:
        if self._watch is None:
            return ()
        lives, time = list(self._lives.values()), self._clock.time()
        returns = self._watch.look(self._newest, lives, now, time)
        if self._newest is None:
            return returns
        if self._watch.unexplained:
            scan = self._host.scan(self._newest)
        else:
            scan = self._newest.holders
            if scan is None or scan.at <= self._scanned_at:
                return returns
        self._scanned_at = time
        self._watch.explain(scan, self._kin)
        return self._watch.look(self._newest, lives, now, time)

    def _tell(self) -> None:
        """Make a new report, and say so where it says something new."""
        now = self._clock.monotonic()
        lives = self._lives.values()
        returns = self._returns(now)
        waiting = self._to_end and any(life.waiting for life in lives)
        done = (
            not waiting
            and all(card.settled for card in returns)
            and all(life.waiting or life.settled(now) for life in lives)
            and self._logged(now)
            and not self._orders
        )
        report = Report(
            self._number,
            now - self._sent_at,
            tuple(life.fate(now) for life in lives),
            returns,
            offers_kill=waiting and now - self._sent_at >= PATIENCE,
            done=done,
            unlogged=self._journal.failure or self._report.unlogged,
        )
        as_before = msgspec.structs.replace(report, seconds=self._report.seconds) == self._report
        if as_before and (report.done or now - self._told_at < _LOOK_SECONDS):
            return
        self._report, self._told_at = report, now
        self._changed()

    def _logged(self, now: float) -> bool:
        """Whether the log has all, or had time enough and has not answered."""
        if not self._journal.pending:
            return True
        if now - self._logged_at < _LOG_SECONDS:
            return False
        self._journal.flush(0)  # It says so from now on.
        return True


def _age(target: Target) -> tuple[int, int]:
    return target.id.start_time or 0, target.id.pid
