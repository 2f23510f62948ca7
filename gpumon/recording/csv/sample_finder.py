"""Finds where samples begin among the lines of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.recording.csv.cells import read_moment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.recording.csv.headings import Header

_RANK_BYTES = 20


class Row(NamedTuple):
    """The time of a row, as written and in seconds, and the rank and the key of its GPU."""

    stamp: bytes
    wall: float
    rank: bytes
    key: bytes


class Ranks:
    """The order of the GPUs within a sample. Not thread-safe."""

    def __init__(self) -> None:
        self._ranks: dict[bytes, int] = {}

    def of(self, key: bytes, header: Header) -> bytes:
        """A value that increases from GPU to GPU within a sample."""
        key = key.strip()
        if header.key is not None and not header.is_ranked:
            key = b"%d" % self._ranks.setdefault(key, len(self._ranks))
        return key.rjust(_RANK_BYTES, b"0")


class SampleFinder:
    """Finds the samples of one file. Not thread-safe."""

    def __init__(self) -> None:
        self._ranks = Ranks()

    def row(self, line: bytes, header: Header) -> Row | None:
        """The row in a line; ``None`` if the line has no time."""
        stamp, key = header.stamp(line)
        other = header.other
        text = stamp.decode("utf-8", "replace")
        wall = (
            read_moment(text) if other is None or other.times.is_usual else other.times.read(text)
        )
        if wall is None or (other is not None and key.lstrip().startswith(b"[")):
            return None
        return Row(stamp, wall, self._ranks.of(key, header), key)

    def learn_ranks(self, lines: Iterable[bytes], header: Header) -> None:
        """Learn the order of GPUs that are identified by name only."""
        if header.key is not None and not header.is_ranked:
            for line in lines:
                self.row(line, header)

    def samples(self, lines: list[bytes], header: Header) -> list[tuple[int, float]]:
        """The first line and the wall-clock time of each sample."""
        found: list[tuple[int, float]] = []
        before: Row | None = None
        left: int | None = None
        share_stamp = header.other is None and header.time == 0
        stamp = b""
        for number, line in enumerate(lines):
            # Most lines certainly belong to the sample of the row before.
            if stamp and line.startswith(stamp):
                continue
            row = self.row(line, header)
            if row is None:
                if left is None and leads(before, line, header, fresh=True):
                    left = number
                continue
            if before is None or begins(before, row, header):
                found.append((number if left is None else left, row.wall))
            before, left = row, None
            stamp = row.stamp if share_stamp else b""
        return found


def continues(before: Row | None, line: bytes, header: Header) -> bool:
    """Whether a line certainly belongs to the sample of the row before it."""
    return (
        before is not None
        and header.other is None
        and header.time == 0
        and line.startswith(before.stamp)
    )


def leads(before: Row | None, line: bytes, header: Header, *, fresh: bool) -> bool:
    """Whether a line stands in place of the first row of a sample, whose GPU is lost.

    Args:
        before: The row before it.
        line: The line.
        header: Its header.
        fresh: Whether a sample begins with the first row.
    """
    other = header.other
    if other is None or not (fresh if before is None else other.is_last_gpu(before.key)):
        return False
    return other.is_left_by_gpu(line)


def begins(before: Row, row: Row, header: Header) -> bool:
    """Whether a row begins a new sample, judged by the row before it."""
    if header.other is None:
        # A timestamp that was cut off may be the same time, written otherwise.
        return row.stamp != before.stamp and row.wall != before.wall
    gap = header.other.rule.gap
    return row.rank <= before.rank if gap is None else abs(row.wall - before.wall) > gap
