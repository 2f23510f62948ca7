"""``gpumon wait``: waits until GPUs are free, idle or cool, or until processes have exited."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from gpumon.scheduling.allocation import UncertainAllocationError
from gpumon.scheduling.lookout import QUICK_PATIENCE, CardSampler, UnavailableError
from gpumon.scheduling.messages import many
from gpumon.scheduling.wait.goals import FREE, CardGoal, HopelessError, cards_in_use
from gpumon.scheduling.wait.notification import BELL, notification, send
from gpumon.scheduling.wait.targets import hold, wait_for_one
from gpumon.text.formatting import duration, printable
from gpumon.text.status_line import StatusLine

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from gpumon.scheduling.requirements import Requirements
    from gpumon.scheduling.wait.goals import Progress
    from gpumon.scheduling.wait.targets import WaitedProcess
    from gpumon.sources import Source

EXIT_TIMEOUT = 124
"""As timeout(1) has it."""
_TOLD_SECONDS = 1.0
"""Between two looks of the line that says how it goes."""
_HELD_SECONDS = 15.0
"""Between two looks at what a process has of the cards."""
FASTEST, SLOWEST = 1.0, 5.0
"""Seconds. Cards that must stay calm for a while are to be seen every ten at the latest."""
_SLOWER = 1.3


class WaitOptions(NamedTuple):
    """What was asked for on the command line.

    Attributes:
        kind: ``free``, ``idle`` or ``cool``.
        requirements: Of the cards.
        pids: Processes to wait for in place of cards; empty for cards.
        timeout: After how many seconds to give up; ``None`` is never.
        verbose: Whether to say which cards these are and why.
        bell: Whether to ring when it has come.
        notify: Whether to have the desktop notify.
        command: What the shell is given to run then; ``None`` is nothing.
        lock_dir: Where the locks are; ``None`` is the usual place.
        past: A log that knows the past; ``None`` is none.
    """

    kind: str
    requirements: Requirements
    pids: tuple[int, ...] = ()
    timeout: float | None = None
    verbose: bool = False
    bell: bool = False
    notify: bool = False
    command: str | None = None
    lock_dir: str | None = None
    past: str | None = None


def wait(source: Source, terms: WaitOptions) -> int:
    """Wait, with progress on standard error.

    Args:
        source: The source of snapshots.
        terms: The options.

    Returns:
        The exit status: 0, 1 if waiting cannot help, 124 on timeout. If a command is to be run,
        this does not return: the command replaces this program.

    Raises:
        SourceError: There are no GPUs.
        RecordingError: The log of the past cannot be read.
        UncertainAllocationError: ``CUDA_VISIBLE_DEVICES`` cannot be resolved.
    """
    patience = _Patience(terms.timeout)
    with StatusLine(sys.stderr) as teller:
        told = _Told(teller, patience)
        done = (
            _wait_for_processes(source, terms.pids, patience, told)
            if terms.pids
            else _wait_for_cards(source, terms, patience, told)
        )
        if done is None:
            return EXIT_TIMEOUT
        if not done:
            return 1
    _announce(done, terms)
    return 0


def _announce(sentence: str, terms: WaitOptions) -> None:
    if terms.bell:
        send(BELL)
    if terms.notify:
        send(notification(sentence, os.environ))
    if terms.command is not None:
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
            # Python ignores SIGPIPE for itself; a program started so would not end with its reader.
            signal.signal(ignored, signal.SIG_DFL)
        os.execv("/bin/sh", ["sh", "-c", terms.command])  # noqa: S606 - a shell was asked for


class Pace:
    """How often to look: seconds, fewer while something changes and more while nothing does."""

    def __init__(self) -> None:
        self._last: Hashable = None
        self.seconds = FASTEST

    def after(self, mark: Hashable) -> bool:
        """Take what was seen.

        Args:
            mark: Differs from the one before where something has changed.

        Returns:
            Whether it does.
        """
        changed = mark != self._last
        self.seconds = FASTEST if changed else min(SLOWEST, self.seconds * _SLOWER)
        self._last = mark
        return changed


class _Patience:
    """The elapsed and the remaining time.

    Args:
        seconds: The timeout; ``None`` means no timeout.
    """

    def __init__(self, seconds: float | None) -> None:
        self._began = time.monotonic()
        self._seconds = math.inf if seconds is None else seconds

    @property
    def spent(self) -> float:
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        return self._seconds - self.spent

    @property
    def words(self) -> str:
        limit = "" if self._seconds == math.inf else f" of {duration(self._seconds)}"
        return f"{duration(self.spent)}{limit}"


class _Told:
    """Shows progress: one line rewritten in place on a terminal, otherwise a line per change."""

    def __init__(self, teller: StatusLine, patience: _Patience) -> None:
        self._teller = teller
        self._patience = patience

    def show(self, parts: Sequence[str]) -> None:
        """Show the line in place."""
        head, *others = parts
        self._teller.show([f"○ waiting {self._patience.words} {head}", *others])

    def change(self, sentence: str) -> None:
        """Print a change, if there is no line in place."""
        if not self._teller.rewrites:
            now = datetime.fromtimestamp(time.time()).astimezone()
            self._teller.say(f"{now:%Y-%m-%d %H:%M:%S} {sentence}")

    def say(self, sentence: str, lines: str = "") -> None:
        """Print a line that stays."""
        self._teller.say(sentence + ("\n" + lines.rstrip("\n") if lines else ""))


def _wait_for_cards(
    source: Source, terms: WaitOptions, patience: _Patience, told: _Told
) -> str | None:
    """The result; empty if waiting cannot help, ``None`` on timeout."""
    from gpumon.scheduling.reservation.locks import Locks

    locks = Locks(terms.lock_dir, os.environ, make=False)
    if terms.kind == FREE and locks.trouble:
        told.say(f"what other users have reserved is not known: {locks.trouble}")
    goal = CardGoal(terms.kind, terms.requirements, os.environ, locks, terms.past)
    pace = Pace()
    with CardSampler(source, FASTEST) as lookout:
        trouble, nearness = "", None
        while True:
            # In one part: a narrow terminal cuts it instead of dropping it.
            told.show([f"for {goal.words}: {trouble}"] if trouble else _parts(goal, nearness))
            left = patience.left
            if nearness is None:
                left = max(left, QUICK_PATIENCE - patience.spent)
            if left <= 0:
                why = trouble or ("" if nearness else lookout.silence)
                told.say(
                    f"gave up after {duration(patience.spent)} of waiting for {goal.words}."
                    + (f" {why}" if why else ""),
                    "" if nearness is None else nearness.table,
                )
                return None
            try:
                snapshot = lookout.next(min(_TOLD_SECONDS, left))
                if snapshot is None:
                    continue
                nearness = goal.look(snapshot)
            except HopelessError as error:
                told.say(f"{error.sentence} Waiting does not change that.", error.table)
                return ""
            except (UnavailableError, UncertainAllocationError) as error:
                # A hung driver may respond later, and a driver upgrade ends.
                if not error.passing:
                    raise
                if not trouble:
                    told.change(f"waiting for {goal.words}: {error.sentence}")
                trouble = error.sentence
            else:
                trouble = ""
                if nearness.done:
                    return _done(nearness, terms, patience, told)
                if pace.after(nearness.mark):
                    told.change(_in_words(goal, nearness))
                lookout.interval = pace.seconds


def _done(nearness: Progress, terms: WaitOptions, patience: _Patience, told: _Told) -> str:
    waited = patience.spent
    after = f" after {duration(waited)} of waiting" if waited >= 1 else ""
    sentence = f"{nearness.done}{after}."
    if terms.verbose:
        told.say(f"{sentence} {nearness.reason}.", nearness.table)
    else:
        told.say(sentence)
    return sentence


def _parts(goal: CardGoal, nearness: Progress | None) -> list[str]:
    """The parts of the line, most important first."""
    if nearness is None:
        return [f"for {goal.words}"]
    head = f"for {goal.words}" + (f", {nearness.count} so far" if nearness.count else "")
    left = [] if nearness.left is None else [f"{duration(nearness.left)} more at least"]
    return [head, *left, *nearness.holders]


def _in_words(goal: CardGoal, nearness: Progress) -> str:
    words = "; ".join(nearness.sentences)
    return f"waiting for {goal.words}: {words}" if words else f"waiting for {goal.words}"


def _wait_for_processes(
    source: Source, pids: Sequence[int], patience: _Patience, told: _Told
) -> str | None:
    """As for GPUs; a process that has exited already is not waited for."""
    lives: list[WaitedProcess] = []
    for pid in pids:
        life = hold(pid)
        if life is None:
            told.say(f"there is no process {pid}: it has ended, or never was.")
        else:
            lives.append(life)
    with ExitStack() as holding:
        for life in lives:
            holding.callback(life.close)
        lookout = holding.enter_context(CardSampler(source, _HELD_SECONDS))
        for life in lives:
            told.change(f"waiting for {life.words} to end, which has run for {life.age}")
        ended = _wait_for_all(lives, lookout, patience, told)
    if not ended:
        told.say(f"gave up after {duration(patience.spent)}.")
        return None
    sentence = f"{_names(lives, pids)} ended after {duration(patience.spent)} of waiting."
    if lives:
        told.say(sentence)
    return sentence


def _wait_for_all(
    lives: Sequence[WaitedProcess], lookout: CardSampler, patience: _Patience, told: _Told
) -> bool:
    """Whether all of them have exited before the timeout."""
    living = list(lives)
    while living := [life for life in living if not life.ended()]:
        first = living[0]
        more = len(living) - 1
        head = f"for {first.words} to end" + (f" and {many(more, 'process')} more" if more else "")
        newest = lookout.newest
        held = "" if newest is None else cards_in_use(newest, first.pid)
        told.show([head, f"runs {first.age}", *([held] if held else [])])
        if patience.left <= 0:
            return False
        wait_for_one(living, min(_TOLD_SECONDS, patience.left))
    return True


def _names(lives: Sequence[WaitedProcess], pids: Sequence[int]) -> str:
    if not lives:
        return printable(", ".join(map(str, pids)))
    return ", ".join(life.words for life in lives)
