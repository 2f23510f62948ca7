"""An animated picture: frames of screens, each with the key that was pressed.

It is an SVG file with CSS, which GitHub plays. Each different line of a screen is drawn once, and
the frames refer to it. A reader who prefers reduced motion sees the first frame only.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from msgspec import Struct

from screenshots.drawing import page, screen
from screenshots.glyphs import HEIGHT, WIDTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from screenshots.cells import Cell

_CAPTION_HEIGHT = 42.0
_BASELINE = 6.0
"""From the middle of a letter down to its baseline."""
_KEY_HEIGHT = 28.0
_COLOUR = "#ffa8d5"
"""That of the callouts in ``screenshots.callouts``."""


class Frame(Struct, frozen=True):
    """A screen, and the caption below it."""

    lines: Sequence[Sequence[Cell]]
    key: str  # That was pressed; empty at the start.
    caption: str
    seconds: float  # How long it stays.


def animated(frames: Sequence[Frame], ground: str, title: str) -> str:
    """The picture of all frames, which plays forever."""
    drawn: dict[str, str] = {}
    groups: list[str] = []
    for number, frame in enumerate(frames):
        hidden = ' visibility="hidden"' if number else ""
        groups.append(f'<g class="f" id="f{number}"{hidden}>')
        for row, line in enumerate(frame.lines):
            elements = "".join(screen([line], ground))
            name = drawn.setdefault(elements, f"l{len(drawn)}")
            groups.append(f'<use href="#{name}" y="{HEIGHT * row:g}"/>')
        groups += _caption(frame, HEIGHT * len(frame.lines) + _CAPTION_HEIGHT / 2 + 4)
        groups.append("</g>")
    lines = [f'<g id="{name}">{elements}</g>' for elements, name in drawn.items()]
    height = HEIGHT * len(frames[0].lines) + _CAPTION_HEIGHT
    content = [_style(frames), "<defs>", *lines, "</defs>", *groups]
    return page(WIDTH * len(frames[0].lines[0]), height, ground, title, content)


def _style(frames: Sequence[Frame]) -> str:
    """The rules that show one frame after the other."""
    total = sum(frame.seconds for frame in frames)
    rules = [f".f{{animation:{total:g}s step-end infinite}}"]
    start = 0.0
    for number, frame in enumerate(frames):
        end = start + 100 * frame.seconds / total
        shown = f"{start:.3f}%{{visibility:visible}}"
        before = "0%{visibility:hidden}" if number else ""
        after = f"{end:.3f}%{{visibility:hidden}}" if number < len(frames) - 1 else ""
        rules.append(f"#f{number}{{animation-name:k{number}}}")
        rules.append(f"@keyframes k{number}{{{before}{shown}{after}}}")
        start = end
    rules.append("@media (prefers-reduced-motion:reduce){.f{animation:none!important}}")
    return f"<style>{''.join(rules)}</style>"


def _caption(frame: Frame, middle: float) -> list[str]:
    """The key in a box, and the caption beside it."""
    y = middle + _BASELINE
    elements, x = [], WIDTH
    if frame.key:
        width = WIDTH * (len(frame.key) + 2)
        size = f'width="{width:g}" height="{_KEY_HEIGHT:g}" rx="5"'
        elements += [
            f'<rect x="{x:g}" y="{middle - _KEY_HEIGHT / 2:g}" {size} fill="{_COLOUR}"/>',
            f'<text x="{x + WIDTH:g}" y="{y:g}" font-weight="bold">{escape(frame.key)}</text>',
        ]
        x += width + WIDTH
    return [*elements, f'<text x="{x:g}" y="{y:g}" fill="{_COLOUR}">{escape(frame.caption)}</text>']
