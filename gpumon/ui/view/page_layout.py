"""The building blocks of the pages of a process and of a GPU: sections and labelled values.

A section draws itself at a given width. A page arranges its sections in one column, or in two on a
wide terminal. All texts are made printable here.
"""

from __future__ import annotations

import time
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.text.cells import Field, Row, fill, row_width
from gpumon.text.formatting import cell_width, fit, printable
from gpumon.ui.view.gpu_text import STATE_STYLES, state_glyph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpumon.findings import Finding
    from gpumon.model.snapshot import Snapshot

TWO_COLUMNS = 140
"""The least width of a page with two columns."""

_MARGIN, _INDENT, _GUTTER = 2, 2, 4
LABEL_WIDTH = 14
"""Cells of the labels of facts and small charts."""
_DAY = 86400.0


class Side(Enum):
    """The column of a section on a page with two columns."""

    LEFT = "left"
    RIGHT = "right"
    BOTH = "both"
    """The whole width, below all sections before it."""


class Section(Struct, frozen=True):
    """A part of a page."""

    title: str  # The heading; may be empty.
    draw: Callable[[int], list[Row]]  # Draws its rows at a width.
    side: Side = Side.BOTH


def inside_width(width: int) -> int:
    """The width of a section with a heading on a page in one column."""
    return max(1, width - 2 * _MARGIN - _INDENT)


def page_rows(sections: Iterable[Section], width: int, *, airy: bool = True) -> list[Row]:
    """The sections as rows of exactly ``width`` cells, in one column or in two.

    Args:
        sections: The sections.
        width: Cells.
        airy: Whether a blank row stands before each section.
    """
    rows: list[Row] = []
    columns: dict[Side, list[Section]] = {Side.LEFT: [], Side.RIGHT: []}
    for section in sections:
        if width >= TWO_COLUMNS and section.side is not Side.BOTH:
            columns[section.side].append(section)
            continue
        rows += _side_by_side(columns, width)
        rows += _column([section], width, airy=airy)
    return rows + _side_by_side(columns, width)


def _side_by_side(columns: dict[Side, list[Section]], width: int) -> list[Row]:
    """The sections collected for the two columns; empties the columns."""
    size = (width - _GUTTER) // 2
    left = _column(columns[Side.LEFT], size)
    right = _column(columns[Side.RIGHT], width - size - _GUTTER)
    columns[Side.LEFT], columns[Side.RIGHT] = [], []
    blank: Row = ((" " * size, ""),)
    return [
        fill(
            [
                *(left[y] if y < len(left) else blank),
                (" " * _GUTTER, ""),
                *(right[y] if y < len(right) else ()),
            ],
            width,
        )
        for y in range(max(len(left), len(right)))
    ]


def _column(sections: Iterable[Section], width: int, *, airy: bool = True) -> list[Row]:
    """Sections one below the other, each with its heading."""
    rows: list[Row] = []
    inside = max(1, width - 2 * _MARGIN)
    for section in sections:
        indent = _INDENT if section.title else 0
        lines = section.draw(max(1, inside - indent))
        if not lines:
            continue
        if airy:
            rows.append(fill((), width))
        if section.title:
            title = f"{printable(section.title)} "
            line = "─" * max(0, inside - cell_width(title))
            rows.append(fill([(" " * _MARGIN, ""), (title, "strong"), (line, "rule")], width))
        edge = " " * (_MARGIN + indent)
        rows += [fill([(edge, ""), *line], width) for line in lines]
    return rows


class Fact(Struct, frozen=True):
    """A value with its name."""

    label: str
    value: str
    style: str = ""  # Of the value.
    note: str = ""  # The dimmed text after it.
    lines: int | None = None  # The most of the value; ``None`` does not limit it.


def fact_rows(facts: Iterable[Fact], width: int, label: int = LABEL_WIDTH) -> list[Row]:
    """Facts one below the other, with the values wrapped in a column of their own.

    Args:
        facts: The facts.
        width: Cells.
        label: Cells of the column of labels; longer labels are cut.
    """
    rows: list[Row] = []
    room = max(1, width - label)
    for fact in facts:
        name = printable(fact.label)
        values = wrap(fact.value, room, fact.lines)
        lines: list[list[Field]] = [[(line, fact.style)] for line in values]
        if fact.note:
            note, used = printable(fact.note), cell_width(values[-1])
            if used + 2 + cell_width(note) <= room:
                lines[-1].append((f"  {note}", "dim"))
            else:
                lines += [[(line, "dim")] for line in wrap(note, room)]
        for line in lines:
            rows.append(fill([(fit(name, label - 1) + " ", "dim"), *line], width))
            name = ""
    return rows


def text_rows(text: str, width: int, style: str = "") -> list[Row]:
    """A wrapped paragraph."""
    return [fill([(line, style)], width) for line in wrap(text, width)]


def finding_rows(findings: Iterable[Finding], width: int, lines: int | None = None) -> list[Row]:
    """Findings with their glyphs, each with its dimmed evidence below it.

    Args:
        findings: The findings.
        width: Cells.
        lines: Maximum number of lines of each, which then has no evidence below it.
    """
    rows: list[Row] = []
    for finding in findings:
        sign, style = state_glyph(finding), STATE_STYLES[finding.severity]
        for line in wrap(finding.sentence, max(1, width - 2), lines):
            rows.append(fill([(f"{sign} ", style), (line, style)], width))
            sign = " "
        evidence = [fact for fact in finding.evidence if fact not in finding.sentence]
        if evidence and lines is None:
            rows += [
                fill([("  ", ""), (line, "dim")], width)
                for line in wrap(" · ".join(evidence), max(1, width - 2))
            ]
    return rows


def wrap(text: str, width: int, most: int | None = None) -> list[str]:
    """Wrap a text, made printable, into lines of at most ``width`` cells; at least one line.

    Lines are broken at spaces, and within words that are longer than a line. With ``most``, the
    last of that many lines ends in an ellipsis if the text is longer.
    """
    if most is not None:
        # Only this part can be visible; the rest may be a megabyte.
        text = text[: width * most + 1]
    lines: list[str] = []
    line = ""
    for word in printable(text).split(" "):
        longer = f"{line} {word}" if line else word
        if cell_width(longer) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        *whole, line = _pieces(word, width)
        lines += whole
    lines.append(line)
    if most is not None and len(lines) > most:
        lines = [*lines[: most - 1], fit(" ".join(lines[most - 1 :]), width)]
    return lines


def _pieces(word: str, width: int) -> list[str]:
    """Cut a word into pieces of at most ``width`` cells, but at least one character."""
    pieces: list[str] = []
    piece, used = "", 0
    for character in word:
        size = cell_width(character)
        if piece and used + size > width:
            pieces.append(piece)
            piece, used = "", 0
        piece += character
        used += size
    return [*pieces, piece]


def page_header(
    title: str, right: str, snapshot: Snapshot | None, width: int, source: str = ""
) -> Row:
    """The row above a page.

    Args:
        title: The subject of the page.
        right: The text before the time, such as the visible part of the page.
        snapshot: The snapshot that the page shows.
        width: Cells.
        source: Replaces the name of the snapshot's source.
    """
    left: list[Field] = [(f" {printable(title)} ", "header.title")]
    clock = "" if snapshot is None else time.strftime("%H:%M:%S", time.localtime(snapshot.time))
    if snapshot is not None and not snapshot.is_live:
        left.append((f" {source or snapshot.source.upper()} ", "header.mark"))
    if snapshot is not None:
        left.append((f" {printable(snapshot.host.name)} ", "header.dim"))
    ends: list[Field] = [(f" {right}", "header.dim"), (f"  {clock} ", "header")]
    room = width - row_width(ends)
    if room <= 0:
        return fill(left, width, "header")
    return fill([*fill(left, room, "header"), *ends], width, "header")


def moment_text(at: float, now: float) -> str:
    """A local time of day, with its date if it is more than a day from ``now``."""
    format_ = "%H:%M" if abs(now - at) < _DAY else "%Y-%m-%d %H:%M"
    return time.strftime(format_, time.localtime(at))
