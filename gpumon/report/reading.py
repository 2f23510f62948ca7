"""Merges logs into one sequence of samples: several files, rotated parts and hosts, by time.

A sample has what one log says of its GPUs at one time, with the process list if one was written
then. Logs of one host may overlap: their samples are interleaved, and the tally counts each GPU's
sample only until that GPU's next one, from any log.

A time range is read with some samples before and after it, so that what it has in common with the
whole log is the same in both: the usual interval, the current list, the sample that still counts at
its start, and the one that ends the last of its own.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from contextlib import ExitStack, closing, suppress
from itertools import chain
from pathlib import Path  # noqa: TC003 - msgspec resolves annotations at run time
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from gpumon.recording.archive.named import DAMAGED, named_archive
from gpumon.recording.csv.clocks import GRAIN
from gpumon.recording.csv.columns import columns_of
from gpumon.recording.csv.compression import head
from gpumon.recording.csv.damage import Damage, damage_notes
from gpumon.recording.csv.files import exists, log_to_read, parts
from gpumon.recording.csv.hosts import has_several
from gpumon.recording.csv.index import open_sheet
from gpumon.recording.csv.part import LIST_FRESH
from gpumon.recording.csv.rotated_log import RotatedLog
from gpumon.recording.csv.tables import rows_of
from gpumon.recording.csv.timeline import Timeline
from gpumon.recording.recording import RecordingError
from gpumon.report.archived import archived_lookups, archived_samples
from gpumon.report.overlaps import OverlapCheck
from gpumon.report.owners import Lookups
from gpumon.report.pacing import INTERVALS_AROUND, paced
from gpumon.report.samples import (
    PROCESS_COLUMNS,
    USE_COLUMNS,
    GpuSample,
    ListedUse,
    MergedSample,
    SteadyGpu,
    SteadyUse,
)
from gpumon.report.window import TimeWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpumon.recording.archive import Archive
    from gpumon.recording.csv.files import LogFiles
    from gpumon.recording.csv.index import CsvFile

WARM_UP, _SAMPLES_BEFORE = 300.0, 2 * INTERVALS_AROUND + 2
"""Seconds and samples read before the start time."""
_READ_ON, _SAMPLES_AFTER = 60.0, 2 * INTERVALS_AROUND + 2
"""Seconds and samples read after the end time."""


_MOST_SHARED = 1024
"""Objects that rows share."""
RowT = TypeVar("RowT")


class _Shared(dict[tuple[object, ...], object]):
    """The objects that rows share, by the values that they are made of. Bounded."""

    def __init__(self, make: Callable[..., object]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, values: tuple[object, ...]) -> object:
        if len(self) >= _MOST_SHARED:
            self.clear()
        made = self[values] = self._make(*values)
        return made


def _sharing(
    row: Callable[..., RowT], own: int, make: Callable[..., object]
) -> Callable[..., Iterable[RowT]]:
    """Makes rows of some columns of their own, and of an object that equal rows share."""
    known = _Shared(make)

    def rows(*columns: Iterable[object]) -> Iterable[RowT]:
        shared = map(known.__getitem__, zip(*columns[own:], strict=True))
        return map(row, *columns[:own], shared)

    return rows


def _gpu_samples(sheet: CsvFile, first: float, damage: Damage) -> Iterator[list[GpuSample]]:
    """The rows of a GPU file from some samples before a time on, by sample."""
    own = GpuSample.__struct_fields__[:-1]
    columns = columns_of((*own[1:], *SteadyGpu.__struct_fields__[:-1]), processes=False)
    make = _sharing(GpuSample, len(own), SteadyGpu)
    return rows_of(sheet, columns, make, first=first, before=_SAMPLES_BEFORE, damage=damage)


def _listed_uses(
    sheet: CsvFile, first: float, damage: Damage, fields: Iterable[str], lookups: Lookups | None
) -> Iterator[list[ListedUse]]:
    """The process lists of a file from a time on, with these fields of each process."""

    def make(*values: Any) -> SteadyUse:
        process = SteadyUse(*values)
        return process if lookups is None else lookups.complete(process)

    own = ListedUse.__struct_fields__[:-1]
    columns = columns_of((*own[1:], *fields), processes=True)
    row = _sharing(ListedUse, len(own), make)
    found = rows_of(sheet, columns, row, first=first, damage=damage)
    # A damaged row may have no process.
    known = ([use for use in uses if use.process.pid is not None] for uses in found)
    return (uses for uses in known if uses)


class HostChoice(Struct):
    """Which hosts are read."""

    wanted: frozenset[str] | None = None  # their names; ``None`` means all
    # the hosts of all samples that were read; ``None`` is an unknown one
    seen: set[str | None] = msgspec.field(default_factory=set)

    def takes(self, host: str | None) -> bool:
        """Whether a sample of a host is wanted."""
        self.seen.add(host)
        return self.wanted is None or host in self.wanted


class Log(Struct, frozen=True):
    """A log to read."""

    path: str  # its newest GPU file
    parts: tuple[LogFiles, ...]  # its files, oldest first
    damage: dict[Path, Damage] = {}  # the unreadable lines of each file, as far as it was read
    archive: Archive | None = None  # the history of a machine, which is read instead of files

    def damage_of(self, path: Path) -> Damage:
        """The damage counter of a file."""
        return self.damage.setdefault(path, Damage())

    @property
    def has_processes(self) -> bool:
        """Whether any of its parts has a process file; a history has the processes."""
        return self.archive is not None or any(exists(part.processes) for part in self.parts)


def damage_in(logs: Iterable[Log]) -> list[str]:
    """What is damaged in some logs, as far as they were read, as sentences."""
    logs = list(logs)
    found = damage_notes({path: damage for log in logs for path, damage in log.damage.items()})
    if any(log.archive is not None and log.archive.is_damaged for log in logs):
        found.append(DAMAGED)
    return found


def find_logs(paths: Iterable[str]) -> list[Log]:
    """The logs behind the paths, each file in only one of them; a history is one log.

    Raises:
        RecordingError: There is no such file.
    """
    found: list[Log] = []
    taken: set[Path] = set()
    for path in paths:
        archive = named_archive(path)
        if archive is not None:
            folder = archive.folder.resolve()
            if folder not in taken:
                found.append(history_log(archive))
            taken.add(folder)
            continue
        files = log_to_read(path)
        here = parts(files) or [files]
        # Report a file that cannot be opened now, not after the other logs were read.
        head(here[-1].gpus, 1)
        new = tuple(part for part in here if part.gpus.resolve() not in taken)
        taken.update(part.gpus.resolve() for part in new)
        if new:
            found.append(Log(str(files.gpus), new))
    return found


def history_log(archive: Archive) -> Log:
    """A history as a log to read."""
    return Log(str(archive.folder), (), archive=archive)


def span_of(logs: Iterable[Log]) -> tuple[float, float] | None:
    """The times of the oldest and the newest sample of some logs; ``None`` without samples."""
    times: list[float] = []
    for log in logs:
        with ExitStack() as ending:
            whole = log.archive or ending.enter_context(closing(RotatedLog(log.parts[-1])))
            times += [time for time in (whole.first, whole.last) if time is not None]
    return (min(times), max(times)) if times else None


class ReadDepth(Struct, frozen=True):
    """How much of the logs is read beside the time range."""

    owners: bool = False  # whether the owners of processes are read
    # whether processes are completed by what all lists of the log say of where they run
    jobs: bool = False
    lookups: Lookups | None = None  # what these lists say, if it is known already
    # whether all samples before the time range are read; else the last ones
    from_start: bool = False


class PastNeededError(Exception):
    """A GPU returns in the time range: its sample before is further back than was read."""


def merged_samples(
    logs: Sequence[Log], window: TimeWindow, hosts: HostChoice, depth: ReadDepth
) -> Iterator[MergedSample]:
    """The samples of the logs in time order; each log in its own order, even if its clock was set.

    Some samples before and after the time range are included.

    Raises:
        PastNeededError: The logs must be read from their start.
        RecordingError: A file cannot be read, or is not a log.
    """
    if depth.from_start:
        window = TimeWindow(-math.inf, window.last)
    each = [paced(_of_log(number, log, window, depth)) for number, log in enumerate(logs)]
    ordered = [_never_back(log) for log in _with_hosts(each)]
    overlaps = OverlapCheck(logs)
    for _, _, sample in heapq.merge(*ordered, key=lambda one: one[:2]):
        if sample.host is None and len(logs) > 1:
            overlaps.see(sample)
        if hosts.takes(sample.host):
            yield sample


def _of_log(number: int, log: Log, window: TimeWindow, depth: ReadDepth) -> Iterator[MergedSample]:
    """The samples of a log, those of one time by host."""
    bounds = _Bounds(window)
    began: float | None = None
    for part in _parts_of(number, log, window, depth):
        for sample in part:
            began = sample.began if began is None else began
            sample.began = began
            if window == TimeWindow():
                yield sample
                continue
            if bounds.ends_before(sample):
                break
            yield from bounds.take(sample)
    yield from bounds.rest()


def _parts_of(
    number: int, log: Log, window: TimeWindow, depth: ReadDepth
) -> Iterator[Iterator[MergedSample]]:
    """The samples of each part of a log; a history has one part, with a few samples before."""
    if log.archive is not None:
        first = first_read(log.archive, window)
        known = depth.lookups
        if depth.jobs and known is None:
            known = archived_lookups(log.archive, first, window.last)
        yield archived_samples(number, log.archive, first, known, owners=depth.owners)
        return
    lookups = _lookups(log) if depth.jobs else None
    for part in log.parts:
        yield _of_part(number, log, part, window, depth, lookups)


def first_read(archive: Archive, window: TimeWindow) -> float:
    """The time of the first sample of a history that is read for a time range."""
    return archive.step(window.first - WARM_UP, -_SAMPLES_BEFORE)


class _Bounds:
    """Selects those samples of a log that are read for a time range."""

    def __init__(self, window: TimeWindow) -> None:
        self._window = window
        self._before: deque[list[MergedSample]] = deque(maxlen=_SAMPLES_BEFORE)
        self._is_cut: bool | None = None
        self._known: set[tuple[str | None, str]] = set()
        self._awaited: set[tuple[str | None, str]] = set()
        self._after = 0
        self._newest = -math.inf

    def ends_before(self, sample: MergedSample) -> bool:
        """Whether the time range is over, and each GPU in it has its next sample."""
        is_late = sample.time > self._window.last + _READ_ON
        return is_late and not self._awaited and self._after >= _SAMPLES_AFTER

    def take(self, sample: MergedSample) -> Iterator[MergedSample]:
        """The samples to read, now that the next one is known.

        Raises:
            PastNeededError: A GPU was not in the samples before the time range.
        """
        if sample.time < self._window.first - WARM_UP:
            if self._before and self._before[-1][0].time == sample.time:
                self._before[-1].append(sample)
            else:
                self._before.append([sample])
            return
        yield from self.rest()
        yield self._seen(sample)

    def rest(self) -> Iterator[MergedSample]:
        """The last samples before the time range, if it has none."""
        for together in self._before:
            yield from map(self._seen, together)
        self._before.clear()

    def _seen(self, sample: MergedSample) -> MergedSample:
        if self._is_cut is None:
            self._is_cut = sample.time > sample.began
        gpus = {(sample.host, gpu) for gpu in sample.gpus}
        if self._is_cut and sample.time >= self._window.first and not gpus <= self._known:
            raise PastNeededError
        self._known |= gpus
        if sample.time < self._window.last:
            self._awaited |= gpus
        else:
            self._awaited -= gpus
            self._after += sample.time > self._newest
            self._newest = sample.time
        return sample


def _of_part(
    number: int,
    log: Log,
    part: LogFiles,
    window: TimeWindow,
    depth: ReadDepth,
    lookups: Lookups | None,
) -> Iterator[MergedSample]:
    damage = log.damage_of(part.gpus)
    with ExitStack() as ending:
        try:
            gpus = ending.enter_context(closing(open_sheet(part.gpus, processes=False)))
        except RecordingError as error:
            if part is log.parts[-1]:
                raise
            # A broken rotated part does not affect the others.
            damage.refusal = error.sentence
            return
        damage.flaw = gpus.flaw
        several = has_several(part.gpus)
        lists = _Lists(
            _lists_of(log, part, gpus, ending), log.damage_of(part.processes), depth, lookups
        )
        began = math.inf if gpus.first is None else gpus.first.wall - gpus.set_back
        sample: MergedSample | None = None
        for rows in _gpu_samples(gpus, window.first - WARM_UP, damage):
            for row in rows:
                host, gpu = row.state.host_name, row.state.key
                if several and host is None:
                    # A damaged row: nobody can tell which machine it is of.
                    continue
                if sample is None or not _belongs(row, sample):
                    if sample is not None:
                        yield sample
                    sample = MergedSample(number, host, row.time, row.elapsed, {}, began)
                    sample.listed = lists.at(row.time, host if several else None)
                damage.repeated += gpu in sample.gpus
                sample.gpus[gpu] = row
        if sample is not None:
            yield sample


def _lists_of(log: Log, part: LogFiles, gpus: CsvFile, ending: ExitStack) -> CsvFile | None:
    """The process file of a part; ``None`` if it is missing, or is none."""
    damage = log.damage_of(part.processes)
    if not exists(part.processes):
        return None
    try:
        sheet = open_sheet(part.processes, processes=True, timeline=Timeline(gpus))
    except RecordingError as error:
        # GPUs without their processes are still a log.
        damage.refusal = error.sentence
        return None
    damage.flaw = sheet.flaw
    return ending.enter_context(closing(sheet))


def _belongs(row: GpuSample, sample: MergedSample) -> bool:
    """Whether a row belongs to the same sample as the rows before it.

    gpumon gives all rows of a sample one time; nvidia-smi reads one GPU after the other.
    """
    if row.state.host_name != sample.host:
        return False
    if row.elapsed is None:
        return row.state.key not in sample.gpus
    return row.time == sample.time and row.elapsed == sample.elapsed


def _lookups(log: Log) -> Lookups:
    """Where processes run, from all lists of a log: each time range has the jobs of the whole."""
    lookups = Lookups()
    for part in log.parts:
        if exists(part.processes):
            with (
                suppress(RecordingError),
                closing(open_sheet(part.processes, processes=True)) as sheet,
            ):
                for uses in _listed_uses(sheet, -math.inf, Damage(), PROCESS_COLUMNS, None):
                    lookups.learn(use.process for use in uses)
    return lookups


class _Lists:
    """The process lists of a part, each returned with the first sample that is not older."""

    def __init__(
        self, sheet: CsvFile | None, damage: Damage, depth: ReadDepth, lookups: Lookups | None
    ) -> None:
        self._sheet = sheet
        self._damage = damage
        self._fields = PROCESS_COLUMNS if depth.owners else USE_COLUMNS
        self._lookups = lookups
        self._lists: Iterator[list[ListedUse]] | None = None
        self._next: list[ListedUse] | None = None
        self._at = -math.inf
        self._by_host: dict[str | None, list[ListedUse]] = {}

    def at(self, time: float, host: str | None) -> list[ListedUse]:
        """The newest list of a host that no earlier sample had; empty without one.

        Args:
            time: The time of the sample; a list has the same time as its sample.
            host: The host in a log of several machines; ``None`` in another.
        """
        if self._sheet is None:
            return []
        if self._lists is None:
            self._lists = _listed_uses(
                self._sheet, time - LIST_FRESH, self._damage, self._fields, self._lookups
            )
            self._next = next(self._lists, None)
        if time != self._at:
            self._at = time
            while (rows := self._next) is not None and rows[0].time <= time + GRAIN:
                found: dict[str | None, dict[object, ListedUse]] = {}
                for row in rows:
                    process = row.process
                    found.setdefault(process.hostname, {})[process.use] = row
                self._damage.repeated += len(rows) - sum(map(len, found.values()))
                self._by_host |= {name: [*uses.values()] for name, uses in found.items()}
                self._next = next(self._lists, None)
        listed = self._by_host.pop(host, [])
        return listed if listed and time - listed[0].time <= LIST_FRESH else []


def _with_hosts(logs: Iterable[Iterator[MergedSample]]) -> Iterator[Iterator[MergedSample]]:
    """The samples with hosts; a log without a host name gets the host that has one of its GPUs."""
    begun = [(next(log, None), log) for log in logs]
    known = {
        gpu: start.host
        for start, _ in begun
        if start is not None and start.host is not None
        for gpu in start.gpus
        if not gpu.startswith("index ")
    }
    for start, log in begun:
        if start is not None:
            host = next((known[gpu] for gpu in start.gpus if gpu in known), None)
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
