"""Merges logs into one sequence of samples: several files, rotated parts and hosts, by time.

A sample has what one log says of its GPUs at one time, with the process list if one was written
then. Logs of one host may overlap: their samples are interleaved, and the tally counts each GPU's
sample only until that GPU's next one, from any log.
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

from gpumon.recording.csv.cells import LATEST
from gpumon.recording.csv.columns import GPU_COLUMNS
from gpumon.recording.csv.compression import head
from gpumon.recording.csv.files import exists, log_to_read, parts
from gpumon.recording.csv.rotated_log import RotatedLog
from gpumon.recording.csv.tables import Damage, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpumon.recording.csv.files import LogFiles

PATIENCE = 2.5
"""How many usual intervals a sample counts at most; what is longer is a gap."""

_AROUND = 5
"""Of how many intervals before, and as many after, the usual one is the median."""

_WARM_UP = 300.0
"""Seconds that are read before the first that counts: they tell the usual interval and the list."""


_SAME_MOMENT, _SAME_CLOCK = 0.0005, 2.0
"""Seconds by which the two files of a log may tell the same moment otherwise."""


class CardSample(Struct, frozen=True):
    """A row of the GPU file; ``None`` is unknown. Units are those of the model."""

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
        """The key of the GPU on its host."""
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
    """A row of the process file: the use that one process makes of one GPU or a part of it.

    The last ten fields are set only if the owners were requested.
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
        """The same key as that of the GPU's sample."""
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


class MergedSample(Struct):
    """The GPUs of one host at one time, from one log.

    Attributes:
        log: Number of the log among those read; its ``elapsed`` is comparable with its own only.
        host: Name of the machine; ``None`` if the log does not say.
        time: Seconds since the epoch, which within a file never run backwards.
        elapsed: Seconds of the monotonic clock; ``None`` if the log has none.
        cards: One sample per GPU.
        listed: The processes, if a list was written then.
        usual: The usual sampling interval of the log at that time; 0 for a single sample.
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
        """Maximum number of seconds for which its samples count."""
        return PATIENCE * self.usual


class Log(Struct, frozen=True):
    """A log to read.

    Attributes:
        path: Its newest GPU file.
        parts: Its files, oldest first.
        damage: The unreadable lines of each file, as far as it was read.
    """

    path: str
    parts: tuple[LogFiles, ...]
    damage: dict[Path, Damage] = {}

    def damage_of(self, path: Path) -> Damage:
        """The damage counter of a file."""
        return self.damage.setdefault(path, Damage())

    @property
    def has_processes(self) -> bool:
        """Whether any of its parts has a process file."""
        return any(exists(part.processes) for part in self.parts)


def find_logs(paths: Iterable[str]) -> list[Log]:
    """The logs behind the paths, each file in only one of them.

    Raises:
        RecordingError: There is no such file.
    """
    found: list[Log] = []
    taken: set[Path] = set()
    for path in paths:
        files = log_to_read(path)
        here = parts(files) or [files]
        # Report a file that cannot be opened now, not after the other logs were read.
        head(here[-1].gpus, 1)
        new = tuple(part for part in here if part.gpus.resolve() not in taken)
        taken.update(part.gpus.resolve() for part in new)
        if new:
            found.append(Log(str(files.gpus), new))
    return found


def span_of(logs: Iterable[Log]) -> tuple[float, float] | None:
    """The times of the oldest and the newest sample of some logs; ``None`` without samples."""
    times: list[float] = []
    for log in logs:
        with closing(RotatedLog(log.parts[-1])) as shelf:
            times += [time for time in (shelf.first, shelf.last) if time is not None]
    return (min(times), max(times)) if times else None


def moments(
    logs: Sequence[Log], first: float | None, last: float | None, *, owners: bool
) -> Iterator[MergedSample]:
    """The samples of the logs in time order; each log in its own order, even if its clock was set.

    Args:
        logs: The logs.
        first: Start; some samples before it are included.
        last: End.
        owners: Whether to read the owners of processes.

    Raises:
        RecordingError: A file cannot be read, or is not a log.
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
) -> Iterator[MergedSample]:
    moment: MergedSample | None = None
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
                moment = MergedSample(number, sample.host, sample.time, sample.elapsed, {})
                moment.listed = lists.at(sample.time, sample.elapsed)
            moment.cards[sample.card] = sample
        if moment is not None:
            yield moment
            moment = None


def _belongs(sample: CardSample, moment: MergedSample) -> bool:
    """Whether a row belongs to the same sample as the rows before it.

    gpumon gives all rows of a sample one time; nvidia-smi reads one GPU after the other.
    """
    if sample.card in moment.cards or sample.host != moment.host:
        return False
    return sample.elapsed is None or (sample.time, sample.elapsed) == (moment.time, moment.elapsed)


class _Lists:
    """The process lists of a part, each returned when the GPU rows of its time are reached."""

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
            # A damaged row may have no process.
            self._rows = (row for row in named if row.pid is not None)
        self._next = next(self._rows, None)

    def at(self, time: float, elapsed: float | None) -> list[Listed]:
        """The list of a sample; empty if none was written then."""
        while (row := self._next) is not None and _is_before(row, time, elapsed):
            self._next = next(self._rows, None)
        found = []
        while (row := self._next) is not None and _is_of(row, time, elapsed):
            found.append(row)
            self._next = next(self._rows, None)
        return found


def _is_of(row: Listed, time: float, elapsed: float | None) -> bool:
    """Whether a row belongs to a sample: ``elapsed`` is the same text in both files.

    Their times may differ a little if the clock was set back, see ``gpumon.recording.csv.index``.
    """
    if row.elapsed is None or elapsed is None:
        return abs(row.time - time) < _SAME_MOMENT
    return row.elapsed == elapsed and abs(row.time - time) < _SAME_CLOCK


def _is_before(row: Listed, time: float, elapsed: float | None) -> bool:
    """Whether the sample of a row is past, and with it the GPU rows that it belongs to."""
    if row.elapsed is None or elapsed is None:
        return row.time <= time - _SAME_MOMENT
    return row.time <= time - _SAME_CLOCK or (row.time < time and row.elapsed < elapsed)


def seconds_between(before: MergedSample, after: MergedSample) -> float:
    """Seconds between two samples: by the monotonic clock if both are of one run."""
    if before.log == after.log and before.elapsed is not None and after.elapsed is not None:
        passed = after.elapsed - before.elapsed
        # A damaged row may have any number.
        if 0 < passed <= LATEST:
            return passed
    return max(0.0, after.time - before.time)


def _paced(told: Iterator[MergedSample]) -> Iterator[MergedSample]:
    """The samples, each with the usual interval around it."""
    waiting: deque[MergedSample] = deque()
    intervals: deque[float] = deque(maxlen=2 * _AROUND + 1)
    newest: MergedSample | None = None
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


def _with_usual(moment: MergedSample, intervals: Iterable[float]) -> MergedSample:
    known = [interval for interval in intervals if interval > 0]
    moment.usual = median(known) if known else 0.0
    return moment


def _with_hosts(told: Iterable[Iterator[MergedSample]]) -> Iterator[Iterator[MergedSample]]:
    """The samples with hosts; a log without a host name gets the host that has one of its GPUs."""
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


def _on_host(log: Iterable[MergedSample], host: str | None) -> Iterator[MergedSample]:
    for moment in log:
        moment.host = moment.host or host
        yield moment


def _never_back(log: Iterator[MergedSample]) -> Iterator[tuple[float, int, MergedSample]]:
    """The samples with a sort key for merging: a time that never runs backwards."""
    newest = -float("inf")
    for moment in log:
        newest = max(newest, moment.time)
        yield newest, moment.log, moment
