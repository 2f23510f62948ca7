"""One process of a session, from its selection to its exit, and its descendants."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from gpumon.host.process_host import Refusal, Refused, target_of_relative
from gpumon.host.refusals import signal_name, unreaped
from gpumon.kill.outcome import PATIENCE, Outcome, TargetOutcome
from gpumon.model.process_states import STOPPED, TRACED, UNINTERRUPTIBLE, ZOMBIE
from gpumon.text.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.host.process_host import ProcessHandle, ProcessStatus, RelatedProcess, Target
    from gpumon.model.processes import GpuProcess, ProcessId

_REAP_SECONDS = 0.5
"""Seconds after which a parent that has not reaped its child is reported."""
_TIMES_ASLEEP = 2
_HARMLESS = frozenset(
    getattr(signal, f"SIG{name}", None)
    for name in ("CONT", "STOP", "TSTP", "TTIN", "TTOU", "CHLD", "URG", "WINCH")
)
_END_REQUESTS = frozenset(
    getattr(signal, f"SIG{name}", None) for name in ("INT", "TERM", "QUIT", "KILL")
)


def ends(number: int) -> bool:
    """Whether a signal ends processes that do not handle it: signal(7), "Term" and "Core"."""
    return number not in _HARMLESS


def requests_end(number: int) -> bool:
    """Whether a signal only asks for an end: HUP and USR1 have other uses too."""
    return number in _END_REQUESTS


def descendants(
    roots: Sequence[Target], relatives: Iterable[RelatedProcess], listed: Iterable[GpuProcess]
) -> list[Target]:
    """The descendants of these processes, parents first.

    Args:
        roots: The processes.
        relatives: They with their relatives, parents first.
        listed: The processes on the GPUs, which say what the descendants use.
    """
    uses = {process.id: process.uses for process in listed}
    relatives = tuple(relatives)
    known = {relative.id for relative in relatives}
    places = {root.id.pid: root.place for root in roots if root.id in known}
    found = []
    for relative in relatives:
        if relative.parent in places:
            place = places.setdefault(relative.id.pid, places[relative.parent])
            found.append(target_of_relative(relative, uses.get(relative.id, ()), place))
    return found


class TargetState:
    """The state of one process. Times are those of the session's clock."""

    def __init__(self, target: Target, late: bool = False) -> None:
        self.target = target
        self.late = late  # found only during the session
        self.handle: ProcessHandle | None = None  # ``None`` if it cannot be opened or was closed
        self.outcome = Outcome.WAITING
        self.signal: int | None = None  # the last that was sent to it
        self.ended_at: float | None = None  # when its exit was observed, monotonic
        self.ended_time: float | None = None  # the same since the epoch
        self.refusal: Refusal | None = None  # why no signal was sent
        self._sentence = ""
        self._status: ProcessStatus | None = None
        self._times_asleep = 0
        self._first_sent_at = 0.0
        self._sent_at = 0.0

    @property
    def alive(self) -> bool:
        """Whether it is held and alive now."""
        return self.waiting and self.handle is not None and not self.handle.ended()

    @property
    def waiting(self) -> bool:
        """Whether its exit has not been observed yet."""
        return self.outcome is Outcome.WAITING

    @property
    def counts(self) -> bool:
        """Whether its memory should be reclaimed: it got a signal, or ended with its parent."""
        sent = self.signal is not None and self.waiting
        return sent or self.outcome is Outcome.ENDED

    def settled(self, now: float) -> bool:
        """Whether nothing more will be learned about it."""
        if self.ended_at is None:
            return not self.waiting
        return self._status is None or now - self.ended_at >= _REAP_SECONDS

    def sent(self, number: int, now: float) -> None:
        """Record that a signal was sent."""
        if self.signal is None:
            self._first_sent_at = now
        self.signal, self._sent_at = number, now

    def refuse(self, refused: Refused) -> None:
        """Record that no signal was sent, or that its machine cannot be asked."""
        if refused.reason is Refusal.GONE:
            if self.signal is not None or self.handle is not None:
                # Its exit will be observed soon. A parent that got the signal first may have ended
                # it before its own signal was sent.
                return
            self.outcome = Outcome.GONE
        elif refused.reason is Refusal.UNANSWERED or (
            refused.reason is Refusal.UNREACHABLE and self.signal is not None
        ):
            self.outcome = Outcome.UNKNOWN
        else:
            self.outcome = Outcome.REFUSED
        self.refusal, self._sentence = refused.reason, refused.sentence
        self.release()

    def fail(self, error: OSError) -> None:
        """Record that it could not be held for lack of a resource."""
        self.outcome = Outcome.REFUSED
        self._sentence = f"{self.target.id.pid} cannot be opened: {error.strerror}; try again"
        self.release()

    @property
    def seconds(self) -> float | None:
        """Seconds from the first signal to its exit."""
        if self.ended_at is None or self.signal is None:
            return None
        return self.ended_at - self._first_sent_at

    def update(self, now: float, time: float) -> bool:
        """Check whether it has exited, and then whether its parent has reaped it.

        Returns:
            Whether its exit was observed just now.
        """
        if self.handle is None or not self.handle.ended():
            return False
        news = self.waiting
        if news:
            self.outcome, self.ended_at, self.ended_time = Outcome.ENDED, now, time
        try:
            self._status = self.handle.status()
        except Refused:
            self._status = None  # It has ended; whether it is reaped will not be known.
        if self._status is None:
            self.release()
        return news

    def read_status(self) -> None:
        """Read its status while it is alive, and what it waits for.

        Raises:
            Refused: Its machine cannot be asked any more.
        """
        if self.handle is not None and self.waiting:
            self._status = self.handle.status()
            asleep = self._status is not None and self._status.state == UNINTERRUPTIBLE
            self._times_asleep = self._times_asleep + 1 if asleep else 0

    def release(self) -> None:
        """Close its handle."""
        if self.handle is not None:
            self.handle.close()
            self.handle = None

    def result(self, now: float) -> TargetOutcome:
        """The outcome as an immutable record."""
        return TargetOutcome(
            self.target,
            self.outcome,
            late=self.late,
            signal=self.signal,
            refusal=self.refusal,
            sentence=self._sentence_now(now),
            status=self._status,
            seconds=self.seconds,
        )

    def _sentence_now(self, now: float) -> str:
        if self.ended_at is not None:
            patient = now - self.ended_at < _REAP_SECONDS
            return "" if patient else _why_it_is_listed(self.target.id, self._status)
        if self.waiting and self.signal is not None:
            since = now - self._sent_at
            over = since if since >= PATIENCE and ends(self.signal) else None
            # Every process waits for a disk now and then.
            passing = 0 < self._times_asleep < _TIMES_ASLEEP
            status = None if passing else self._status
            return _why_it_lives(self.target.id, status, self.signal, over)
        return self._sentence


def _why_it_lives(
    process: ProcessId, status: ProcessStatus | None, number: int, patience_over: float | None
) -> str:
    """Why a process has not exited, as far as known.

    Args:
        process: The process.
        status: Its status.
        number: The last signal sent to it.
        patience_over: Seconds since then, if that is longer than it should need.
    """
    pid, name = process.pid, signal_name(number)
    state = "" if status is None else status.state
    if status is not None and state == UNINTERRUPTIBLE:
        where = f" ({status.wait_channel})" if status.wait_channel else ""
        return f"{pid} waits inside the kernel{where}: no signal reaches it until that ends"
    if number != signal.SIGKILL and state == STOPPED:
        return (
            f"{pid} is stopped: {name} acts once it is continued (kill -CONT {pid}), KILL at once"
        )
    if number != signal.SIGKILL and state == TRACED:
        return (
            f"{pid} is held by a debugger: {name} acts once the debugger continues it, KILL at once"
        )
    if patience_over is None:
        return ""
    since = duration(patience_over)
    if number == signal.SIGKILL:
        return f"{pid} was killed {since} ago, and the kernel is still cleaning up after it"
    if state == ZOMBIE:
        return f"{pid} still runs without its main thread {since} after {name}"
    return f"{pid} still runs {since} after {name}: it ignores the signal, or is still cleaning up"


def _why_it_is_listed(process: ProcessId, status: ProcessStatus | None) -> str:
    """Why an exited process is still in the process list; otherwise empty."""
    listed = unreaped(status)
    return f"{process.pid} has ended{listed}" if listed else ""
