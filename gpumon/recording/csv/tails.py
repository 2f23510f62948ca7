"""Finds the complete samples at the end of a log after its writer was killed.

A write that is interrupted by SIGKILL or a power loss can end anywhere in the file, usually between
two pages. So a sample may lack the end of its last line, whole lines, or the GPU rows that follow
the process rows.
"""

from __future__ import annotations

import csv
import os
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.recording.csv.columns import HOSTNAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpumon.recording.csv.columns import CsvColumn

_BLOCK = 2**16
_PAGE = 4096
"""A multiple of this many bytes is where a write is cut short between two lines."""

_Moment = tuple[datetime, float]
"""Timestamp and elapsed seconds of a sample."""


class _Sample(Struct):
    """The rows of one sample, possibly incomplete.

    Attributes:
        moment: Its time.
        timestamp: Its time as written in the file.
        begin: Offset of its first row.
        subjects: The machine, if the log has several, and the UUID of each row, in order.
    """

    moment: _Moment
    timestamp: str
    begin: int
    subjects: list[tuple[str, str]]


def whole_gpus(
    descriptor: int, begin: int, end: int, columns: Sequence[CsvColumn]
) -> tuple[int, _Moment | None]:
    """How much of a GPU file, from its first row to its end, consists of complete samples.

    Returns:
        The size to truncate it to, and the time of its last sample, if there is one.
    """
    names = [column.name for column in columns]
    torn, at = _torn(descriptor, begin, end)
    samples = _samples(descriptor, begin, at, names)
    last, before = next(samples, None), next(samples, None)
    if last is None:
        return at, None
    shorter = (
        before is not None
        and last.moment[1] >= before.moment[1]
        and len(last.subjects) < len(before.subjects)
        and before.subjects[: len(last.subjects)] == last.subjects
    )
    unfinished = _goes_on(last, torn, shorter=shorter) if torn else shorter and end % _PAGE == 0
    if not unfinished:
        return at, last.moment
    return last.begin, None if before is None else before.moment


def whole_lists(
    descriptor: int, begin: int, end: int, columns: Sequence[CsvColumn], gpus: _Moment | None
) -> int:
    """The size to truncate a process file to, so that it has only complete lists.

    A list is written before the GPUs of its sample: one that is newer than the last sample in the
    GPUs' file may lack rows, and has no GPUs.
    """
    names = [column.name for column in columns]
    _, at = _torn(descriptor, begin, end)
    last = next(_samples(descriptor, begin, at, names, lists=True), None)
    return last.begin if last is not None and (gpus is None or last.moment > gpus) else at


def _torn(descriptor: int, begin: int, end: int) -> tuple[list[str], int]:
    """The cells of the last line if it is unfinished, and the end of the complete lines."""
    for at, line in _lines(descriptor, begin, end):
        if not line.endswith(b"\n"):
            return line.decode(errors="replace").split(","), at
        break
    return [], end


def _goes_on(last: _Sample, torn: list[str], *, shorter: bool) -> bool:
    """Whether an unfinished line belongs to the sample before it, or begins a new one."""
    timestamp, *rest = torn
    if not rest:
        return shorter and last.timestamp.startswith(timestamp)
    # The third cell, if it is complete, is the UUID. The name of the machine is cut off.
    complete = len(rest) > 2 and ("", rest[1]) in last.subjects
    return last.timestamp == timestamp and not complete


def _samples(
    descriptor: int, begin: int, end: int, names: list[str], *, lists: bool = False
) -> Iterator[_Sample]:
    """The samples of complete lines, newest first, while the lines are rows."""
    sample: _Sample | None = None
    for at, row in _rows(descriptor, begin, end, names):
        moment = _moment(row)
        if moment is None:
            break
        subject = row.get(HOSTNAME.name, ""), row["uuid"]
        if (
            sample is not None
            and sample.moment == moment
            and (lists or subject not in sample.subjects)
        ):
            sample.begin = at
            sample.subjects.insert(0, subject)
            continue
        if sample is not None:
            yield sample
        sample = _Sample(moment, row["timestamp"], at, [subject])
    if sample is not None:
        yield sample


def _rows(
    descriptor: int, begin: int, end: int, names: list[str]
) -> Iterator[tuple[int, dict[str, str]]]:
    for at, line in _lines(descriptor, begin, end):
        try:
            cells = next(csv.reader([line.decode()]), [])
        except (ValueError, csv.Error):
            return
        if len(cells) != len(names):
            return
        yield at, dict(zip(names, cells, strict=True))


def _moment(row: dict[str, str]) -> _Moment | None:
    try:
        when, elapsed = datetime.fromisoformat(row["timestamp"]), float(row["elapsed [s]"])
    except ValueError:
        return None
    return None if when.tzinfo is None else (when, elapsed)


def _lines(descriptor: int, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The lines between two offsets of a file, last line first, each with its offset."""
    held = b""
    block = _BLOCK
    while end > begin:
        start = max(begin, end - block)
        held = _read(descriptor, start, end) + held
        end = start
        while (cut := held.rfind(b"\n", 0, -1)) >= 0:
            yield start + cut + 1, held[cut + 1 :]
            held = held[: cut + 1]
        # Zeros that a crash left can look like one very long line.
        block *= 2
    if held:
        yield begin, held


def _read(descriptor: int, start: int, end: int) -> bytes:
    pieces = []
    while start < end and (piece := os.pread(descriptor, end - start, start)):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)
