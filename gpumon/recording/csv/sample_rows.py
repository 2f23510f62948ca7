"""The rows of a sample: which of its lines are rows, and which of their cells can be trusted.

All readers of a log ask here, so that a replay, a report and the count of damage agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.recording.csv.headings import LONGEST_LINE, cells_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpumon.recording.csv.damage import DamageCounter
    from gpumon.recording.csv.headings import Header


class SampleRow(NamedTuple):
    """A row of a sample.

    Attributes:
        cells: Its cells, in the order of the columns; fewer if the last ones are missing or cannot
            be trusted.
        line: The line, or several lines that a line break in a quoted cell separates.
        number: The number of that line in the sample.
        late: Seconds by which its own time is later than that of the sample.
        is_whole: Whether nothing of it is missing.
    """

    cells: list[str]
    line: bytes
    number: int
    late: float = 0.0
    is_whole: bool = True


def sample_rows(
    lines: Sequence[bytes],
    header: Header,
    damage: DamageCounter | None = None,
    wall: float = 0.0,
) -> Iterator[SampleRow]:
    """The rows of a sample.

    Args:
        lines: Its lines; the first one of gpumon's is a row.
        header: Their header.
        damage: Counts the lines that are no rows.
        wall: The wall-clock time of the sample; only the rows of other programs differ from it.
    """
    if header.other is None:
        yield from _own_rows(lines, header, damage)
        return
    for row in header.other.rows(lines):
        if damage is not None:
            if row.is_message or not (row.cells or row.is_expected or row.is_unassigned):
                damage.skip(row.line, row.number)
            if row.cells is None and row.is_unassigned:
                damage.add_unassigned(row.number)
        if row.cells is not None:
            yield SampleRow(row.cells, row.line, row.number, row.wall - wall, row.is_whole)


def _own_rows(
    lines: Sequence[bytes], header: Header, damage: DamageCounter | None
) -> Iterator[SampleRow]:
    """The rows of a sample that gpumon wrote; they all have the same timestamp."""
    stamp = header.stamp(lines[0])[0]
    begin = stamp + b"," if header.time == 0 else None
    commas, following = header.width - 1, 0
    quoted = b'"' in b"".join(lines)
    for line in _joined(lines, header) if quoted else lines:
        number = following
        following += 1 + (line.count(b"\n") if quoted else 0)
        is_of_it = begin is not None and line.startswith(begin)
        if not is_of_it and header.stamp(line)[0] != stamp:
            if damage is not None:
                damage.skip(line, number)
            continue
        if line.count(b",") == commas and b'"' not in line and b"\0" not in line:
            yield SampleRow(line.decode("utf-8", "replace").rstrip("\r").split(","), line, number)
            continue
        cells = _trusted(line, header)
        is_whole = len(cells) >= header.width and not line.count(b'"') % 2 and b"\0" not in line
        if len(cells) > header.time:
            yield SampleRow(cells, line, number, is_whole=is_whole)
        elif damage is not None:
            damage.add(line, number)


def _trusted(line: bytes, header: Header) -> list[str]:
    """The trustworthy cells of a row.

    If there are too few cells, the last one was cut off; if there are too many, two rows were
    merged and no cell is reliable.
    """
    cells = cells_of(line)
    if len(cells) < header.width:
        return cells[:-1]
    if len(cells) > header.width and any(cells[header.width :]):
        return []
    return cells


def _joined(lines: Sequence[bytes], header: Header) -> Iterator[bytes]:
    """The lines, with those joined that a line break in a quoted cell separated."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        if held and header.moment(header.stamp(line)[0]) is None:
            held.append(line)
            size += 1 + len(line)
            if line.count(b'"') % 2 or size >= LONGEST_LINE:
                yield b"\n".join(held)
                held = []
            continue
        if held:
            yield b"\n".join(held)
            held = []
        if line.count(b'"') % 2 and len(line) < LONGEST_LINE:
            held, size = [line], len(line)
        else:
            yield line
    if held:
        yield b"\n".join(held)
