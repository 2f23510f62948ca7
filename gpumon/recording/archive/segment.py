"""Reads a segment: any sample of it, without reading those before its minute."""

from __future__ import annotations

import math
import os
import zlib
from bisect import bisect_right
from collections import OrderedDict
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpumon.model.codec import shared_codec
from gpumon.recording.archive.segment_format import (
    FRAME,
    FRAME_BYTES,
    FRAME_SAMPLES,
    HEAD_BYTES,
    MOST_CONTENT,
    MOST_HEADER,
    MOST_WINDOW_LOG,
    SCHEMA_NAME,
    VERSION,
    RecordHead,
    SampleContent,
    SegmentHeader,
    read_head,
)
from gpumon.recording.encoded import SnapshotDecoder, restored
from gpumon.recording.history import Standing
from gpumon.recording.recording import RecordingError
from gpumon.system.zstandard import zstd
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from gpumon.model.codec import Codec
    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.encoded import EncodedSnapshot

MOST_SEGMENT = 2**26
"""Bytes of a segment that are read at most."""
_MOST_FRAME = FRAME_BYTES + MOST_CONTENT
"""Bytes of a frame that are unpacked at most."""
_MOST_MARKS = 10_000
"""Marks of frames that are looked at: an hour of ten samples a second has 600. A forged file may
have millions."""
_FRAMES_KEPT = 3
"""The two minutes before a moment that is shown are in so many frames."""
_DAMAGED = (msgspec.MsgspecError, ValueError, RecursionError, EOFError, zstd.ZstdError)


def read_header(path: Path) -> SegmentHeader:
    """The header of a segment.

    Raises:
        RecordingError: It cannot be read, or is not of this version.
    """
    try:
        with _opened(path) as file:
            line = file.readline(MOST_HEADER)
    except OSError as error:
        raise RecordingError(f"{_shown(path)} cannot be read: {error.strerror}.") from error
    return _header(line, path)


def _opened(path: Path) -> BinaryIO:
    # A pipe must not block gpumon.
    nonblocking = getattr(os, "O_NONBLOCK", 0)
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | nonblocking))


def _header(line: bytes, path: Path) -> SegmentHeader:
    try:
        header = msgspec.json.decode(line, type=SegmentHeader)
    except _DAMAGED as error:
        raise RecordingError(f"{_shown(path)} is no part of a history of gpumon.") from error
    name, _, version = header.schema.rpartition("/")
    if name != SCHEMA_NAME or version != str(VERSION):
        raise RecordingError(
            f"{_shown(path)} is of another version of gpumon ({printable(header.gpumon)})."
        )
    return header


def _shown(path: Path) -> str:
    return printable(str(path))


class _Record(NamedTuple):
    """A sample in a segment: where its compressed bytes begin, and what its head says."""

    place: int
    head: RecordHead


class Frame:
    """The samples of a frame, of which those up to the last that was asked for are unpacked."""

    def __init__(self, data: bytes, begin: int, end: int) -> None:
        self._data = data
        self._records: list[_Record] = []
        place = begin
        while place < end and (head := read_head(data, place)) is not None:
            stop = place + HEAD_BYTES + head.size
            before = self._records[-1].head.time if self._records else -math.inf
            if head.is_first is bool(self._records) or stop > end or head.time <= before:
                break
            if len(self._records) >= FRAME_SAMPLES:
                break
            self._records.append(_Record(place + HEAD_BYTES, head))
            place = stop
        self.times = [record.head.time for record in self._records]
        """The times of its samples."""
        self.is_whole = place == end
        """Whether all bytes up to the next frame are samples."""
        options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: MOST_WINDOW_LOG}
        self._zstd = zstd.ZstdDecompressor(options=options)
        self._unpacked: list[EncodedSnapshot] = []
        self._unpacked_bytes = 0
        self._is_broken = False
        self._standings: list[tuple[int, bytes]] = []

    def encoded(self, number: int, content: Codec[SampleContent]) -> EncodedSnapshot:
        """A sample as bytes.

        Raises:
            ValueError, EOFError, ZstdError, MsgspecError: It is damaged, or one before it is.
        """
        unpacked = self._unpacked
        while len(unpacked) <= number:
            if self._is_broken:
                raise ValueError("a sample before it is damaged")
            # Unless it comes through, none after it can.
            self._is_broken = True
            record = self._records[len(unpacked)]
            packed = self._data[record.place : record.place + record.head.size]
            if zlib.crc32(packed) != record.head.checksum:
                raise ValueError("its checksum is wrong")
            found = content.decode(self._unpack(packed))
            before = unpacked[-1] if unpacked else None
            parts = found.head, found.processes, found.holders
            unpacked.append(restored(record.head.time, parts, before))
            if found.standing is not None:
                self._standings.append((len(unpacked) - 1, found.standing))
            self._is_broken = False
        return unpacked[number]

    def standing(self, number: int) -> tuple[int, bytes] | None:
        """The newest ``Standing`` up to a sample, with the number of its sample.

        Only samples that were unpacked are looked at.
        """
        place = bisect_right(self._standings, number, key=itemgetter(0))
        return self._standings[place - 1] if place else None

    def _unpack(self, packed: bytes) -> bytes:
        data: bytes = self._zstd.decompress(packed, MOST_CONTENT + 1)
        self._unpacked_bytes += len(data)
        if len(data) > MOST_CONTENT or self._unpacked_bytes > _MOST_FRAME:
            raise ValueError("it is too long")
        return data


class Segment:
    """One file of an archive, as far as it was read. Not thread-safe.

    Args:
        path: The file.
        header: Its header, see ``read_header``.

    Raises:
        RecordingError: It cannot be read.
    """

    def __init__(self, path: Path, header: SegmentHeader) -> None:
        self.path, self.header = path, header
        self._data = b""
        self._places: list[int] = []
        self._times: list[float] = []
        # What is before this place was searched for frames.
        self._searched = 0
        self._frames: OrderedDict[int, Frame] = OrderedDict()
        try:
            self._content: Codec[SampleContent] = shared_codec(SampleContent, header.fields)
            self._standing: Codec[Standing] = shared_codec(Standing, header.fields)
            self._decoder = SnapshotDecoder(header.fields)
        except (ValueError, TypeError) as error:
            raise RecordingError(f"{_shown(path)} names impossible fields.") from error
        self.is_damaged = False
        """Whether samples in it, as far as it was read, cannot be used."""
        self.grow()

    def grow(self) -> None:
        """Read what was added since.

        Raises:
            RecordingError: It cannot be read.
        """
        try:
            with _opened(self.path) as file:
                size = os.fstat(file.fileno()).st_size
                if size < len(self._data):
                    # What could not be written whole was cut off again.
                    self._data, self._places, self._times, self._searched = b"", [], [], 0
                if size == len(self._data):
                    return
                file.seek(len(self._data))
                self._data += file.read(max(0, MOST_SEGMENT - len(self._data)))
        except OSError as error:
            raise RecordingError(
                f"{_shown(self.path)} cannot be read: {error.strerror}."
            ) from error
        self._frames.clear()
        place, marks = self._searched, 0
        while marks < _MOST_MARKS and (place := self._data.find(FRAME, place)) >= 0:
            marks += 1
            head = read_head(self._data, place)
            end = place + HEAD_BYTES + (0 if head is None else head.size)
            newest = self._times[-1] if self._times else -math.inf
            # The newest sample may just be written.
            if head is None or end > len(self._data) or head.time <= newest:
                place += 1
                continue
            self._places.append(place)
            self._times.append(head.time)
            # No frame begins within its first sample.
            self._searched = place = end

    @property
    def frames(self) -> int:
        """The number of its frames."""
        return len(self._places)

    def span_of(self, frame: int) -> tuple[float, float]:
        """The times of the first samples of a frame and of the one after it, or of the last two."""
        begins = self._times[frame : frame + 2] if frame + 1 < self.frames else self._times[-2:]
        return self._times[frame], self._times[frame] + begins[-1] - begins[0]

    def frame_at(self, time: float) -> int:
        """The number of the last frame that begins by a time; 0 if none does."""
        return max(0, bisect_right(self._times, time) - 1)

    def frame(self, number: int) -> Frame:
        """One of its frames; the last ones that were asked for are kept."""
        frame = self._frames.get(number)
        if frame is None:
            ends = [*self._places[number : number + 2], len(self._data)]
            begin, end = next(pairwise(ends))
            frame = self._frames[number] = Frame(self._data, begin, end)
            # The last sample may just be written.
            if not frame.is_whole and number + 1 < len(self._places):
                self.is_damaged = True
            if len(self._frames) > _FRAMES_KEPT:
                self._frames.popitem(last=False)
        else:
            self._frames.move_to_end(number)
        return frame

    def snapshot(self, frame: int, number: int) -> Snapshot | None:
        """A sample of a frame; ``None`` if it is damaged."""
        try:
            encoded = self.frame(frame).encoded(number, self._content)
            return self._decoder.decode(encoded)
        except _DAMAGED:
            self.is_damaged = True
            return None

    def standing(self, frame: int, number: int) -> tuple[int, Standing] | None:
        """The intervals that had not ended at a sample of a frame, or shortly before it.

        Returns:
            With the number of the sample after which they had not ended; ``None`` if none are
            known.
        """
        try:
            self.frame(frame).encoded(number, self._content)
        except _DAMAGED:
            self.is_damaged = True
        found = self.frame(frame).standing(number)
        try:
            return None if found is None else (found[0], self._standing.decode(found[1]))
        except _DAMAGED:
            return None
