"""Adds up the samples of logs, for each GPU and for each user, process or job on it.

A sample counts until the next one of its GPU, at most ``reading.PATIENCE`` usual intervals.
Durations come from each log's monotonic clock if it has one, so a clock that was set does no harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from gpumon.recording.csv.rows import LIST_SECONDS
from gpumon.report.between import ecc_errors, energy_used, holds_memory
from gpumon.report.owners import Subjects, identity
from gpumon.report.reading import PATIENCE, CardSample, Listed, MergedSample, seconds_between
from gpumon.report.sums import Energy, Sums

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOST = frozenset(("lost", "reset required"))
_FRESH = 5.0
"""Seconds for which values that were read stand for the card, however short its interval."""
_SAME_XID = 1.0
"""Two logs tell the same error at times that differ by less, in seconds."""


class _Share(Struct):
    """A subject's share of a GPU, from one list.

    Attributes:
        sums: The sums of the subject.
        memory: Bytes of its processes there; ``None`` if any is unknown.
        sm: Percent of its processes there; ``None`` where that of any is unknown.
        computing: Whether any of them computes.
        part: Its share of the GPU's energy, 0 to 1.
    """

    sums: Sums
    memory: float | None
    sm: float | None
    computing: bool
    part: float


class _List(Struct):
    """The current process list of a GPU.

    Attributes:
        at: When it was written, in the host's time.
        processes: Number of processes.
        computing: Whether any of them computes; ``None`` if some are unknown.
        shares: The share of each subject.
    """

    at: float
    processes: int
    computing: bool | None
    shares: list[_Share]


class CardTotals(Struct):
    """A GPU and its sums.

    Attributes:
        index: Its index, as last seen.
        uuid: Its UUID.
        name: The product's name.
        memory_total: Bytes.
        sums: Of the card.
        alone: Energy used without a process on it.
        sample: Its newest sample, which counts from ``since`` on for at most ``reach`` seconds.
        since: Start time of that sample, in the host's time.
        reach: Maximum seconds for which it counts.
        list: Its current process list; ``None`` if unknown.
        xids: When each XID was last reported; ``None`` if unknown.
    """

    index: int | None = None
    uuid: str | None = None
    name: str | None = None
    memory_total: float | None = None
    sums: Sums = field(default_factory=Sums)
    alone: Energy = field(default_factory=Energy)
    sample: CardSample | None = None
    since: float = 0.0
    reach: float = 0.0
    list: _List | None = None
    xids: dict[int, float | None] = field(default_factory=dict)


class TimeWindow(Struct, frozen=True):
    """The time range that counts, in seconds since the epoch; an open end is infinite."""

    first: float = float("-inf")
    last: float = float("inf")

    def holds(self, time: float) -> bool:
        """Whether a time is in it."""
        return self.first <= time <= self.last

    def part(self, time: float, seconds: float) -> float:
        """How many of the seconds after a time are in it."""
        return max(0.0, min(time + seconds, self.last) - max(time, self.first))


class HostTally:
    """The sums of one host.

    Args:
        by: ``gpu``, ``user``, ``process`` or ``job``.
        window: The time range that counts.
    """

    def __init__(self, by: str, window: TimeWindow) -> None:
        self.cards: dict[str, CardTotals] = {}
        self.sums: dict[str, Sums] = {}
        self.subjects = None if by == "gpu" else Subjects(by)
        self._window = window
        self._now = 0.0
        self._newest: MergedSample | None = None
        self._holders: list[tuple[Sums, list[tuple[CardTotals, float | None]]]] | None = None

    def add(self, moment: MergedSample) -> None:
        """Add the next sample of this host."""
        if self._newest is not None:
            passed = seconds_between(self._newest, moment)
            self._count_presence(passed)
            self._now += passed
        lists = _by_card(moment.listed) if moment.listed else None
        for key, sample in moment.cards.items():
            card = self.cards.get(key)
            if card is None:
                card = self.cards[key] = CardTotals()
            self._finish(card, sample)
            self._begin(card, sample, moment.reach)
            written = None if lists is None else lists.get(key, [])
            self._replace_list(card, sample, written, moment.usual)
        self._newest = moment

    def close(self) -> None:
        """Finish: the last samples count for no time, but their memory may be a peak."""
        self._count_presence(0.0)
        for card in self.cards.values():
            if card.sample is not None and self._window.holds(card.sample.time):
                self._count_card(card, card.sample, 0.0)

    def _begin(self, card: CardTotals, sample: CardSample, reach: float) -> None:
        card.index, card.uuid = sample.index, sample.uuid
        card.name = sample.name or card.name
        card.memory_total = sample.memory_total or card.memory_total
        if self._window.holds(sample.time):
            card.sums.see(sample.time)
        card.sample, card.since, card.reach = sample, self._now, reach

    def _finish(self, card: CardTotals, after: CardSample) -> None:
        """Count the GPU's last sample, now that the next one is known."""
        sample = card.sample
        sharers = [] if card.list is None else card.list.shares
        self._see_xid(card, after, sharers)
        if sample is None:
            return
        passed = self._now - card.since
        counted = min(passed, card.reach)
        seconds = self._window.part(sample.time, counted)
        self._count_gap(card, sample.time, counted, passed)
        everybody = [card.sums, *(share.sums for share in sharers)]
        if self._window.holds(after.time):
            _count_ecc(everybody, sample, after)
        if not seconds and not self._window.holds(sample.time):
            return
        card.sums.seconds += seconds
        card.sums.present += seconds
        energy = energy_used(sample, after, passed, seconds)
        card.sums.energy.add(energy)
        if card.list is not None and not card.list.processes:
            card.alone.add(energy)
        self._count_card(card, sample, seconds)
        for share in sharers:
            _count_share(share, seconds, energy)
        for sums in everybody:
            if sample.reasons is not None and self._is_fresh(sample, card):
                sums.slowed.add(sample.reasons, seconds)
            if sample.status is not None:
                sums.faults.watched += seconds
                sums.faults.lost += seconds if sample.status in _LOST else 0.0

    def _count_gap(self, card: CardTotals, time: float, counted: float, passed: float) -> None:
        if passed > card.reach:
            missing = self._window.part(time + counted, passed - counted)
            card.sums.missing += missing
            card.sums.gaps += missing > 0

    def _count_card(self, card: CardTotals, sample: CardSample, seconds: float) -> None:
        sums = card.sums
        computing = None if card.list is None else card.list.computing
        if sample.status in _LOST:
            # The list of such a GPU is empty, whatever runs on it.
            computing = None
        if computing is not None:
            sums.listed += seconds
            sums.computing += seconds if computing else 0.0
        if not self._is_fresh(sample, card):
            return
        if sample.memory_used is not None:
            sums.memory.add(sample.memory_used, seconds)
        if sample.utilization is None:
            return
        sums.utilization.add(sample.utilization, seconds)
        held = holds_memory(sample) if computing is None else computing
        if sample.utilization > 0:
            sums.busy += seconds
        elif held:
            sums.idle += seconds
        if sample.utilization > 0 or held is not None:
            sums.idle_known += seconds

    @staticmethod
    def _is_fresh(sample: CardSample, card: CardTotals) -> bool:
        """Whether a row has current values; a hung GPU repeats its last values."""
        return sample.age is None or sample.age <= max(card.reach, _FRESH)

    def _see_xid(self, card: CardTotals, sample: CardSample, sharers: list[_Share]) -> None:
        number, at = sample.xid, sample.xid_at
        if number is None:
            return
        seen, before = number in card.xids, card.xids.get(number)
        card.xids[number] = at
        if seen and (at is None or before is None or abs(at - before) < _SAME_XID):
            return
        # An error that is reported at the start of a log may be old.
        began = card.sums.first
        if began is None or not self._window.holds(sample.time) or (at is not None and at < began):
            return
        for sums in (card.sums, *(share.sums for share in sharers)):
            sums.faults.xids[number] += 1

    def _replace_list(
        self, card: CardTotals, sample: CardSample, written: list[Listed] | None, usual: float
    ) -> None:
        """Make the list of this sample the current one.

        Args:
            card: The card.
            sample: Its newest.
            written: The rows of its list; ``None`` if no lists were written.
            usual: The usual interval.
        """
        count = sample.processes
        standing = card.list
        if count is None:
            card.list = None
        elif count == 0:
            if standing is None or standing.processes:
                card.list = _List(self._now, 0, computing=False, shares=[])
        elif written is not None:
            card.list = self._read_list(written, count)
        elif standing is not None and (
            # A log of one user's processes has no list when that user has none.
            standing.processes == 0 or self._now - standing.at > PATIENCE * max(LIST_SECONDS, usual)
        ):
            card.list = None
        if card.list is not standing:
            self._holders = None

    def _read_list(self, listed: list[Listed], count: int) -> _List:
        by_subject: dict[str, list[Listed]] = {}
        if self.subjects is not None:
            whose = self.subjects.of(listed)
            for one in listed:
                by_subject.setdefault(whose[identity(one)].key, []).append(one)
        named = len({identity(one) for one in listed})
        total = sum(one.sm or 0 for one in listed)
        told = named >= count and total > 0 and all(one.sm is not None for one in listed)
        shares = []
        for key, members in by_subject.items():
            if key not in self.sums:
                self.sums[key] = Sums()
            sm = _sum([one.sm for one in members])
            here = len({identity(one) for one in members})
            shares.append(
                _Share(
                    sums=self.sums[key],
                    memory=_sum([one.memory_used for one in members]),
                    sm=None if sm is None else min(100.0, sm),
                    computing=any(one.type != "G" for one in members),
                    part=(sm or 0.0) / total if told else here / max(count, named),
                )
            )
        computing: bool | None = any(one.type != "G" for one in listed)
        if not computing and named < count:
            computing = None
        return _List(self._now, max(count, named), computing, shares)

    def _count_presence(self, passed: float) -> None:
        """Add seconds to the subjects that are present, on any number of GPUs."""
        moment = self._newest
        if self.subjects is None or moment is None:
            return
        if self._holders is None:
            self._holders = self._find_holders()
        seen = self._window.holds(moment.time)
        lasting = {
            id(card): self._window.part(
                moment.time, max(0.0, min(passed, card.since + card.reach - self._now))
            )
            for card in self.cards.values()
        }
        for sums, held in self._holders:
            seconds = 0.0
            memory: float | None = 0.0
            alive = False
            for card, size in held:
                # A GPU without values for long has no certain processes.
                if self._now - card.since > card.reach:
                    continue
                alive = True
                seconds = max(seconds, lasting[id(card)])
                memory = None if memory is None or size is None else memory + size
            if not alive or not (seen or seconds):
                continue
            if seen:
                sums.see(moment.time)
            sums.present += seconds
            if memory is not None:
                sums.memory.add(memory, seconds)

    def _find_holders(self) -> list[tuple[Sums, list[tuple[CardTotals, float | None]]]]:
        found: dict[int, tuple[Sums, list[tuple[CardTotals, float | None]]]] = {}
        for card in self.cards.values():
            for share in [] if card.list is None else card.list.shares:
                found.setdefault(id(share.sums), (share.sums, []))[1].append((card, share.memory))
        return list(found.values())


def _by_card(listed: Iterable[Listed]) -> dict[str, list[Listed]]:
    found: dict[str, list[Listed]] = {}
    for one in listed:
        found.setdefault(one.card, []).append(one)
    return found


def _count_share(share: _Share, seconds: float, energy: Energy) -> None:
    sums = share.sums
    sums.seconds += seconds
    sums.listed += seconds
    sums.energy.add(energy, share.part)
    if share.computing:
        sums.computing += seconds
    if share.sm is None:
        return
    sums.utilization.add(share.sm, seconds)
    sums.idle_known += seconds
    if share.sm > 0:
        sums.busy += seconds
    elif share.computing:
        sums.idle += seconds


def _sum(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _count_ecc(everybody: Iterable[Sums], before: CardSample, after: CardSample) -> None:
    errors = ecc_errors(before, after)
    if errors is not None:
        for sums in everybody:
            sums.faults.add_ecc(errors)


class Tally:
    """The sums of all hosts.

    Args:
        by: ``gpu``, ``user``, ``process`` or ``job``.
        window: The time range that counts.
    """

    def __init__(self, by: str, window: TimeWindow) -> None:
        self.by = by
        self.window = window
        self.hosts: dict[str | None, HostTally] = {}

    def add(self, moment: MergedSample) -> None:
        """Add the next sample."""
        host = self.hosts.get(moment.host)
        if host is None:
            host = self.hosts[moment.host] = HostTally(self.by, self.window)
        host.add(moment)

    def close(self) -> None:
        """Finish."""
        for host in self.hosts.values():
            host.close()
