"""A list on a screen: its state, its layout, and the next view for each key that moves or sorts it.

Each function for a key takes the view and the layout of the last drawing, which the key refers to.
Some also return a message for the footer, shown for a few seconds; the empty message removes the
one before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gpumon.config.columns import COLUMN, DEFAULT_COLUMNS
from gpumon.model.processes import ProcessId
from gpumon.text.table import GUTTER, Sort, column_at, column_beside, line_width, next_sort

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from gpumon.text.process_columns import ProcessItem
    from gpumon.text.table import Column

Key: TypeAlias = str | ProcessId | tuple[str, ProcessId]
"""Identifies a line across snapshots: a process, in a fleet with its host, or the name of a job,
user or host."""


class ListView(Struct, frozen=True, kw_only=True):
    """What the user has chosen to see on a screen with a list."""

    interval: float  # Seconds between samples.
    sort: Sort = Sort()
    columns: tuple[str, ...] = DEFAULT_COLUMNS  # Keys, as ``whole_choice`` orders them.
    cursor: Key | None = None  # The line under the cursor.
    top: int = 0  # Number of lines scrolled away.
    # Whether the list scrolls with the cursor; the mouse wheel ends this.
    follows_cursor: bool = True
    # Whether the filter line is open; it replaces the last line of the list.
    editing: bool = False
    dialog_open: bool = False  # Whether a dialog, with keys of its own, is on top.
    message: str = ""  # Replaces the keys in the footer.

    @property
    def in_list(self) -> bool:
        """Whether the cursor is in the list, not in another part of the screen."""
        return True

    @property
    def list_top(self) -> int:
        """Number of lines scrolled away now."""
        return self.top

    def at(self, key: Key) -> Self:
        """The view with the cursor on a line."""
        return replace(self, cursor=key, follows_cursor=True)

    def scrolled(self, lines: int) -> Self:
        """The view with the list scrolled away from the cursor."""
        return replace(self, top=self.top + lines, follows_cursor=False)


class ListEntry(Struct, frozen=True):
    """A line of a list."""

    key: Key


ViewT = TypeVar("ViewT", bound=ListView)
EntryT = TypeVar("EntryT", bound=ListEntry)


class ListLayout(Struct, Generic[ViewT, EntryT], frozen=True, kw_only=True):
    """Where a list is drawn. Keys and clicks are resolved against it."""

    view: ViewT  # With its cursor and scroll position within bounds.
    entries: Sequence[EntryT] = ()
    headers: Sequence[Column[Any]] = ()  # The visible columns of a line.
    columns: tuple[Column[ProcessItem], ...] = ()  # Those of a process.
    width: int = 0  # Cells of the screen.
    room: int = 0  # Rows for lines.
    beside: int = 1  # Number of columns of lines.

    @property
    def sortable(self) -> tuple[Sequence[Column[Any]], str]:
        """All columns of what is listed, whether or not they fit, and what that is."""
        raise NotImplementedError

    @property
    def line_width(self) -> int:
        """Cells of one line."""
        return line_width(self.width, self.beside)

    def index_of(self, key: Key | None) -> int | None:
        """The index of a line."""
        if key is None:
            return None
        return next((at for at, entry in enumerate(self.entries) if entry.key == key), None)

    @property
    def entry(self) -> EntryT | None:
        """The line under the cursor; ``None`` if the cursor is not in the list."""
        index = self.index_of(self.view.cursor) if self.view.in_list else None
        return None if index is None else self.entries[index]

    @property
    def visible(self) -> range:
        """The indices of the visible lines."""
        top = self.view.list_top
        return range(top, min(len(self.entries), top + self.beside * self.room))

    def column_at(self, x: int) -> Column[Any] | None:
        """The column at a cell of the heading."""
        if self.beside > 1:
            x %= self.line_width + GUTTER
        return column_at(self.headers, x)

    def line_at(self, x: int, y: int) -> int | None:
        """The index of the line at a cell of the list, whose first row is ``y`` 0."""
        column = min(self.beside - 1, x // (self.line_width + GUTTER))
        index = self.view.list_top + column * self.room + y
        return index if 0 <= y < self.room and index in self.visible else None

    def bounded_top(self, top: int, follow: int | None = None) -> int:
        """A scroll position that shows no blank lines at the end, and the line ``follow``."""
        in_sight = self.room * self.beside
        if follow is not None:
            top = max(min(top, follow), follow - in_sight + 1)
        return max(0, min(top, len(self.entries) - in_sight))


def clear_message(view: ViewT) -> ViewT:
    """Remove the message, which refers to an earlier action; an error in the filter stays."""
    return view if view.editing else replace(view, message="")


def move(view: ViewT, layout: ListLayout[ViewT, Any], lines: int) -> ViewT:
    """Move the cursor by lines; the first press only shows it."""
    index = layout.index_of(view.cursor)
    return move_to(view, layout, view.top if index is None else index + lines)


def page(view: ViewT, layout: ListLayout[ViewT, Any], pages: int) -> ViewT:
    """Move the cursor by the height of the list."""
    return move(view, layout, pages * max(1, layout.room))


def move_to_end(view: ViewT, layout: ListLayout[ViewT, Any], end: int) -> ViewT:
    """Move the cursor to the first or last line."""
    return move_to(view, layout, 0 if end < 0 else len(layout.entries) - 1)


def move_to(view: ViewT, layout: ListLayout[ViewT, Any], index: int) -> ViewT:
    """Move the cursor to a line, or to the nearest one."""
    if not layout.entries:
        return view
    key = layout.entries[max(0, min(index, len(layout.entries) - 1))].key
    return clear_message(view.at(key))


def sort(view: ViewT, layout: ListLayout[ViewT, Any], column: str) -> tuple[ViewT, str]:
    """Sort by a column; if the list is sorted by it already, reverse the order."""
    columns, what = layout.sortable
    chosen = next((known for known in columns if known.key == column), None)
    if chosen is None:
        label = COLUMN[column].label if column in COLUMN else column.upper()
        return view, f"{label} is no column of {what}"
    order, message = next_sort(view.sort, chosen)
    return replace(view, sort=order, follows_cursor=True), message


def sort_step(view: ViewT, layout: ListLayout[ViewT, Any], step: int) -> ViewT | tuple[ViewT, str]:
    """Sort by the next visible column, or by the one before."""
    column = column_beside(layout.headers, view.sort, step)
    return view if column is None else sort(view, layout, column)


def reverse(view: ViewT, layout: ListLayout[ViewT, Any]) -> tuple[ViewT, str]:
    """Reverse the order."""
    return sort(view, layout, view.sort.column)
