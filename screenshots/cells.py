"""What stands on a screen, cell by cell, read from the picture that Textual makes of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from msgspec import Struct

from gpumon.text.formatting import cell_width

if TYPE_CHECKING:
    from textual.app import App

# The measures of Rich's pictures, in ``Console.export_svg``.
_CELL_WIDTH, _LINE_HEIGHT = 12.2, 24.4
_BASELINE, _GROUND = 20.0, 1.5
_SVG = "{http://www.w3.org/2000/svg}"
_STYLE = re.compile(r"\.\S+-(r\d+) \{ fill: (#\w{6});?(.*?)\}")


class Cell(Struct):
    """One cell of a screen.

    Attributes:
        character: What stands in it; nothing in the right half of a wide character.
        colour: The character's, as ``#rrggbb``.
        ground: The background's, likewise; ``None`` is the terminal's own.
        bold: Whether the character is.
        underlined: Whether it is.
    """

    character: str = " "
    colour: str = "#ffffff"
    ground: str | None = None
    bold: bool = False
    underlined: bool = False


def cells_of(app: App[int]) -> list[list[Cell]]:
    """The lines of the screen an application shows."""
    width, height = app.size
    lines = [[Cell() for _ in range(width)] for _ in range(height)]
    svg = app.export_screenshot()
    styles = {name: (colour, more) for name, colour, more in _STYLE.findall(svg)}
    for element in ElementTree.fromstring(svg).iter():  # noqa: S314 - it was made just now
        # The window around the screen has neither of these.
        if element.tag == f"{_SVG}rect" and element.get("shape-rendering"):
            _take_ground(element, lines)
        elif element.tag == f"{_SVG}text" and element.get("clip-path"):
            _take_text(element, lines, styles)
    return lines


def _take_ground(element: ElementTree.Element, lines: list[list[Cell]]) -> None:
    row, column = _place(element, _GROUND)
    for cell in lines[row][column : column + round(_number(element, "width") / _CELL_WIDTH)]:
        cell.ground = element.get("fill")


def _take_text(
    element: ElementTree.Element, lines: list[list[Cell]], styles: dict[str, tuple[str, str]]
) -> None:
    colour, more = styles[element.get("class", "").rpartition("-")[2]]
    row, column = _place(element, _BASELINE)
    for character in (element.text or "").rstrip("\n"):
        cell = lines[row][column]
        cell.character, cell.colour = character.replace("\xa0", " "), colour
        cell.bold, cell.underlined = "bold" in more, "underline" in more
        width = cell_width(character)
        if width == 2:
            lines[row][column + 1].character = ""
        column += width


def _place(element: ElementTree.Element, above: float) -> tuple[int, int]:
    """Row and column."""
    return (
        round((_number(element, "y") - above) / _LINE_HEIGHT),
        round(_number(element, "x") / _CELL_WIDTH),
    )


def _number(element: ElementTree.Element, name: str) -> float:
    return float(element.get(name, "0"))
