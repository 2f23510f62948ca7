"""The table of processes: its columns at a width, its order, and its lines."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from gpumon.config.columns import COLUMN, DEFAULT_COLUMNS
from gpumon.text.command_lines import command_line
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    counted,
    duration,
    gpu_list,
    memory_size,
    number,
    printable,
)
from gpumon.text.process_columns import LEAST_COMMAND, ProcessItem
from gpumon.text.table import PLAIN, in_order, line, remaining

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.findings.groups import JobGroup
    from gpumon.model.processes import GpuProcess
    from gpumon.text.cells import Field, Row
    from gpumon.text.process_columns import RowContext
    from gpumon.text.table import Column, Marks, Sort


@lru_cache(maxsize=16)
def visible_columns(
    width: int, chosen: tuple[str, ...] = DEFAULT_COLUMNS
) -> tuple[Column[ProcessItem], ...]:
    """The chosen columns that fit, without those of the lowest priority."""
    columns = [COLUMN[key] for key in chosen]
    while len(columns) > 2 and remaining(columns, width) < LEAST_COMMAND:
        columns.remove(min(columns, key=lambda column: column.keep))
    return tuple(columns)


def default_columns(processes: Sequence[GpuProcess]) -> tuple[str, ...]:
    """The default columns: without the type while all processes only compute.

    Args:
        processes: All processes, unfiltered, so that a filter does not move the columns.
    """
    if any(process.type != "C" for process in processes):
        return DEFAULT_COLUMNS
    return tuple(key for key in DEFAULT_COLUMNS if key != "type")


def whole_width(processes: Sequence[GpuProcess], columns: Sequence[Column[ProcessItem]]) -> int:
    """Width of a table in which no command is cut."""
    longest = max((cell_width(command_line(process)) for process in processes), default=0)
    return 1 + sum(column.width + 1 for column in columns if column.width) + longest


def sort_processes(
    processes: Sequence[GpuProcess], sort: Sort, context: RowContext
) -> list[GpuProcess]:
    """Sort processes; unknown values come last, and ties are sorted by PID."""
    ordered = sorted(processes, key=by_pid)
    return in_order(ordered, sort_value(sort.column, context), descending=sort.descending)


def by_pid(process: GpuProcess) -> tuple[int, int]:
    """The order of processes that a column does not tell apart."""
    return process.id.pid, process.id.start_time or 0


def sort_value(column: str, context: RowContext) -> Callable[[GpuProcess], object]:
    """The value that a column is sorted by."""
    value = COLUMN[column].value
    return lambda process: value(ProcessItem(process, context))


def process_row(
    process: GpuProcess,
    columns: Sequence[Column[ProcessItem]],
    context: RowContext,
    width: int,
    marks: Marks = PLAIN,
) -> Row:
    """One process."""
    item = ProcessItem(process, context, marks)
    left = remaining(columns, width)
    style = "dim" if not process.uses else "" if process.visible else "stale"
    cells = [column.fields(item, column.width or left) for column in columns]
    return line(cells, width, marks, style)


def job_row(
    job: JobGroup,
    columns: Sequence[Column[ProcessItem]],
    context: RowContext,
    width: int,
    marks: Marks,
    folded: bool,
) -> Row:
    """One job in the columns of processes: sums, and its label in the command column."""
    users = printable(job.users[0] or UNKNOWN) if job.users else UNKNOWN
    if len(job.users) > 1:
        users = f"{users} +{len(job.users) - 1}"
    processes = counted(len(job.processes), "process", "es")
    texts = {
        "gpu": gpu_list(job.gpus),
        "user": users,
        "memory_used": memory_size(job.memory),
        "sm": number(job.sm),
        "age": duration(None if job.started_at is None else context.now - job.started_at),
        "command": f"{'+ ' if folded else ''}{printable(job.label)} · {processes}",
    }
    left = remaining(columns, width)
    cells: list[list[Field]] = [
        [(column.fit(texts.get(column.key, ""), column.width or left), "strong")]
        for column in columns
    ]
    return line(cells, width, marks)


def users_of(processes: Sequence[GpuProcess]) -> int:
    """How many users own a process."""
    return len({process.user for process in processes if process.user is not None})
