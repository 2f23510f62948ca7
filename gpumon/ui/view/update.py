"""Pure functions from a view to the next one, one for each key or click that changes the view.

Each takes the view and the layout of the last drawing, against which the key is resolved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gpumon.config.columns import COLUMN, COLUMNS
from gpumon.filters import parse_filter
from gpumon.ui.view.graphs import next_graph
from gpumon.ui.view.grouped import USER_COLUMNS
from gpumon.ui.view.key_names import keycap
from gpumon.ui.view.listing import Listing, ProcessFilter
from gpumon.ui.view.processes import Sort

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.ui.view.layout import Layout
    from gpumon.ui.view.listing import Entry
    from gpumon.ui.view.processes import ColumnHeader
    from gpumon.ui.view.view import View

_SHIFT_CELLS = 8


class Said(NamedTuple):
    """The next view, and a message for the footer.

    Attributes:
        view: The view.
        message: Replaces what the footer says for a few seconds; empty removes it.
    """

    view: View
    message: str


# -- the cursor and scrolling ------------------------------------------------------------------


def quiet(view: View) -> View:
    """Remove the message, which was about an earlier choice."""
    return view if view.editing else replace(view, message="")


def move(view: View, layout: Layout, step: int) -> View:
    """Move the cursor, in the table or among the cards."""
    if view.card is not None:
        return _move_card(view, layout, step)
    index = layout.index_of(view.cursor)
    # The first press only shows where the cursor is.
    return move_to(view, layout, view.top if index is None else index + step)


def page(view: View, layout: Layout, pages: int) -> View:
    """Move the cursor by what the table shows."""
    return move(view, layout, pages * max(1, layout.room))


def edge(view: View, layout: Layout, end: int) -> View:
    """Move the cursor to the first or last line."""
    if view.card is not None:
        return _move_card(view, layout, end * len(layout.gpus))
    return move_to(view, layout, 0 if end < 0 else len(layout.entries) - 1)


def move_to(view: View, layout: Layout, index: int) -> View:
    """Put the cursor on a line of the table; beyond its ends, on the nearest line."""
    if not layout.entries:
        return view
    key = layout.entries[max(0, min(index, len(layout.entries) - 1))].key
    return quiet(replace(view, card=None, cursor=key, following=True))


def _move_card(view: View, layout: Layout, step: int) -> View:
    uuids = [gpu.uuid for gpu in layout.gpus]
    if view.card not in uuids:
        return quiet(view)
    at = uuids.index(view.card) + step
    return point_at_card(view, uuids[max(0, min(at, len(uuids) - 1))])


def point_at_card(view: View, uuid: str | None) -> View:
    """Give a card the cursor, or take it from the cards."""
    return quiet(replace(view, card=uuid))


def change_side(view: View, layout: Layout) -> View:
    """Give the cards the cursor, or take it from them."""
    first = layout.gpus[0].uuid if layout.gpus else None
    return point_at_card(view, first if view.card is None else None)


def aside(view: View, layout: Layout, step: int) -> View:
    """Fold or unfold what is below the cursor, or scroll the commands to the side."""
    entry = layout.entry(view.cursor)
    if view.listing in {Listing.TREE, Listing.JOBS} and entry is not None and entry.below:
        return turn(view, entry) if entry.folded == (step > 0) else view
    return replace(view, shift=max(0, view.shift + step * _SHIFT_CELLS))


def turn(view: View, entry: Entry) -> View:
    """Fold what is below a line, or unfold it."""
    return replace(view, turned=view.turned ^ {entry.key})


def scroll_cards(view: View, _: Layout, lines: int) -> View:
    """Scroll the cards."""
    return replace(view, cards_top=view.cards_top + lines, card=None)


def scroll_table(view: View, _: Layout, lines: int) -> View:
    """Scroll the table away from the cursor."""
    return replace(view, top=view.top + lines, following=False)


def release(view: View) -> View:
    """Clear one choice, the most recent kind first; return the same view if there is none."""
    asked = ProcessFilter(user=view.narrowing.user)
    if view.tags:
        return replace(view, tags=frozenset())
    if view.narrowing != asked:
        return replace(view, narrowing=asked)
    if view.card is not None:
        return replace(view, card=None)
    if view.cursor is not None or view.top or view.shift:
        return replace(view, cursor=None, top=0, shift=0)
    return view


# -- what is listed ----------------------------------------------------------------------------


def list_(view: View, _: Layout, name: str) -> View:
    """List families, users or jobs; the same again: processes."""
    wanted = Listing(name)
    if view.listing is wanted:
        wanted = Listing.PROCESSES
    return replace(view, listing=wanted, following=True)


def narrow(view: View, narrowing: ProcessFilter) -> View:
    """Show other processes, from the first line."""
    return replace(view, narrowing=narrowing, top=0, following=True)


def kind(view: View, _: Layout) -> View:
    """Compute only, graphics only, both."""
    after = {None: "C", "C": "G", "G": None}[view.narrowing.kind]
    return narrow(view, replace(view.narrowing, kind=after))


def mine(view: View, user: str) -> View:
    """Show only the processes of one user, or everybody's again."""
    return narrow(view, replace(view.narrowing, mine=None if view.narrowing.mine else user))


def narrow_to_user(view: View, user: str | None) -> View | Said:
    """Show the processes of the user under the cursor."""
    if user is None:
        return Said(view, "whose these are is not visible here")
    quoted = user.replace('"', '""')
    wanted = parse_filter(f"user={user}" if user.isalnum() else f'user="{quoted}"')
    view = replace(view, listing=Listing.PROCESSES)
    return narrow(view, replace(view.narrowing, filter=wanted))


def sort(view: View, _: Layout, column: str) -> Said:
    """Sort by a column; by the same once more: reverse."""
    by_user = view.listing is Listing.USERS
    listed: Sequence[ColumnHeader] = USER_COLUMNS if by_user else COLUMNS
    chosen = next((one for one in listed if one.key == column), None)
    if chosen is None:
        label, back = COLUMN[column].label, keycap("users")
        return Said(view, f"{label} is no column of users; {back} goes back to processes")
    before = view.order
    descending = not before.descending if column == before.column else chosen.descends
    order = Sort(column, descending)
    view = replace(view, user_sort=order) if by_user else replace(view, sort=order)
    words = "descending" if descending else "ascending"
    return Said(replace(view, following=True), f"sorted by {chosen.label}, {words}")


def sort_step(view: View, layout: Layout, step: int) -> View | Said:
    """Sort by the next column on screen."""
    keys = [column.key for column in layout.headed]
    if not keys:
        return view
    column = view.order.column
    at = keys.index(column) if column in keys else -1
    return sort(view, layout, keys[(at + step) % len(keys)])


def reverse(view: View, layout: Layout) -> Said:
    """Turn the order round."""
    return sort(view, layout, view.order.column)


# -- tags --------------------------------------------------------------------------------------


def tag(view: View, layout: Layout) -> View | Said:
    """Tag what is under the cursor, or untag it, and go on to the next line."""
    entry = layout.entry(view.cursor)
    if entry is None or not entry.processes or view.card is not None:
        return Said(view, no_process(view, layout))
    members = frozenset(process.id for process in entry.processes)
    tags = view.tags - members if members <= view.tags else view.tags | members
    return move(replace(view, tags=tags), layout, 1)


def tag_all(view: View, layout: Layout) -> View:
    """Tag every GPU process that is shown, or untag them."""
    shown = frozenset(
        process.id for entry in layout.entries for process in entry.processes if process.uses
    )
    return replace(view, tags=view.tags - shown if shown <= view.tags else view.tags | shown)


def no_process(view: View, layout: Layout) -> str:
    """Say what brings a process under the cursor."""
    if view.card is not None:
        side = keycap("change_side")
        return f"a card has the cursor, and no process: {side} goes back to the processes"
    if not layout.entries:
        return "no process is listed"
    if layout.entry(view.cursor) is not None:
        return "choose a process first: Enter shows this user's"
    return f"{choose_first()}, or tag several: {keycap('tag')}"


def choose_first() -> str:
    """Say how a process gets the cursor."""
    return f"choose a process first: {keycap('previous_line', 'next_line')}"


# -- what is shown besides ---------------------------------------------------------------------


def show_next_graph(view: View, _: Layout) -> Said:
    """Show another value over time beside each card."""
    if not view.graphed:
        return Said(view, "at this size there is no room for the small graphs")
    graph = next_graph(view.graph)
    return Said(replace(view, graph=graph.key), f"the small graph shows {graph.about}")


def show_cost(view: View, _: Layout) -> View:
    """Show or hide gpumon's own cost in the header."""
    return replace(view, show_cost=not view.show_cost)
