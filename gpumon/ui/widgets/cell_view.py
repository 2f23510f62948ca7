"""A widget of rows of cells that sends only changed cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gpumon.text.cells import fill
from gpumon.text.formatting import spelled_out
from gpumon.ui.terminal.cell_writer import CellWriter, RowPainter
from gpumon.ui.terminal.widget_output import rich_style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from gpumon.text.cells import Row
    from gpumon.ui.terminal.renderer import TerminalRenderer
    from gpumon.ui.terminal.styles import SgrStyles


class CellStrip(Strip):
    """A row in few bytes: Textual itself repeats the whole style for every segment."""

    __slots__ = ["_written"]

    def __init__(self, row: Row, width: int, styles: SgrStyles) -> None:
        segments = [
            Segment(spelled_out(text), rich_style(styles.by_name[style])) for text, style in row
        ]
        super().__init__(segments, width)
        writer = CellWriter(styles)
        writer.row(row)
        self._written = writer.take()

    def render(self, console: Console) -> str:  # noqa: ARG002 - Textual's signature
        """The row as terminal output."""
        return self._written


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
        self._painter = RowPainter()
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
        if not moved and rows == self._painter.painted:
            return
        self._send(width, moved=moved, ready=ready)

    def send_on(self) -> None:
        """Send changes that earlier frames had no room for."""
        if self.rows != self._painter.painted:
            self._send(self.region.width, moved=False, ready=None)

    def _send(self, width: int, *, moved: bool, ready: bool | None) -> None:
        rows, painter, region = self.rows, self._painter, self.region
        lines = len(painter.painted)
        # Before the layout the widget is not yet where these rows belong.
        in_place = lines == len(rows) == region.height and width == region.width
        if (
            in_place
            and not moved
            and (self._renderer.ready(self.screen) if ready is None else ready)
        ):
            full = self._renderer.full if self._renderer.limited else None
            painter.paint(rows, self._renderer.writer, region.x, region.y, full)
            return
        dirty = painter.expect(rows)
        if len(rows) < lines:
            self.refresh()
        elif dirty:
            self.refresh(*(Region(0, y, region.width, 1) for y in dirty))

    def render_line(self, y: int) -> Strip:
        """One row as Textual's strip, for complete repaints."""
        row = self.rows[y] if y < len(self.rows) else ()
        painted = self._painter.painted
        if y < len(painted) and painted[y] != row:
            # Textual may be painting part of a pending row: its state is unknown then.
            painted[y] = None
        known = self._strips.get(y)
        if known is not None and known[0] is row:
            return known[1]
        width = self.size.width
        strip = CellStrip(fill(row, width), width, self._renderer.styles)
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
