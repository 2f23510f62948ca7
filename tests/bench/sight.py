"""What a person saw of a program's output: frames, the first data, what keys did. Drawn later."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

import pyte

from tests.bench.line import COLUMNS, LINES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tests.bench.line import Pressed, Written

FRAME_GAP = 0.015
"""Seconds of silence that end a frame: no program here paints for as long without a write."""

_SEQUENCE = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    rb"|\x1bP[^\x1b]*\x1b\\|\x1b[()][0-9A-B]|\x1b."
)
# These say nothing to pyte, or what another terminal makes of them.
_STRANGE = re.compile(rb"\x1bP[^\x1b]*\x1b\\|\x1b\[[<>=][0-9;]*[a-z]")


def frames(output: Iterable[Written], since: float, until: float) -> int:
    """How many frames with anything to see came between two moments."""
    count = 0
    last, counted = -1.0, False
    for written in output:
        if not since <= written.at < until:
            continue
        if written.at - last > FRAME_GAP:
            counted = False
        last = written.at
        if not counted and _SEQUENCE.sub(b"", written.data).strip():
            counted = True
            count += 1
    return count


def amount(output: Iterable[Written], since: float, until: float) -> int:
    """How many bytes came between two moments."""
    return sum(len(written.data) for written in output if since <= written.at < until)


class Sight:
    """The screen after each write, in turn."""

    def __init__(self) -> None:
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)

    def watch(self, output: Iterable[Written]) -> Iterator[Written]:
        """Draws one write after the other, and hands each out once it is drawn."""
        for written in output:
            self._stream.feed(_STRANGE.sub(b"", written.data))
            yield written

    def text(self) -> str:
        return "\n".join(self._screen.display)

    def cells(self) -> list[tuple[str, str, str]]:
        """Every cell from the top left: text, its colour and weight where there is any, ground."""
        buffer = self._screen.buffer
        cells = [buffer[y][x] for y in range(LINES) for x in range(COLUMNS)]
        return [
            (cell.data, f"{cell.fg} {cell.bold}" if cell.data.strip() else "", cell.bg)
            for cell in cells
        ]

    def begins_with(self, glyph: str) -> set[int]:
        buffer = self._screen.buffer
        return {y for y in range(LINES) if buffer[y][0].data == glyph}

    def last_reversed(self, column: int) -> set[int]:
        """The lowest line, but the last, that is reversed at this column."""
        buffer = self._screen.buffer
        lines = (y for y in range(LINES - 2, -1, -1) if buffer[y][column].reverse)
        return set(islice(lines, 1))


def first_sight(output: Iterable[Written], pattern: str) -> float | None:
    sight = Sight()
    wanted = re.compile(pattern)
    for written in sight.watch(output):
        if wanted.search(sight.text()):
            return written.at
    return None


def effects(
    output: Iterable[Written], pressed: Sequence[Pressed], cursor: Callable[[Sight], set[int]]
) -> list[float | None]:
    """Seconds from each key to the first sight of a cursor that has moved; ``None`` is never.

    For a moment it may stand in its old place too: what counts is a line that had it not.
    A key whose effect comes only after the next key has none of its own.
    """
    sight = Sight()
    found: list[float | None] = []
    waiting: Pressed | None = None
    keys = list(pressed)
    places: set[int] = set()
    for written in sight.watch(output):
        while keys and keys[0].at < written.at:
            if waiting is not None:
                found.append(None)
            waiting = keys.pop(0)
        now = cursor(sight)
        if waiting is not None and not now <= places:
            found.append(written.at - waiting.at)
            waiting = None
        places = now or places
    missing = len(pressed) - len(found)
    return [*found, *[None] * missing]
