"""The dashboard with callouts that explain how to read it.

The screen is cut into bands, and the callouts stand between them. A callout finds its position by
the text on the screen. If the screen no longer shows that text, the picture fails.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from msgspec import Struct

from screenshots.cells import text_of
from screenshots.drawing import page, screen
from screenshots.glyphs import HEIGHT, WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from screenshots.cells import Cell

_COLOUR = "#ffa8d5"
"""Of callouts: no theme of gpumon has it, so it cannot be taken for a part of the screen."""
_GAP = 40.0
"""Height between two bands, with one line of callouts."""
_LABEL = 23.0
"""From the middle of a label to its band."""
_BADGE = 9.5
"""Radius of the circle around a number."""
_PADDING = 3.0
"""Between a text and the box around it."""
_LETTER = 9.0
"""Width of a letter of a callout."""
_BASELINE = 5.25
"""From the middle of a letter down to its baseline."""
_LABEL_SIZE = f'font-size="{_LETTER / 0.6:g}"'


class MissingAnchorError(Exception):
    """The screen does not show the text that a callout explains."""


class Callout(Struct, frozen=True):
    """An explanation, and the text on the screen that it explains."""

    anchor: str  # A regular expression; its group, if it has one, is what is marked.
    label: str
    number: str = ""  # In the legend of the README and of docs/dashboard.md.


class Band(Struct, frozen=True):
    """Lines of the screen, and the callouts at one of them."""

    start: str  # Matches the first line of the band.
    callouts: tuple[Callout, ...]
    below: bool = False  # Whether the callouts stand below the line, not above it.


_BANDS = (
    Band(
        "gpumon",
        (
            Callout(r"\d+ of \d+ free", "free GPUs", "1"),
            Callout(r"\d+ need attention", "GPUs with a problem"),
            Callout(r"≥ [\d.]+ kW", "total power"),
            Callout(r"\d\d:\d\d:\d\d  [\d.]+s", "time, interval"),
        ),
    ),
    Band(
        "# GPU",
        (
            Callout(r"● busy", "state in words", "2"),
            Callout(r"ann [\d.]+G, dara [\d.]+G", "memory holders", "3"),
            Callout(r"[\d.]+/[\d.]+G .*", "values as in nvidia-smi; power of the last minute", "4"),
        ),
    ),
    Band("──", ()),
    Band(
        "# +PID",
        (
            Callout(r"#", "GPU", "5"),
            Callout(r"USER", "user"),
            Callout(r"GPU-MEM▼", "sorted by this"),
            Callout(r"IDLE", "time without a kernel"),
            Callout(r"WHERE", "Slurm job, tmux, container"),
        ),
    ),
    Band("q quit", (Callout(r"q quit.*", "keys; ? lists all of them", "6"),), below=True),
)


def annotated(lines: Sequence[Sequence[Cell]], ground: str, title: str) -> str:
    """The picture of a dashboard with its callouts."""
    texts = [text_of(line) for line in lines]
    starts = _starts(texts)
    elements: list[str] = []
    marks: list[str] = []
    top = 0.0
    for band, start, end in zip(_BANDS, starts, [*starts[1:], len(lines)], strict=True):
        if band.callouts and not band.below:
            top += _GAP
        elements += [f'<g transform="translate(0 {top:g})">', *screen(lines[start:end], ground)]
        elements.append("</g>")
        marks += _marks(band, texts[start:end], top)
        top += HEIGHT * (end - start)
        if band.below:
            top += _GAP
    group = f'<g fill="none" stroke="{_COLOUR}" stroke-width="1.5" {_LABEL_SIZE}>'
    return page(WIDTH * len(lines[0]), top, ground, title, [*elements, group, *marks, "</g>"])


def _starts(texts: Sequence[str]) -> list[int]:
    """The first line of each band."""
    starts: list[int] = []
    for band in _BANDS:
        first = starts[-1] + 1 if starts else 0
        pattern = re.compile(rf"\s*(?:{band.start})")
        found = [row for row in range(first, len(texts)) if pattern.match(texts[row])]
        if not found:
            raise MissingAnchorError(f"no line of the screen begins with {band.start!r}")
        starts.append(found[0])
    return starts


def _marks(band: Band, texts: Sequence[str], top: float) -> Iterable[str]:
    """The callouts of a band whose first line is at a height."""
    free_from = 0.0
    for callout in band.callouts:
        row, start, end = _find(callout.anchor, texts)
        left, upper = WIDTH * start - _PADDING, top + HEIGHT * row
        width = WIDTH * (end - start) + 2 * _PADDING
        yield f'<rect x="{left:g}" y="{upper:g}" width="{width:g}" height="{HEIGHT:g}" rx="4"/>'
        # The line from the box to its label crosses no letter.
        between = [text[start:end] for text in texts[:row]]
        lines_at = [
            WIDTH * (start + column) + _BADGE - _PADDING
            for column in range(end - start)
            if all(text[column : column + 2].isspace() for text in between)
        ]
        x = next((x for x in lines_at if x - _BADGE >= free_from), None)
        if x is None:
            raise MissingAnchorError(f"there is no room for the callout of {callout.anchor!r}")
        if band.below:
            y = top + HEIGHT * len(texts) + _LABEL
            yield f'<path d="M{x:g} {upper + HEIGHT:g}V{y - _BADGE:g}"/>'
        else:
            y = top - _LABEL
            yield f'<path d="M{x:g} {y + _BADGE:g}V{upper:g}"/>'
        label_at = x - _BADGE
        if callout.number:
            yield f'<circle cx="{x:g}" cy="{y:g}" r="{_BADGE:g}" fill="{_COLOUR}"/>'
            yield _text(callout.number, x, y, 'fill="#000000" font-weight="bold"', "middle")
            label_at = x + _BADGE + 6
        yield _text(callout.label, label_at, y, f'fill="{_COLOUR}"')
        free_from = label_at + _LETTER * (len(callout.label) + 2)


def _text(text: str, x: float, y: float, style: str, anchor: str = "start") -> str:
    words = escape(text, quote=False)
    at = f'x="{x:g}" y="{y + _BASELINE:g}" text-anchor="{anchor}"'
    return f'<text {at} stroke="none" {style}>{words}</text>'


def _find(anchor: str, texts: Sequence[str]) -> tuple[int, int, int]:
    """Row, first column and end of the first text that an anchor matches."""
    for row, text in enumerate(texts):
        found = re.search(anchor, text.rstrip())
        if found:
            return row, *found.span()
    raise MissingAnchorError(f"the screen does not show {anchor!r}")
