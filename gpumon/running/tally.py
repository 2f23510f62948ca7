"""Adds up what a job had of its cards, sample by sample, in bounded memory."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct, field

from gpumon.choosing.judging import Candidate  # noqa: TC001 - msgspec resolves them
from gpumon.model import CardStatus, GpuProcess, ProcessId
from gpumon.report.sums import Distribution, Energy, Level, Slowed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.model import Gpu, Snapshot

LAST_SECONDS = 5.0
"""What was in this time before the end may be why it ended."""
_LIST_SECONDS = 5.0
"""A list of processes that is older than this tells nothing of now."""
SLACK_BYTES = 64 * 2**20
"""By so much a card's memory moves by itself."""
_MOST_SECONDS = 5.0
"""A sample stands for no longer than this, however long the next one is away."""


class Fill(Struct, frozen=True):
    """How full a card was at one moment. Bytes; ``None`` is unknown.

    Attributes:
        time: When.
        free: Free memory.
        total: Of the card.
        job: What the job had.
        others: Who else was there.
    """

    time: float
    free: int | None
    total: int | None
    job: int | None
    others: tuple[GpuProcess, ...] = ()


class CardTally(Struct):
    """What one card did while the job ran.

    Attributes:
        candidate: The card, or MIG device.
        memory: Of the job's processes.
        sm: Of the job's processes, percent.
        energy: Of the whole card.
        slowed: Of the whole card.
        fills: The last few seconds, oldest first.
        sm_now: Of the job's processes at the last sample, percent.
        strangers: Who was there before the job.
        used_before: Bytes of the card that were in use before the job.
        used: Whether a process of the job was seen on it.
        doubtful: Whether the job may have been there without being seen.
    """

    candidate: Candidate
    memory: Level = field(default_factory=Level)
    sm: Distribution = field(default_factory=Distribution)
    energy: Energy = field(default_factory=Energy)
    slowed: Slowed = field(default_factory=Slowed)
    fills: deque[Fill] = field(default_factory=deque)
    sm_now: int | None = None
    strangers: frozenset[ProcessId] = frozenset()
    used_before: int | None = None
    used: bool = False
    doubtful: bool = False

    @property
    def unused(self) -> bool:
        """Whether the job never appeared on it, as far as the lists of processes tell."""
        return self.memory.peak == 0 and not self.used and not self.doubtful

    def pass_on(self, snapshot: Snapshot, passed: float) -> None:
        """Count the time since the sample before, through which that one held."""
        seen = self.candidate.seen_in(snapshot)
        if seen is None:
            return
        # The job may have been on a card since the last list that it answered with.
        self.doubtful = self.doubtful or seen.gpu.status is not CardStatus.OK
        seconds = min(passed, _MOST_SECONDS)
        before = self.candidate.gpu
        self.energy.add(_energy(before, seen.gpu, passed, seconds))
        self.candidate = seen
        if not self.fills:
            return  # how the job did before its first sample nobody knows
        job = self.fills[-1].job
        if job is not None:
            self.memory.add(job, seconds)
        if self.sm_now is not None:
            self.sm.add(min(100, self.sm_now), seconds)
        if before.clock_event_reasons is not None:
            self.slowed.add(before.clock_event_reasons, seconds)

    def see(self, snapshot: Snapshot, members: Sequence[GpuProcess], began: float) -> None:
        """Take note of how it is now; a list of processes from before the job tells nothing."""
        seen = self.candidate.seen_in(snapshot)
        if seen is None:
            return
        self.candidate = seen
        listed_at = snapshot.processes_at or 0
        on_it = [one for one in snapshot.processes if seen.use_of(one) is not None]
        uses = [use for one in members if (use := seen.use_of(one)) is not None]
        # While a call hangs the last list is repeated. Of what is not visible here nobody knows
        # whether it is the job's; nor of who came since, where the job itself is not seen: a
        # container's processes are no children of its client.
        doubtful = (
            "processes" in seen.gpu.unknown
            or seen.gpu.status is not CardStatus.OK
            or listed_at < snapshot.time - _LIST_SECONDS
            or any(not one.visible for one in on_it)
        )
        if not uses:
            came = [one for one in on_it if one.type != "G" and one.id not in self.strangers]
            doubtful = doubtful or bool(came) or self._grew(seen)
        self.used = self.used or bool(uses)
        self.doubtful = self.doubtful or doubtful
        listed = listed_at >= began and not doubtful
        job = _sum([use.memory_used for use in uses]) if listed else None
        self.sm_now = _sum([use.sm for use in uses]) if listed else None
        if job is not None:
            self.memory.add(job, 0.0)
        others = tuple(one for one in on_it if one not in members)
        self.fills.append(Fill(snapshot.time, seen.memory_free, seen.memory_total, job, others))
        while self.fills[0].time < snapshot.time - LAST_SECONDS:
            self.fills.popleft()

    def _grew(self, seen: Candidate) -> bool:
        """Whether more memory is in use than before the job."""
        before, now = self.used_before, seen.memory_used
        return before is not None and now is not None and now > before + SLACK_BYTES


class Tally:
    """What a job had of its cards, from the moment at which this is made.

    ``add`` is for one thread; the cards are read after the last.

    Args:
        candidates: Its cards.
        members: Tells which processes are the job's.
        before: How the cards were just before it began.

    Attributes:
        cards: What came out so far.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        members: Callable[[Sequence[GpuProcess]], tuple[GpuProcess, ...]],
        before: Snapshot,
    ) -> None:
        self.cards = tuple(_begun(one.seen_in(before) or one, before) for one in candidates)
        self._members = members
        self._before = before
        self._began = time.time()

    def add(self, snapshot: Snapshot, *, over: bool = False) -> tuple[GpuProcess, ...]:
        """Take the next sample.

        Args:
            snapshot: It.
            over: The job has ended: the sample closes the time before it and tells no more.

        Returns:
            The job's processes in it.
        """
        members = self._members(snapshot.processes)
        before, self._before = self._before, snapshot
        passed = max(0.0, snapshot.time - before.time)
        for card in self.cards:
            card.pass_on(snapshot, passed)
            if not over:
                card.see(snapshot, members, self._began)
        return members


def _begun(candidate: Candidate, before: Snapshot) -> CardTally:
    there = (one.id for one in before.processes if candidate.use_of(one) is not None)
    return CardTally(candidate, strangers=frozenset(there), used_before=candidate.memory_used)


def _energy(before: Gpu, now: Gpu, passed: float, seconds: float) -> Energy:
    """What a card used from one sample to the next."""
    if passed <= 0:
        return Energy()
    if before.energy is not None and now.energy is not None and now.energy >= before.energy:
        return Energy(now.energy - before.energy, counted=passed)
    if before.power_draw is not None:
        return Energy(before.power_draw * seconds, integrated=seconds)
    return Energy()


def _sum(values: Sequence[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
