"""Below the list of users: one user's GPU memory and GPUs over time, and what is idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.model.arithmetic import known_sum
from gpumon.text.cells import Field, Row, fill, row_width
from gpumon.text.command_lines import command_line
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    fit,
    fit_right,
    gpu_list,
    memory_size,
    printable,
)
from gpumon.ui.view.chart_plot import (
    chart_width,
    series_rows,
    side_by_side,
    span_until,
    sparkline,
)
from gpumon.ui.view.chart_series import (
    AXIS_WIDTH,
    USER_SERIES,
    end_of_chart,
    value_count,
    window_seconds,
    window_title,
)
from gpumon.ui.view.page_layout import moment_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.findings.groups import UserUse
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.history import History
    from gpumon.text.process_columns import IdleTime, RowContext
    from gpumon.ui.view.chart_series import ChartEnd, ChartSeries
    from gpumon.ui.view.dashboard_layout import TableContext
    from gpumon.ui.view.frame import Frame

_LEAST_HEIGHT, _MOST_CHART = 3, 14
_LEAST_CHART = 5
"""Least height of a chart with its title; with less room it has one line."""
_BESIDE = 70
"""From this width on the charts stand side by side."""
_LINE_LABEL, _LINE_NOW = 13, 8
_SINCE, _MEMORY = 24, 7


def user_rows(frame: Frame, use: UserUse, context: TableContext, height: int) -> list[Row]:
    """The rows about a user; empty if the height is too small.

    Args:
        frame: What is drawn.
        use: The user.
        context: Has the history of the snapshot, also of a paused screen.
        height: Rows.
    """
    if height < _LEAST_HEIGHT:
        return []
    memo, snapshot, _, _, view, width = frame
    history, moment, is_past = context.history, snapshot.time, view.is_past
    seconds = window_seconds(view.window, history)
    heading: list[Field] = [
        (f"── {printable(use.user or UNKNOWN)} ", "strong"),
        (f"{window_title(view.window, history).lower()} ", "dim"),
    ]
    title = fill([*heading, ("─" * max(0, width - row_width(heading)), "rule")], width)
    key = (context.second, use.user, snapshot.processes)
    idle = memo.by(key, _idle, use, snapshot, context.row)
    room = height - 1
    lines = min(max(1, len(idle)), max(1, room // 3))
    if room - lines < len(USER_SERIES):
        lines = room
    below = _idle_rows(idle, moment, width, lines)
    room -= len(below)
    known = use.user, use.memory, use.gpus
    each = chart_width(width, len(USER_SERIES) if width >= _BESIDE else 1)
    end = end_of_chart(history.now, seconds, value_count(each))
    shown = (*known, seconds, end, width, room, is_past)
    drawn = memo.by(shown, _charts, use, history, seconds, end, width, room, is_past)
    return [title, *drawn, *below]


def _charts(
    use: UserUse,
    history: History,
    seconds: float,
    end: ChartEnd,
    width: int,
    room: int,
    is_past: bool,
) -> list[Row]:
    """The charts at most as high as the room: side by side, one below the other, or as lines."""
    across = len(USER_SERIES) if width >= _BESIDE else 1
    tall = min(_MOST_CHART, room * across // len(USER_SERIES))
    if tall < _LEAST_CHART:
        lines = [_line(series, use, history, seconds, width) for series in USER_SERIES]
        return lines if room >= len(lines) else []
    each = chart_width(width, across)
    drawn = [
        _chart(series, use, history, seconds, end, each, tall, is_past) for series in USER_SERIES
    ]
    return side_by_side(drawn, width) if across > 1 else [row for rows in drawn for row in rows]


def _chart(
    series: ChartSeries[UserUse],
    use: UserUse,
    history: History,
    seconds: float,
    end: ChartEnd,
    width: int,
    height: int,
    is_past: bool,
) -> list[Row]:
    span = span_until(end.time, seconds, value_count(width))
    title = [(" " * AXIS_WIDTH + f"{series.label}  ", "dim"), (series.text(use), "strong")]
    rows = series_rows(series, history, use, span, end, {}, width, height - 1, is_past=is_past)
    return [fill(title, width), *rows]


def _line(
    series: ChartSeries[UserUse], use: UserUse, history: History, seconds: float, width: int
) -> Row:
    room = max(1, width - _LINE_LABEL - _LINE_NOW - 2)
    end = end_of_chart(history.now, seconds, 2 * room)
    fields = [
        (" " + fit(series.label, _LINE_LABEL), "dim"),
        (fit(series.text(use), _LINE_NOW), "strong"),
        (sparkline(series, history, use, seconds, room, end), series.style),
    ]
    return fill(fields, width)


def _idle(
    use: UserUse, snapshot: Snapshot, context: RowContext
) -> list[tuple[GpuProcess, IdleTime]]:
    """The user's idle processes, largest memory first."""
    found: list[tuple[GpuProcess, IdleTime]] = []
    for process in snapshot.processes:
        interval = context.idle(process.id) if process.user == use.user else None
        if interval is not None and interval.seconds >= context.idle_after:
            found.append((process, interval))
    return sorted(found, key=lambda pair: -(pair[0].memory_used or 0))


def _idle_rows(
    idle: Sequence[tuple[GpuProcess, IdleTime]], now: float, width: int, most: int
) -> list[Row]:
    """A line for each idle process; the last one counts those that do not fit."""
    if not idle:
        return [fill([(" nothing idle", "dim")], width)]
    shown = idle if len(idle) <= most else idle[: most - 1]
    rows: list[Row] = []
    for process, interval in shown:
        before = "" if interval.start_observed else "before "
        since = f" idle since {before}{moment_text(interval.since, now)}"
        fields: list[Field] = [
            (fit(since, max(_SINCE, cell_width(since))), "state.note"),
            (fit_right(memory_size(process.memory_used), _MEMORY), "strong"),
            (f" on GPU {gpu_list(process.gpu_indices)}  {process.id.pid}  ", ""),
        ]
        left = max(0, width - row_width(fields))
        rows.append(fill([*fields, (fit(command_line(process), left), "dim")], width))
    if len(shown) < len(idle):
        hidden = idle[len(shown) :]
        total = known_sum(process.memory_used for process, _ in hidden)
        text = f" +{len(hidden)} more idle, {memory_size(total)}"
        rows.append(fill([(text, "state.note")], width))
    return rows
