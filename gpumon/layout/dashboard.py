"""The whole dashboard as rows: how a terminal is shared out, and what stands in each part.

The screen, a first frame and the tests all draw through ``Dashboard.rows``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gpumon.findings import Finding, Severity, card_state
from gpumon.groups import users
from gpumon.history import Standing
from gpumon.layout.cards import Cards, CardsShape, card_line, cards_shape
from gpumon.layout.cells import Field, Row, fill
from gpumon.layout.chrome import (
    LogNote,
    Moment,
    Scrolled,
    called,
    empty_rows,
    footer_row,
    has_no_lists,
    header_row,
    rule_facts,
    rule_row,
    tiny_rows,
)
from gpumon.layout.graphs import GRAPH, UTIL
from gpumon.layout.grouped import job_row, sort_users, user_columns, user_row
from gpumon.layout.host_strip import HostStrip, strip_rows
from gpumon.layout.listing import (
    Entry,
    Key,
    Listing,
    Narrowing,
    job_entries,
    process_entries,
    tree_entries,
    user_entries,
)
from gpumon.layout.processes import (
    CHOSEN,
    Marks,
    ProcessRows,
    Sight,
    Sort,
    heading_row,
    visible_columns,
)
from gpumon.layout.tiles import Tiles, tile_height, tiles_rows
from gpumon.layout.words import STATE_STYLES
from gpumon.model import CardStatus, ProcessId
from gpumon.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.ending import Report
    from gpumon.filters import Facts
    from gpumon.history import History
    from gpumon.host import Kin
    from gpumon.layout.processes import Column, Headed
    from gpumon.model import Gpu, GpuProcess, Snapshot
    from gpumon.sources.replay import Playing
    from gpumon.tape import Mark

LEAST_WIDTH = 60
LEAST_HEIGHT = 15

_CHROME = 3
"""Header, rule and footer, a row each."""
_FEW_CARDS = 8
_LEAST_TABLE = 3
"""The table's heading and two processes."""
_EARLY, _EARLY_SHARE = 0.05, 0.5
"""Seconds, or the part of an interval, by which a sample may come before a whole second is over."""

_MOST_REPORT_ROWS = 8
_NO_LISTS = "This log does not say who was on the cards."

_TIME_KEYS = (
    ("[ ]", "step"),
    ("{ }", "10s"),
    ("( )", "1m"),
    ("n b", "event"),
    ("+ -", "speed"),
    ("@", "go to"),
    ("/", "filter"),
)
_ALWAYS = (("q", "quit"), ("?", "help"))
_FILTERING = (("Enter", "keep"), ("Esc", "drop"), ("↑↓", "select"))


def footer_keys(view: View, entry: Entry | None) -> tuple[tuple[str, str], ...]:
    """The keys that matter at this moment, most needed first: the last have no room everywhere."""
    if view.covered:
        return ()
    if view.editing:
        return _FILTERING
    if view.timeline is not None:
        play = ("p", "hold" if view.timeline.playing.playing else "play")
        end = ("End", "now" if view.timeline.live else "last")
        return (*_ALWAYS, play, ("Home", "first"), end, *_TIME_KEYS)
    keys: list[tuple[str, str]] = []
    if view.card is not None:
        entry = None
        keys += [("Enter", "details"), ("y", "copy"), ("Tab", "processes")]
    if view.tags or (entry is not None and entry.processes):
        keys += [] if view.readonly else [("k", "end…")]
    if entry is not None:
        keys.append(("Enter", "details" if entry.process is not None else "open"))
        keys += [("space", "tag")] if entry.processes else []
    back = view.listing is not Listing.PROCESSES
    keys += [(_LISTING_KEYS[view.listing], "processes")] if back else []
    keys.append(("/", "filter"))
    if view.card is not None:
        keys.append(("w", "tell no more" if view.card in view.awaited else "tell if free"))
    past = [("[ ]", "rewind"), ("L", "log")]
    listings = [pair for pair in _LISTINGS if pair[0] != _LISTING_KEYS[view.listing]]
    if entry is None:
        keys += [("↑↓", "select"), *listings[:2], *past, *listings[2:]]
    else:
        keys += [*past, ("y", "copy"), *listings]
    look = (("c", "graph"), *_LOOK) if view.graphed else _LOOK
    return (*_ALWAYS, *keys, ("m", "mine"), ("< >", "sort"), ("p", "pause"), *look)


_LOOK = (("h", "host"), ("T", "theme"))
_LISTINGS = (("t", "tree"), ("u", "users"), ("g", "jobs"))
_LISTING_KEYS = {
    Listing.PROCESSES: "",
    Listing.TREE: "t",
    Listing.USERS: "u",
    Listing.JOBS: "g",
}


class Timeline(Struct, frozen=True):
    """Which moment of the past is shown.

    Attributes:
        playing: The moment, and whether time passes.
        marks: What happened, on the whole of the tape.
        live: Whether there is a present to return to.
        settled: Whether all that led to the moment has been looked at.
    """

    playing: Playing
    marks: Sequence[Mark]
    live: bool
    settled: bool = True


class DashboardShape(Struct, frozen=True):
    """Where everything goes.

    Attributes:
        cards: The shape of the cards.
        tiles: Rows of each large graph below them; 0 is without.
        table: Rows of the process table, its heading included.
    """

    cards: CardsShape
    tiles: int
    table: int


def is_tiny(width: int, height: int) -> bool:
    """Whether a terminal is too small for the dashboard."""
    return width < LEAST_WIDTH or height < LEAST_HEIGHT


@lru_cache(maxsize=16)
def dashboard_shape(lines: int, cards: int, width: int, height: int) -> DashboardShape:
    """Share out the rows: the processes keep a third, unless a few cards would not all fit.

    Under tall panels, of which there are one or two, and under large graphs of more cards they keep
    half of them and more.

    Args:
        lines: Lines the cards need, see ``Cards.line_count``.
        cards: Number of cards.
        width: Cells of the terminal.
        height: Rows of the terminal.
    """
    rest = max(0, height - _CHROME)
    panels = rest // 2 if cards > 1 else rest * 2 // 5
    shape = cards_shape(lines, cards, width, rest - rest // 3, panels)
    if lines <= _FEW_CARDS and shape.columns == 1 and shape.rows < lines + 1:
        shape = cards_shape(lines, cards, width, rest - _LEAST_TABLE)
    tiles = 0
    if not shape.panels and shape.columns == 1 and shape.rows > lines:
        tiles = tile_height(cards, width, rest // 2 - shape.rows)
    table = rest - shape.rows - tiles_rows(cards, tiles)
    return DashboardShape(shape, tiles, table)


class View(Struct):
    """What the person at the keyboard has chosen.

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
        graphed: Whether there was room for it when the dashboard was drawn last.
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
    narrowing: Narrowing = Narrowing()
    listing: Listing = Listing.PROCESSES
    sort: Sort = Sort()
    user_sort: Sort = Sort()
    columns: tuple[str, ...] = CHOSEN
    cursor: Key | None = None
    tags: frozenset[ProcessId] = frozenset()
    turned: frozenset[Key] = frozenset()
    kin: tuple[Kin, ...] = ()
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
    reports: tuple[Report, ...] = ()
    timeline: Timeline | None = None
    log: LogNote | None = None
    message: str = ""

    @property
    def order(self) -> Sort:
        """Order of what is listed."""
        return self.user_sort if self.listing is Listing.USERS else self.sort

    @order.setter
    def order(self, sort: Sort) -> None:
        if self.listing is Listing.USERS:
            self.user_sort = sort
        else:
            self.sort = sort


class Parts(Struct):
    """The dashboard from the top down; in a tiny terminal only ``tiny``."""

    header: list[Row] = []
    host: list[Row] = []
    cards: list[Row] = []
    graphs: list[Row] = []
    rule: list[Row] = []
    processes: list[Row] = []
    report: list[Row] = []
    timeline: list[Row] = []
    footer: list[Row] = []
    tiny: list[Row] = []

    def all(self) -> list[Row]:
        """Every row of the screen."""
        return [
            *self.header,
            *self.host,
            *self.cards,
            *self.graphs,
            *self.rule,
            *self.processes,
            *self.report,
            *self.timeline,
            *self.footer,
            *self.tiny,
        ]


class _Basis(NamedTuple):
    """What the processes of a beat are drawn by."""

    processes: Sequence[GpuProcess]
    beat: float
    sight: Sight
    standing: Standing


class Dashboard:
    """Draws the dashboard, keeping what did not change.

    Args:
        history: Where graphs and states come from.

    Attributes:
        entries: The table's lines, in its order, as last drawn.
        columns: The columns of processes, as last drawn.
        headed: The table's columns, as last drawn: these, or those of users.
        room: Rows the table had for its lines, as last drawn.
        lines: Lines the cards need, as last drawn.
        shape: Where everything was, as last drawn; ``None`` where no dashboard was.
    """

    def __init__(self, history: History) -> None:
        self.entries: Sequence[Entry] = ()
        self.columns: tuple[Column, ...] = ()
        self.headed: Sequence[Headed] = ()
        self.room = 0
        self.lines = 0
        self.shape: DashboardShape | None = None
        self._history = history
        self._settled = True
        self._cards = Cards()
        self._strip = HostStrip()
        self._tiles = Tiles()
        self._states: tuple[Snapshot | None, dict[str, Finding]] = (None, {})
        self._judged: dict[str, tuple[tuple[object, ...], Finding]] = {}
        self._process_rows = ProcessRows()
        self._beat = 0.0
        self._basis: _Basis | None = None
        self._shown: list[GpuProcess] = []
        self._drawn_from: tuple[object, ...] = ()
        self._headed_by: tuple[tuple[object, ...], Row] = ((), ())
        self._ruled_by: tuple[tuple[object, ...], Row] = ((), ())
        self._footed_by: tuple[tuple[object, ...], Row] = ((), ())
        self._tabled: tuple[Sequence[Entry], tuple[object, ...], list[Row]] = ((), (), [])

    def look_at(self, history: History) -> None:
        """Draw from another history, as after a jump in time."""
        if history is not self._history:
            self._history = history
            self._forget()

    def _forget(self) -> None:
        """Draw everything anew: what was drawn of these snapshots was drawn of less."""
        self._cards = Cards()
        self._states = (None, {})
        self._judged = {}
        self._process_rows = ProcessRows()
        self._basis = None
        self._drawn_from = ()

    def rows(self, snapshot: Snapshot | None, view: View, width: int, height: int) -> Parts:
        """All rows for a terminal of this size.

        Args:
            snapshot: What to show; ``None`` while there is nothing yet.
            view: What is chosen; its cursor, tags and scrolling are brought within bounds.
            width: Cells.
            height: Rows.
        """
        self.shape = None
        settled = view.timeline is None or view.timeline.settled
        if settled and not self._settled:
            self._forget()
        self._settled = settled
        self._beat = 0.0 if snapshot is None else _beat(snapshot, view.interval)
        if is_tiny(width, height):
            states = self._states_of(snapshot)
            moment = Moment() if snapshot is None else _moment(snapshot, view)
            return Parts(tiny=tiny_rows(snapshot, states, moment, width, height, view.message))
        if snapshot is None or not snapshot.gpus:
            return self._empty(snapshot, view, width, height)
        self.lines = self._cards.line_count(snapshot)
        strip = strip_rows(height) if view.host_strip else 0
        shape = dashboard_shape(self.lines, len(snapshot.gpus), width, height - strip)
        self.shape = shape
        room = max(1, min(_MOST_REPORT_ROWS, shape.table - _LEAST_TABLE))
        report = _report_rows(view, width, room)
        timeline = _timeline_rows(snapshot, view, width)
        table = shape.table - len(report) - len(timeline) - view.editing
        self.room = max(0, table - 1)
        self.columns = visible_columns(width, view.columns)
        self.headed = user_columns(width) if view.listing is Listing.USERS else self.columns
        if view.paused:
            # While the picture is held the history goes on.
            self._basis_of(snapshot, view).standing.hold(snapshot.processes)
        self._list(snapshot, view)
        self._settle(snapshot, view)
        states = self._states_of(snapshot)
        scrolled = self._scrolled(snapshot, view, shape)
        cards = self._cards.rows(
            snapshot,
            self._history,
            states,
            width,
            shape.cards,
            view.cards_top,
            graphs=not shape.tiles,
            chosen=view.card,
            graph=GRAPH[view.graph],
        )
        view.graphed = self._cards.graphed or shape.tiles > 0
        keys = footer_keys(view, self.entry(view.cursor))
        return Parts(
            header=[self._header(snapshot, _moment(snapshot, view), width)],
            host=self._strip.rows(snapshot.host, self._history, snapshot.time, width, strip),
            cards=_filled(cards, width, shape.cards.rows),
            graphs=self._tiles.rows(
                snapshot, self._history, states, width, shape.tiles, GRAPH[view.graph]
            ),
            rule=[self._rule(snapshot, scrolled, width)],
            processes=_filled(self._table(snapshot, view, width), width, table),
            report=report,
            timeline=timeline,
            footer=[self._footer(keys, view.message, width)],
        )

    def _header(self, snapshot: Snapshot, moment: Moment, width: int) -> Row:
        # Of the cards it tells for how long one has been silent, which is part of the moment.
        key = (snapshot.host, snapshot.source, int(snapshot.time), moment, width)
        if self._headed_by[0] != key:
            self._headed_by = (key, header_row(snapshot, moment, width))
        return self._headed_by[1]

    def _rule(self, snapshot: Snapshot, scrolled: Scrolled, width: int) -> Row:
        key = (snapshot.processes, self._shown, scrolled, rule_facts(snapshot), width)
        if self._ruled_by[0] != key:
            self._ruled_by = (key, rule_row(snapshot, self._shown, scrolled, width))
        return self._ruled_by[1]

    def _footer(self, keys: tuple[tuple[str, str], ...], message: str, width: int) -> Row:
        key = (keys, message, width)
        if self._footed_by[0] != key:
            self._footed_by = (key, footer_row(called(keys), message, width))
        return self._footed_by[1]

    def _basis_of(self, snapshot: Snapshot, view: View) -> _Basis:
        """What processes are drawn by: the same for a beat, however often they are drawn."""
        basis = self._basis
        if (
            basis is None
            or basis.processes is not snapshot.processes
            or (basis.beat != self._beat and not view.paused)
        ):
            standing = Standing(self._history)
            idle_after = standing.thresholds.idle_after
            sight = Sight(snapshot.time, standing.process_idle, idle_after)
            basis = self._basis = _Basis(snapshot.processes, self._beat, sight, standing)
        return basis

    def _table(self, snapshot: Snapshot, view: View, width: int) -> list[Row]:
        """The heading and the lines that there is room for."""
        key = (
            *(view.top, view.cursor, view.tags, view.shift, view.order, view.listing),
            *(self.room, self.headed, width, self._beat, has_no_lists(snapshot)),
        )
        if self._tabled[0] is not self.entries or self._tabled[1] != key:
            self._tabled = (self.entries, key, self._lines(snapshot, view, width))
        return self._tabled[2]

    def _lines(self, snapshot: Snapshot, view: View, width: int) -> list[Row]:
        shown = self.entries[view.top : view.top + self.room]
        heading = heading_row(self.headed, view.order, width)
        sight = self._basis_of(snapshot, view).sight
        self._process_rows.begin()
        if self.room and has_no_lists(snapshot):
            return [heading, fill([(f"  {_NO_LISTS}", "dim")], width)]
        return [heading, *(self._line(entry, view, sight, width) for entry in shown)]

    def _line(self, entry: Entry, view: View, sight: Sight, width: int) -> Row:
        # A card may have it.
        cursor = entry.key == view.cursor and view.card is None
        members = entry.processes
        tagged = bool(members) and all(process.id in view.tags for process in members)
        marks = Marks(cursor, tagged, entry.branch, view.shift)
        if entry.user is not None:
            return user_row(entry.user, user_columns(width), width, marks)
        if entry.job is not None:
            return job_row(entry.job, self.columns, sight, width, marks, entry.folded)
        assert entry.process is not None  # noqa: S101 - the only kind left
        return self._process_rows.row(entry.process, self.columns, sight, width, marks)

    def _empty(self, snapshot: Snapshot | None, view: View, width: int, height: int) -> Parts:
        """No cards: the reason fills the room."""
        self.entries, self.room, self.lines = (), 0, 0
        header = fill((), width, "header")
        if snapshot is not None:
            header = header_row(snapshot, _moment(snapshot, view), width)
        trouble = None if snapshot is None else snapshot.trouble
        return Parts(
            header=[header],
            cards=empty_rows(trouble, width, height - 2),
            footer=[
                footer_row(() if view.covered else called(_ALWAYS), view.message, width),
            ],
        )

    def _states_of(self, snapshot: Snapshot | None) -> dict[str, Finding]:
        """What is said of each card, once a snapshot: a held picture keeps its words.

        Of a moment of the past it is not said that all is well before all that led to it is known.
        """
        if snapshot is not self._states[0]:
            states = {}
            if snapshot is not None:
                states = {gpu.uuid: self._judge(snapshot, gpu) for gpu in snapshot.gpus}
            if not self._settled:
                states = {uuid: _unless_well(state) for uuid, state in states.items()}
            self._states = (snapshot, states)
        return self._states[1]

    def _judge(self, snapshot: Snapshot, gpu: Gpu) -> Finding:
        """What is said of a card: told in whole seconds, so judged once in each.

        Unless something begins or ends; and what is wrong is told with numbers of this moment.
        """
        key = (
            *(self._beat, snapshot.reserved),
            *(self._history.held(gpu.uuid), gpu.status, not gpu.utilization_gpu),
        )
        known, state = self._judged.get(gpu.uuid, (None, None))
        if state is None or known != key or state.severity >= Severity.WARNING:
            state = card_state(self._history, gpu)
            self._judged[gpu.uuid] = key, state
        return state

    def _list(self, snapshot: Snapshot, view: View) -> None:
        """List and sort anew only when there is something new to list."""
        narrowing = view.narrowing
        drawn_from: tuple[object, ...] = (
            narrowing,
            view.order,
            view.listing,
            view.turned,
            # What depends on time is told in whole seconds.
            self._beat if _depends_on_time(view) else None,
        )
        before = self._drawn_from
        if (
            before
            and before[0] is snapshot.processes
            and before[1] is view.kin
            and before[2:] == drawn_from
        ):
            return
        self._drawn_from = (snapshot.processes, view.kin, *drawn_from)
        _, _, sight, standing = self._basis_of(snapshot, view)
        facts = None if narrowing.filter is None else _facts(sight)
        shown = narrowing.apply(snapshot.processes, facts)
        self._shown = shown
        if view.listing is Listing.TREE:
            self.entries = tree_entries(shown, view.kin, view.sort, sight, view.turned)
        elif view.listing is Listing.JOBS:
            self.entries = job_entries(shown, view.sort, sight, view.turned)
        elif view.listing is Listing.USERS:
            narrowed = replace(snapshot, time=sight.now, processes=tuple(shown))
            uses = users(narrowed, standing)
            self.entries = user_entries(sort_users(uses, view.user_sort))
        else:
            self.entries = process_entries(shown, view.sort, sight)

    def _scrolled(self, snapshot: Snapshot, view: View, shape: DashboardShape) -> Scrolled:
        """What of cards and processes is out of sight; brings the scrolling within bounds."""
        shown = shape.cards.columns * (shape.cards.rows - 1)
        hidden = 0 if shape.cards.panels else max(0, self.lines - shown)
        line = card_line(snapshot, view.card)
        if line is None:
            view.card = None
        elif hidden:
            view.cards_top = max(min(view.cards_top, line), line - shown + 1)
        view.cards_top = max(0, min(view.cards_top, hidden))
        return Scrolled(
            _narrowing_words(snapshot, view),
            len(self.entries),
            view.top,
            self.room,
            view.cards_top,
            hidden - view.cards_top,
            self._worst_hidden(snapshot, view.cards_top, shown) if hidden else None,
            self._note(snapshot, view),
        )

    def _note(self, snapshot: Snapshot, view: View) -> str:
        """Since when the hours of users are counted."""
        if view.listing is not Listing.USERS or self._history.started is None:
            return ""
        from gpumon.layout.pages import moment_text

        return f"GPU-HOURS since {moment_text(self._history.started, snapshot.time)}"

    def _worst_hidden(self, snapshot: Snapshot, above: int, shown: int) -> Field | None:
        """What is wrong with the worst of the cards out of sight."""
        worst: Finding | None = None
        index = line = 0
        for gpu in snapshot.gpus:
            state = self._states[1][gpu.uuid]
            in_sight = above <= line < above + shown
            if not in_sight and (worst is None or state.severity > worst.severity):
                worst, index = state, gpu.index
            line += 1 + len(gpu.mig)
        if worst is None or worst.severity < Severity.WARNING:
            return None
        return f"GPU {index}: {printable(worst.brief)}", STATE_STYLES[worst.severity]

    def _settle(self, snapshot: Snapshot, view: View) -> None:
        """Keep the cursor on its line and that in sight, and scroll no further than the end.

        A process that ended leaves no cursor and no tag: moving either to a neighbour unasked would
        offer another process to the next key.
        """
        if view.tags:
            living = {process.id for process in snapshot.processes}
            view.tags &= living | {relative.id for relative in view.kin}
        index = self.index_of(view.cursor)
        if index is None:
            view.cursor = None
        elif view.following:
            view.top = max(min(view.top, index), index - self.room + 1)
        view.top = max(0, min(view.top, len(self.entries) - self.room))

    def index_of(self, key: Key | None) -> int | None:
        """Where a line stands in the table."""
        if key is None:
            return None
        for index, entry in enumerate(self.entries):
            if entry.key == key:
                return index
        return None

    def entry(self, key: Key | None) -> Entry | None:
        """The line of this key, while it is in the table."""
        index = self.index_of(key)
        return None if index is None else self.entries[index]


def _facts(sight: Sight) -> Facts:
    """What a filter needs to know."""
    from gpumon.filters import Facts

    def idle(process: ProcessId) -> float | None:
        spell = sight.idle(process)
        return None if spell is None else spell.seconds

    return Facts(sight.now, idle, sight.idle_after)


def _beat(snapshot: Snapshot, interval: float) -> float:
    """Changes once a second, for what is told in whole seconds.

    Lists of processes mostly come as often, and what hangs on them is drawn anew with them: on the
    clock's seconds too it would be drawn twice. So seconds are counted from the newest list.
    """
    listed = snapshot.processes_at
    if listed is None or listed > snapshot.time:
        return int(snapshot.time)
    # A sample that comes early after one that came late is meant to be a second later too.
    return listed + int(snapshot.time - listed + max(_EARLY, interval * _EARLY_SHARE))


def _unless_well(state: Finding) -> Finding:
    if state.severity is not Severity.QUIET:
        return state
    sentence = "What led to this moment is still being looked at."
    return replace(state, sentence=sentence, short="…", brief="…")


def _depends_on_time(view: View) -> bool:
    """Whether what is listed, or its order, changes while the processes stay as they are."""
    filtered = view.narrowing.filter is not None and bool(view.narrowing.filter.text)
    return filtered or view.listing is Listing.USERS or view.sort.column == "idle"


def _narrowing_words(snapshot: Snapshot, view: View) -> tuple[str, ...]:
    words = view.narrowing.words(snapshot.processes)
    if view.tags:
        words.append(f"{len(view.tags)} tagged")
    return tuple(words)


# What the first picture never holds is imported when it is there, here as above.


def _report_rows(view: View, width: int, room: int) -> list[Row]:
    """What became of those who were told to end."""
    if not view.reports:
        return []
    from gpumon.layout.ending import report_rows

    return report_rows(view.reports, width, room)


def _timeline_rows(snapshot: Snapshot, view: View, width: int) -> list[Row]:
    """Where in the past this is; nothing in the present."""
    if view.timeline is None:
        return []
    from gpumon.layout.timeline import timeline_row

    playing, marks, live = view.timeline.playing, view.timeline.marks, view.timeline.live
    return [timeline_row(playing, snapshot.time, marks, width, live=live)]


def _moment(snapshot: Snapshot, view: View) -> Moment:
    timeline = view.timeline
    if timeline is not None:
        source = "REWIND" if timeline.live else ""
        return Moment(log=view.log, source=source, in_gap=timeline.playing.in_gap)
    return Moment(
        interval=view.interval,
        age=None if view.paused else _silence(snapshot),
        paused=view.paused,
        cost=snapshot.cost if view.show_cost else None,
        log=view.log,
    )


def _silence(snapshot: Snapshot) -> float | None:
    """Seconds since the card that has been silent longest answered; ``None`` when all answer."""
    ages = [
        snapshot.time - since
        for gpu in snapshot.gpus
        if gpu.status is CardStatus.NO_ANSWER
        and (since := gpu.sampled_at or gpu.status_since) is not None
    ]
    return max(ages, default=None)


def _filled(rows: list[Row], width: int, height: int) -> list[Row]:
    """The rows, and blank ones up to the height."""
    blank = fill((), width)
    return rows + [blank] * (height - len(rows))
