"""Draws the whole dashboard as rows, part by part.

The screen, a first frame and the tests all draw through ``Dashboard.rows``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.findings import Finding, Severity, card_state
from gpumon.model.snapshot import CardStatus
from gpumon.text.cells import Field, Row, fill
from gpumon.text.formatting import printable
from gpumon.ui.view.cards import card_lines, card_rows
from gpumon.ui.view.graphs import GRAPH
from gpumon.ui.view.grouped import job_row, user_columns, user_row
from gpumon.ui.view.header_footer import (
    Moment,
    Scrolled,
    empty_rows,
    footer_row,
    has_no_lists,
    header_row,
    rule_facts,
    rule_row,
    tiny_rows,
)
from gpumon.ui.view.host_strip import host_rows, strip_rows
from gpumon.ui.view.key_names import FooterKey, footer_key
from gpumon.ui.view.layout import (
    LEAST_TABLE,
    Layout,
    dashboard_shape,
    is_tiny,
    lay_out,
    table_context,
)
from gpumon.ui.view.listing import Listing
from gpumon.ui.view.memo import Memo
from gpumon.ui.view.messages import STATE_STYLES
from gpumon.ui.view.panels import panel_rows
from gpumon.ui.view.processes import RowMarks, heading_row, process_row
from gpumon.ui.view.tiles import graph_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.config.columns import Column
    from gpumon.model.snapshot import Gpu, ProcessId, Snapshot
    from gpumon.recording.history import History
    from gpumon.ui.view.listing import Entry, Key
    from gpumon.ui.view.processes import ColumnHeader, RowContext, Sort
    from gpumon.ui.view.view import View

_MOST_REPORT_ROWS = 8
_NO_LISTS = "This log does not say who was on the cards."

_SELECT = footer_key("previous_line", "next_line")
_TIME_KEYS = (
    footer_key("step_back", "step_on", label="step"),
    footer_key("back_10s", "on_10s", label="10s"),
    footer_key("back_1m", "on_1m", label="1m"),
    footer_key("next_event", "event_before", label="event"),
    footer_key("longer_interval", "shorter_interval", label="speed"),
    footer_key("go_to"),
    footer_key("filter"),
)
_ALWAYS = (footer_key("quit"), footer_key("help"))
_FILTERING = (footer_key("open", label="keep"), footer_key("clear", label="drop"), _SELECT)


def footer_keys(view: View, entry: Entry | None) -> tuple[FooterKey, ...]:
    """The keys that matter at this moment, most needed first: the last have no room everywhere."""
    if view.covered:
        return ()
    if view.editing:
        return _FILTERING
    if view.timeline is not None:
        play = footer_key("pause", label="hold" if view.timeline.playing.playing else "play")
        end = footer_key("last_line", label="now" if view.timeline.live else "last")
        return (*_ALWAYS, play, footer_key("first_line"), end, *_TIME_KEYS)
    keys: list[FooterKey] = []
    if view.card is not None:
        entry = None
        details, side = _DETAILS, footer_key("change_side", label="processes")
        keys += [details, footer_key("copy"), side]
    if view.tags or (entry is not None and entry.processes):
        keys += [] if view.readonly else [footer_key("end")]
    if entry is not None:
        keys.append(_DETAILS if entry.process is not None else footer_key("open"))
        keys += [footer_key("tag")] if entry.processes else []
    # A listing's key leads back to the processes.
    back = view.listing is not Listing.PROCESSES
    keys += [footer_key(view.listing.value, label="processes")] if back else []
    keys.append(footer_key("filter"))
    if view.card is not None:
        awaited = "tell no more" if view.card in view.awaited else ""
        keys.append(footer_key("tell_when_free", label=awaited))
    past = [footer_key("step_back", "step_on", label="rewind"), footer_key("log")]
    listings = [footer_key(name) for name in _LISTINGS if name != view.listing.value]
    if entry is None:
        keys += [_SELECT, *listings[:2], *past, *listings[2:]]
    else:
        keys += [*past, footer_key("copy"), *listings]
    look = (footer_key("graph"), *_LOOK) if view.graphed else _LOOK
    return (*_ALWAYS, *keys, footer_key("mine"), _SORT, footer_key("pause"), *look)


_DETAILS = footer_key("open", label="details")
_SORT = footer_key("sort_before", "sort_next", label="sort")
_LOOK = (footer_key("host_strip"), footer_key("theme"))
_LISTINGS = ("tree", "users", "jobs")


class Parts(Struct, frozen=True):
    """The dashboard from the top down; in a tiny terminal only ``tiny``.

    Attributes:
        layout: What is drawn where.
    """

    layout: Layout

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


class Dashboard:
    """Draws the dashboard. Equal history, snapshot, view and size give equal rows.

    Args:
        history: Where graphs and states come from.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._memo = Memo()

    def look_at(self, history: History) -> None:
        """Draw from another history, as after a jump in time."""
        self._history = history

    def rows(self, snapshot: Snapshot | None, view: View, width: int, height: int) -> Parts:
        """All rows for a terminal of this size.

        Args:
            snapshot: What to show; ``None`` while there is nothing yet.
            view: What is chosen.
            width: Cells.
            height: Rows.
        """
        history, settled = self._history, view.timeline is None or view.timeline.settled
        # The same snapshot is drawn anew once all that led to its moment is known.
        memo = self._memo.by((history, settled), Memo)
        if snapshot is None or not snapshot.gpus:
            return _without_cards(snapshot, view, width, height)
        context = table_context(memo, history, snapshot, view.interval)
        # Once a snapshot, so that a held picture keeps its states.
        states = memo.by(snapshot, _states, memo, history, snapshot, context.beat, settled)
        if is_tiny(width, height):
            moment = _moment(snapshot, view)
            tiny = tiny_rows(snapshot, states, moment, width, height, view.message)
            return Parts(Layout(view, snapshot.gpus), tiny=tiny)
        strip = strip_rows(height) if view.host_strip else 0
        lines, cards = card_lines(snapshot), len(snapshot.gpus)
        shape = dashboard_shape(lines, cards, width, height - strip)
        report = _report_rows(view, width, shape.table - LEAST_TABLE)
        timeline = _timeline_rows(snapshot, view, width)
        table = shape.table - len(report) - len(timeline) - view.editing
        layout = lay_out(memo, context, snapshot, view, width, shape, max(0, table - 1))
        graphs = graph_rows(memo, snapshot, history, states, width, shape.tiles, GRAPH[view.graph])
        return Parts(
            layout,
            header=[_header(memo, snapshot, view, width)],
            host=host_rows(memo, snapshot.host, history, snapshot.time, width, strip),
            cards=_filled(
                _cards(memo, snapshot, history, states, layout, width), width, shape.cards.rows
            ),
            graphs=graphs,
            rule=[_rule(memo, snapshot, history, states, layout, width)],
            processes=_filled(_processes(memo, snapshot, layout, context.row, width), width, table),
            report=report,
            timeline=timeline,
            footer=[_footer_of(memo, layout, width)],
        )


def _without_cards(snapshot: Snapshot | None, view: View, width: int, height: int) -> Parts:
    """No cards: the reason fills the room."""
    layout = Layout(view)
    moment = Moment() if snapshot is None else _moment(snapshot, view)
    if is_tiny(width, height):
        return Parts(layout, tiny=tiny_rows(snapshot, {}, moment, width, height, view.message))
    header = fill((), width, "header")
    if snapshot is not None:
        header = header_row(snapshot, moment, width)
    trouble = None if snapshot is None else snapshot.trouble
    return Parts(
        layout,
        header=[header],
        cards=empty_rows(trouble, width, height - 2),
        footer=[footer_row(() if view.covered else _ALWAYS, view.message, width)],
    )


def _states(
    memo: Memo, history: History, snapshot: Snapshot, beat: float, settled: bool
) -> dict[str, Finding]:
    """What is said of each card.

    Of a moment of the past it is not said that all is well before all that led to it is known.
    """
    states = {
        gpu.uuid: _state(memo.part(gpu.uuid), history, snapshot, gpu, beat) for gpu in snapshot.gpus
    }
    return states if settled else {uuid: _unless_well(state) for uuid, state in states.items()}


def _state(memo: Memo, history: History, snapshot: Snapshot, gpu: Gpu, beat: float) -> Finding:
    """What is said of a card: told in whole seconds, so judged once in each.

    Unless something begins or ends; and what is wrong is told with numbers of this moment.
    """
    before = memo.newest(card_state)
    wrong = before is not None and before.severity >= Severity.WARNING
    key = (
        *(beat, snapshot.time if wrong else None, snapshot.reserved),
        *(history.held(gpu.uuid), gpu.status, not gpu.utilization_gpu),
    )
    return memo.by(key, card_state, history, gpu)


def _header(memo: Memo, snapshot: Snapshot, view: View, width: int) -> Row:
    moment = _moment(snapshot, view)
    # Of the cards it tells for how long one has been silent, which is part of the moment.
    key = (int(snapshot.time), snapshot.host, snapshot.source, moment, width)
    return memo.by(key, header_row, snapshot, moment, width)


def _cards(
    memo: Memo,
    snapshot: Snapshot,
    history: History,
    states: Mapping[str, Finding],
    layout: Layout,
    width: int,
) -> list[Row]:
    view, shape, columns = layout.view, layout.shape, layout.card_columns
    assert shape is not None  # noqa: S101 - there are cards
    graph = GRAPH[view.graph]
    if columns is None:
        height = shape.cards.panels
        return panel_rows(memo, snapshot, history, states, width, height, view.card, graph)
    top = view.cards_top
    return card_rows(
        memo, snapshot, history, states, columns, width, shape.cards, top, view.card, graph
    )


def _rule(
    memo: Memo,
    snapshot: Snapshot,
    history: History,
    states: Mapping[str, Finding],
    layout: Layout,
    width: int,
) -> Row:
    """The line between cards and processes, and what of both is out of sight."""
    view, hidden = layout.view, layout.hidden_cards
    scrolled = Scrolled(
        _narrowing_words(snapshot, view),
        len(layout.entries),
        view.top,
        layout.room,
        view.cards_top,
        hidden - view.cards_top,
        _worst_hidden(snapshot, states, layout) if hidden else None,
        _counted_since(snapshot, history, view),
    )
    key = (scrolled, width, rule_facts(snapshot), layout.shown, snapshot.processes)
    return memo.by(key, rule_row, snapshot, layout.shown, scrolled, width)


def _counted_since(snapshot: Snapshot, history: History, view: View) -> str:
    """Since when the hours of users are counted."""
    if view.listing is not Listing.USERS or history.started is None:
        return ""
    from gpumon.ui.view.pages import moment_text

    return f"GPU-HOURS since {moment_text(history.started, snapshot.time)}"


def _worst_hidden(
    snapshot: Snapshot, states: Mapping[str, Finding], layout: Layout
) -> Field | None:
    """What is wrong with the worst of the cards out of sight."""
    assert layout.shape is not None  # noqa: S101 - there are cards
    above, shown = layout.view.cards_top, layout.shape.cards.in_sight
    worst: Finding | None = None
    index = line = 0
    for gpu in snapshot.gpus:
        state = states[gpu.uuid]
        in_sight = above <= line < above + shown
        if not in_sight and (worst is None or state.severity > worst.severity):
            worst, index = state, gpu.index
        line += 1 + len(gpu.mig)
    if worst is None or worst.severity < Severity.WARNING:
        return None
    return f"GPU {index}: {printable(worst.brief)}", STATE_STYLES[worst.severity]


def _processes(
    memo: Memo, snapshot: Snapshot, layout: Layout, sight: RowContext, width: int
) -> list[Row]:
    """The heading and the lines that there is room for."""
    view = layout.view
    return memo(
        _table,
        memo.part(process_row),
        sight,
        view.order,
        # A card may have it.
        view.cursor if view.card is None else None,
        view.tags,
        view.shift,
        width,
        layout.room > 0 and has_no_lists(snapshot),
        layout.columns,
        layout.headed,
        view.top,
        layout.room,
        layout.entries,
    )


def _table(
    memo: Memo,
    sight: RowContext,
    order: Sort,
    cursor: Key | None,
    tags: frozenset[ProcessId],
    shift: int,
    width: int,
    unlisted: bool,
    columns: tuple[Column, ...],
    headed: Sequence[ColumnHeader],
    top: int,
    room: int,
    entries: Sequence[Entry],
) -> list[Row]:
    rows = [heading_row(headed, order, width)]
    if unlisted:
        return [*rows, fill([(f"  {_NO_LISTS}", "dim")], width)]
    shown = entries[top : top + room]
    for entry in shown:
        members = entry.processes
        tagged = bool(members) and all(process.id in tags for process in members)
        marks = RowMarks(entry.key == cursor, tagged, entry.branch, shift)
        if entry.user is not None:
            rows.append(user_row(entry.user, user_columns(width), width, marks))
        elif entry.job is not None:
            rows.append(job_row(entry.job, columns, sight, width, marks, entry.folded))
        elif entry.process is not None:
            part = memo.part(entry.key)
            rows.append(part(process_row, entry.process, columns, sight, width, marks))
    memo.keep([entry.key for entry in shown])
    return rows


def _footer_of(memo: Memo, layout: Layout, width: int) -> Row:
    view = layout.view
    keys = footer_keys(view, layout.entry(view.cursor))
    return memo(footer_row, keys, view.message, width)


def _unless_well(state: Finding) -> Finding:
    if state.severity is not Severity.QUIET:
        return state
    sentence = "What led to this moment is still being looked at."
    return replace(state, sentence=sentence, short="…", brief="…")


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
    from gpumon.ui.view.kill import report_rows

    return report_rows(view.reports, width, max(1, min(_MOST_REPORT_ROWS, room)))


def _timeline_rows(snapshot: Snapshot, view: View, width: int) -> list[Row]:
    """Where in the past this is; nothing in the present."""
    if view.timeline is None:
        return []
    from gpumon.ui.view.timeline import timeline_row

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
