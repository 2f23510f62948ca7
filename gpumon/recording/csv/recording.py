"""A log as a recording: any moment of it, read from the files without reading them completely."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

from gpumon.model.thresholds import DEFAULTS
from gpumon.recording.csv.compression import Opener
from gpumon.recording.csv.event_search import EventSearch
from gpumon.recording.csv.files import log_to_read
from gpumon.recording.csv.part import GRAIN
from gpumon.recording.csv.rotated_log import RotatedLog

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording import Event
    from gpumon.recording.csv.files import LogFiles

_CLOSING = 0.3
"""Seconds for which a read that goes on is waited for; one that hangs goes with the process."""


def open_log(path: str | os.PathLike[str], full_share: float = DEFAULTS.full_share) -> CsvRecording:
    """Open a log of gpumon's or nvidia-smi's, including its rotated parts.

    Args:
        path: Any of its files, or their name without the suffixes.
        full_share: A GPU is full below this share of free memory, for the events.

    Raises:
        RecordingError: There is no such file, or it is not a log.
    """
    return CsvRecording(log_to_read(path), full_share)


class CsvRecording:
    """A log as ``gpumon.recording.Recording``. Thread-safe.

    A log that is still being written grows, also into its next part.

    Args:
        files: The log.
        full_share: A card is full below this share of free memory.

    Raises:
        RecordingError: There is no such log.
    """

    def __init__(self, files: LogFiles, full_share: float = DEFAULTS.full_share) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._opener = Opener()
        self._shelf = RotatedLog(files, self._opener)
        self._finder = EventSearch(files, full_share, self._opener)
        self._finder.start()

    @property
    def name(self) -> str:
        """Its name in messages: the path of its GPU file."""
        return str(self._files.gpus)

    def close(self) -> None:
        """Close its files; no queries may follow. May be called more than once."""
        self._opener.stop()
        self._finder.stop()
        if self._lock.acquire(timeout=_CLOSING):
            try:
                self._shelf.close()
            finally:
                self._lock.release()

    @property
    def first(self) -> float | None:
        """See ``Recording.first``."""
        with self._lock:
            self._shelf.refresh()
            return self._shelf.first

    @property
    def last(self) -> float | None:
        """See ``Recording.last``."""
        with self._lock:
            self._shelf.refresh()
            return self._shelf.last

    def at(self, time: float) -> Snapshot | None:
        """See ``Recording.at``."""
        with self._lock:
            self._shelf.refresh()
            spot = self._shelf.find(time)
            return None if spot is None else self._shelf.snapshot(spot)

    def between(self, first: float, last: float, most: int) -> Iterator[Snapshot]:
        """See ``Recording.between``. Reads only some samples if there are many more."""
        with self._lock:
            self._shelf.refresh()
            times = self._shelf.times_between(first, last, most)
        before = -math.inf
        for time in times:
            snapshot = self.at(time)
            if snapshot is not None and max(before, first - GRAIN) < snapshot.time:
                before = snapshot.time
                yield snapshot

    def step(self, time: float, samples: int) -> float:
        """See ``Recording.step``."""
        with self._lock:
            self._shelf.refresh()
            spot = self._shelf.find(time)
            return time if spot is None else self._shelf.move(spot, samples).time

    def marks(self, first: float, last: float) -> Sequence[Event]:
        """See ``Recording.marks``."""
        return self._finder.marks(first, last)

    @property
    def marks_complete(self) -> bool:
        """See ``Recording.marks_complete``."""
        return self._finder.wait(0)

    def next_mark(self, time: float, *, forward: bool) -> Event | None:
        """See ``Recording.next_mark``."""
        return self._finder.next_mark(time, forward=forward)
