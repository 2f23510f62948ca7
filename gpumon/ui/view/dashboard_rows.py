"""Draws the dashboard as rows. The screen, the first frame and the tests use ``Dashboard.rows``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.findings import Finding, Severity, gpu_state, mig_state
from gpumon.model.snapshot import GpuStatus, lines_of
from gpumon.text.cells import Field, Row, fill
from gpumon.text.formatting import UNKNOWN, counted, printable
from gpumon.text.table import Marks, heading_row
from gpumon.ui.view.chart_series import window_seconds
from gpumon.ui.view.dashboard_layout import (
    LEAST_TABLE,
    Layout,
    dashboard_shape,
    gpu_of,
    is_tiny,
    lay_out,
    lines_wanted,
    table_context,
    timeline_height,
)
from gpumon.ui.view.frame import Frame, Memo
from gpumon.ui.view.gpu_panels import panel_rows, tile_rows
from gpumon.ui.view.gpu_table import gpu_rows, line_count
from gpumon.ui.view.gpu_text import STATE_STYLES
from gpumon.ui.view.gpu_tiles import charted_gpus
from gpumon.ui.view.header_footer import (
    NO_COUNTS,
    GpuCounts,
    HeaderStatus,
    TableSummary,
    empty_rows,
    exactly,
    footer_row,
    gpu_counts,
    header_row,
    rule_facts,
    rule_row,
    tiny_rows,
)
from gpumon.ui.view.host_strip import host_height, host_rows
from gpumon.ui.view.key_names import ALWAYS, footer_keys, keycap
from gpumon.ui.view.process_table import Listing, job_row, process_row
from gpumon.ui.view.user_table import user_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history import History
    from gpumon.text.process_columns import RowContext
    from gpumon.ui.view.dashboard_layout import TableContext
    from gpumon.ui.view.dashboard_view import View
    from gpumon.ui.view.gpu_table import GpusShape
    from gpumon.ui.view.list_view import Key

_MOST_REPORT_ROWS = 8


class Parts(Struct, frozen=True):
    """The rows of the dashboard, from the top; in a tiny terminal only ``tiny``."""

    layout: Layout  # Where everything is drawn.

    header: list[Row] = []
    host: list[Row] = []
    gpus: list[Row] = []
    graphs: list[Row] = []
    rule: list[Row] = []
    processes: list[Row] = []
    report: list[Row] = []
    timeline: list[Row] = []
    footer: list[Row] = []
    tiny: list[Row] = []

    def all(self) -> list[Row]:
        """All rows of the screen."""
        return [row for name in self.__struct_fields__[1:] for row in getattr(self, name)]


class Dashboard:
    """Draws the dashboard. Equal history, snapshot, view and size give equal rows.

    Args:
        history: The source of graphs and states.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._memo = Memo()

    def use_history(self, history: History) -> None:
        """Draw from another history, for example after a jump in time."""
        self._history = history

    def rows(self, snapshot: Snapshot | None, view: View, width: int, height: int) -> Parts:
        """All rows for a terminal of this size.

        Args:
            snapshot: The snapshot; ``None`` before the first one.
            view: The view.
            width: Cells.
            height: Rows.
        """
        history, complete = self._history, view.timeline is None or view.timeline.complete
        # The same snapshot is drawn again when its history becomes complete.
        memo = self._memo.by((history, complete), Memo)
        if snapshot is None or not snapshot.gpus:
            return _without_gpus(snapshot, view, width, height)
        context = table_context(memo, history, snapshot, view.interval)
        # Computed once per snapshot: a paused screen keeps its states.
        states = memo.by(snapshot, _states, memo, history, snapshot, context.second, complete)
        counts = _counts(memo, history, snapshot, states, context.second)
        status = _status(snapshot, view, counts)
        if is_tiny(width, height):
            tiny = tiny_rows(snapshot, states, status, width, height, view.message)
            return Parts(Layout(view=view, gpus=snapshot.gpus), tiny=tiny)
        strip = host_height(height) if view.host_strip else 0
        lines, gpus = line_count(snapshot), len(snapshot.gpus)
        seconds = window_seconds(view.window, history, snapshot.time)
        charted = memo(charted_gpus, memo, history, snapshot, seconds, width)
        key = (context.second, snapshot.processes, view.listing, view.timeline is None, height)
        wanted = memo.by(key, lines_wanted, context.history, snapshot, view, height)
        shape = dashboard_shape(lines, gpus, width, height - strip, wanted, len(charted))
        report = _report_rows(view, width, shape.table - LEAST_TABLE)
        timeline = _timeline_rows(snapshot, view, width, height)
        table = shape.table - len(report) - len(timeline) - view.editing
        layout = lay_out(memo, context, snapshot, view, width, shape, max(0, table - 1))
        layout = replace(layout, charted=charted)
        frame = Frame(memo, snapshot, history, states, layout.view, width)
        listed = _processes(frame, layout, context.row)
        if layout.line_columns is None:
            drawn = panel_rows(frame, shape.gpus.panels)
        else:
            drawn = gpu_rows(frame, layout.line_columns, shape.gpus)
        about_user = _user_rows(frame, layout, context, table - len(listed))
        return Parts(
            layout,
            header=[_header(frame, status)],
            host=host_rows(
                *(memo, snapshot.host, snapshot.processes, history, snapshot.time, seconds),
                *(width, strip),
            ),
            gpus=exactly(drawn, width, shape.gpus.rows),
            graphs=tile_rows(frame, shape.tiles, charted),
            rule=[_rule(frame, shape.gpus, layout)],
            processes=exactly([*listed, *about_user], width, table),
            report=report,
            timeline=timeline,
            footer=[memo(footer_row, footer_keys(frame.view, layout.entry), view.message, width)],
        )


def _without_gpus(snapshot: Snapshot | None, view: View, width: int, height: int) -> Parts:
    """The dashboard without GPUs, with the reason for it."""
    layout = Layout(view=view)
    status = HeaderStatus() if snapshot is None else _status(snapshot, view)
    if is_tiny(width, height):
        return Parts(layout, tiny=tiny_rows(snapshot, {}, status, width, height, view.message))
    header = fill((), width, "header")
    if snapshot is not None:
        header = header_row(snapshot, status, width)
    trouble = None if snapshot is None else snapshot.trouble
    return Parts(
        layout,
        header=[header],
        gpus=empty_rows(trouble, width, height - 2),
        footer=[footer_row(() if view.dialog_open else ALWAYS, view.message, width)],
    )


def _states(
    memo: Memo, history: History, snapshot: Snapshot, second: float, complete: bool
) -> dict[str, Finding]:
    """The state of each GPU and MIG device, by UUID.

    While the history before a past moment is incomplete, no GPU is shown as well.
    """
    states: dict[str, Finding] = {}
    for line in lines_of(snapshot.gpus):
        gpu, mig, part = line.gpu, line.mig, memo.part(line.uuid)
        if mig is None:
            states[gpu.uuid] = _state(part, history, snapshot, gpu, second)
        else:
            lists = (snapshot.processes, snapshot.reserved, snapshot.allocations)
            states[mig.uuid] = part.by(
                (second, *lists, mig, gpu.status), mig_state, history, gpu, mig
            )
    return states if complete else {uuid: _unless_well(state) for uuid, state in states.items()}


def _state(memo: Memo, history: History, snapshot: Snapshot, gpu: Gpu, second: float) -> Finding:
    """The state of a GPU, judged once a second because it is written in whole seconds.

    It is judged at once when something begins or ends. A warning contains current values, so it is
    judged in every sample.
    """
    before = memo.newest(gpu_state)
    wrong = before is not None and before.severity >= Severity.WARNING
    key = (
        *(second, snapshot.time if wrong else None, snapshot.reserved, snapshot.allocations),
        *(history.held(gpu.uuid), gpu.status, not gpu.utilization_gpu),
    )
    return memo.by(key, gpu_state, history, gpu)


def _counts(
    memo: Memo, history: History, snapshot: Snapshot, states: Mapping[str, Finding], second: float
) -> GpuCounts:
    """The counts of the header: once a second, and at once when a state or a list changes."""
    kinds = tuple([(state.kind, state.severity) for state in states.values()])
    key = (second, snapshot.processes, snapshot.reserved, snapshot.allocations, kinds)
    return memo.by(key, gpu_counts, history, snapshot.gpus, states)


def _header(frame: Frame, status: HeaderStatus) -> Row:
    snapshot, width = frame.snapshot, frame.width
    # The power of the GPUs is shown once a second.
    key = (int(snapshot.time), snapshot.host, snapshot.source, status, width)
    return frame.memo.by(key, header_row, snapshot, status, width)


def _rule(frame: Frame, shape: GpusShape, layout: Layout) -> Row:
    """The line between GPUs and processes."""
    snapshot, view, hidden = frame.snapshot, frame.view, layout.hidden_gpus
    notes = (_on_gpu(layout), _counted_since(snapshot, frame.history, view))
    summary = TableSummary(
        _narrowing_words(snapshot, view),
        len(layout.entries),
        view.list_top,
        layout.room,
        view.gpus_top,
        hidden - view.gpus_top,
        _worst_hidden(frame, shape.in_sight) if hidden else None,
        tuple(filter(None, notes)),
        _narrowed_to(layout),
    )
    key = (summary, frame.width, rule_facts(snapshot), layout.shown, snapshot.processes)
    return frame.memo.by(key, rule_row, snapshot, layout.shown, summary, frame.width)


def _narrowed_to(layout: Layout) -> str:
    """The GPU whose processes alone are shown."""
    uuid = layout.view.narrowing.gpu
    if uuid is None:
        return ""
    gpu = gpu_of(layout.gpus, uuid)
    return f"GPU {UNKNOWN if gpu is None else gpu.index}"


def _on_gpu(layout: Layout) -> str:
    """How many processes are on the GPU under the cursor: they come first."""
    gpu = layout.gpu
    if gpu is None or layout.view.narrowing.gpu is not None:
        return ""
    count = sum(gpu.index in process.gpu_indices for process in layout.shown)
    return f"{count or 'none'} on GPU {gpu.index}"


def _counted_since(snapshot: Snapshot, history: History, view: View) -> str:
    """The text that says since when GPU-hours are counted."""
    if view.listing is not Listing.USERS or history.started is None:
        return ""
    from gpumon.ui.view.page_layout import moment_text

    return f"GPU-HOURS since {moment_text(history.started, snapshot.time)}"


def _worst_hidden(frame: Frame, shown: int) -> Field | None:
    """The state of the worst hidden GPU, if it is a warning or worse."""
    above = frame.view.gpus_top
    worst: Finding | None = None
    index = 0
    for number, line in enumerate(lines_of(frame.snapshot.gpus)):
        if line.mig is not None or above <= number < above + shown:
            continue
        state = frame.states[line.uuid]
        if worst is None or state.severity > worst.severity:
            worst, index = state, line.gpu.index
    if worst is None or worst.severity < Severity.WARNING:
        return None
    return f"GPU {index}: {printable(worst.brief)}", STATE_STYLES[worst.severity]


def _processes(frame: Frame, layout: Layout, context: RowContext) -> list[Row]:
    """The heading and the visible lines of the table."""
    memo, snapshot, _, _, view, width = frame
    gpu = layout.gpu
    # The cursor may be on a GPU instead.
    cursor = view.cursor if view.in_list else None
    first_gpu = None if gpu is None else gpu.index
    empty = _empty_text(snapshot, layout, width)
    key = (
        *(context, view.sort, cursor, first_gpu, view.tags, view.watched.processes, view.shift),
        *(width, empty, layout.columns, layout.headers, view.list_top, layout.room),
        layout.entries,
    )
    part = memo.part(process_row)
    return memo.by(key, _table, part, layout, context, cursor, first_gpu, width, empty)


def _empty_text(snapshot: Snapshot, layout: Layout, width: int) -> str:
    """The text in place of lines, if there are none and there is room for it."""
    if layout.entries or layout.room < 1:
        return ""
    from gpumon.ui.view.empty_table import empty_table_text

    return empty_table_text(snapshot, layout.view.narrowing, width - 2)


def _table(
    memo: Memo,
    layout: Layout,
    context: RowContext,
    cursor: Key | None,
    first_gpu: int | None,
    width: int,
    empty: str,
) -> list[Row]:
    view, columns = layout.view, layout.columns
    tags, watched = view.tags, view.watched.processes
    rows = [heading_row(layout.headers, view.sort, width)]
    if empty:
        return [*rows, fill([(f"  {empty}", "dim")], width)]
    shown = layout.entries[view.list_top : view.list_top + layout.room]
    for entry in shown:
        members = entry.processes
        tagged = bool(members) and all(process.id in tags for process in members)
        dimmed = first_gpu is not None and first_gpu not in entry.gpus
        awaited = bool(watched) and any(process.id in watched for process in members)
        marks = Marks(entry.key == cursor, tagged, entry.branch, view.shift, dimmed, awaited)
        if entry.user is not None:
            rows.append(user_row(entry.user, layout.headers, width, marks))
        elif entry.job is not None:
            rows.append(job_row(entry.job, columns, context, width, marks, entry.folded))
        elif entry.process is not None:
            part = memo.part(entry.key)
            rows.append(part(process_row, entry.process, columns, context, width, marks))
    memo.keep([entry.key for entry in shown])
    return rows


def _unless_well(state: Finding) -> Finding:
    if state.severity is not Severity.QUIET:
        return state
    sentence = "gpumon is still analysing the history before this moment."
    return replace(state, sentence=sentence, short="…", brief="…")


def _narrowing_words(snapshot: Snapshot, view: View) -> tuple[str, ...]:
    words = view.narrowing.words(snapshot.processes)
    if view.tags:
        words.append(f"{len(view.tags)} tagged")
    if view.gpu_tags:
        compare = f": {keycap('open')} compares them" if view.compares else ""
        words.append(f"{counted(len(view.gpu_tags), 'GPU')} tagged{compare}")
    is_narrowed = (view.narrowing.gpu or view.narrowing.only_user) is not None
    if is_narrowed and not (view.tags or view.gpu_tags or view.reports):
        words.append(f"{keycap('clear')} shows all")
    return tuple(words)


# Modules that the first frame never needs are imported when they are used, here and above.


def _report_rows(view: View, width: int, room: int) -> list[Row]:
    """The progress of ending processes."""
    if not view.reports:
        return []
    from gpumon.ui.view.kill_report import report_rows

    return report_rows(view.reports, width, max(1, min(_MOST_REPORT_ROWS, room)))


def _user_rows(frame: Frame, layout: Layout, context: TableContext, height: int) -> list[Row]:
    """The user under the cursor, or the first, in the rows that the list of users leaves."""
    if layout.view.listing is not Listing.USERS or not layout.entries:
        return []
    entry = layout.entry or layout.entries[0]
    if entry.user is None:
        return []
    from gpumon.ui.view.user_charts import user_rows

    return user_rows(frame, entry.user, context, height)


def _timeline_rows(snapshot: Snapshot, view: View, width: int, height: int) -> list[Row]:
    """The timeline; empty in the present."""
    if view.timeline is None:
        return []
    from gpumon.ui.view.timeline import timeline_rows

    with_event = timeline_height(view, height) > 1
    return timeline_rows(view.timeline, snapshot.time, width, with_event=with_event)


def _status(snapshot: Snapshot, view: View, counts: GpuCounts = NO_COUNTS) -> HeaderStatus:
    timeline = view.timeline
    if timeline is not None:
        return HeaderStatus(
            log=view.log,
            unread=view.unread,
            counts=counts,
            source=timeline.tag,
            in_gap=timeline.playing.in_gap,
        )
    return HeaderStatus(
        interval=view.interval,
        age=None if view.paused else _silence(snapshot),
        paused=view.paused,
        cost=snapshot.cost if view.show_cost else None,
        log=view.log,
        unread=view.unread,
        counts=counts,
    )


def _silence(snapshot: Snapshot) -> float | None:
    """Seconds since the GPU that is silent longest answered; ``None`` if all answer."""
    ages = [
        snapshot.time - since
        for gpu in snapshot.gpus
        if gpu.status is GpuStatus.NO_ANSWER
        and (since := gpu.sampled_at or gpu.status_since) is not None
    ]
    return max(ages, default=None)
