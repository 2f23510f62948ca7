"""Adds up a long log in several processes, each a part of its time.

The sums of the parts join to those of the whole only if nothing that is remembered from sample to
sample matters at a cut. So a log is cut where its samples are regular, and the parts are thrown
away where the whole log turns out to have had more to remember.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, closing, suppress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from gpumon.recording.csv.compression import is_packed
from gpumon.recording.csv.hosts import has_several
from gpumon.recording.csv.index import open_sheet
from gpumon.recording.recording import RecordingError
from gpumon.report.archived import archived_lookups
from gpumon.report.owners import BY_PROCESSES, Lookups
from gpumon.report.reading import (
    WARM_UP,
    HostChoice,
    Log,
    PastNeededError,
    ReadDepth,
    first_read,
    merged_samples,
    span_of,
)
from gpumon.report.tally import UsageTotals
from gpumon.report.window import TimeWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

    from gpumon.report.samples import MergedSample

ResultT = TypeVar("ResultT")

PART_BYTES = 32 * 2**20
"""A part is at least this long, so that a process is worth its start."""
_MOST_PARTS = 8
_ARCHIVE_BYTES = 3000.0
"""A second of a history takes as long to read as so many bytes of a log."""
_READ_AHEAD_SECONDS = 60.0
"""Read after a cut: it gives the usual interval there."""
_LONGEST_INTERVAL = 5.0
"""Seconds between samples: with longer ones too few of them are read before and after a cut."""
_RETRY_STEP_SECONDS, _MOST_TRIES = 600.0, 5
"""Where samples are not regular, a later cut is tried."""
_LEAST_BEFORE = 150.0
"""Seconds before a cut of which there must be samples."""


def tally_parts(
    logs: Sequence[Log], by: str, window: TimeWindow, hosts: HostChoice, part_bytes: int
) -> UsageTotals | None:
    """The sums of a log, added up in parts of at least so many bytes at the same time.

    ``None`` if the log is too short, or must be read in one piece.
    """
    if len(logs) != 1:
        return None
    (log,) = logs
    if by == "job" and log.archive is None:
        # What a job is may depend on lists of its processes that are in no part of the time range.
        return None
    try:
        if any(is_packed(part.gpus) or has_several(part.gpus) for part in log.parts):
            return None
    except RecordingError:
        # The serial reader reports the error.
        return None
    count = min(
        len(os.sched_getaffinity(0)), _MOST_PARTS, int(_bytes_within(log, window) // part_bytes)
    )
    cuts = [] if count < 2 or _may_repeat(log) else _cuts(log, window, count)
    if not cuts:
        return None
    times = [window.first, *(time for time, _ in cuts), window.last]
    works = [_Work(log, by, TimeWindow(*ends), window, hosts) for ends in pairwise(times)]
    if by == "job":
        # Each part needs to know where all processes run.
        learned = _in_processes(_learn, works)
        if learned is None:
            return None
        lookups, *others = learned
        for other in others:
            lookups.join(other)
        works = [work._replace(lookups=lookups) for work in works]
    counted = _in_processes(_tally, works)
    if counted is None:
        return None
    whole, *later = counted
    for part in later:
        whole.join(part)
    hosts.seen.update(whole.hosts)
    gpus = {host: frozenset(totals.gpus) for host, totals in whole.hosts.items()}
    untimed = any(
        time is None
        for totals in whole.hosts.values()
        for gpu in totals.gpus.values()
        for time in gpu.xids.values()
    )
    if untimed or any(there != gpus for _, there in cuts):
        return None
    subjects = [totals.subjects for totals in whole.hosts.values()]
    if not all(each is None or each.is_exact for each in subjects):
        return None
    return whole


def _may_repeat(log: Log) -> bool:
    """Whether a file of the log may have samples twice in different parts of the time."""
    for part in log.parts:
        try:
            file = open_sheet(part.gpus, processes=False)
        except RecordingError:
            # The serial reader reports the error.
            return True
        with closing(file):
            # What is read before a part shows repeats that are nearer.
            if file.set_back > WARM_UP:
                return True
    return False


class _Work(NamedTuple):
    """A part to add up."""

    log: Log
    by: str
    window: TimeWindow
    whole: TimeWindow  # that of all parts
    hosts: HostChoice
    lookups: Lookups | None = None  # what all lists say of where processes run


def _bytes_within(log: Log, window: TimeWindow) -> float:
    """About how many bytes of the log's GPU files are of this time; a history has the like."""
    span = span_of([log])
    if span is None or span[1] <= span[0]:
        return 0.0
    within = max(0.0, min(span[1], window.last) - max(span[0], window.first))
    if log.archive is not None:
        return within * _ARCHIVE_BYTES
    try:
        size = sum(part.gpus.stat().st_size for part in log.parts)
    except OSError:
        # It was removed just now; the serial reader reports it.
        return 0.0
    return size * within / (span[1] - span[0])


def _in_processes(
    count: Callable[[_Work], ResultT | None], works: Sequence[_Work]
) -> list[ResultT] | None:
    """The result for each part, the first one counted here; ``None`` if one has none."""
    from multiprocessing import get_context

    # Forked: nothing is imported twice, and this command has no threads.
    context = get_context("fork")
    with ExitStack() as ending:
        readers: list[Connection] = []
        for work in works[1:]:
            reader, writer = context.Pipe(duplex=False)
            ending.callback(reader.close)
            readers.append(reader)
            arguments = (writer, readers, partial(count, work), os.getpid())
            process = context.Process(target=_send, args=arguments, daemon=True)
            # Ctrl+C reaches the other process too, which is not ready for it at once.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                process.start()
                ending.callback(process.join)
                ending.callback(process.kill)
            except OSError:
                return None
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                writer.close()
        try:
            counted = [count(works[0]), *(reader.recv() for reader in readers)]
        except (RecordingError, EOFError, OSError):
            # The serial reader reports the error.
            return None
    found = [each for each in counted if each is not None]
    return found if len(found) == len(counted) else None


def _send(
    writer: Connection, readers: Sequence[Connection], count: Callable[[], object], parent: int
) -> None:
    """Count a part in a process of its own, which ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for reader in readers:
        reader.close()
    _end_with_parent(parent)
    with suppress(RecordingError, OSError):
        writer.send(count())


def _end_with_parent(parent: int) -> None:
    from ctypes import CDLL

    # See prctl(2).
    with suppress(AttributeError, OSError):
        CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


_PR_SET_PDEATHSIG = 1


def _learn(work: _Work) -> Lookups | None:
    """What the lists of a part of a history say of where processes run."""
    archive = work.log.archive
    if archive is None:
        return None
    first, last = work.window.first, work.window.last
    if first == work.whole.first:
        first = first_read(archive, work.whole)
    return archived_lookups(archive, first, last)


def _tally(work: _Work) -> UsageTotals | None:
    """The sums of a part; ``None`` if it is damaged.

    Others would count damaged lines again, and only the process that reports can say what is
    damaged in a history.
    """
    tally = UsageTotals(work.by, work.window, work.whole)
    depth = ReadDepth(work.by in BY_PROCESSES, work.by == "job", work.lookups)
    try:
        for moment in merged_samples([work.log], work.window, work.hosts, depth):
            tally.add(moment)
    except PastNeededError:
        return None
    tally.close()
    archive = work.log.archive
    if archive is not None and archive.is_damaged:
        return None
    return None if any(damage.is_in_lines for damage in work.log.damage.values()) else tally


_Cut = tuple[float, dict[str | None, frozenset[str]]]
"""A time, and the GPUs of each host around it."""


def _cuts(log: Log, window: TimeWindow, count: int) -> list[_Cut]:
    """Times that cut the log into parts of about the same length."""
    span = span_of([log])
    if span is None:
        return []
    first, last = max(span[0], window.first), min(span[1], window.last)
    found: list[_Cut] = []
    for number in range(1, count):
        wanted = first + (last - first) * number / count
        earliest = found[-1][0] + _RETRY_STEP_SECONDS if found else first
        for later in range(_MOST_TRIES):
            time = wanted + later * _RETRY_STEP_SECONDS
            if not earliest <= time <= last - _RETRY_STEP_SECONDS:
                continue
            cut = _cut_at(log, time)
            if cut is not None:
                found.append(cut)
                break
    return found


def _cut_at(log: Log, time: float) -> _Cut | None:
    """A time between two samples that is not before this one, if the samples around are regular."""
    read = TimeWindow(time, time + _READ_AHEAD_SECONDS)
    around = list(merged_samples([log], read, HostChoice(), ReadDepth()))
    after = [moment for moment in around if moment.time > time]
    if len(after) < 2 or not around[0].time < time - _LEAST_BEFORE:
        return None
    if not all(_is_regular(before, moment) for before, moment in pairwise(around)):
        return None
    gpus = {moment.host: frozenset(moment.gpus) for moment in around}
    return (after[0].time + after[1].time) / 2, gpus


def _is_regular(before: MergedSample, after: MergedSample) -> bool:
    """Whether a sample follows another without a gap, and with the same GPUs and errors."""
    passed = after.time - before.time
    if not 0 < passed <= min(_LONGEST_INTERVAL, before.reach) or before.host != after.host:
        return False
    return before.gpus.keys() == after.gpus.keys() and all(
        (known := after.gpus[key].state) is sample.state
        or (sample.state.xid, sample.state.xid_at) == (known.xid, known.xid_at)
        for key, sample in before.gpus.items()
    )
