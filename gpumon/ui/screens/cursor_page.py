"""The base of pages with a list of items, a cursor on one of them, and rows below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from gpumon.ui.screens.page import PageScreen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.ui.workspace import Workspace

T = TypeVar("T")


class CursorPage(PageScreen, Generic[T]):
    """A page of items, newest first; subclasses set ``_items`` and ``_owners``."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self._items: Sequence[T] = ()
        self._cursor: T | None = None
        self._owners: list[int | None] = []
        """For each row the index of its item."""

    @property
    def _chosen(self) -> int | None:
        """The index of the item under the cursor."""
        return next((index for index, item in enumerate(self._items) if item is self._cursor), None)

    def _list(self, items: Sequence[T]) -> None:
        """List these items; the cursor stays on its item."""
        self._items = items
        if self._chosen is None and items:
            self._cursor = items[0]

    def _point_at(self, index: int) -> None:
        if not self._items:
            return
        self._cursor = self._items[max(0, min(index, len(self._items) - 1))]
        self._rows = self.page(self._rows_width)
        own = [row for row, owner in enumerate(self._owners) if owner == self._chosen]
        last = len(self._rows) - 1 if self._chosen == len(self._items) - 1 else own[-1]
        self._top = min(max(self._top, last - self.body_height + 1), own[0])
        self.draw()

    def action_scroll_rows(self, rows: int) -> None:
        """Move the cursor."""
        if self._chosen is None:
            super().action_scroll_rows(rows)
        else:
            self._point_at(self._chosen + rows)

    def action_scroll_pages(self, pages: int) -> None:
        """Move the cursor by a page less one row."""
        self.action_scroll_rows(pages * max(1, self.body_height - 1))

    def action_scroll_edge(self, edge: int) -> None:
        """Move the cursor to the first or last item."""
        if self._chosen is None:
            super().action_scroll_edge(edge)
        else:
            self._point_at(0 if edge < 0 else len(self._items) - 1)

    def _click(self, part: str, x: int, y: int, *, again: bool) -> None:  # noqa: ARG002 - rows are whole
        """Select a clicked item; a double click opens it."""
        row = self._top + y
        owner = self._owners[row] if part == "body" and row < len(self._owners) else None
        if owner is not None:
            self._point_at(owner)
            if again:
                self.action_open()

    def action_open(self) -> None:
        """Open the item under the cursor."""
        raise NotImplementedError
