"""A log as a recording: any moment of it, read from the files without reading them completely."""

from __future__ import annotations

import math
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpumon.recording.csv.clocks import GRAIN
from gpumon.recording.csv.files import log_to_read, parts
from gpumon.recording.csv.hosts import HostFilter, has_several, hosts_in, in_words, readable
from gpumon.recording.csv.log_reader import LogReader
from gpumon.recording.csv.rotated_log import RotatedLog
from gpumon.recording.memory.ordering import event_beside, events_from_to
from gpumon.recording.recording import RecordingError, WholeRecording

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterator, Sequence

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.csv.files import LogFiles
    from gpumon.recording.history import History
    from gpumon.recording.recording import Event

_CLOSING = 0.3
"""Seconds for which a read that goes on is waited for; one that hangs goes with the process."""


def open_log(path: str | os.PathLike[str], host: str | None = None) -> CsvRecording:
    """Open a log of gpumon's or nvidia-smi's, including its rotated parts.

    Args:
        path: Any of its files, or their name without the suffixes.
        host: Which host to read; may be ``None`` if the log has one only.

    Raises:
        RecordingError: There is no such file, it is not a log, or it does not have the host.
    """
    files = log_to_read(path)
    there = readable(parts(files) or [files])
    if host is None:
        if not any(has_several(part.gpus) for part in there):
            return CsvRecording(files)
        hosts = hosts_in(there)
        if len(hosts) > 1:
            raise RecordingError(
                f"{files.gpus} has several hosts: show one with gpumon replay --host, of"
                f" {in_words(hosts)}."
            )
        if not hosts:
            return CsvRecording(files)
        host = hosts.pop()
    recording = CsvRecording(files, HostFilter(host))
    first = recording.first
    if first is None or recording.at(first) is None:
        recording.close()
        raise no_such_host(str(files.gpus), host, hosts_in(there))
    return recording


def no_such_host(name: str, host: str, hosts: Collection[str]) -> RecordingError:
    """The error for a log that lacks a host; ``hosts`` are those that it has."""
    known = f"it has {in_words(hosts)}" if hosts else "it does not name its host"
    return RecordingError(f"{name} has no sample of {host}: {known}.")


class CsvRecording(WholeRecording):
    """A log as ``Recording``. Thread-safe.

    A log that is still being written grows, also into its next part.

    Args:
        files: The log.
        host: Read only the rows of this host; ``None`` reads all.

    Raises:
        RecordingError: There is no such log.
    """

    def __init__(self, files: LogFiles, host: HostFilter | None = None) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._shelf = RotatedLog(files, self._stopping.is_set, host)
        self._reader: LogReader | None = None

    @property
    def name(self) -> str:
        """Its name in messages: the path of its GPU file."""
        return str(self._files.gpus)

    def read_into(self, history: History, *, delay: float = 0.5) -> None:
        """Begin to read the whole log in the background, once.

        Args:
            history: Receives every sample, and then answers for any moment of the log.
            delay: Seconds before that begins, which leave the CPU to the first frame.
        """
        self._reader = LogReader(self._shelf, self._lock, history, self._files, delay)
        self._reader.start()

    @property
    def damage(self) -> str:
        """How many lines are damaged; empty if none is, or until the whole log has been read."""
        return "" if self._reader is None else self._reader.damage

    def close(self) -> None:
        """Close its files; no queries may follow. May be called more than once."""
        self._stopping.set()
        if self._reader is not None:
            self._reader.stop()
        if self._lock.acquire(timeout=_CLOSING):
            try:
                self._shelf.close()
            finally:
                self._lock.release()

    @contextmanager
    def _refreshed(self) -> Iterator[RotatedLog]:
        """The log as it is now, for one thread at a time."""
        with self._lock:
            self._shelf.refresh()
            yield self._shelf

    @property
    def first(self) -> float | None:
        """See ``Recording.first``."""
        with self._refreshed() as shelf:
            return shelf.first

    @property
    def last(self) -> float | None:
        """See ``Recording.last``."""
        with self._refreshed() as shelf:
            return shelf.last

    def at(self, time: float) -> Snapshot | None:
        """See ``Recording.at``."""
        with self._refreshed() as shelf:
            spot = shelf.find(time)
            return None if spot is None else shelf.snapshot(spot)

    def between(self, first: float, last: float, most: int) -> Iterator[Snapshot]:
        """See ``Recording.between``. Reads only some samples if there are many more."""
        with self._refreshed() as shelf:
            times = shelf.times_between(first, last, most)
        before = -math.inf
        for time in times:
            snapshot = self.at(time)
            if snapshot is not None and max(before, first - GRAIN) < snapshot.time:
                before = snapshot.time
                yield snapshot

    def step(self, time: float, samples: int) -> float:
        """See ``Recording.step``."""
        with self._refreshed() as shelf:
            spot = shelf.find(time)
            return time if spot is None else shelf.move(spot, samples).time

    def events(self, first: float, last: float) -> Sequence[Event]:
        """See ``Recording.events``."""
        return () if self._reader is None else events_from_to(self._reader.events, first, last)

    @property
    def events_complete(self) -> bool:
        """See ``Recording.events_complete``."""
        return self._reader is not None and self._reader.wait(0)

    def next_event(self, time: float, *, forward: bool) -> Event | None:
        """See ``Recording.next_event``."""
        if self._reader is None:
            return None
        return event_beside(self._reader.events, time, forward=forward)
