"""Writes an archive, and keeps it within its bounds."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import zlib
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import gpumon
from gpumon.model.codec import encode_for_others, readable
from gpumon.model.number_types import TIMES
from gpumon.recording.archive.clock_changes import (
    DAY,
    SegmentSpan,
    count_old,
    segment_span,
    written_at,
)
from gpumon.recording.archive.folder import LOCK, SegmentFile, segment_path, segments_in
from gpumon.recording.archive.segment import Segment, read_header
from gpumon.recording.archive.segment_format import (
    FRAME_BYTES,
    FRAME_SAMPLES,
    MOST_CONTENT,
    MOST_WINDOW_LOG,
    SCHEMA,
    SEGMENT_SECONDS,
    STANDING_SAMPLES,
    RecordHead,
    SampleContent,
    SegmentHeader,
    encode_thresholds,
    own_layout,
)
from gpumon.recording.csv.opening import LogError, holder, lock, open_file, shown
from gpumon.recording.encoded import Once, SnapshotEncoder
from gpumon.recording.memory.event_finder import EventFinder
from gpumon.recording.recording import RecordingError
from gpumon.system.zstandard import zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.archive.places import ArchivePlace
    from gpumon.recording.encoded import EncodedSnapshot, Holders, Processes
    from gpumon.recording.history import History, Standing
    from gpumon.recording.recording import Event


STEP = 1.0
"""Seconds by which the clock may fall behind without being taken for set back, see ``History``."""
SEGMENT_BYTES = 2**24
_LEVEL = 6
"""A tenth less than level 3 takes; level 9 takes 2 % less again, and twice the time."""
_LEAST_WINDOW_LOG = 15
_MOST_EVENTS, _MOST_ACCIDENTS = 2000, 500
"""Events of one segment that are written, and accidents after these."""


class Bounds(Struct, frozen=True):
    """How much an archive keeps; the oldest hours go first."""

    days: float = 7
    bytes: int = 500 * 2**20


class _Frame:
    """The frame that is being written."""

    def __init__(self) -> None:
        self.samples = self.bytes = 0
        self.before: EncodedSnapshot | None = None
        self._zstd: zstd.ZstdCompressor | None = None

    @property
    def is_full(self) -> bool:
        """Whether the next sample begins another one."""
        return self.samples >= FRAME_SAMPLES or self.bytes >= FRAME_BYTES

    def record(self, encoded: EncodedSnapshot, standing: Callable[[], Standing]) -> bytes:
        """The bytes of the next sample.

        Args:
            encoded: The sample.
            standing: The intervals that have not ended.

        Raises:
            ValueError: The sample is too large.
        """
        content = SampleContent(*encoded.after(self.before))
        if not self.samples % STANDING_SAMPLES:
            content.standing = encode_for_others(standing())
        data = encode_for_others(content)
        if len(data) > MOST_CONTENT:
            raise ValueError("the sample is too large")
        if self._zstd is None:
            # Two samples, so that what did not change costs next to nothing.
            window = min(max((2 * len(data)).bit_length(), _LEAST_WINDOW_LOG), MOST_WINDOW_LOG)
            options: dict[int, int] = {
                zstd.CompressionParameter.compression_level: _LEVEL,
                zstd.CompressionParameter.window_log: window,
            }
            self._zstd = zstd.ZstdCompressor(options=options)
        packed: bytes = self._zstd.compress(data, zstd.ZstdCompressor.FLUSH_BLOCK)
        head = RecordHead(not self.samples, encoded.time, len(packed), zlib.crc32(packed))
        self.samples += 1
        self.bytes += len(data)
        self.before = encoded
        return head.packed() + packed


class _OpenSegment:
    """The segment that is being written, and the file of its events."""

    def __init__(self, file: SegmentFile, header: SegmentHeader, mode: int) -> None:
        self.file, self.begins = file, header.begins
        self.size = self.events = 0
        self._mode = mode
        self._events: int | None = None
        self._descriptor = _create(file.path, mode)
        try:
            self.append(msgspec.json.encode(header) + b"\n")
        except OSError:
            self.close()
            file.path.unlink(missing_ok=True)
            raise

    def append(self, data: bytes) -> None:
        """Append bytes, or nothing of them.

        Raises:
            OSError: They cannot be written.
        """
        left = data
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size)
            raise
        self.size += len(data)

    def add_events(self, events: Sequence[Event]) -> int:
        """Write events; returns their length in bytes. What cannot be written is left out."""
        written = 0
        with contextlib.suppress(OSError):
            for event in events:
                most = _MOST_EVENTS + (0 if event.accident is None else _MOST_ACCIDENTS)
                if self.events >= most:
                    continue
                if self._events is None:
                    self._events = _create(self.file.events, self._mode)
                data = encode_event(event) + b"\n"
                os.write(self._events, data)
                written += len(data)
                self.events += 1
        return written

    def is_there(self) -> bool:
        """Whether the file still has its name."""
        return _has_name(self._descriptor, self.file.path)

    def sync(self) -> None:
        """Wait until what was written is on the disk.

        Raises:
            OSError: It cannot be synced.
        """
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close both files."""
        for descriptor in (self._descriptor, self._events):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)


def _has_name(descriptor: int, path: Path) -> bool:
    """Whether an open file still has its name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _create(path: Path, mode: int) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, mode)


def encode_event(event: Event) -> bytes:
    """An event as a line of JSON; texts that are not UTF-8 have replacement characters."""
    try:
        return msgspec.json.encode(event)
    except UnicodeEncodeError:
        return msgspec.json.encode(readable(msgspec.to_builtins(event)))


class ArchiveLog:
    """A ``RecordedLog`` that is an archive.

    Args:
        place: Its folder, made if it is missing.
        interval: Seconds between samples.
        bounds: How much is kept.
        history: An empty one, that judges the states of the samples.
        commands: Whether to write command lines, which can contain secrets.
    """

    def __init__(
        self,
        place: ArchivePlace,
        interval: float,
        bounds: Bounds,
        history: History,
        *,
        commands: bool = True,
    ) -> None:
        self.path = place.folder
        self._interval, self._bounds = interval, bounds
        self._commands = commands
        self._processes, self._holders = Once(_without_commands), Once(_without_their_commands)
        self._folder_mode, self._file_mode = (0o750, 0o640) if place.is_shared else (0o700, 0o600)
        self._history = history
        self._finder = EventFinder(history.thresholds.full_share)
        self._encoder = SnapshotEncoder(encode_for_others)
        self._lock: int | None = None
        self._segment: _OpenSegment | None = None
        self._frame = _Frame()
        # The newest sample: its time, and the seconds since the start of this run.
        self._last = -math.inf
        self._last_elapsed: float | None = None
        self._older = 0
        self._written = 0
        self._trouble: str | None = None

    @property
    def files(self) -> str:
        """See ``RecordedLog.files``."""
        return f"the history in {self.path}"

    @property
    def advice(self) -> str:
        """See ``RecordedLog.advice``."""
        return "the dashboard shows it: [ goes back, and @ goes to a time; gpumon report sums it up"

    def begin(self) -> None:
        """See ``RecordedLog.begin``."""
        self._lock_folder()
        self._last = self._newest_time()
        self._prune()

    def _lock_folder(self) -> None:
        """Make the folder if it is missing, and lock it, also if another one has its name now.

        Raises:
            LogError: Another program keeps the history in it.
            OSError: It cannot be made or locked.
        """
        self._make_folder()
        path = self.path / LOCK
        if self._lock is not None:
            if _has_name(self._lock, path):
                return
            os.close(self._lock)
            self._lock = None
        self._lock, _ = open_file(path)
        try:
            lock(self._lock, path)
        except LogError as error:
            os.close(self._lock)
            self._lock = None
            other = holder(path) or "another program"
            raise LogError(
                f"The history in {shown(self.path)} is kept by {other} already: end that first, or "
                "leave it to it."
            ) from error

    def _make_folder(self) -> None:
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        try:
            self.path.mkdir(mode=self._folder_mode, exist_ok=True)
        except FileExistsError as error:
            raise LogError(
                f"{shown(self.path)} is no folder: there can be no history in it."
            ) from error

    def _newest_time(self) -> float:
        """The time of the newest sample in the folder."""
        for file in reversed(segments_in(self.path)):
            try:
                segment = Segment(file.path, read_header(file.path))
            except RecordingError:
                continue
            if segment.frames:
                return segment.frame(segment.frames - 1).times[-1]
        return -math.inf

    def write(self, snapshots: Mapping[str | None, Snapshot], elapsed: float) -> None:
        """See ``RecordedLog.write``."""
        (snapshot,) = snapshots.values()
        if not self._commands:
            snapshot = replace(
                snapshot,
                processes=self._processes(snapshot.processes),
                holders=self._holders(snapshot.holders),
            )
        snapshot, set_back = self._in_order(snapshot, elapsed)
        try:
            segment = self._segment_for(snapshot, set_back)
            if self._frame.is_full:
                self._frame = _Frame()
            self._history.add(snapshot)
            encoded = self._encoder.encode(snapshot)
            record = self._frame.record(encoded, partial(self._history.standing, self._interval))
            segment.append(record)
        except (OSError, ValueError) as error:
            # What was compressed after a record that is missing could not be read.
            self._frame = _Frame()
            if isinstance(error, ValueError):
                self._trouble = f"{shown(self.path)} lacks a sample: {error}."
                return
            if error.errno == errno.EFBIG:
                # It may not grow any more, see `ulimit -f`; another one may.
                self._end_segment()
            raise
        self._trouble = None
        self._last, self._last_elapsed = snapshot.time, elapsed
        added = len(record) + segment.add_events(self._finder.see(snapshot))
        self._written += added
        if segment.size + self._older > self._bounds.bytes:
            self._prune()
            if segment.size + self._older > self._bounds.bytes:
                self._trouble = (
                    f"{shown(self.path)} is too large: its oldest files cannot be removed."
                )

    def _in_order(self, snapshot: Snapshot, elapsed: float) -> tuple[Snapshot, float]:
        """The snapshot with a time after the last one, or by how much the clock was set back."""
        last = self._last
        if snapshot.time > last:
            return snapshot, 0.0
        if snapshot.time > last - STEP:
            return replace(snapshot, time=math.nextafter(last, math.inf)), 0.0
        since = STEP if self._last_elapsed is None else max(elapsed - self._last_elapsed, 1e-3)
        return snapshot, last + since - snapshot.time

    def _segment_for(self, snapshot: Snapshot, set_back: float) -> _OpenSegment:
        """The segment to write a sample to, perhaps a new one."""
        segment = self._segment
        if (
            segment is not None
            and not set_back
            and snapshot.time < segment.begins + SEGMENT_SECONDS
            and segment.size < min(SEGMENT_BYTES, self._bounds.bytes // 8)
            and segment.is_there()
        ):
            return segment
        self._end_segment()
        self._lock_folder()
        numbers = [file.number for file in segments_in(self.path)]
        number = max(numbers, default=0) + 1
        header = SegmentHeader(
            *(SCHEMA, gpumon.__version__, snapshot.host.name, snapshot.time),
            *(set_back, self._interval, own_layout(), encode_thresholds(self._history.thresholds)),
        )
        file = SegmentFile(number, segment_path(self.path, number, snapshot.time))
        self._frame = _Frame()
        self._segment = segment = _OpenSegment(file, header, self._file_mode)
        self._written += segment.size
        self._prune(header)
        return segment

    def _end_segment(self) -> None:
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def _prune(self, newest: SegmentHeader | None = None) -> None:
        """Remove the oldest segments until the others are within the bounds.

        Args:
            newest: The header of the segment that was just begun; without it the days do not count.
        """
        own = None if self._segment is None else self._segment.file.number
        files = [file for file in segments_in(self.path) if file.number != own]
        sizes = {file: _size(file.path) + _size(file.events) for file in files}
        self._older = sum(sizes.values())
        size = 0 if self._segment is None else self._segment.size
        old = 0
        if newest is not None:
            spans = [*_spans_of(files), SegmentSpan(newest.begins, newest.begins, newest.set_back)]
            old = count_old(spans, self._bounds.days * DAY)
        for number, file in enumerate(files):
            if size + self._older <= self._bounds.bytes and number >= old:
                break
            for path in (file.events, file.path):
                # What cannot be removed must not end the history.
                with contextlib.suppress(OSError):
                    path.unlink()
            if not file.path.exists():
                self._older -= sizes[file]

    def sync(self) -> None:
        """See ``RecordedLog.sync``."""
        if self._segment is not None:
            self._segment.sync()

    def close(self) -> None:
        """See ``RecordedLog.close``."""
        self._end_segment()
        lock_, self._lock = self._lock, None
        if lock_ is not None:
            os.close(lock_)

    @property
    def bytes(self) -> int:
        """See ``RecordedLog.bytes``."""
        return self._written

    @property
    def trouble(self) -> str | None:
        """See ``RecordedLog.trouble``."""
        return self._trouble


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _spans_of(files: Sequence[SegmentFile]) -> list[SegmentSpan]:
    """The times of segments."""
    spans: list[SegmentSpan] = []
    for file in files:
        spans.append(_span_of(file.path, spans[-1].ends if spans else TIMES[0]))
    return spans


def _span_of(path: Path, before: float) -> SegmentSpan:
    """The times of a segment; one that cannot be read was written after the one ``before``."""
    try:
        return segment_span(path, read_header(path))
    except RecordingError:
        written = max(before, written_at(path, before))
        return SegmentSpan(written, written, 0.0)


def _without_commands(processes: Processes) -> Processes:
    return tuple([replace(process, command=()) for process in processes])


def _without_their_commands(holders: Holders) -> Holders:
    if holders is None:
        return None
    return replace(
        holders, suspects=tuple([replace(suspect, command=()) for suspect in holders.suspects])
    )
