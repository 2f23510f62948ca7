"""The cells of a screen, read from the picture that Textual makes of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from msgspec import Struct

from gpumon.text.formatting import cell_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import App

# The sizes in Rich's pictures, in ``Console.export_svg``.
_CELL_WIDTH, _LINE_HEIGHT = 12.2, 24.4
_BASELINE, _GROUND = 20.0, 1.5
_SVG = "{http://www.w3.org/2000/svg}"
_STYLE = re.compile(r"\.\S+-(r\d+) \{ fill: (#\w{6});?(.*?)\}")


class Cell(Struct):
    """One cell of a screen."""

    character: str = " "  # Empty in the right half of a wide character.
    colour: str = "#ffffff"  # Of the character, as ``#rrggbb``.
    ground: str | None = None  # Of the background; ``None`` is the terminal's own.
    bold: bool = False
    underlined: bool = False


def text_of(line: Sequence[Cell]) -> str:
    """The characters of a line, one for each cell."""
    return "".join(cell.character or " " for cell in line)


def cells_of(app: App[int]) -> list[list[Cell]]:
    """The lines of the screen of an application."""
    width, height = app.size
    lines = [[Cell() for _ in range(width)] for _ in range(height)]
    svg = app.export_screenshot()
    styles = {name: (colour, more) for name, colour, more in _STYLE.findall(svg)}
    for element in ElementTree.fromstring(svg).iter():  # noqa: S314 - it was made just now
        # The window around the screen has neither attribute.
        if element.tag == f"{_SVG}rect" and element.get("shape-rendering"):
            _read_ground(element, lines)
        elif element.tag == f"{_SVG}text" and element.get("clip-path"):
            _read_text(element, lines, styles)
    return lines


def _read_ground(element: ElementTree.Element, lines: list[list[Cell]]) -> None:
    row, column = _position(element, _GROUND)
    for cell in lines[row][column : column + round(_number(element, "width") / _CELL_WIDTH)]:
        cell.ground = element.get("fill")


def _read_text(
    element: ElementTree.Element, lines: list[list[Cell]], styles: dict[str, tuple[str, str]]
) -> None:
    colour, more = styles[element.get("class", "").rpartition("-")[2]]
    row, column = _position(element, _BASELINE)
    for character in (element.text or "").rstrip("\n"):
        cell = lines[row][column]
        cell.character, cell.colour = character.replace("\xa0", " "), colour
        cell.bold, cell.underlined = "bold" in more, "underline" in more
        width = cell_width(character)
        if width == 2:
            lines[row][column + 1].character = ""
        column += width


def _position(element: ElementTree.Element, above: float) -> tuple[int, int]:
    """Row and column."""
    return (
        round((_number(element, "y") - above) / _LINE_HEIGHT),
        round(_number(element, "x") / _CELL_WIDTH),
    )


def _number(element: ElementTree.Element, name: str) -> float:
    return float(element.get(name, "0"))
