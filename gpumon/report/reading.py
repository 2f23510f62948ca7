"""Logs as one row of moments: several files, their rotated parts and several hosts in time order.

A moment is what one log says of its cards at one time, with the process list where one was written
then. Logs of one host may overlap: their moments are told in turn, and whoever adds up lets each
card's sample count only until its next one, from whichever log.
"""

from __future__ import annotations

import heapq
from collections import deque
from contextlib import closing
from itertools import chain
from pathlib import Path  # noqa: TC003 - msgspec resolves annotations at run time
from statistics import median
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gpumon.log.cells import LATEST
from gpumon.log.columns import GPU_COLUMNS
from gpumon.log.files import exists, log_to_read, parts
from gpumon.log.packed import head
from gpumon.log.shelf import Shelf
from gpumon.log.tables import Damage, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpumon.log.files import LogFiles

PATIENCE = 2.5
"""How many usual intervals a sample counts at most; what is longer is a gap."""

_AROUND = 5
"""Of how many intervals before, and as many after, the usual one is the median."""

_WARM_UP = 300.0
"""Seconds that are read before the first that counts: they tell the usual interval and the list."""


_SAME_MOMENT, _SAME_CLOCK = 0.0005, 2.0
"""Seconds by which the two files of a log may tell the same moment otherwise."""


class CardSample(Struct, frozen=True):
    """What a row of the cards' file says; ``None`` is unknown. Units are the model's."""

    time: float
    index: int | None
    uuid: str | None
    bus_id: str | None
    name: str | None
    utilization: float | None
    memory_used: float | None
    memory_total: float | None
    power: float | None
    energy: float | None
    reasons: int | None
    ecc_volatile: int | None
    ecc_aggregate: int | None
    xid: int | None
    xid_at: float | None
    status: str | None
    processes: int | None
    age: float | None
    host: str | None
    elapsed: float | None

    @property
    def card(self) -> str:
        """What tells the card from the others of its host."""
        return self.uuid or self.bus_id or f"index {self.index}"


_NAME = {column.metric.field: column.name for column in GPU_COLUMNS if column.metric is not None}
_CARD_COLUMNS = (
    *(
        _NAME[field]
        for field in (
            "index",
            "uuid",
            "pci_bus_id",
            "name",
            "utilization_gpu",
            "memory_used",
            "memory_total",
            "power_draw",
            "energy",
            "clock_event_reasons",
            "ecc_uncorrected_volatile",
            "ecc_uncorrected_aggregate",
            "xid",
            "xid_at",
        )
    ),
    "status",
    "processes",
    "age [s]",
    "host",
    "elapsed [s]",
)


class Listed(Struct, frozen=True):
    """What a row of the processes' file says: what one process has of one card, or of a part of it.

    The last ten stand only where it was asked whose the processes are.
    """

    time: float
    elapsed: float | None
    index: int | None
    uuid: str | None
    pid: int
    type: str | None
    memory_used: float | None
    sm: float | None
    user: str | None = None
    started_at: float | None = None
    start_ticks: int | None = None
    name: str | None = None
    command: str | None = None
    container: str | None = None
    slurm_job: str | None = None
    session: int | None = None
    launcher: str | None = None
    launcher_name: str | None = None

    @property
    def card(self) -> str:
        """As that of the card's sample."""
        return self.uuid or f"index {self.index}"


_LIST_COLUMNS = (
    "elapsed [s]",
    "index",
    "uuid",
    "pid",
    "type",
    "used_gpu_memory [MiB]",
    "sm [%]",
)
_OWNER_COLUMNS = (
    "user",
    "start_time",
    "start_ticks",
    "name",
    "command",
    "container",
    "slurm_job",
    "session",
    "launcher",
    "launcher_name",
)


class Moment(Struct):
    """What a log says of the cards of one host at one time.

    Attributes:
        log: Number of the log among those read; its ``elapsed`` is comparable with its own only.
        host: Name of the machine; ``None`` where the log does not tell.
        time: Seconds since the epoch, which within a file never run backwards.
        elapsed: Seconds by a clock that nobody sets; ``None`` where the log has none.
        cards: One sample of each card.
        listed: The processes, where a list was written then.
        usual: The usual interval of the log about then; 0 where there is only this one moment.
    """

    log: int
    host: str | None
    time: float
    elapsed: float | None
    cards: dict[str, CardSample]
    listed: list[Listed] = []
    usual: float = 0.0

    @property
    def reach(self) -> float:
        """For how many seconds its samples count at most."""
        return PATIENCE * self.usual


class Log(Struct, frozen=True):
    """A log to be read.

    Attributes:
        path: Its cards' file, the newest.
        parts: Its files, oldest first.
        damage: What could not be read of each file, as far as it was read.
    """

    path: str
    parts: tuple[LogFiles, ...]
    damage: dict[Path, Damage] = {}

    def damage_of(self, path: Path) -> Damage:
        """Where the damage of a file is counted."""
        return self.damage.setdefault(path, Damage())

    @property
    def has_processes(self) -> bool:
        """Whether any of its parts has a file of processes."""
        return any(exists(part.processes) for part in self.parts)


def find_logs(paths: Iterable[str]) -> list[Log]:
    """The logs behind some paths, each file in one of them only.

    Raises:
        TapeError: There is no such file.
    """
    found: list[Log] = []
    taken: set[Path] = set()
    for path in paths:
        files = log_to_read(path)
        here = parts(files) or [files]
        # What cannot be opened is said now, not after the other logs were read.
        head(here[-1].gpus, 1)
        new = tuple(part for part in here if part.gpus.resolve() not in taken)
        taken.update(part.gpus.resolve() for part in new)
        if new:
            found.append(Log(str(files.gpus), new))
    return found


def span_of(logs: Iterable[Log]) -> tuple[float, float] | None:
    """When the oldest and the newest sample of some logs were taken; ``None`` without any."""
    times: list[float] = []
    for log in logs:
        with closing(Shelf(log.parts[-1])) as shelf:
            times += [time for time in (shelf.first, shelf.last) if time is not None]
    return (min(times), max(times)) if times else None


def moments(
    logs: Sequence[Log], first: float | None, last: float | None, *, owners: bool
) -> Iterator[Moment]:
    """What the logs say, in time order; each log in its own order, whatever its clock did.

    Args:
        logs: From where.
        first: The first second that matters; a little of what lies before is told too.
        last: The last that matters.
        owners: Whether it matters whose the processes are.

    Raises:
        TapeError: A file cannot be read, or is no log.
    """
    began = None if first is None else first - _WARM_UP
    told = [
        _paced(_of_log(number, log, began, last, owners=owners)) for number, log in enumerate(logs)
    ]
    ordered = [_never_back(log) for log in _with_hosts(told)]
    for _, _, moment in heapq.merge(*ordered, key=lambda one: one[:2]):
        yield moment


def _of_log(
    number: int, log: Log, first: float | None, last: float | None, *, owners: bool
) -> Iterator[Moment]:
    moment: Moment | None = None
    for part in log.parts:
        damage, lists_damage = log.damage_of(part.gpus), log.damage_of(part.processes)
        lists = _Lists(part, first, last, lists_damage, owners=owners)
        told: Iterator[tuple[Any, ...]] = rows(
            part.gpus, _CARD_COLUMNS, processes=False, first=first, last=last, damage=damage
        )
        for row in told:
            sample = CardSample(*row)
            if moment is not None and not _belongs(sample, moment):
                yield moment
                moment = None
            if moment is None:
                moment = Moment(number, sample.host, sample.time, sample.elapsed, {})
                moment.listed = lists.at(sample.time, sample.elapsed)
            moment.cards[sample.card] = sample
        if moment is not None:
            yield moment
            moment = None


def _belongs(sample: CardSample, moment: Moment) -> bool:
    """Whether a row is of the same sample as those before it.

    gpumon gives all rows of a sample one time; nvidia-smi asks one card after the other.
    """
    if sample.card in moment.cards or sample.host != moment.host:
        return False
    return sample.elapsed is None or (sample.time, sample.elapsed) == (moment.time, moment.elapsed)


class _Lists:
    """The process lists of a part, each given out when the cards' rows of its moment come by."""

    def __init__(
        self,
        part: LogFiles,
        first: float | None,
        last: float | None,
        damage: Damage,
        *,
        owners: bool,
    ) -> None:
        columns = _LIST_COLUMNS + _OWNER_COLUMNS if owners else _LIST_COLUMNS
        self._rows: Iterator[Listed] = iter(())
        if exists(part.processes):
            found: Iterator[tuple[Any, ...]] = rows(
                part.processes, columns, processes=True, first=first, last=last, damage=damage
            )
            named = (Listed(*row) for row in found)
            # A row that was damaged may name nobody.
            self._rows = (row for row in named if row.pid is not None)
        self._next = next(self._rows, None)

    def at(self, time: float, elapsed: float | None) -> list[Listed]:
        """The list of a moment; empty where none was written then."""
        while (row := self._next) is not None and _is_before(row, time, elapsed):
            self._next = next(self._rows, None)
        found = []
        while (row := self._next) is not None and _is_of(row, time, elapsed):
            found.append(row)
            self._next = next(self._rows, None)
        return found


def _is_of(row: Listed, time: float, elapsed: float | None) -> bool:
    """Whether a row is of a moment: ``elapsed`` is the same text in both files.

    Their times may differ a little where a clock was set back, see ``gpumon.log.index``.
    """
    if row.elapsed is None or elapsed is None:
        return abs(row.time - time) < _SAME_MOMENT
    return row.elapsed == elapsed and abs(row.time - time) < _SAME_CLOCK


def _is_before(row: Listed, time: float, elapsed: float | None) -> bool:
    """Whether a row's moment is gone, and with it the cards' rows that it went with."""
    if row.elapsed is None or elapsed is None:
        return row.time <= time - _SAME_MOMENT
    return row.time <= time - _SAME_CLOCK or (row.time < time and row.elapsed < elapsed)


def seconds_between(before: Moment, after: Moment) -> float:
    """How much later a moment is: by the clock that nobody sets where both are of one run."""
    if before.log == after.log and before.elapsed is not None and after.elapsed is not None:
        passed = after.elapsed - before.elapsed
        # A row that was damaged may tell any number.
        if 0 < passed <= LATEST:
            return passed
    return max(0.0, after.time - before.time)


def _paced(told: Iterator[Moment]) -> Iterator[Moment]:
    """The same, each with the usual interval about it."""
    waiting: deque[Moment] = deque()
    intervals: deque[float] = deque(maxlen=2 * _AROUND + 1)
    newest: Moment | None = None
    for moment in told:
        if newest is not None:
            intervals.append(seconds_between(newest, moment))
        newest = moment
        waiting.append(moment)
        if len(waiting) > _AROUND + 1:
            yield _with_usual(waiting.popleft(), intervals)
    for left in range(len(waiting), 0, -1):
        while len(intervals) > left + _AROUND - 1:
            intervals.popleft()
        yield _with_usual(waiting.popleft(), intervals)


def _with_usual(moment: Moment, intervals: Iterable[float]) -> Moment:
    known = [interval for interval in intervals if interval > 0]
    moment.usual = median(known) if known else 0.0
    return moment


def _with_hosts(told: Iterable[Iterator[Moment]]) -> Iterator[Iterator[Moment]]:
    """The same; a log that names no host is of the host whose cards it has, if one of them is."""
    begun = [(next(log, None), log) for log in told]
    known = {
        card: start.host
        for start, _ in begun
        if start is not None and start.host is not None
        for card in start.cards
        if not card.startswith("index ")
    }
    for start, log in begun:
        if start is not None:
            host = next((known[card] for card in start.cards if card in known), None)
            yield _on_host(chain([start], log), host)


def _on_host(log: Iterable[Moment], host: str | None) -> Iterator[Moment]:
    for moment in log:
        moment.host = moment.host or host
        yield moment


def _never_back(log: Iterator[Moment]) -> Iterator[tuple[float, int, Moment]]:
    """The moments with what orders them among those of other logs: a time that never runs back."""
    newest = -float("inf")
    for moment in log:
        newest = max(newest, moment.time)
        yield newest, moment.log, moment
