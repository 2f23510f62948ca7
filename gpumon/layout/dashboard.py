"""How the dashboard shares a terminal out: which height each part gets, and when it is too small."""

from __future__ import annotations

from msgspec import Struct

from gpumon.layout.cards import CardsShape, cards_shape

LEAST_WIDTH = 60
LEAST_HEIGHT = 15

_CHROME = 3
"""Header, rule and footer, a row each."""
_FEW_CARDS = 8
_LEAST_TABLE = 3
"""The table's heading and two processes."""


class DashboardShape(Struct, frozen=True):
    """Where everything goes.

    Attributes:
        cards: The shape of the cards.
        table: Rows of the process table, its heading included.
    """

    cards: CardsShape
    table: int


def is_tiny(width: int, height: int) -> bool:
    """Whether a terminal is too small for the dashboard."""
    return width < LEAST_WIDTH or height < LEAST_HEIGHT


def dashboard_shape(lines: int, cards: int, width: int, height: int) -> DashboardShape:
    """Share out the rows: the processes keep a third, unless a few cards would not all fit.

    Args:
        lines: Lines the cards need, see ``Cards.line_count``.
        cards: Number of cards.
        width: Cells of the terminal.
        height: Rows of the terminal.
    """
    rest = max(0, height - _CHROME)
    shape = cards_shape(lines, cards, width, rest - rest // 3)
    if lines <= _FEW_CARDS and shape.columns == 1 and shape.rows < lines + 1:
        shape = cards_shape(lines, cards, width, rest - _LEAST_TABLE)
    return DashboardShape(shape, rest - shape.rows)
