"""One process of a case, from being named to its end."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from gpumon.host import Refusal
from gpumon.kill.messages import why_it_is_listed, why_it_lives
from gpumon.kill.outcome import PATIENCE, Outcome, TargetOutcome
from gpumon.model.process_states import UNINTERRUPTIBLE

if TYPE_CHECKING:
    from gpumon.host import ProcessHandle, ProcessStatus, Refused, Target

_REAP_SECONDS = 0.5
"""How long a parent is given to take notice before it is told that it does not."""
_LOOKS_ASLEEP = 2
_ENDS_NOBODY = frozenset(
    getattr(signal, f"SIG{name}", None)
    for name in ("CONT", "STOP", "TSTP", "TTIN", "TTOU", "CHLD", "URG", "WINCH")
)
_ASKS_FOR_THE_END = frozenset(
    getattr(signal, f"SIG{name}", None) for name in ("INT", "TERM", "QUIT", "KILL")
)


def ends(number: int) -> bool:
    """Whether a signal ends those that do nothing about it: signal(7), "Term" and "Core"."""
    return number not in _ENDS_NOBODY


def asks_for_the_end(number: int) -> bool:
    """Whether a signal asks for an end and nothing else: HUP and USR1 have other uses too."""
    return number in _ASKS_FOR_THE_END


class TargetState:
    """What is known of one process. Times are those of the case's clock.

    Attributes:
        target: Which.
        late: Whether it was found only while the others were being ended.
        grip: The hold on it; ``None`` when there was none to be had, or it was let go.
        outcome: What became of it so far.
        refusal: Why it was sent none.
        signal: The last signal it was sent.
        ended_at: When its end was seen, monotonic.
        ended_time: The same since the epoch.
    """

    def __init__(self, target: Target, late: bool = False) -> None:
        self.target = target
        self.late = late
        self.grip: ProcessHandle | None = None
        self.outcome = Outcome.WAITING
        self.signal: int | None = None
        self.ended_at: float | None = None
        self.ended_time: float | None = None
        self.refusal: Refusal | None = None
        self._sentence = ""
        self._standing: ProcessStatus | None = None
        self._looks_asleep = 0
        self._first_sent_at = 0.0
        self._sent_at = 0.0

    @property
    def lives(self) -> bool:
        """Whether it is held and has not ended, at this moment."""
        return self.waiting and self.grip is not None and not self.grip.ended()

    @property
    def waiting(self) -> bool:
        """Whether its end has not been seen yet."""
        return self.outcome is Outcome.WAITING

    @property
    def counts(self) -> bool:
        """Whether its memory is expected back: it was signalled."""
        return self.signal is not None and self.outcome in (Outcome.WAITING, Outcome.ENDED)

    def settled(self, now: float) -> bool:
        """Whether nothing more will be learnt of it."""
        if self.ended_at is None:
            return not self.waiting
        return self._standing is None or now - self.ended_at >= _REAP_SECONDS

    def sent(self, number: int, now: float) -> None:
        """A signal was sent."""
        if self.signal is None:
            self._first_sent_at = now
        self.signal, self._sent_at = number, now

    def refuse(self, refused: Refused) -> None:
        """No signal was sent."""
        if refused.reason is Refusal.GONE:
            if self.signal is not None:
                return  # Its end is about to be seen.
            self.outcome = Outcome.GONE
        else:
            self.outcome = Outcome.REFUSED
        self.refusal, self._sentence = refused.reason, refused.sentence
        self.release()

    def fail(self, error: OSError) -> None:
        """It could not be held for want of something."""
        self.outcome = Outcome.REFUSED
        self._sentence = f"{self.target.id.pid} cannot be held: {error.strerror}; try it again"
        self.release()

    @property
    def seconds(self) -> float | None:
        """From the first signal to its end."""
        return None if self.ended_at is None else self.ended_at - self._first_sent_at

    def look(self, now: float, time: float) -> bool:
        """See whether it has ended, and then whether its parent has taken notice.

        Returns:
            Whether its end was seen just now.
        """
        if self.grip is None or not self.grip.ended():
            return False
        news = self.waiting
        if news:
            self.outcome, self.ended_at, self.ended_time = Outcome.ENDED, now, time
        self._standing = self.grip.standing()
        if self._standing is None:
            self.release()
        return news

    def look_closely(self) -> None:
        """See how it stands while it lives, and what it waits for."""
        if self.grip is not None and self.waiting:
            self._standing = self.grip.standing()
            asleep = self._standing is not None and self._standing.state == UNINTERRUPTIBLE
            self._looks_asleep = self._looks_asleep + 1 if asleep else 0

    def release(self) -> None:
        """Let go of it."""
        if self.grip is not None:
            self.grip.close()
            self.grip = None

    def fate(self, now: float) -> TargetOutcome:
        """The same for others to read."""
        return TargetOutcome(
            self.target,
            self.outcome,
            late=self.late,
            signal=self.signal,
            refusal=self.refusal,
            sentence=self._say(now),
            standing=self._standing,
            seconds=self.seconds,
        )

    def _say(self, now: float) -> str:
        if self.ended_at is not None:
            patient = now - self.ended_at < _REAP_SECONDS
            return "" if patient else why_it_is_listed(self.target.id, self._standing)
        if self.waiting and self.signal is not None:
            since = now - self._sent_at
            over = since if since >= PATIENCE and ends(self.signal) else None
            # Everybody waits for a disk now and then.
            passing = 0 < self._looks_asleep < _LOOKS_ASLEEP
            standing = None if passing else self._standing
            return why_it_lives(self.target.id, standing, self.signal, over)
        return self._sentence
