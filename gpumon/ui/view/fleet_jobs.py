"""The tables of jobs over many hosts, and of the machines of one job."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.text.formatting import (
    UNKNOWN,
    duration,
    fit,
    memory_size,
    names_within,
    number,
    printable,
)
from gpumon.text.table import PLAIN, Column, Marks, fitting, item_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.fleet.jobs import FleetJob, JobNode
    from gpumon.text.cells import Field, Row


class JobItem(Struct, gc=False):
    """A job as the columns see it."""

    job: FleetJob
    now: float  # seconds since the epoch


def _amount(
    key: str, label: str, width: int, about: str, field: str, text: Callable[[int], str], style: str
) -> Column[JobItem]:
    """A sum over the machines of a job: ≥ where that of some machine is unknown."""

    def shown(item: JobItem) -> str:
        total, is_least = item.job.total(field)
        if total is None:
            return UNKNOWN
        return ("≥" if is_least else "") + text(total) if total else text(total)

    return Column(
        key, label, width, about, lambda item: item.job.total(field)[0], shown, style=style
    )


def _users(item: JobItem) -> str:
    first, *more = item.job.users or (None,)
    return printable(first or UNKNOWN) + (f" +{len(more)}" if more else "")


def _age(item: JobItem) -> float | None:
    started = item.job.started_at
    return None if started is None else max(0.0, item.now - started)


def _left(item: JobItem) -> float | None:
    until = item.job.until
    return None if until is None else max(0.0, until - item.now)


def _unused(node: JobNode) -> str:
    return "" if node.unused == 0 else number(node.unused)


def _idle(node: JobNode) -> str:
    return "" if node.idle is None else ("≥" if node.idle_at_least else "") + duration(node.idle)


def _lag(node: JobNode) -> str:
    """Why it lags, or why nothing is known of it."""
    state = node.host.state
    if node.host.is_live:
        return node.lag
    return state.status.value + (f": {printable(state.sentence)}" if state.sentence else "")


def _machines(item: JobItem, width: int) -> Sequence[Field]:
    """How many machines there are, those that lag first, as far as they fit."""
    job = item.job
    ordered = sorted(job.nodes, key=lambda node: not node.lag)
    names = [f"{printable(node.host.name)}{'!' if node.lag else ''}" for node in ordered]
    count = f"{'≥' if job.is_partial else ''}{len(job.nodes) + len(job.absent)}"
    text = f"{count}: {names_within([*names, *job.absent], max(0, width - 4))}"
    return ((fit(text, width), "state.warning" if job.lagging else ""),)


JOB_COLUMNS: tuple[Column[JobItem], ...] = (
    Column(
        *("job", "JOB", 18, "The job: its scheduler and number, container, or launcher."),
        *(lambda item: item.job.label, lambda item: item.job.label, "strong"),
        left=True,
        descends=False,
    ),
    Column(
        *("user", "USER", 10, "The user of the job."),
        *(lambda item: item.job.users[0] if item.job.users else None, _users, "user"),
        left=True,
        descends=False,
    ),
    _amount("gpu", "GPUS", 5, "How many GPUs it is on or was allocated.", "gpus", str, ""),
    _amount(
        *("unused", "UNUSED", 7, "How many of its allocated GPUs have no computing process."),
        *("unused", lambda count: str(count or ""), "state.note"),
    ),
    _amount(
        *("memory_used", "GPU-MEM", 9, "GPU memory that its processes hold together."),
        *("memory", memory_size, "strong"),
    ),
    Column(
        *("sm", "SM%", 4, "SM use: the mean over its machines."),
        *(lambda item: item.job.sm, lambda item: number(item.job.sm)),
    ),
    Column(
        *("age", "AGE", 7, "How long it has been running."),
        *(_age, lambda item: duration(_age(item)), "dim"),
    ),
    Column(
        *("left", "LEFT", 7, "Until its time limit."),
        *(_left, lambda item: "" if item.job.until is None else duration(_left(item)), "dim"),
        descends=False,
    ),
    Column(
        *("host", "MACHINES", 0, "On which machines it is; those marked with ! lag behind."),
        value=lambda item: len(item.job.nodes),
        left=True,
        draw=_machines,
    ),
)
"""The columns of jobs, in order; the last one takes the remaining width."""

_NODE_HOST = 16
_POWER = "W of the machine's GPUs that it is on or was allocated."

NODE_COLUMNS: tuple[Column[JobNode], ...] = (
    Column(
        *("host", "MACHINE", _NODE_HOST, "The machine."),
        *(lambda node: node.host.index, lambda node: printable(node.host.name), "strong"),
        left=True,
        descends=False,
    ),
    Column(
        *("gpu", "GPUS", 5, "How many of its GPUs the job is on or was allocated."),
        *(attrgetter("gpus"), lambda node: number(node.gpus)),
    ),
    Column(
        *("unused", "UNUSED", 7, "How many of these have no computing process."),
        *(attrgetter("unused"), _unused, "state.note"),
    ),
    Column(
        *("processes", "PROCS", 6, "How many processes of the job are on its GPUs."),
        *(attrgetter("processes"), lambda node: number(node.processes), "dim"),
    ),
    Column(
        *("memory_used", "GPU-MEM", 8, "GPU memory that these hold."),
        *(attrgetter("memory"), lambda node: memory_size(node.memory)),
    ),
    Column(
        *("sm", "SM%", 4, "SM use: the mean over the GPUs that report it."),
        *(attrgetter("sm"), lambda node: number(node.sm)),
    ),
    Column(
        *("load", "UTIL%", 5, "Mean utilisation of these GPUs over the last half minute."),
        *(attrgetter("load"), lambda node: number(node.load)),
    ),
    Column(
        *("power", "POWER", 6, _POWER),
        *(attrgetter("power"), lambda node: number(node.power, "W")),
    ),
    Column(
        *("idle", "IDLE", 7, "For how long none of these processes has computed."),
        *(attrgetter("idle"), _idle),
        "state.note",
    ),
    Column(
        *("lag", "LAGS", 0, "Why the machine lags behind the others of the job."),
        *(lambda node: not _lag(node), _lag, "state.warning"),
        left=True,
        descends=False,
    ),
)
"""The columns of the machines of a job; the last one takes the remaining width."""


_LAST_COLUMN = 16
"""Cells of the last column at least."""


def job_columns(width: int) -> tuple[Column[JobItem], ...]:
    """The columns of jobs that fit; the last one is always there."""
    return fitting(JOB_COLUMNS, width - _LAST_COLUMN)


def node_columns(width: int) -> tuple[Column[JobNode], ...]:
    """The columns of the machines of a job that fit; the last one is always there."""
    return fitting(NODE_COLUMNS, width - _LAST_COLUMN)


def job_row(job: FleetJob, now: float, width: int, marks: Marks = PLAIN) -> Row:
    """One job."""
    return item_row(JobItem(job, now), job_columns(width), width, marks)


def node_row(node: JobNode, width: int, marks: Marks = PLAIN) -> Row:
    """One machine of a job."""
    return item_row(node, node_columns(width), width, marks, "" if node.host.is_live else "stale")
