"""A widget of rows of cells that sends only changed cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gpumon.text.cells import fill
from gpumon.text.formatting import spelled_out
from gpumon.ui.view.cell_writer import CellWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from gpumon.text.cells import Row
    from gpumon.ui.palette import Palette
    from gpumon.ui.terminal.renderer import TerminalRenderer


class CellStrip(Strip):
    """A row in few bytes: Textual itself repeats the whole style for every segment."""

    __slots__ = ["_written"]

    def __init__(self, row: Row, width: int, palette: Palette) -> None:
        styles = palette.styles
        super().__init__([Segment(spelled_out(text), styles[style]) for text, style in row], width)
        writer = CellWriter(palette.sgr_styles)
        writer.row(row)
        self._written = writer.take()

    def render(self, console: Console) -> str:  # noqa: ARG002 - Textual's signature
        """The row as terminal output."""
        return self._written


def _has_cursor(row: Row | None) -> bool:
    return row is not None and any(style == "cursor" for _, style in row[:2])


class CellView(Widget):
    """A widget whose content is rows of cells.

    ``show`` compares new rows with the old ones and sends the difference, without a layout.
    """

    DEFAULT_CSS = """
    CellView { width: 1fr; height: 1; }
    """

    def __init__(
        self,
        renderer: TerminalRenderer,
        *,
        id: str | None = None,  # noqa: A002 - Textual's own name
    ) -> None:
        super().__init__(id=id)
        self._renderer = renderer
        self.rows: Sequence[Row] = []
        """The current rows."""
        # The rows that the terminal shows; None where unknown.
        self._painted: list[Row | None] = []
        # The columns at which their fields start; None where unknown.
        self._starts: dict[int, Sequence[int] | None] = {}
        self._first = 0
        self._strips: dict[int, tuple[Row, Strip]] = {}

    def repaint(self) -> None:
        """Draw everything again, in the colours of now."""
        self._strips.clear()
        self.refresh()

    def show(
        self,
        rows: Sequence[Row],
        width: int,
        *,
        moved: bool = False,
        ready: bool | None = None,
    ) -> None:
        """Show these rows from the widget's top.

        Args:
            rows: The rows.
            width: Their width in cells.
            moved: Whether a pending layout may move the widget.
            ready: The result of ``TerminalRenderer.ready``, if known.
        """
        self.rows = rows
        if not moved and rows == self._painted:
            return
        self._send(width, moved=moved, ready=ready)

    def send_on(self) -> None:
        """Send changes that earlier frames had no room for."""
        if self.rows != self._painted:
            self._send(self.region.width, moved=False, ready=None)

    def _send(self, width: int, *, moved: bool, ready: bool | None) -> None:
        rows, painted, region = self.rows, self._painted, self.region
        # Before the layout the widget is not yet where these rows belong.
        in_place = len(painted) == len(rows) == region.height and width == region.width
        if (
            in_place
            and not moved
            and (self._renderer.ready(self.screen) if ready is None else ready)
        ):
            self._write(region)
            return
        self._painted = list(rows)
        self._starts.clear()
        if len(rows) < len(painted):
            self.refresh()
            return
        painted += [None] * (len(rows) - len(painted))
        dirty = [
            y for y, (row, before) in enumerate(zip(rows, painted, strict=True)) if row != before
        ]
        if dirty:
            self.refresh(*(Region(0, y, region.width, 1) for y in dirty))

    def _write(self, region: Region) -> None:
        """Write changed rows while there is room, starting where the last frame stopped."""
        rows, painted = self.rows, self._painted
        first, self._first = self._first, 0
        order = [y for y in (*range(first, len(rows)), *range(first)) if rows[y] != painted[y]]
        limited = self._renderer.limited
        if limited:
            # After a key the user looks for the cursor: its new row first, then its old one.
            order.sort(key=lambda y: 2 - 2 * _has_cursor(rows[y]) - _has_cursor(painted[y]))
        for y in order:
            row, before = rows[y], painted[y]
            if limited and self._renderer.full():
                self._first = y
                return
            if before is None:
                self._renderer.writer.place(row, region.x, region.y + y)
                self._starts[y] = None
            else:
                self._starts[y] = self._renderer.writer.change(
                    before, row, region.x, region.y + y, self._starts.get(y)
                )
            painted[y] = row
            if limited and (_has_cursor(row) or _has_cursor(before)):
                self._renderer.writer.flush_changes()

    def render_line(self, y: int) -> Strip:
        """One row as Textual's strip, for complete repaints."""
        row = self.rows[y] if y < len(self.rows) else ()
        if y < len(self._painted) and self._painted[y] != row:
            # Textual may be painting part of a pending row: its state is unknown then.
            self._painted[y] = None
        known = self._strips.get(y)
        if known is not None and known[0] is row:
            return known[1]
        width = self.size.width
        strip = CellStrip(fill(row, width), width, self._renderer.palette)
        self._strips[y] = (row, strip)
        return strip

    def render_lines(self, crop: Region) -> list[Strip]:
        """The rows of a region, without Textual's style cache: they contain their styles."""
        return [
            self.render_line(y).crop(crop.x, crop.right)
            for y in range(crop.y, crop.y + crop.height)
        ]

    def on_resize(self) -> None:
        """Discard the cached strips, which have the old width."""
        self._strips.clear()
