"""``gpumon run``: a command on cards that are free, and nobody else's until it has ended."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from gpumon.choosing.choosing import Chooser
from gpumon.choosing.lookout import PATIENCE, QUICK_PATIENCE, Lookout
from gpumon.choosing.outputs import as_uuid, table
from gpumon.choosing.waiting import wait_for
from gpumon.commands.running import Job
from gpumon.commands.telling import Teller, columns, tell, write
from gpumon.reserving.locks import Locks, Reservation, TakenError
from gpumon.running.child import NOT_EXECUTABLE, NOT_FOUND, at_ease_with_terminal, end_by
from gpumon.text import duration, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from gpumon.choosing.judging import Refusal, Verdict
    from gpumon.choosing.ordering import Choice
    from gpumon.choosing.requirements import Requirements
    from gpumon.model import Snapshot
    from gpumon.sources import Source
    from gpumon.sources.links import Links

NOTHING_FITS, TIMED_OUT = 1, 124
_TRIES = 16
"""How often another card is tried where somebody was faster, before the next look."""
_MOVED_BYTES = 16 * 2**20
_LIST_SECONDS = 3.0


class Terms(NamedTuple):
    """What was asked for on the command line.

    Attributes:
        requirements: Of the cards.
        command: Program and arguments.
        wait: Seconds to wait for cards, may be infinite; ``None`` is not at all.
        log: A log to write; ``None`` is none.
        verbose: Whether to say which cards were taken and why.
        lock_dir: Where the locks are; ``None`` is the usual place.
        past: A log that knows the past; ``None`` is none.
        variables: What is set for the command besides ``CUDA_VISIBLE_DEVICES``.
    """

    requirements: Requirements
    command: Sequence[str]
    wait: float | None = None
    log: str | None = None
    verbose: bool = False
    lock_dir: str | None = None
    past: str | None = None
    variables: Mapping[str, str] = {}


class _Taken(NamedTuple):
    """Cards that are ours."""

    choice: Choice
    reservation: Reservation
    snapshot: Snapshot


class _Outcome(NamedTuple):
    """How the taking ended: with cards, or with what was thought of each in the end."""

    taken: _Taken | None
    verdicts: Sequence[Verdict]


def run(source: Source, terms: Terms, links: Callable[[], Links] | None = None) -> int:
    """Run a command on cards that fit, once there are, and stay with it.

    Args:
        source: Where snapshots come from; of all cards.
        terms: What was asked for.
        links: Tells how near cards are to one another; asked where several are wanted.

    Returns:
        The command's exit status, 128 and the number of the signal that ended it, or 1 where
        nothing fits, 124 where nothing did in time, 126 and 127 where there is no such command.

    Raises:
        SourceError: There are no cards to choose from.
        FolderError: No lock can be made.
        LogError: The log cannot be written.
        TapeError: The log of the past cannot be read.
        UncertainAllocationError: ``CUDA_VISIBLE_DEVICES`` cannot be read for certain.
    """
    missing = _missing(terms.command[0])
    if missing is not None:
        return missing
    with closing(Locks(terms.lock_dir, os.environ)) as locks, at_ease_with_terminal():
        with Lookout(source) as lookout:
            taking = _Taking(lookout, locks, terms, links)
            with _ended_in_order():
                taken = taking.taken()
            if not isinstance(taken, _Taken):
                return taken
            with closing(taken.reservation):
                if locks.trouble:
                    tell(f"the lock guards against your own programs only: {locks.trouble}")
                # On standard error: standard output is the command's.
                tell(f"running on {taken.choice.reason if terms.verbose else taken.choice.labels}")
                job = Job(lookout, taken.choice.candidates, taken.snapshot, taken.reservation)
                ending = job.run(terms.command, _environment(terms, taken.choice), terms.log)
        if ending.by_key and ending.signal is not None:
            end_by(ending.signal)
        return ending.exit_status


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Within the block, whoever ends this program by a signal lets it give its place in line up."""

    def end(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = {
        number: signal.signal(number, end)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Taking:
    """The way to cards of one's own.

    Args:
        lookout: Looks at them.
        locks: Reserves them.
        terms: What was asked for.
        links: Tells how near cards are to one another.
    """

    def __init__(
        self, lookout: Lookout, locks: Locks, terms: Terms, links: Callable[[], Links] | None
    ) -> None:
        self._lookout, self._locks, self._terms = lookout, locks, terms
        self._chooser = Chooser(terms.requirements, os.environ, locks, links, terms.past)
        self._verdicts: tuple[Verdict, ...] = ()
        self._trouble = ""
        self._began = time.monotonic()
        self._waits = False

    def taken(self) -> _Taken | int:
        """Cards, or the exit status where there are none; why is said then."""
        wait = self._terms.wait
        with Teller(sys.stderr) as teller:
            self._teller = teller
            try:
                found = wait_for(
                    self._lookout, self._found, self._wait_on, self._wait_through, wait
                )
            finally:
                self._chooser.leave_line()
        if found is not None and found.taken is not None:
            return found.taken
        if found is None:
            why = self._trouble
            if not why:
                verdicts = self._verdicts
                why = self._chooser.refusal(verdicts) if verdicts else self._lookout.silence
            tell(f"gave up waiting after {duration(wait)}: {why}")
            write(table(self._verdicts, columns=columns()))
            return TIMED_OUT
        tell(
            self._chooser.refusal(found.verdicts)
            + ("" if wait is None else " Waiting does not change that.")
        )
        write(table(found.verdicts, columns=columns()))
        return NOTHING_FITS

    def _found(self, snapshot: Snapshot) -> _Outcome | None:
        self._trouble = ""
        self._verdicts = verdicts = self._chooser.judge(snapshot)
        taken = self._take(snapshot, verdicts)
        in_vain = self._terms.wait is None and not self._chooser.left()
        if taken is None and not in_vain and not self._chooser.hopeless(verdicts):
            return None
        return _Outcome(taken, self._verdicts)

    def _take(self, snapshot: Snapshot, verdicts: tuple[Verdict, ...]) -> _Taken | None:
        """Reserve what is best and look again; where somebody was faster, the next best."""
        for _ in range(_TRIES):
            choice = self._chooser.choose(verdicts)
            if choice is None:
                return None
            uuids = [one.uuid for one in choice.candidates]
            try:
                reservation = self._locks.take(uuids, _short(self._terms.command))
            except TakenError:
                self._verdicts = verdicts = self._chooser.judge(snapshot)
                continue
            try:
                snapshot = self._look_again(snapshot, choice)
                mine = self._chooser.judge(snapshot, uuids)
                if all(one.refusal is None for one in mine if one.candidate.uuid in uuids):
                    return _Taken(choice, reservation, snapshot)
            except BaseException:
                reservation.close()
                raise
            reservation.close()
            self._verdicts = verdicts = self._chooser.judge(snapshot)
        return None

    def _look_again(self, before: Snapshot, choice: Choice) -> Snapshot:
        """How it is now that nobody of gpumon's can come to these cards any more."""
        reserved_at = time.time()
        snapshot = self._look()
        moved = any(_moved(one.seen_in(before), one.seen_in(snapshot)) for one in choice.candidates)
        give_up_at = time.monotonic() + _LIST_SECONDS
        # The list of who is there may be a second old; with memory it must not be.
        while moved and (snapshot.processes_at or 0) < reserved_at:
            if time.monotonic() > give_up_at:
                break
            time.sleep(0.1)
            snapshot = self._look()
        return snapshot

    def _look(self) -> Snapshot:
        """One more look, which does not stretch the time that there is."""
        wait = float("inf") if self._terms.wait is None else self._terms.wait
        left = self._began + wait - time.monotonic()
        return self._lookout.look(min(PATIENCE, max(QUICK_PATIENCE, left)))

    def _wait_on(self, snapshot: Snapshot) -> None:
        reasons = [
            f"{one.candidate.label}: {_in_short(one.refusal)}"
            for one in self._verdicts
            if one.refusal is not None and one.refusal.passing
        ]
        if not self._waits:
            self._waits = True
            if self._terms.wait is not None:
                # Without a place in line it is a race, which is no reason not to run.
                with suppress(OSError):
                    self._chooser.join_line(snapshot)
            self._say("; ".join(reasons))
        self._show("", reasons)

    def _wait_through(self, trouble: str) -> None:
        """The driver does not answer, or is gone for now."""
        if not self._trouble:
            self._say(trouble)
        self._trouble = trouble
        # One part with the rest: it is cut where the terminal is too narrow, not left out.
        self._show(trouble, [])

    def _say(self, why: str) -> None:
        if not self._teller.rewrites:
            number = self._terms.requirements.number
            self._teller.say(f"waiting for {number}{why and f': {why}'}")

    def _show(self, trouble: str, reasons: Sequence[str]) -> None:
        waited = duration(time.monotonic() - self._began)
        head = f"○ waiting for {self._terms.requirements.number}, {waited}"
        self._teller.show([f"{head}: {trouble}" if trouble else head, *reasons])


def _in_short(refusal: Refusal) -> str:
    """What stands against a card, for a line that has little room."""
    # Of a card that is watched the time is what counts.
    watched = refusal.kind == "watching"
    return refusal.sentence if watched else refusal.sentence.partition(", ")[0]


def _moved(before: object, now: object) -> bool:
    from gpumon.choosing.judging import Candidate

    if not isinstance(before, Candidate) or not isinstance(now, Candidate):
        return True
    if before.memory_used is None or now.memory_used is None:
        return True
    return abs(now.memory_used - before.memory_used) > _MOVED_BYTES


def _missing(program: str) -> int | None:
    """The exit status for a command that there is not; why is said then."""
    if shutil.which(program) is not None:
        return None
    path = Path(program)
    if "/" in program and path.exists():
        what = "is a directory" if path.is_dir() else "may not be run by this user"
        tell(f"{printable(program)} {what}.")
        return NOT_EXECUTABLE
    tell(f"there is no command {printable(program)}.")
    return NOT_FOUND


def _environment(terms: Terms, choice: Choice) -> dict[str, str]:
    devices = {"CUDA_VISIBLE_DEVICES": as_uuid(choice.candidates)}
    return {**os.environ, **devices, **terms.variables}


def _short(command: Sequence[str]) -> str:
    """What all users may read of a command: its program, and the script it runs."""
    words = [Path(command[0]).name]
    with suppress(OSError, ValueError):
        if len(command) > 1 and Path(command[1]).is_file():
            words.append(Path(command[1]).name)
    return " ".join(words)[:200]
