"""What has been seen so far: values over time, how long things have held, and who holds memory.

A ``History`` is told every snapshot, once, in the order in which they came, by whoever samples; the
screen asks it from another thread. It answers three kinds of questions:

- values over time of every card and process (``series.py`` says how finely);
- spells: since when a named condition has held for a card (``findings.py`` names the conditions);
- holdings: what the processes hold of a card, by the newest process list.

Memory is bounded; measured with tracemalloc, a card with ``CHARTED`` comes to 660 kB, a process
with ``PROCESS_CHARTED`` to 6 kB after a minute, 91 kB after an hour and 230 kB from a day on. Eight
cards and a hundred processes that live for days are 28 MB. Where there are many processes only
those with the most GPU memory have values over time: ``PROCESSES_CHARTED``, and never more than
``PROCESSES_KEPT``. Of processes that have ended, ``GONE_KEPT`` at most are remembered, for
``GONE_SECONDS`` at most. Holdings count every process.

Times are the wall clock's, as in the snapshots. Where that clock steps back, all that was seen
before is moved back with it, so that ages stay right and nothing is out of order; less than
``STEP`` is taken for the same moment. A step forward cannot be told from a machine that slept: it
is a gap.
"""

from __future__ import annotations

import math
from collections import defaultdict
from operator import attrgetter, itemgetter
from threading import Lock
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model import CardStatus
from gpumon.series import Series

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpumon.model import Gpu, GpuProcess, ProcessId, Snapshot

CHARTED = (
    "utilization_gpu",
    "utilization_memory",
    "memory_used",
    "power_draw",
    "temperature_gpu",
    "clock_sm",
)
"""Fields of a card whose values over time are kept."""
PROCESS_CHARTED = ("memory_used", "sm")
"""Likewise of a process, over all its cards."""

PROCESSES_CHARTED = 300
"""How many processes get values over time: those with the most GPU memory, where there are more."""
PROCESSES_KEPT = 600
"""Who has them keeps them while no further down than this, so that two that take turns do not begin
anew each time."""
GONE_SECONDS = 600.0
"""How long a process that has ended is remembered."""
GONE_KEPT = 100
"""How many of them at most, so that a machine that starts thousands an hour costs no more."""
STEP = 1.0
"""Seconds by which the clock may fall behind without being taken for set back."""
PATIENCE = 10.0
"""Seconds for which something may be unknown without ending a spell."""
OLD_AFTER = 2.0
"""Age in seconds up to which a card's values are never called old."""
LISTS_FRESH = 5.0
"""Age in seconds up to which a snapshot's process list is taken for the state of its cards."""


class Holding(Struct, frozen=True):
    """What the processes hold of one card.

    Attributes:
        processes: How many are on it.
        computing: How many of them compute; the others only draw.
        memory: Bytes they hold together; ``None`` when that of any is unknown.
        hidden: How many are not visible to this host.
        owners: Users of the computing processes, who holds most first; ``None`` stands for the
            unknown owners of hidden ones.
        owner_since: When the first of the first owner's computing processes was first seen with a
            card.
    """

    processes: int = 0
    computing: int = 0
    memory: int | None = 0
    hidden: int = 0
    owners: tuple[str | None, ...] = ()
    owner_since: float | None = None


class Condition(Struct, frozen=True):
    """Something that may hold for a card for some time.

    Attributes:
        holds: Whether it does, now; ``None`` when that is unknown. Takes the card and what is held
            of it, ``None`` where no present process list is known.
        linger: Seconds for which it may be away without having ended: for what comes and goes many
            times a second.
    """

    holds: Callable[[Gpu, Holding | None], bool | None]
    linger: float = 0.0


class Spell(Struct, frozen=True):
    """A time during which a condition held.

    Attributes:
        since: When it was first seen to hold.
        last: When it was last seen to.
        begin_seen: False when it held already at the first look, or at the first after a gap: then
            it may be older than ``since``.
        samples: In how many samples it was seen to hold.
    """

    since: float
    last: float
    begin_seen: bool
    samples: int

    @property
    def seconds(self) -> float:
        """How long it has held for certain."""
        return self.last - self.since


class _Watch:
    """A condition over time, for one card."""

    __slots__ = ("begin_seen", "denied", "known", "last", "samples", "since")

    def __init__(self) -> None:
        self.since: float | None = None
        self.last = -math.inf
        self.denied = -math.inf
        self.begin_seen = False
        self.known = False
        self.samples = 0

    def see(self, holds: bool | None, time: float, patience: float, linger: float) -> None:
        self.known = holds is not None
        if holds is None:
            return
        if holds:
            if self.since is None or time - self.last > patience:
                self.since = time
                self.begin_seen = time - self.denied <= patience
                self.samples = 0
            self.last = time
            self.samples += 1
            return
        self.denied = time
        if self.since is not None and time - self.last >= linger:
            self.since = None

    def shift(self, seconds: float) -> None:
        self.last -= seconds
        self.denied -= seconds
        if self.since is not None:
            self.since -= seconds


class _Card:
    """What is kept of one card."""

    __slots__ = ("patience", "sampled_at", "series", "watches", "xids")

    def __init__(self, conditions: Mapping[str, Condition], time: float) -> None:
        self.series = Series(len(CHARTED), time)
        self.watches = {name: _Watch() for name in conditions}
        self.sampled_at: float | None = None
        self.patience = PATIENCE
        self.xids: dict[int, float | None] = {}


_EMPTY = Holding()
_CARD_FIELD = {field: place for place, field in enumerate(CHARTED)}
_PROCESS_FIELD = {field: place for place, field in enumerate(PROCESS_CHARTED)}
_card_values = attrgetter(*CHARTED)
_process_values = attrgetter(*PROCESS_CHARTED)
_ANSWERING = (CardStatus.OK, CardStatus.FAILING)


class History:
    """See the module. May be told from one thread and asked from others.

    Attributes:
        latest: The newest snapshot.
        started: When the first one was taken: before that nothing is known.
        now: When the newest was taken. In these times everything else is told.
    """

    def __init__(self, conditions: Mapping[str, Condition]) -> None:
        """Begin with nothing seen.

        Args:
            conditions: What to watch on every card, by name; ``findings.conditions()``.
        """
        self.latest: Snapshot | None = None
        self.started: float | None = None
        self.now = -math.inf
        self._conditions = conditions
        self._cards: dict[str, _Card] = {}
        self._processes: dict[ProcessId, Series] = {}
        self._first_seen: dict[ProcessId, float] = {}
        self._holdings: dict[str, Holding] = {}
        self._listed_at: float | None = None
        self._lists_known = False
        self._lock = Lock()

    def add(self, snapshot: Snapshot) -> None:
        """Take the next snapshot; each once."""
        with self._lock:
            time = self._tell_time(snapshot.time)
            self._see_processes(snapshot, time)
            for gpu in snapshot.gpus:
                self._see_card(gpu, time)
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
            late = OLD_AFTER if card is None else max(OLD_AFTER, card.series.late)
            age = self.now - gpu.sampled_at
            return age if age > late else None

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
            watch = card.watches[name]
            if watch.since is None or not watch.known or self.now - watch.last > card.patience:
                return None
            return Spell(watch.since, watch.last, watch.begin_seen, watch.samples)

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
        only the newest, which ``now`` is in, still changes. ``None`` is a gap.

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
        """``gpu_buckets`` for a process and a field of ``PROCESS_CHARTED``."""
        place = _PROCESS_FIELD[field]
        with self._lock:
            series = self._processes.get(process)
            return self._buckets(series, place, seconds, count, now, peak)

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
        """``gpu_window`` for a process and a field of ``PROCESS_CHARTED``."""
        return self._window(self._processes.get(process), _PROCESS_FIELD[field], seconds)

    def gpu_peak(self, uuid: str, field: str, seconds: float) -> float | None:
        """The highest value of a card's field over the last ``seconds``, of all samples."""
        return self._peak(self._card_series(uuid), _CARD_FIELD[field], seconds)

    def process_peak(self, process: ProcessId, field: str, seconds: float) -> float | None:
        """``gpu_peak`` for a process and a field of ``PROCESS_CHARTED``."""
        return self._peak(self._processes.get(process), _PROCESS_FIELD[field], seconds)

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
            for watch in card.watches.values():
                watch.shift(seconds)
        for series in self._processes.values():
            series.shift(whole)
        self._first_seen = {process: at - seconds for process, at in self._first_seen.items()}
        if self.started is not None:
            self.started -= seconds

    def _see_card(self, gpu: Gpu, time: float) -> None:
        card = self._cards.get(gpu.uuid)
        if card is None:
            card = self._cards[gpu.uuid] = _Card(self._conditions, time)
        if gpu.xid is not None:
            card.xids[gpu.xid] = gpu.xid_at
        if gpu.status not in _ANSWERING:
            return
        # While one card hangs, the values of the others come again as they were.
        if gpu.sampled_at is not None and gpu.sampled_at == card.sampled_at:
            return
        card.sampled_at = gpu.sampled_at
        patience = card.patience = max(PATIENCE, card.series.late)
        card.series.add(time, _card_values(gpu))
        holding = self.holding(gpu)
        watches = card.watches
        for name, condition in self._conditions.items():
            watches[name].see(condition.holds(gpu, holding), time, patience, condition.linger)

    def _see_processes(self, snapshot: Snapshot, time: float) -> None:
        listed_at = snapshot.processes_at
        if listed_at is not None and listed_at != self._listed_at:
            self._listed_at = listed_at
            self._first_seen = {
                process.id: self._since(process.id, time) for process in snapshot.processes
            }
            for process in self._to_chart(snapshot.processes):
                series = self._processes.get(process.id)
                if series is None:
                    series = self._processes[process.id] = Series(len(PROCESS_CHARTED), time)
                series.add(time, _process_values(process))
            self._forget_gone(time)
            self._holdings = self._hold(snapshot.processes)
        self._lists_known = listed_at is not None and snapshot.time - listed_at <= LISTS_FRESH

    def _since(self, process: ProcessId, time: float) -> float:
        """When a process that is there now was first seen."""
        if process in self._first_seen:
            return self._first_seen[process]
        back_again = self._processes.get(process)
        return time if back_again is None else back_again.first

    def _to_chart(self, processes: tuple[GpuProcess, ...]) -> Sequence[GpuProcess]:
        """The processes whose values are kept; forgets those of who fell too far behind."""
        if len(processes) <= PROCESSES_CHARTED:
            return processes
        ranked = sorted(processes, key=lambda process: process.memory_used or 0, reverse=True)
        for process in ranked[PROCESSES_KEPT:]:
            self._processes.pop(process.id, None)
        staying = ranked[PROCESSES_CHARTED:PROCESSES_KEPT]
        return ranked[:PROCESSES_CHARTED] + [one for one in staying if one.id in self._processes]

    def _forget_gone(self, time: float) -> None:
        """Drop the processes that ended long ago, and the oldest of too many."""
        gone = [
            (series.last, process)
            for process, series in self._processes.items()
            if series.last < time
        ]
        gone.sort(key=itemgetter(0), reverse=True)
        for number, (last, process) in enumerate(gone):
            if number >= GONE_KEPT or time - last > GONE_SECONDS:
                del self._processes[process]

    def _hold(self, processes: tuple[GpuProcess, ...]) -> dict[str, Holding]:
        """What is held of every card."""
        on_card: dict[str, dict[ProcessId, tuple[GpuProcess, int | None]]] = defaultdict(dict)
        for process in processes:
            for use in process.uses:
                here = on_card[use.gpu_uuid]
                _, memory = here.get(process.id, (process, 0))
                if memory is not None:
                    memory = None if use.memory_used is None else memory + use.memory_used
                here[process.id] = (process, memory)
        return {uuid: self._holding_of(list(here.values())) for uuid, here in on_card.items()}

    def _holding_of(self, here: list[tuple[GpuProcess, int | None]]) -> Holding:
        """What the given processes, each with its bytes on one card, hold of it."""
        held: dict[str | None, int] = defaultdict(int)
        since: dict[str | None, float] = {}
        for process, memory in here:
            if process.type != "G":
                held[process.user] += memory or 0
                first = self._first_seen[process.id]
                since[process.user] = min(first, since.get(process.user, first))
        owners = tuple(sorted(held, key=lambda owner: (-held[owner], owner or "")))
        known = [memory for _, memory in here if memory is not None]
        return Holding(
            processes=len(here),
            computing=sum(process.type != "G" for process, _ in here),
            memory=sum(known) if len(known) == len(here) else None,
            hidden=sum(not process.visible for process, _ in here),
            owners=owners,
            owner_since=since[owners[0]] if owners else None,
        )

    def _card_series(self, uuid: str) -> Series | None:
        card = self._cards.get(uuid)
        return None if card is None else card.series

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
        return series.buckets(place, seconds, count, max(now, self.now), peak)

    def _window(
        self, series: Series | None, place: int, seconds: float, peak: bool = False
    ) -> list[tuple[float, float]]:
        with self._lock:
            return [] if series is None else list(series.window(place, seconds, self.now, peak))

    def _peak(self, series: Series | None, place: int, seconds: float) -> float | None:
        points = self._window(series, place, seconds, peak=True)
        return max((value for _, value in points), default=None)


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
