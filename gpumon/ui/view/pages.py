"""What the pages of one process and of one card are made of: sections, labelled values, charts.

A section draws itself at the width it is given; a page puts sections below one another, or, where
there is room, in two columns. Whatever is shown here is made safe to print here.
"""

from __future__ import annotations

import time
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.text.cells import Field, Row, braille, fill
from gpumon.text.formatting import cell_width, fit, printable
from gpumon.ui.view.messages import GLYPHS, STATE_STYLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpumon.findings import Finding
    from gpumon.model.snapshot import Snapshot

TWO_COLUMNS = 140
"""Cells from which on a page has two columns."""

_MARGIN, _INDENT, _GUTTER = 2, 2, 4
_LABEL = 14
_CAPTION = 36
"""Cells of a chart's words; its graph takes the rest."""
_GRAPH_ROWS = 2
_DAY = 86400.0


class Side(Enum):
    """Which column a section stands in, where there are two."""

    LEFT = "left"
    RIGHT = "right"
    BOTH = "both"
    """It takes the whole width; what is before it ends above it."""


class Section(Struct, frozen=True):
    """A part of a page under a heading of its own.

    Attributes:
        title: The heading; none for what opens a page.
        draw: Makes its rows, each as wide as it is told.
        side: Where it stands.
    """

    title: str
    draw: Callable[[int], list[Row]]
    side: Side = Side.LEFT


def page_rows(sections: Iterable[Section], width: int) -> list[Row]:
    """The sections as rows of exactly ``width`` cells, in one column or in two."""
    rows: list[Row] = []
    columns: dict[Side, list[Section]] = {Side.LEFT: [], Side.RIGHT: []}
    for section in sections:
        if width >= TWO_COLUMNS and section.side is not Side.BOTH:
            columns[section.side].append(section)
            continue
        rows += _side_by_side(columns, width)
        rows += _column([section], width)
    return rows + _side_by_side(columns, width)


def _side_by_side(columns: dict[Side, list[Section]], width: int) -> list[Row]:
    """What has gathered for two columns, which are empty then."""
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


def _column(sections: Iterable[Section], width: int) -> list[Row]:
    """Sections below one another, each but an untitled one under its heading and a blank row."""
    rows: list[Row] = []
    inside = max(1, width - 2 * _MARGIN)
    for section in sections:
        indent = _INDENT if section.title else 0
        lines = section.draw(max(1, inside - indent))
        if not lines:
            continue
        rows.append(fill((), width))
        if section.title:
            title = f"{printable(section.title)} "
            line = "─" * max(0, inside - cell_width(title))
            rows.append(fill([(" " * _MARGIN, ""), (title, "strong"), (line, "rule")], width))
        edge = " " * (_MARGIN + indent)
        rows += [fill([(edge, ""), *line], width) for line in lines]
    return rows


class Fact(Struct, frozen=True):
    """A value with its name.

    Attributes:
        label: The name.
        value: The value, made safe to print when it is drawn.
        style: Of the value.
        note: What stands dimmed behind it.
        lines: How many lines the value may take; ``None`` is all it needs.
    """

    label: str
    value: str
    style: str = ""
    note: str = ""
    lines: int | None = None


def fact_rows(facts: Iterable[Fact], width: int, label: int = _LABEL) -> list[Row]:
    """Facts below one another, their values in one column and wrapped there.

    Args:
        facts: What to show.
        width: Cells.
        label: Cells of the labels' column; longer labels are cut.
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
    """A paragraph."""
    return [fill([(line, style)], width) for line in wrap(text, width)]


def finding_rows(findings: Iterable[Finding], width: int) -> list[Row]:
    """Findings with their signs, each with its evidence dimmed under it."""
    rows: list[Row] = []
    for finding in findings:
        sign, style = GLYPHS[finding.severity], STATE_STYLES[finding.severity]
        for line in wrap(finding.sentence, max(1, width - 2)):
            rows.append(fill([(f"{sign} ", style), (line, style)], width))
            sign = " "
        evidence = [fact for fact in finding.evidence if fact not in finding.sentence]
        if evidence:
            rows += [
                fill([("  ", ""), (line, "dim")], width)
                for line in wrap(" · ".join(evidence), max(1, width - 2))
            ]
    return rows


def wrap(text: str, width: int, most: int | None = None) -> list[str]:
    """A text, made safe to print, in lines of at most ``width`` cells; at least one line.

    Lines are broken at spaces, and within a word that is longer than a line. Of more than ``most``
    lines the first are given, the last of them full and with an ellipsis.
    """
    if most is not None:
        # No more is needed than fills the lines, so a value of a megabyte costs no more either.
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
    """A word cut into pieces of at most ``width`` cells, and of a character at least."""
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


class Chart(Struct, frozen=True):
    """A small graph with its words beside it.

    Attributes:
        label: What it shows.
        now: The newest value.
        words: What is to be said of its course.
        style: Of the graph.
        top: The value at its upper edge.
        buckets: Gives so many values, oldest first.
    """

    label: str
    now: str
    words: str
    style: str
    top: float
    buckets: Callable[[int], Sequence[float | None]]


def chart_rows(charts: Sequence[Chart], width: int) -> list[Row]:
    """Charts below one another, two rows and a blank one each: words left, graph right."""
    rows: list[Row] = []
    caption = min(_CAPTION, width * 2 // 3)
    room = max(1, width - caption)
    for chart in charts:
        if rows:
            rows.append(fill((), width))
        graph = braille(chart.buckets(2 * room), chart.top, room, _GRAPH_ROWS)
        now = fit(chart.now, max(1, caption - _LABEL))
        rows.append(
            fill(
                [(fit(chart.label, _LABEL), "dim"), (now, "strong"), (graph[0], chart.style)], width
            )
        )
        rows.append(fill([(fit(chart.words, caption), "dim"), (graph[1], chart.style)], width))
    return rows


def page_header(
    title: str, right: str, snapshot: Snapshot | None, width: int, source: str = ""
) -> Row:
    """The row above a page: what it is of, what of it is in sight, and the time.

    Args:
        title: What it is of.
        right: What of it is in sight.
        snapshot: The moment that it shows.
        width: Cells.
        source: What to call where that is from, in place of the snapshot's own word for it.
    """
    left: list[Field] = [(f" {printable(title)} ", "header.title")]
    clock = "" if snapshot is None else time.strftime("%H:%M:%S", time.localtime(snapshot.time))
    if snapshot is not None and not snapshot.is_live:
        left.append((f" {source or snapshot.source.upper()} ", "header.mark"))
    if snapshot is not None:
        left.append((f" {printable(snapshot.host.name)} ", "header.dim"))
    ends: list[Field] = [(f" {right}", "header.dim"), (f"  {clock} ", "header")]
    room = width - sum(cell_width(text) for text, _ in ends)
    if room <= 0:
        return fill(left, width, "header")
    return fill([*fill(left, room, "header"), *ends], width, "header")


def moment_text(at: float, now: float) -> str:
    """A time of day here, with its date when it is more than a day from now."""
    format_ = "%H:%M" if abs(now - at) < _DAY else "%Y-%m-%d %H:%M"
    return time.strftime(format_, time.localtime(at))
