"""The history itself: takes snapshots in, and answers."""

from __future__ import annotations

import math
from functools import lru_cache, partial
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING

from gpumon.availability import FRESH_SECONDS
from gpumon.history.holdings import Holding, holdings
from gpumon.history.spells import Watch, is_active
from gpumon.model import CardStatus
from gpumon.series import RECENT_SAMPLES, Depth, Pace, Series
from gpumon.thresholds import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.history.spells import Condition, Spell
    from gpumon.model import Gpu, GpuProcess, Host, ProcessId, Snapshot
    from gpumon.thresholds import Thresholds

CHARTED = (
    "utilization_gpu",
    "utilization_memory",
    "memory_used",
    "power_draw",
    "temperature_gpu",
    "clock_sm",
    "pcie_rx",
    "pcie_tx",
    "nvlink_rx",
    "nvlink_tx",
)
"""Fields of a card whose values over time are kept."""
HOST_CHARTED = ("cpu_percent", "memory_used", "load")
"""Likewise of the machine; the load is that of the last minute."""
PROCESS_CHARTED = ("memory_used", "sm", "cpu_percent", "rss")
"""Likewise of a process, over all its cards."""

CARD_DEPTH = Depth(fields=len(CHARTED), peaks=6, seconds=3601, tens=8641, samples=RECENT_SAMPLES)
"""Of a card: two minutes sample by sample, an hour in seconds, a day in tens of seconds. No peaks
are kept of the links, of which a sample tells an instant only."""
HOST_DEPTH = Depth(fields=len(HOST_CHARTED), peaks=0, seconds=901, tens=361)
"""Of the machine, which is read once a second: a quarter of an hour in seconds."""
PROCESS_DEPTH = Depth(fields=len(PROCESS_CHARTED), peaks=2, seconds=901, tens=4321)
"""Of a process, of which there may be hundreds: a quarter of an hour in seconds, as their lists are
read no faster, and half a day in tens. Peaks of GPU memory and SM use alone."""

PROCESSES_CHARTED = 300
"""How many processes get values over time: those with the most GPU memory, where there are more."""
PROCESSES_KEPT = 600
"""Who has them keeps them while no further down than this, so that two that take turns do not begin
anew each time."""
GONE_SECONDS = 600.0
"""How long a process that has ended is remembered."""
GONE_KEPT = 100
"""How many of them at most, so that a machine that starts thousands an hour costs no more."""
CARDS_KEPT = 16
"""How many cards are remembered at least, or twice as many as there are: of more the ones that
were away for longest are forgotten."""
XIDS_KEPT = 32
"""How many different XIDs of a card are remembered: the newest."""
STEP = 1.0
"""Seconds by which the clock may fall behind without being taken for set back."""
PATIENCE = 10.0
"""Seconds for which something may be unknown without ending a spell."""
OLD_AFTER = 2.0
"""Age in seconds up to which a card's values are never called old."""
USERS_KEPT = 300
"""How many users' time on cards is remembered, once they have left."""


class _Card:
    """What is kept of one card.

    From one sample to the next nearly always the same conditions hold. So the watches are told when
    that changes, and until then it is only counted how often it came again.
    """

    __slots__ = ("again", "held", "patience", "sampled_at", "seen_at", "series", "watches", "xids")

    def __init__(self, conditions: int, time: float) -> None:
        self.series = Series(CARD_DEPTH, time)
        self.watches = [Watch() for _ in range(conditions)]
        self.held: tuple[bool | None, ...] = (None,) * conditions
        self.seen_at = -math.inf
        self.again = 0
        self.sampled_at: float | None = None
        self.patience = PATIENCE
        self.xids: dict[int, float | None] = {}

    def see(
        self, held: tuple[bool | None, ...], time: float, conditions: Sequence[Condition]
    ) -> None:
        """Take which of the conditions hold."""
        if held == self.held and time - self.seen_at <= self.patience:
            self.again += 1
            self.seen_at = time
            return
        self.settle(conditions)
        self.held = held
        self.seen_at = time
        for watch, holds, condition in zip(self.watches, held, conditions, strict=True):
            watch.see(holds, time, self.patience, condition.linger)

    def settle(self, conditions: Sequence[Condition]) -> None:
        """Tell the watches what came again."""
        if not self.again:
            return
        for watch, holds, condition in zip(self.watches, self.held, conditions, strict=True):
            watch.see_again(holds, self.seen_at, self.again, condition.linger)
        self.again = 0


class _Process:
    """What is kept of one process.

    Attributes:
        first: When it was first in a list.
        last: When it was last in one.
        rest: When it had memory and did nothing.
        rests: Whether that is so by the newest list; ``None`` where that is unknown.
        series: Its values; ``None`` where others have more memory.
    """

    __slots__ = ("first", "last", "rest", "rests", "series")

    def __init__(self, time: float) -> None:
        self.first = time
        self.last = time
        self.rest = Watch()
        self.rests: bool | None = None
        self.series: Series | None = None


_EMPTY = Holding()
_CARD_FIELD = {field: place for place, field in enumerate(CHARTED)}
_PROCESS_FIELD = {field: place for place, field in enumerate(PROCESS_CHARTED)}
_HOST_FIELD = {field: place for place, field in enumerate(HOST_CHARTED)}
_card_values = attrgetter(*CHARTED)
_process_values = attrgetter(*PROCESS_CHARTED)
_ANSWERING = (CardStatus.OK, CardStatus.FAILING)


class History:
    """See the package. May be told from one thread and asked from others.

    Attributes:
        latest: The newest snapshot.
        started: When the first one was taken: before that nothing is known.
        now: When the newest was taken. In these times everything else is told.
        thresholds: Where the lines are drawn by whoever judges what was seen.
    """

    def __init__(
        self, conditions: Mapping[str, Condition], thresholds: Thresholds = DEFAULTS
    ) -> None:
        """Begin with nothing seen.

        Args:
            conditions: What to watch on every card, by name; ``findings.conditions()``.
            thresholds: Where the lines are drawn for what is seen.
        """
        self.thresholds = thresholds
        self.latest: Snapshot | None = None
        self.started: float | None = None
        self.now = -math.inf
        # Reasons come last: of the same ones the same is true, and mostly they are the same.
        ordered = sorted(conditions.items(), key=lambda one: isinstance(one[1].holds, int))
        self._conditions = tuple(condition for _, condition in ordered)
        self._place = {name: place for place, (name, _) in enumerate(ordered)}
        self._asked = [one.holds for one in self._conditions if not isinstance(one.holds, int)]
        bits = tuple(one.holds for one in self._conditions if isinstance(one.holds, int))
        self._active = lru_cache(maxsize=64)(partial(_active, bits))
        self._cards: dict[str, _Card] = {}
        self._processes: dict[ProcessId, _Process] = {}
        self._host: Series | None = None
        self._host_seen: Host | None = None
        self._host_seen_at = 0.0
        self._holdings: dict[str, Holding] = {}
        self._gpu_seconds: dict[str | None, float] = {}
        # What has been told of buckets that were still open, in the second that was asked for last.
        self._second = 0
        self._open: dict[tuple[object, ...], list[float | None]] = {}
        self._listed_at: float | None = None
        self._listed_cards: frozenset[str] = frozenset()
        self._list_seen = -math.inf
        self._list_pace = Pace()
        self._lists_known = False
        self._lock = Lock()

    def add(self, snapshot: Snapshot) -> None:
        """Take the next snapshot; each once."""
        with self._lock:
            time = self._tell_time(snapshot.time)
            self._see_processes(snapshot, time)
            for gpu in snapshot.gpus:
                self._see_card(gpu, time)
            if len(self._cards) > max(CARDS_KEPT, 2 * len(snapshot.gpus)):
                self._forget_cards(snapshot)
            self._see_host(snapshot.host, time)
            self.latest = snapshot

    def holding(self, gpu: Gpu) -> Holding | None:
        """What the processes hold of a card; ``None`` while no present list of them is known."""
        # A source that cannot list a card's processes says so where it says it of fields.
        if not self._lists_known or "processes" in gpu.unknown:
            return None
        return self._holdings.get(gpu.uuid, _EMPTY)

    def old(self, gpu: Gpu) -> float | None:
        """Seconds since a card's values were read, once newer ones are missing.

        ``None`` while they are of the present: up to two and a half samples and ``OLD_AFTER``.
        """
        if gpu.sampled_at is None:
            return None
        with self._lock:
            card = self._cards.get(gpu.uuid)
            late = OLD_AFTER if card is None else max(OLD_AFTER, card.series.pace.late)
            age = self.now - gpu.sampled_at
            return age if age > late else None

    def held(self, uuid: str) -> tuple[bool | None, ...]:
        """Whether each of the conditions holds for a card, now."""
        card = self._cards.get(uuid)
        return () if card is None else card.held

    def spell(self, uuid: str, name: str) -> Spell | None:
        """The spell in which a condition holds for a card, now.

        ``None`` when it does not hold, or when whether it does is unknown at this moment. A time of
        up to ``PATIENCE`` seconds, or two and a half samples where that is longer, in which it was
        unknown does not end a spell; after a longer one a new spell begins.

        Raises:
            KeyError: No such condition.
        """
        with self._lock:
            card = self._cards.get(uuid)
            if card is None:
                return None
            place = self._place[name]
            watch = card.watches[place]
            if watch.since is None or card.held[place] is None:
                return None
            card.settle(self._conditions)
            return watch.spell(self.now - card.patience)

    def process_idle(self, process: ProcessId) -> Spell | None:
        """The spell in which a process has had GPU memory and no SM use, now.

        ``None`` when it is not idle, when either is unknown, as SM use is under MIG and with old
        drivers, when it is in no present list, and for one that only draws: a display server rests
        most of the time. Of a process, what the driver says of its last second or so is all there
        is, so work that is shorter and rarer than that can be missed. What was unknown for up to
        ``PATIENCE`` seconds does not end a spell. Its beginning was seen where the process was at
        work, or not there, at the look before.
        """
        with self._lock:
            known = self._processes.get(process)
            if known is None or known.last < self._list_seen or not known.rests:
                return None
            return known.rest.spell(self.now - max(PATIENCE, self._list_pace.late))

    def gpu_seconds(self, user: str | None) -> float:
        """For how many seconds times cards a user's processes were seen on cards, to compute.

        Two processes on one card count once. What lies between two lists counts by the older one;
        where the newer came late, as after a suspend or from a driver that hung, nothing counts.
        ``None`` is whoever owns the processes that are not visible here.
        """
        with self._lock:
            return self._gpu_seconds.get(user, 0.0)

    def samples(self, uuid: str, field: str, since: float) -> int:
        """How many of the newest ``series.RECENT_SAMPLES`` tell a card's field since a time.

        Raises:
            KeyError: The field is not in ``CHARTED``.
        """
        place = _CARD_FIELD[field]
        with self._lock:
            series = self._card_series(uuid)
            return 0 if series is None else series.known_since(place, since)

    def xids(self, uuid: str) -> dict[int, float | None]:
        """Every XID that was seen of a card, with when it last came.

        A card tells the last one only, and an error of the card is followed by those of the
        programs that end by it.
        """
        with self._lock:
            card = self._cards.get(uuid)
            return {} if card is None else dict(card.xids)

    def gpu_buckets(
        self,
        uuid: str,
        field: str,
        seconds: float,
        count: int,
        now: float,
        *,
        peak: bool = False,
    ) -> list[float | None]:
        """The last ``seconds`` of a card's field as ``count`` values, oldest first, for a chart.

        Each is the mean, or the peak, of a bucket of ``seconds / count``. Buckets lie at fixed
        times, so the row moves on by one a bucket and a value keeps what it was while it moves;
        only the newest, which ``now`` is in, still changes, from one second to the next: whoever
        asks again, however late, is told the same. ``None`` is a gap.

        Up to two minutes in buckets under a second come from every sample, up to an hour in buckets
        under ten from seconds, the rest from tens. A bucket shorter than those repeats the value it
        lies in, and changes as long as that does.

        Raises:
            KeyError: The field is not in ``CHARTED``.
        """
        place = _CARD_FIELD[field]
        with self._lock:
            return self._buckets(self._card_series(uuid), place, seconds, count, now, peak)

    def process_buckets(
        self,
        process: ProcessId,
        field: str,
        seconds: float,
        count: int,
        now: float,
        *,
        peak: bool = False,
    ) -> list[float | None]:
        """``gpu_buckets`` for a process and a field of ``PROCESS_CHARTED``.

        From seconds up to a quarter of an hour, from tens beyond that.
        """
        place = _PROCESS_FIELD[field]
        with self._lock:
            return self._buckets(self._process_series(process), place, seconds, count, now, peak)

    def host_buckets(
        self, field: str, seconds: float, count: int, now: float
    ) -> list[float | None]:
        """``gpu_buckets`` for the machine and a field of ``HOST_CHARTED``: means of seconds.

        Raises:
            KeyError: The field is not in ``HOST_CHARTED``.
        """
        with self._lock:
            return self._buckets(self._host, _HOST_FIELD[field], seconds, count, now, peak=False)

    def gpu_window(self, uuid: str, field: str, seconds: float) -> list[tuple[float, float]]:
        """Time and value of a card's field over the last ``seconds``, oldest first.

        Every sample for up to two minutes, means of seconds for up to an hour, of tens for longer.
        What is unknown is left out: draw from ``gpu_buckets``, which shows gaps.

        Raises:
            KeyError: The field is not in ``CHARTED``.
        """
        return self._window(self._card_series(uuid), _CARD_FIELD[field], seconds)

    def process_window(
        self, process: ProcessId, field: str, seconds: float
    ) -> list[tuple[float, float]]:
        """``gpu_window`` for a process and a field of ``PROCESS_CHARTED``.

        Means of seconds for up to a quarter of an hour, of tens for longer, up to half a day.
        """
        return self._window(self._process_series(process), _PROCESS_FIELD[field], seconds)

    def gpu_peak(self, uuid: str, field: str, seconds: float) -> float | None:
        """The highest value of a card's field over the last ``seconds``, of all samples."""
        return self._peak(self._card_series(uuid), _CARD_FIELD[field], seconds)

    def process_peak(self, process: ProcessId, field: str, seconds: float) -> float | None:
        """``gpu_peak`` for a process and a field of ``PROCESS_CHARTED``.

        Beyond a quarter of an hour that of CPU and host memory is the highest mean of ten seconds.
        """
        return self._peak(self._process_series(process), _PROCESS_FIELD[field], seconds)

    def gpu_slope(self, uuid: str, field: str, seconds: float) -> float | None:
        """How much a card's field rises a second: the least-squares line through ``gpu_window``.

        ``None`` with fewer than two points in time.
        """
        return _slope(self.gpu_window(uuid, field, seconds))

    def process_slope(self, process: ProcessId, field: str, seconds: float) -> float | None:
        """``gpu_slope`` for a process and a field of ``PROCESS_CHARTED``."""
        return _slope(self.process_window(process, field, seconds))

    def _tell_time(self, time: float) -> float:
        """The time of a new snapshot, after those before it."""
        if self.started is None:
            self.started = time
        elif time < self.now - STEP:
            self._move_back(self.now - time)
        else:
            time = max(time, self.now)
        self.now = time
        return time

    def _move_back(self, seconds: float) -> None:
        """Follow a clock that was set back."""
        # Slots are up to ten seconds long and stay whole; the past grows by what is rounded up.
        whole = 10 * math.ceil(seconds / 10)
        for card in self._cards.values():
            card.series.shift(whole)
            card.seen_at -= seconds
            for watch in card.watches:
                watch.shift(seconds)
        for known in self._processes.values():
            known.first -= seconds
            known.last -= seconds
            known.rest.shift(seconds)
            if known.series is not None:
                known.series.shift(whole)
        if self._host is not None:
            self._host.shift(whole)
        self._list_seen -= seconds
        if self.started is not None:
            self.started -= seconds

    def _see_card(self, gpu: Gpu, time: float) -> None:
        card = self._cards.get(gpu.uuid)
        if card is None:
            card = self._cards[gpu.uuid] = _Card(len(self._conditions), time)
        if gpu.xid is not None:
            card.xids[gpu.xid] = gpu.xid_at
            if len(card.xids) > XIDS_KEPT:
                del card.xids[min(card.xids, key=lambda xid: card.xids[xid] or -math.inf)]
        if gpu.status not in _ANSWERING:
            return
        # While one card hangs, the values of the others come again as they were.
        if gpu.sampled_at is not None and gpu.sampled_at == card.sampled_at:
            return
        card.sampled_at = gpu.sampled_at
        card.patience = max(PATIENCE, card.series.pace.late)
        card.series.add(time, _card_values(gpu))
        holding = self.holding(gpu)
        held = (
            *[holds(gpu, holding) for holds in self._asked],
            *self._active(gpu.clock_event_reasons),
        )
        card.see(held, time, self._conditions)

    def _forget_cards(self, snapshot: Snapshot) -> None:
        """Drop those that were away for longest."""
        away = self._cards.keys() - {gpu.uuid for gpu in snapshot.gpus}
        longest = sorted(away, key=lambda uuid: self._cards[uuid].series.last)
        for uuid in longest[: len(self._cards) - max(CARDS_KEPT, 2 * len(snapshot.gpus))]:
            del self._cards[uuid]

    def _see_host(self, host: Host, time: float) -> None:
        if host is not self._host_seen:
            self._host_seen, self._host_seen_at = host, time
        elif time - self._host_seen_at > FRESH_SECONDS:
            # Handed on while a card hangs or the driver is gone: nobody has measured it since.
            return
        if self._host is None:
            self._host = Series(HOST_DEPTH, time)
        load = None if host.load is None else host.load[0]
        self._host.add(time, (host.cpu_percent, host.memory_used, load))

    def _see_processes(self, snapshot: Snapshot, time: float) -> None:
        listed_at = snapshot.processes_at
        if listed_at is not None and listed_at != self._listed_at:
            self._listed_at = listed_at
            self._see_list(snapshot, time)
        self._lists_known = listed_at is not None and snapshot.time - listed_at <= FRESH_SECONDS

    def _see_list(self, snapshot: Snapshot, time: float) -> None:
        """Take a new list of processes."""
        patience = max(PATIENCE, self._list_pace.late)
        if self._list_seen > -math.inf:
            self._count_cards(time - self._list_seen)
        there = [(one, self._see_process(one, time, patience)) for one in snapshot.processes]
        self._list_seen = time
        self._listed_cards = frozenset(
            gpu.uuid
            for gpu in snapshot.gpus
            if gpu.status in _ANSWERING and "processes" not in gpu.unknown
        )
        for process, known in self._to_chart(there):
            if known.series is None:
                known.series = Series(PROCESS_DEPTH, time)
            known.series.add(time, _process_values(process))
        if len(self._processes) > len(there):
            self._forget_gone(time)
        self._holdings = holdings((process, known.first) for process, known in there)

    def _see_process(self, process: GpuProcess, time: float, patience: float) -> _Process:
        """Take a process of a new list."""
        known = self._processes.get(process.id)
        if known is None:
            known = self._processes[process.id] = _Process(time)
            if all(use.gpu_uuid in self._listed_cards for use in process.uses):
                # It was not there, and whoever is not there does not rest.
                known.rest.denied = self._list_seen
        known.last = time
        known.rests = _rests(process)
        known.rest.see(known.rests, time, patience)
        return known

    def _count_cards(self, seconds: float) -> None:
        """Add the time since the list before to whoever was on cards then."""
        late = seconds > max(FRESH_SECONDS, self._list_pace.late)
        self._list_pace.see(seconds)
        if late:
            return
        counted = self._gpu_seconds
        for holding in self._holdings.values():
            for owner in holding.owners:
                counted[owner] = counted.get(owner, 0.0) + seconds
        if len(counted) > USERS_KEPT:
            self._forget_users()

    def _forget_users(self) -> None:
        """Drop those with the least time of too many who have left."""
        here = {owner for holding in self._holdings.values() for owner in holding.owners}
        left = sorted(self._gpu_seconds.keys() - here, key=lambda user: self._gpu_seconds[user])
        for user in left[: len(self._gpu_seconds) - USERS_KEPT]:
            del self._gpu_seconds[user]

    def _to_chart(
        self, there: list[tuple[GpuProcess, _Process]]
    ) -> Sequence[tuple[GpuProcess, _Process]]:
        """Those whose values are kept; forgets the values of who fell too far behind."""
        if len(there) <= PROCESSES_CHARTED:
            return there
        ranked = sorted(there, key=lambda one: one[0].memory_used or 0, reverse=True)
        for _, known in ranked[PROCESSES_KEPT:]:
            known.series = None
        staying = ranked[PROCESSES_CHARTED:PROCESSES_KEPT]
        return ranked[:PROCESSES_CHARTED] + [one for one in staying if one[1].series is not None]

    def _forget_gone(self, time: float) -> None:
        """Drop the processes that ended long ago, and the oldest of too many."""
        gone = [process for process, known in self._processes.items() if known.last < time]
        gone.sort(key=lambda process: self._processes[process].last, reverse=True)
        for number, process in enumerate(gone):
            if number >= GONE_KEPT or time - self._processes[process].last > GONE_SECONDS:
                del self._processes[process]

    def _card_series(self, uuid: str) -> Series | None:
        card = self._cards.get(uuid)
        return None if card is None else card.series

    def _process_series(self, process: ProcessId) -> Series | None:
        known = self._processes.get(process)
        return None if known is None else known.series

    def _buckets(
        self,
        series: Series | None,
        place: int,
        seconds: float,
        count: int,
        now: float,
        peak: bool,
    ) -> list[float | None]:
        if series is None:
            return [None] * count
        values = series.buckets(place, seconds, count, now, peak)
        if int(now) != self._second:
            self._second = int(now)
            self._open.clear()
        width = seconds / count
        # As many as there can be in the slot that is still open, ten seconds at most.
        newest = -min(count, 1 + int(10 / width))
        asked = series, place, seconds, count, math.floor(now / width), peak
        values[newest:] = self._open.setdefault(asked, values[newest:])
        return values

    def _window(
        self, series: Series | None, place: int, seconds: float, peak: bool = False
    ) -> list[tuple[float, float]]:
        with self._lock:
            return [] if series is None else list(series.window(place, seconds, self.now, peak))

    def _peak(self, series: Series | None, place: int, seconds: float) -> float | None:
        points = self._window(series, place, seconds, peak=True)
        return max((value for _, value in points), default=None)


def _active(bits: Sequence[int], reasons: int | None) -> tuple[bool | None, ...]:
    """Which of these clock event reasons are active."""
    return tuple(is_active(bit, reasons) for bit in bits)


def _rests(process: GpuProcess) -> bool | None:
    """Whether a process has memory and does nothing."""
    if process.type == "G":
        return False
    unknown = False
    for use in process.uses:
        if use.sm is None:
            unknown = True
        elif use.sm:
            return False
    memory = process.memory_used
    return None if unknown or memory is None else memory > 0


def _slope(points: list[tuple[float, float]]) -> float | None:
    """Rise a second of the least-squares line through points of (time, value)."""
    if not points:
        return None
    time = sum(at for at, _ in points) / len(points)
    mean = sum(value for _, value in points) / len(points)
    spread = sum((at - time) ** 2 for at, _ in points)
    if spread == 0:
        return None
    return sum((at - time) * (value - mean) for at, value in points) / spread
