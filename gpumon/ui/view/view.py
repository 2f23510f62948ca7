"""The view: what the user has chosen to see, and of which moment. An immutable value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.config.columns import CHOSEN
from gpumon.ui.view.graphs import UTIL
from gpumon.ui.view.listing import Key, Listing, ProcessFilter
from gpumon.ui.view.processes import Sort

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.host import RelatedProcess
    from gpumon.kill.outcome import TerminationReport
    from gpumon.model.snapshot import ProcessId
    from gpumon.recording import Event
    from gpumon.recording.playback.replay import Playing
    from gpumon.ui.view.header_footer import LogNote


class Timeline(Struct, frozen=True):
    """Which moment of the past is shown.

    Attributes:
        playing: The moment, and whether time passes.
        marks: What happened, on the whole of the tape.
        live: Whether there is a present to return to.
        settled: Whether all that led to the moment has been looked at.
    """

    playing: Playing
    marks: Sequence[Event]
    live: bool
    settled: bool = True


class View(Struct, frozen=True):
    """What the person at the keyboard has chosen; ``update`` gives the next one.

    Attributes:
        interval: Seconds between samples.
        narrowing: Which of the processes are shown.
        listing: Whether processes, their families, users or jobs are listed.
        sort: Order of the processes.
        user_sort: Order of the users.
        columns: Keys of the columns, in order.
        cursor: The line under the cursor.
        tags: The tagged processes.
        turned: Lines folded, or unfolded where they begin folded.
        kin: The families of the processes, for the tree.
        top: Lines of the table scrolled away.
        following: Whether the table scrolls with the cursor; a turn of the wheel ends that.
        shift: Cells by which commands are scrolled to the side.
        card: UUID of the card under the cursor, while the cards have it.
        awaited: UUIDs of the cards that somebody wants to be told of once they are free.
        cards_top: Lines of cards scrolled away.
        graph: Key of what the small graph of a card shows.
        graphed: Whether there is room for it; set by ``lay_out``.
        paused: Whether the picture is held.
        host_strip: Whether processor, memory and load of the machine have a line of their own.
        show_cost: Whether the header tells gpumon's own cost.
        readonly: Whether no signal is sent.
        editing: Whether the filter line is open; it takes the place of the table's last line.
        covered: Whether a dialog lies on top, which has keys of its own.
        reports: How the cases stand in which processes are ended.
        timeline: Which moment of the past is shown; ``None`` for the present.
        log: How the log stands that is being written.
        message: What stands in the footer in place of the keys.
    """

    interval: float
    narrowing: ProcessFilter = ProcessFilter()
    listing: Listing = Listing.PROCESSES
    sort: Sort = Sort()
    user_sort: Sort = Sort()
    columns: tuple[str, ...] = CHOSEN
    cursor: Key | None = None
    tags: frozenset[ProcessId] = frozenset()
    turned: frozenset[Key] = frozenset()
    kin: tuple[RelatedProcess, ...] = ()
    top: int = 0
    following: bool = True
    shift: int = 0
    card: str | None = None
    awaited: frozenset[str] = frozenset()
    cards_top: int = 0
    graph: str = UTIL.key
    graphed: bool = True
    paused: bool = False
    host_strip: bool = False
    show_cost: bool = False
    readonly: bool = False
    editing: bool = False
    covered: bool = False
    reports: tuple[TerminationReport, ...] = ()
    timeline: Timeline | None = None
    log: LogNote | None = None
    message: str = ""

    @property
    def order(self) -> Sort:
        """Order of what is listed."""
        return self.user_sort if self.listing is Listing.USERS else self.sort
