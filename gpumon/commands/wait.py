"""``gpumon wait``: until cards are free, idle or cool, or until processes have ended."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING

from gpumon.choosing.allocation import UncertainAllocationError
from gpumon.choosing.lookout import QUICK_PATIENCE, Lookout, UnavailableError
from gpumon.choosing.words import many
from gpumon.commands.telling import Teller
from gpumon.text import duration, printable
from gpumon.waiting.goals import FREE, CardGoal, HopelessError, cards_in_use
from gpumon.waiting.lives import hold, wait_for_one
from gpumon.waiting.notice import BELL, notification, send
from gpumon.waiting.pace import FASTEST, Pace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.sources import Source
    from gpumon.waiting.goals import Nearness
    from gpumon.waiting.lives import Life
    from gpumon.waiting.terms import Terms

EXIT_TIMEOUT = 124
"""As timeout(1) has it."""
_TOLD_SECONDS = 1.0
"""Between two looks of the line that says how it goes."""
_HELD_SECONDS = 15.0
"""Between two looks at what a process has of the cards."""


def wait(source: Source, terms: Terms) -> int:
    """Wait, and say on standard error how it goes.

    Args:
        source: Where snapshots come from.
        terms: What was asked for.

    Returns:
        The exit status: 0, 1 where waiting cannot help, 124 when the time was over. Where a command
        is to be run this does not return: the command takes this program's place.

    Raises:
        SourceError: There are no cards to wait for.
        TapeError: The log of the past cannot be read.
        UncertainAllocationError: ``CUDA_VISIBLE_DEVICES`` cannot be read for certain.
    """
    patience = _Patience(terms.timeout)
    with Teller(sys.stderr) as teller:
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


def _announce(sentence: str, terms: Terms) -> None:
    if terms.bell:
        send(BELL)
    if terms.notify:
        send(notification(sentence, os.environ))
    if terms.command is not None:
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
            # By Python, for itself; a program that is started so would not end with its reader.
            signal.signal(ignored, signal.SIG_DFL)
        os.execv("/bin/sh", ["sh", "-c", terms.command])  # noqa: S606 - a shell was asked for


class _Patience:
    """How long it has taken, and how much time there is.

    Args:
        seconds: In all; ``None`` without end.
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
    """Tells how it goes: one line in place on a terminal, else a line where something changes."""

    def __init__(self, teller: Teller, patience: _Patience) -> None:
        self._teller = teller
        self._patience = patience

    def show(self, parts: Sequence[str]) -> None:
        """The line in place."""
        head, *others = parts
        self._teller.show([f"○ waiting {self._patience.words} {head}", *others])

    def change(self, sentence: str) -> None:
        """What has changed, where there is no line in place."""
        if not self._teller.rewrites:
            now = datetime.fromtimestamp(time.time()).astimezone()
            self._teller.say(f"{now:%Y-%m-%d %H:%M:%S} {sentence}")

    def say(self, sentence: str, lines: str = "") -> None:
        """What stays."""
        self._teller.say(sentence + ("\n" + lines.rstrip("\n") if lines else ""))


def _wait_for_cards(source: Source, terms: Terms, patience: _Patience, told: _Told) -> str | None:
    """What has come; empty where waiting cannot help, ``None`` when the time was over."""
    from gpumon.reserving.locks import Locks

    locks = Locks(terms.lock_dir, os.environ, make=False)
    if terms.kind == FREE and locks.trouble:
        told.say(f"what other users have reserved is not known: {locks.trouble}")
    goal = CardGoal(terms.kind, terms.requirements, os.environ, locks, terms.past)
    pace = Pace()
    with Lookout(source, FASTEST) as lookout:
        trouble, nearness = "", None
        while True:
            # One part: it is cut where the terminal is too narrow for it, not left out.
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
                # A driver that hangs may answer later, and an upgrade of it ends.
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


def _done(nearness: Nearness, terms: Terms, patience: _Patience, told: _Told) -> str:
    waited = patience.spent
    after = f" after {duration(waited)} of waiting" if waited >= 1 else ""
    sentence = f"{nearness.done}{after}."
    if terms.verbose:
        told.say(f"{sentence} {nearness.reason}.", nearness.table)
    else:
        told.say(sentence)
    return sentence


def _parts(goal: CardGoal, nearness: Nearness | None) -> list[str]:
    """The line, the first things first."""
    if nearness is None:
        return [f"for {goal.words}"]
    head = f"for {goal.words}" + (f", {nearness.count} so far" if nearness.count else "")
    left = [] if nearness.left is None else [f"{duration(nearness.left)} more at least"]
    return [head, *left, *nearness.holders]


def _in_words(goal: CardGoal, nearness: Nearness) -> str:
    words = "; ".join(nearness.sentences)
    return f"waiting for {goal.words}: {words}" if words else f"waiting for {goal.words}"


def _wait_for_processes(
    source: Source, pids: Sequence[int], patience: _Patience, told: _Told
) -> str | None:
    """As for cards; whoever has ended already is not waited for."""
    lives: list[Life] = []
    for pid in pids:
        life = hold(pid)
        if life is None:
            told.say(f"there is no process {pid}: it has ended, or never was.")
        else:
            lives.append(life)
    with ExitStack() as holding:
        for life in lives:
            holding.callback(life.close)
        lookout = holding.enter_context(Lookout(source, _HELD_SECONDS))
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
    lives: Sequence[Life], lookout: Lookout, patience: _Patience, told: _Told
) -> bool:
    """Whether all of them have ended, before the time was over."""
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


def _names(lives: Sequence[Life], pids: Sequence[int]) -> str:
    if not lives:
        return printable(", ".join(map(str, pids)))
    return ", ".join(life.words for life in lives)
