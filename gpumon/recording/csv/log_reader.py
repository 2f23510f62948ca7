"""Reads a log once, from its beginning, in the background.

Every sample goes to a history, which then answers for any moment of the log (``History.as_of``),
and to the finder of events. What is damaged is counted meanwhile.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_right
from contextlib import closing
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.recording.csv.clocks import GRAIN
from gpumon.recording.csv.damage import Damage, DamageCounter, damage_notes
from gpumon.recording.csv.files import PACKED, exists, parts
from gpumon.recording.csv.index import open_sheet
from gpumon.recording.csv.part import identity
from gpumon.recording.memory.event_finder import EventFinder
from gpumon.recording.recording import RecordingError

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.csv.files import LogFiles
    from gpumon.recording.csv.index import Chunk, SampleSpan
    from gpumon.recording.csv.part import Part
    from gpumon.recording.csv.rotated_log import RotatedLog
    from gpumon.recording.history import History
    from gpumon.recording.recording import Event

_REST = 0.5
"""Seconds of rest for each second of work: the screen is drawn meanwhile."""
_AGAIN = 1.0
"""Seconds until the log is checked for growth."""
_onward = attrgetter("onward")
_AT_ONCE, _LISTS_AT_ONCE = 16, 64
"""Samples, and process lists, that are read while those who ask for a moment of the log wait."""
_STOPPING = 0.3
"""Seconds to wait for the thread to end: it may be in a read that hangs."""


class LogReader:
    """Reads all samples of a log, and those that are written later, on its own thread.

    Args:
        log: The log.
        lock: Held while the log is read.
        history: Receives every sample. Its times follow those of the log.
        files: Where the log is.
        delay: Seconds before reading begins, which leave the CPU to the first frame.

    Attributes:
        damage: How many lines are damaged, as a sentence; empty if none is, or until all is read.
        events: The events found so far, oldest first; other threads may read it.
    """

    def __init__(
        self,
        log: RotatedLog,
        lock: threading.Lock,
        history: History,
        files: LogFiles,
        delay: float,
    ) -> None:
        self.damage = ""
        self.events: list[Event] = []
        self._files = files
        self._delay = delay
        self._log = log
        self._lock = lock
        self._history = history
        self._finder = EventFinder(history.thresholds.full_share)
        self._parts: list[_PartReader] = []
        self._without_samples: dict[Path, Damage] = {}
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
        if self._stopping.wait(self._delay):
            return
        is_noted = False
        while not self._stopping.is_set():
            began = time.thread_time()
            try:
                samples, is_all = self._next_samples()
            except RecordingError:
                # Whoever asks for a moment of the log receives the same error.
                samples, is_all = [], True
            for snapshot in samples:
                self._history.add(snapshot)
                self.events += self._finder.see(snapshot)
            if not is_all:
                is_noted = False
                self._stopping.wait(_REST * (time.thread_time() - began))
                continue
            if not is_noted:
                self._note_damage()
            is_noted = True
            self._complete.set()
            self._stopping.wait(_AGAIN)

    def _next_samples(self) -> tuple[list[Snapshot], bool]:
        """The next samples, and whether the end of the log was reached.

        Raises:
            RecordingError: The log cannot be read any more.
        """
        with self._lock:
            reader = self._parts[-1] if self._parts else None
            if reader is None:
                found = self._log.after(None, -math.inf)
            else:
                found = self._log.after(reader.part, reader.onward)
                self._follow(reader.part.shift - reader.shift)
            if reader is not None and (found is None or found.part is not reader.part):
                if not reader.rest():
                    return [], False
                if found is not None:
                    reader.end()
            if found is None:
                return [], True
            if reader is None or found.part is not reader.part:
                reader = _PartReader(found.part)
                self._parts.append(reader)
            return reader.read(found.chunk, found.number), False

    def _note_damage(self) -> None:
        """Say what is damaged in all files, also in those of which no sample was read."""
        # A file that was removed may have left its identity to a newer one.
        known = {reader.part.identity: reader for reader in self._parts}
        named = {reader.path: reader for reader in self._parts}
        damages: dict[Path, Damage] = {}
        for files in parts(self._files) or [self._files]:
            path = _unpacked(files.gpus)
            reader = known.get(identity(files.gpus)) or named.get(path)
            if reader is not None:
                # Its file may be compressed later.
                reader.path = path
                damages[files.gpus] = reader.gpu_damage
                if reader.list_damage is not None:
                    damages[files.processes] = reader.list_damage
            for file, processes in ((files.gpus, False), (files.processes, True)):
                if file not in damages and exists(file):
                    if file not in self._without_samples:
                        self._without_samples[file] = self._before_samples(
                            file, processes=processes
                        )
                    damages[file] = self._without_samples[file]
        # On the screen there is room for one file, whose folder is known.
        short = {Path(path.name): damage for path, damage in damages.items()}
        self.damage = " ".join(damage_notes(short, most=1))

    def _before_samples(self, path: Path, *, processes: bool) -> Damage:
        """What is damaged before the first sample of a file, which may have none."""
        damage = Damage()
        try:
            sheet = open_sheet(
                path, processes=processes, host=self._log.host, stop=self._stopping.is_set
            )
        except RecordingError as error:
            damage.refusal = error.sentence
        else:
            with closing(sheet):
                DamageCounter(damage).begin_file(sheet)
        return damage

    def _follow(self, seconds: float) -> None:
        """Move what was read into the past: a later part shows that the clock was set back."""
        if seconds:
            self._history.shift(seconds)
            self.events = [replace(event, time=event.time - seconds) for event in self.events]


class _PartReader:
    """How far a part of a log has been read, and what is damaged up to there.

    Args:
        part: The part, which is open.

    Attributes:
        part: The part.
        path: The path of its GPU file when that was last looked at, not compressed.
        onward: The onward time of the last sample that was read.
        shift: The ``shift`` of the part at that time.
        gpu_damage: The damage of its GPU file.
        list_damage: The damage of its process file; ``None`` if there is none, or until all of it
            was read once.
    """

    def __init__(self, part: Part) -> None:
        self.part, self.path = part, _unpacked(part.files.gpus)
        self.onward, self.shift = -math.inf, part.shift
        self.gpu_damage = Damage()
        self.list_damage: Damage | None = None
        self._gpus, self._lists = DamageCounter(self.gpu_damage), DamageCounter(Damage())
        # Counts on to the end of the process file, whose last lists may not have samples yet.
        self._last_lists: DamageCounter | None = None
        self._gpus.begin_file(part.gpus)
        self._end = part.gpus.end
        self._rested: tuple[int, int] | None = None

    def read(self, chunk: Chunk, number: int) -> list[Snapshot]:
        """Some samples, which follow those that were read."""
        self._count_behind()
        runs = chunk.runs[number : number + _AT_ONCE]
        self.onward, self.shift = runs[-1].onward, self.part.shift
        self._last_lists = None
        # A list has the time of its sample only when that is written.
        self.part.count_lists(self._lists, self.onward, _LISTS_AT_ONCE)
        self._gpus.begin(self.part.gpus, chunk)
        return [self._snapshot(chunk, run) for run in runs]

    def rest(self) -> bool:
        """Count what is damaged behind the last sample; returns whether that was all."""
        if not self.part.is_open:
            return True
        self._count_behind()
        self.gpu_damage.flaw = self.part.gpus.flaw
        if self._rested == self.part.ends:
            return True
        lists = self._last_lists = self._last_lists or self._lists.branch()
        if not self.part.count_lists(lists, math.inf, _LISTS_AT_ONCE):
            return False
        self.list_damage = lists.damage if self.part.has_lists else None
        self._last_lists, self._rested = None, self.part.ends
        return True

    def end(self) -> None:
        """Forget all but what was counted: the log goes on in the next part."""
        self._gpus = self._lists = DamageCounter(Damage())

    def _count_behind(self) -> None:
        """Count the lines that were added to the last sample."""
        sheet = self.part.gpus
        if sheet.end == self._end:
            return
        self._end = sheet.end
        chunk = sheet.at(self.onward + GRAIN)
        place = 0 if chunk is None else bisect_right(chunk.runs, self.onward + GRAIN, key=_onward)
        if chunk is not None and place and self._gpus.is_new(chunk.runs[place - 1]):
            self._gpus.begin(sheet, chunk)
            self._snapshot(chunk, chunk.runs[place - 1])

    def _snapshot(self, chunk: Chunk, run: SampleSpan) -> Snapshot:
        self._gpus.see(run)
        return self.part.snapshot(chunk, run, self._gpus)


def _unpacked(path: Path) -> Path:
    """The path of a file without the suffix of a compressed one."""
    return path.with_suffix("") if path.suffix in PACKED else path
