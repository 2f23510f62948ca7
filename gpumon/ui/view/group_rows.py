"""Table rows that summarize several processes: jobs and users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

from gpumon.text.cells import Field, Row, bar, fill, restyle
from gpumon.text.formatting import (
    UNKNOWN,
    counted,
    duration,
    fit,
    fit_right,
    memory_size,
    number,
    printable,
)
from gpumon.ui.view.process_table import gpu_list, in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpumon.config.columns import Column
    from gpumon.findings.groups import JobGroup, UserUse
    from gpumon.ui.view.process_table import RowContext, RowMarks, Sort


_Use = TypeVar("_Use")


class UserColumn(Struct, Generic[_Use], frozen=True):
    """A column of a list of users: of this machine, or of a fleet.

    Attributes:
        key: The key of the process column with the same meaning, if there is one.
        label: The heading.
        width: Cells, without the space before it; 0 takes the remaining width.
        about: One sentence on what it means.
        text: The text for a user.
        value: The value it is sorted by; ``None`` is unknown.
        style: The style of the text.
        left: Whether its text is left-aligned.
        descends: Whether the first press sorts in descending order.
    """

    key: str
    label: str
    width: int
    about: str
    text: Callable[[_Use], str]
    value: Callable[[_Use], object]
    style: str = ""
    left: bool = False
    descends: bool = True


_LEAST_SHARE = 0.01
"""A smaller share is no whole percent."""


def _share(use: UserUse) -> str:
    if use.share is None:
        return UNKNOWN
    if 0 < use.share < _LEAST_SHARE:
        return ">0%" if use.at_least else "<1%"
    return f"{'≥' if use.at_least else ''}{use.share * 100:.0f}%"


def _hours(use: UserUse) -> str:
    return UNKNOWN if use.gpu_seconds is None else f"{use.gpu_seconds / 3600:.1f}"


def _idle(use: UserUse) -> str:
    return memory_size(use.idle_memory) if use.idle_memory else ""


USER_COLUMNS: tuple[UserColumn[UserUse], ...] = (
    UserColumn(
        "user",
        "USER",
        14,
        "Whose processes these are.",
        lambda use: printable(use.user or UNKNOWN),
        lambda use: use.user,
        "user",
        left=True,
        descends=False,
    ),
    UserColumn(
        "processes",
        "PROCS",
        6,
        "How many of the user's processes are on a GPU.",
        lambda use: str(use.processes),
        lambda use: use.processes,
        "dim",
    ),
    UserColumn(
        "gpu",
        "GPUS",
        8,
        "On which GPUs they are.",
        lambda use: gpu_list(use.gpus),
        lambda use: use.gpus,
        descends=False,
    ),
    UserColumn(
        "memory_used",
        "GPU-MEM",
        8,
        "GPU memory they hold together.",
        lambda use: memory_size(use.memory),
        lambda use: use.memory,
        "strong",
    ),
    UserColumn(
        "share",
        "SHARE",
        6,
        "That as a part of the memory of all GPUs that report theirs; the bar is the same. ≥ while "
        "a GPU does not answer.",
        _share,
        lambda use: use.share,
    ),
    UserColumn(
        "gpu_hours",
        "GPU-HOURS",
        10,
        "Hours on GPUs since gpumon began to look, two GPUs for an hour are two; ended processes "
        "count, several on one GPU count once. The rule above the list says since when.",
        _hours,
        lambda use: use.gpu_seconds,
    ),
    UserColumn(
        "idle",
        "IDLE-MEM",
        9,
        "GPU memory held by processes that gpumon saw run nothing for a minute or longer.",
        _idle,
        lambda use: use.idle_memory,
        "state.note",
    ),
    UserColumn(
        "age",
        "LONGEST",
        8,
        "How long the oldest of the processes has been running.",
        lambda use: duration(use.longest),
        lambda use: use.longest,
        "dim",
    ),
)
"""The columns of the list of users, in order."""

_LEAST_BAR = 10


def fitting_columns(
    columns: Iterable[UserColumn[_Use]], width: int
) -> tuple[UserColumn[_Use], ...]:
    """The first columns that fit, and the one that takes the remaining width."""
    edge = 0
    fitting = []
    for column in columns:
        edge += column.width + 1
        if edge <= width or not column.width:
            fitting.append(column)
    return tuple(fitting)


def user_columns(width: int) -> tuple[UserColumn[UserUse], ...]:
    """The columns that fit."""
    return fitting_columns(USER_COLUMNS, width)


def sort_users(uses: Sequence[UserUse], sort: Sort) -> list[UserUse]:
    """Sort users; unknown values come last."""
    column = next(column for column in USER_COLUMNS if column.key == sort.column)
    return in_order(uses, column.value, descending=sort.descending)


def user_row(
    use: UserUse, columns: Sequence[UserColumn[UserUse]], width: int, marks: RowMarks
) -> Row:
    """One user, with their share of the machine's GPU memory as a bar."""
    fields: list[Field] = [(marks.sign, "")]
    used = 1
    for column in columns:
        fit_to = fit if column.left else fit_right
        fields += [(fit_to(column.text(use), column.width), column.style), (" ", "")]
        used += column.width + 1
    room = width - used - 2
    if room >= _LEAST_BAR:
        fields += [(" ", ""), (bar(use.share, room), "bar.memory")]
    row = fill(fields, width)
    return restyle(row, marks.style) if marks.style else row


def job_row(
    job: JobGroup,
    columns: Sequence[Column],
    context: RowContext,
    width: int,
    marks: RowMarks,
    folded: bool,
) -> Row:
    """One job in the columns of processes: sums, and its label in the command column."""
    users = printable(job.users[0] or UNKNOWN) if job.users else UNKNOWN
    if len(job.users) > 1:
        users = f"{users} +{len(job.users) - 1}"
    texts = {
        "gpu": gpu_list(job.gpus),
        "user": users,
        "memory_used": memory_size(job.memory),
        "sm": number(job.sm),
        "age": duration(None if job.started_at is None else context.now - job.started_at),
    }
    fields: list[Field] = [(marks.sign, "tagged" if marks.tagged else "")]
    used = 1
    for column in columns[:-1]:
        text = texts.get(column.key, "")
        fit_to = fit if column.left else fit_right
        gap = marks.gap if used == 1 else " "
        fields += [(fit_to(text, column.width), "strong"), (gap, "state.note" if used == 1 else "")]
        used += column.width + 1
    processes = counted(len(job.processes), "process", "es")
    label = f"{'+ ' if folded else ''}{printable(job.label)} · {processes}"
    fields.append((fit(label, max(0, width - used)), "strong"))
    row = fill(fields, width)
    return restyle(row, marks.style) if marks.style else row
