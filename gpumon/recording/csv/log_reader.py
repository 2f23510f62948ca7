"""Reads a log once, from its beginning, in the background.

Every sample goes to a history, which then answers for any moment of the log (``History.as_of``),
and to the finder of events.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.recording.csv.damage import damage_notes, find_damage
from gpumon.recording.csv.files import parts
from gpumon.recording.memory.event_finder import EventFinder
from gpumon.recording.recording import RecordingError

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.csv.files import LogFiles
    from gpumon.recording.csv.part import Part
    from gpumon.recording.csv.rotated_log import RotatedLog
    from gpumon.recording.history import History
    from gpumon.recording.recording import Event

_HEAD_START = 0.5
"""Seconds of delay that leave the CPU to the first frame."""
_REST = 0.5
"""Seconds of rest for each second of work: the screen is drawn meanwhile."""
_AGAIN = 1.0
"""Seconds until the log is checked for growth."""
_STOPPING = 0.3
"""Seconds to wait for the thread to end: it may be in a read that hangs."""


class LogReader:
    """Reads all samples of a log, and those that are written later, on its own thread.

    Args:
        log: The log.
        lock: Held while the log is read.
        history: Receives every sample. Its times follow those of the log.
        files: Where the log is.

    Attributes:
        damage: How many lines are damaged, as a sentence; empty if none is, or until all is read.
        events: The events found so far, oldest first; other threads may read it.
    """

    def __init__(
        self, log: RotatedLog, lock: threading.Lock, history: History, files: LogFiles
    ) -> None:
        self.damage = ""
        self.events: list[Event] = []
        self._files = files
        self._log = log
        self._lock = lock
        self._history = history
        self._finder = EventFinder(history.thresholds.full_share)
        self._part: Part | None = None
        self._onward = float("-inf")
        self._shift = 0.0
        self._stopping = threading.Event()
        self._complete = threading.Event()
        self._thread = threading.Thread(target=self._read_on, name="gpumon-log", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading. May be called more than once. A hung read ends with the process."""
        self._stopping.set()
        self._thread.join(_STOPPING)

    def wait(self, timeout: float) -> bool:
        """Wait until the log has been read to its current end; returns whether it has."""
        return self._complete.wait(timeout)

    def _read_on(self) -> None:
        if self._stopping.wait(_HEAD_START):
            return
        while not self._stopping.is_set():
            began = time.thread_time()
            try:
                samples = self._next_samples()
            except RecordingError:
                # Whoever asks for a moment of the log receives the same error.
                samples = []
            for snapshot in samples:
                self._history.add(snapshot)
                self.events += self._finder.see(snapshot)
            if samples:
                self._stopping.wait(_REST * (time.thread_time() - began))
            else:
                if not self._complete.is_set():
                    self._complete.set()
                    self._count_damage()
                self._stopping.wait(_AGAIN)

    def _count_damage(self) -> None:
        """Read the files once more, completely: samples are read past what is damaged."""
        began = time.thread_time()

        def pause() -> bool:
            nonlocal began
            stopping = self._stopping.wait(_REST * (time.thread_time() - began))
            began = time.thread_time()
            return not stopping

        damages = find_damage(parts(self._files) or [self._files], pause)
        if damages:
            # On the screen there is room for one file, whose folder is known.
            named = {Path(path.name): damage for path, damage in damages.items()}
            self.damage = " ".join(damage_notes(named, most=1))

    def _next_samples(self) -> list[Snapshot]:
        """The samples of the next chunk; none at the end of the log.

        Raises:
            RecordingError: The log cannot be read any more.
        """
        with self._lock:
            found = self._log.after(self._part, self._onward)
            if self._part is not None:
                self._follow(self._part.shift - self._shift)
            if found is None:
                return []
            part, chunk = found.part, found.chunk
            self._part, self._onward, self._shift = part, chunk.runs[-1].onward, part.shift
            return [part.snapshot(chunk, run) for run in chunk.runs[found.number :]]

    def _follow(self, seconds: float) -> None:
        """Move what was read into the past: a later part shows that the clock was set back."""
        if seconds:
            self._history.shift(seconds)
            self.events = [replace(event, time=event.time - seconds) for event in self.events]
