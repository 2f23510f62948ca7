"""Merges logs into one sequence of samples: several files, rotated parts and hosts, by time.

A sample has what one log says of its GPUs at one time, with the process list if one was written
then. Logs of one host may overlap: their samples are interleaved, and the tally counts each GPU's
sample only until that GPU's next one, from any log.
"""

from __future__ import annotations

import heapq
from contextlib import closing
from itertools import chain
from pathlib import Path  # noqa: TC003 - msgspec resolves annotations at run time
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from gpumon.model.processes import Container, ProcessId  # noqa: TC001 - as above
from gpumon.recording.csv.columns import columns_of
from gpumon.recording.csv.compression import head
from gpumon.recording.csv.files import exists, log_to_read, parts
from gpumon.recording.csv.hosts import has_several
from gpumon.recording.csv.rotated_log import RotatedLog
from gpumon.recording.csv.tables import Damage, samples
from gpumon.report.pacing import paced
from gpumon.report.window import TimeWindow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpumon.recording.csv.files import LogFiles

PATIENCE = 2.5
"""Number of usual intervals for which a sample counts at most; a longer interval has a gap."""

_WARM_UP = 300.0
"""Seconds read before the start time: they give the usual interval and the process list."""


_SAME_MOMENT, _SAME_CLOCK = 0.0005, 2.0
"""Seconds by which the times of one sample may differ between the two files of a log."""


class GpuSample(Struct, frozen=True, gc=False):
    """A row of the GPU file; ``None`` is unknown.

    All fields but the time are those of columns, see ``gpumon.recording.csv.columns``. In a log of
    several machines ``host_name`` is the name by which the user knows the machine.
    """

    time: float
    index: int | None
    uuid: str | None
    pci_bus_id: str | None
    name: str | None
    utilization_gpu: float | None
    sm_active: float | None
    memory_used: float | None
    memory_total: float | None
    power_draw: float | None
    energy: float | None
    clock_event_reasons: int | None
    clock_events_known: int | None
    ecc_uncorrected_volatile: int | None
    ecc_uncorrected_aggregate: int | None
    xid: int | None
    xid_at: float | None
    status: str | None
    processes: int | None
    age: float | None
    host_name: str | None
    elapsed: float | None

    @property
    def gpu(self) -> str:
        """The key of the GPU on its host."""
        return self.uuid or self.pci_bus_id or f"index {self.index}"


class ListedUse(Struct, frozen=True, gc=False):
    """A row of the process file: the use that one process makes of one GPU or a part of it.

    The fields from ``user`` on are set only if the owners were requested; ``hostname`` only in a
    log of several machines.
    """

    time: float
    elapsed: float | None
    gpu_index: int | None
    gpu_uuid: str | None
    pid: int
    type: str | None
    memory_used: float | None
    sm: float | None
    cpu_percent: float | None
    state: str | None
    hostname: str | None
    user: str | None = None
    started_at: float | None = None
    start_ticks: int | None = None
    name: str | None = None
    command: str | None = None
    container: Container | None = None
    slurm_job: str | None = None
    session: int | None = None
    launcher: ProcessId | None = None
    launcher_name: str | None = None

    @property
    def gpu(self) -> str:
        """The same key as that of the GPU's sample."""
        return self.gpu_uuid or f"index {self.gpu_index}"


_LIST_FIELDS = ListedUse.__struct_fields__[1:]
_OWNERS_FROM = _LIST_FIELDS.index("user")


class MergedSample(Struct):
    """The GPUs of one host at one time, from one log.

    Attributes:
        log: Number of the log among those read; its ``elapsed`` is comparable with its own only.
        host: Name of the machine; ``None`` if the log does not say.
        time: Seconds since the epoch, which within a file never run backwards.
        elapsed: Seconds of the monotonic clock; ``None`` if the log has none.
        gpus: One sample per GPU.
        listed: The processes, if a list was written then.
        usual: The usual sampling interval of the log at that time; 0 for a single sample.
    """

    log: int
    host: str | None
    time: float
    elapsed: float | None
    gpus: dict[str, GpuSample]
    listed: list[ListedUse] = []
    usual: float = 0.0

    @property
    def reach(self) -> float:
        """Maximum number of seconds for which its samples count."""
        return PATIENCE * self.usual


class HostChoice(Struct):
    """Which hosts are read.

    Attributes:
        wanted: Their names; ``None`` means all.
        seen: The hosts of all samples that were read; ``None`` is an unknown one.
    """

    wanted: frozenset[str] | None = None
    seen: set[str | None] = msgspec.field(default_factory=set)

    def takes(self, host: str | None) -> bool:
        """Whether a sample of a host is wanted."""
        self.seen.add(host)
        return self.wanted is None or host in self.wanted


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


def merged_samples(
    logs: Sequence[Log], window: TimeWindow, hosts: HostChoice, *, owners: bool
) -> Iterator[MergedSample]:
    """The samples of the logs in time order; each log in its own order, even if its clock was set.

    Args:
        logs: The logs.
        window: The time range; some samples before it are included.
        hosts: The hosts to read.
        owners: Whether to read the owners of processes.

    Raises:
        RecordingError: A file cannot be read, or is not a log.
    """
    read = TimeWindow(window.first - _WARM_UP, window.last)
    each = [paced(_of_log(number, log, read, owners=owners)) for number, log in enumerate(logs)]
    ordered = [_never_back(log) for log in _with_hosts(each)]
    for _, _, moment in heapq.merge(*ordered, key=lambda one: one[:2]):
        if hosts.takes(moment.host):
            yield moment


def _of_log(number: int, log: Log, window: TimeWindow, *, owners: bool) -> Iterator[MergedSample]:
    columns = columns_of(GpuSample.__struct_fields__[1:], processes=False)
    for part in log.parts:
        damage, lists_damage = log.damage_of(part.gpus), log.damage_of(part.processes)
        several = has_several(part.gpus)
        lists = _Lists(part, window, lists_damage, owners=owners)
        moment: MergedSample | None = None
        for rows in samples(
            part.gpus,
            columns,
            GpuSample,
            processes=False,
            first=window.first,
            last=window.last,
            damage=damage,
        ):
            for sample in rows:
                host = sample.host_name
                if several and host is None:
                    # A damaged row: nobody can tell which machine it is of.
                    continue
                gpu = sample.uuid or sample.gpu
                if moment is None or not _belongs(sample, gpu, moment):
                    if moment is not None:
                        yield moment
                    moment = MergedSample(number, host, sample.time, sample.elapsed, {})
                    moment.listed = lists.at(sample.time, sample.elapsed, host if several else None)
                moment.gpus[gpu] = sample
        if moment is not None:
            yield moment


def _belongs(sample: GpuSample, gpu: str, moment: MergedSample) -> bool:
    """Whether a row belongs to the same sample as the rows before it.

    gpumon gives all rows of a sample one time; nvidia-smi reads one GPU after the other.
    """
    if gpu in moment.gpus or sample.host_name != moment.host:
        return False
    return sample.elapsed is None or (
        sample.time == moment.time and sample.elapsed == moment.elapsed
    )


class _Lists:
    """The process lists of a part, each returned when the GPU rows of its time are reached."""

    def __init__(self, part: LogFiles, window: TimeWindow, damage: Damage, *, owners: bool) -> None:
        self._rows: Iterator[ListedUse] = iter(())
        if exists(part.processes):
            columns = columns_of(_LIST_FIELDS[: None if owners else _OWNERS_FROM], processes=True)
            found = samples(
                part.processes,
                columns,
                ListedUse,
                processes=True,
                first=window.first,
                last=window.last,
                damage=damage,
            )
            # A damaged row may have no process.
            self._rows = (row for rows in found for row in rows if row.pid is not None)
        self._next = next(self._rows, None)
        self._at: tuple[float, float | None] | None = None
        self._by_host: dict[str | None, list[ListedUse]] = {}

    def at(self, time: float, elapsed: float | None, host: str | None) -> list[ListedUse]:
        """The list of a sample; empty if none was written then.

        Args:
            time: The time of the sample.
            elapsed: Its time on the monotonic clock.
            host: The host in a log of several machines; ``None`` in another.
        """
        if (time, elapsed) != self._at:
            self._at = time, elapsed
            self._by_host = {}
            for row in self._rows_at(time, elapsed):
                self._by_host.setdefault(row.hostname, []).append(row)
        return self._by_host.pop(host, [])

    def _rows_at(self, time: float, elapsed: float | None) -> list[ListedUse]:
        while (row := self._next) is not None and _is_before(row, time, elapsed):
            self._next = next(self._rows, None)
        found = []
        while (row := self._next) is not None and _is_of(row, time, elapsed):
            found.append(row)
            self._next = next(self._rows, None)
        return found


def _is_of(row: ListedUse, time: float, elapsed: float | None) -> bool:
    """Whether a row belongs to a sample: ``elapsed`` is the same text in both files.

    Their times may differ a little if the clock was set back, see ``gpumon.recording.csv.index``.
    """
    if row.elapsed is None or elapsed is None:
        return abs(row.time - time) < _SAME_MOMENT
    return row.elapsed == elapsed and abs(row.time - time) < _SAME_CLOCK


def _is_before(row: ListedUse, time: float, elapsed: float | None) -> bool:
    """Whether the sample of a row is past, and with it the GPU rows that it belongs to."""
    if row.elapsed is None or elapsed is None:
        return row.time <= time - _SAME_MOMENT
    return row.time <= time - _SAME_CLOCK or (row.time < time and row.elapsed < elapsed)


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
