"""The tables of users: of this machine, and over the hosts of a fleet."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gpumon.text.cells import Field, Row, bar
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    duration,
    fit,
    gpu_list,
    memory_size,
    names_within,
    number,
    printable,
)
from gpumon.text.table import PLAIN, Column, Marks, fitting, line, remaining
from gpumon.ui.view.allocated import gpus_text, unused_count, with_allocated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.findings.groups import UserUse

UseT = TypeVar("UseT")


class FleetUser(Struct, frozen=True):
    """One user over all hosts with current values; ``None`` is unknown."""

    user: str | None  # ``None`` for all whose owner is unknown
    gpus: int | None
    processes: int | None
    memory: int | None
    idle_memory: int | None  # held by processes that were seen idle
    hosts: tuple[str, ...]  # most memory first
    longest: float | None  # age of the oldest process
    unused: int | None = 0  # number of GPUs given to the user's jobs that nobody computes on


_LEAST_SHARE = 0.01
"""A smaller share is no whole percent."""


def _share(use: UserUse) -> str:
    if use.share is None:
        return UNKNOWN
    if 0 < use.share < _LEAST_SHARE:
        return ">0%" if use.at_least else "<1%"
    return f"{'≥' if use.at_least else ''}{use.share * 100:.0f}%"


def _unused(use: UserUse) -> str:
    count = unused_count(use.allocated)
    return "" if count == 0 else number(count)


def _host_names(use: FleetUser, width: int) -> Sequence[Field]:
    """How many hosts there are, and the names that fit."""
    text = names_within([printable(host) for host in use.hosts], width)
    if text and cell_width(text) + 5 <= width:
        text = f"{len(use.hosts)}: {text}"
    return ((fit(text, width), ""),)


_USER = Column[Any](
    *("user", "USER", 14, "The user."),
    *(attrgetter("user"), lambda use: printable(use.user or UNKNOWN), "user"),
    left=True,
    descends=False,
)
_PROCESSES = Column[Any](
    *("processes", "PROCS", 6, "How many of the user's processes are on a GPU."),
    *(attrgetter("processes"), lambda use: number(use.processes), "dim"),
)
_MEMORY = Column[Any](
    *("memory_used", "GPU-MEM", 8, "GPU memory they hold together."),
    *(attrgetter("memory"), lambda use: memory_size(use.memory), "strong"),
)
_IDLE_MEMORY = Column[Any](
    *("idle", "IDLE-MEM", 9),
    "GPU memory held by processes that gpumon saw run nothing for a minute or longer.",
    attrgetter("idle_memory"),
    lambda use: "" if use.idle_memory == 0 else memory_size(use.idle_memory),
    "state.note",
)
_LONGEST = Column[Any](
    *("age", "LONGEST", 8, "How long the oldest of the processes has been running."),
    *(attrgetter("longest"), lambda use: duration(use.longest), "dim"),
)
_GPUS = Column[Any](
    *("gpu", "GPUS", 8, "On which GPUs they are."),
    *(attrgetter("gpus"), lambda use: gpu_list(use.gpus)),
    descends=False,
)

_ALLOCATED: tuple[Column[UserUse], ...] = (
    Column(
        *("allocated", "ALLOC", 8),
        (
            "The GPUs that a scheduler such as Slurm has allocated to the user's jobs; +1 is one "
            "more whose number is not known. Only where there is a scheduler."
        ),
        lambda use: with_allocated((), use.allocated),
        lambda use: gpus_text(use.allocated),
        descends=False,
    ),
    Column(
        *("unused", "UNUSED", 7),
        "How many of these have no computing process.",
        *(lambda use: unused_count(use.allocated), _unused),
        "state.note",
    ),
)
USER_COLUMNS: tuple[Column[UserUse], ...] = (
    *(_USER, _PROCESSES, _GPUS, *_ALLOCATED, _MEMORY),
    Column(
        *("share", "SHARE", 6),
        (
            "The same as a share of the memory of all GPUs that report it; the bar shows it too. ≥ "
            "while a GPU does not answer."
        ),
        *(attrgetter("share"), _share),
    ),
    Column(
        *("gpu_hours", "GPU-HOURS", 10),
        (
            "Hours on GPUs since gpumon began to sample: two GPUs for an hour are two. Ended "
            "processes count; several on one GPU count once. The line above the list shows since "
            "when."
        ),
        attrgetter("gpu_seconds"),
        lambda use: UNKNOWN if use.gpu_seconds is None else f"{use.gpu_seconds / 3600:.1f}",
    ),
    *(_IDLE_MEMORY, _LONGEST),
)
"""The columns of the list of users, in order."""

FLEET_USER_COLUMNS: tuple[Column[FleetUser], ...] = (
    _USER,
    replace(
        _GPUS,
        width=5,
        about="On how many GPUs they are.",
        text=lambda use: number(use.gpus),
        descends=True,
    ),
    _MEMORY,
    Column(
        *("unused", "UNUSED", 7),
        (
            "How many GPUs that a scheduler has allocated to the user's jobs have no computing "
            "process."
        ),
        *(attrgetter("unused"), lambda use: "" if use.unused == 0 else number(use.unused)),
        "state.note",
    ),
    *(_IDLE_MEMORY, _PROCESSES, _LONGEST),
    Column(
        *("host", "HOSTS", 0, "On which hosts, most memory first."),
        value=lambda use: len(use.hosts),
        left=True,
        draw=_host_names,
    ),
)
"""The columns of the users of a fleet, in order; the last one takes the remaining width."""

_LEAST_BAR = 10


def user_columns(width: int, *, allocated: bool) -> tuple[Column[UserUse], ...]:
    """The columns that fit; those of what schedulers have given only where there is one."""
    columns = [column for column in USER_COLUMNS if allocated or column not in _ALLOCATED]
    return fitting(columns, width)


def fleet_user_columns(width: int, *, allocated: bool) -> tuple[Column[FleetUser], ...]:
    """The columns that fit; the last one is always there. ``allocated`` as in ``user_columns``."""
    columns = [column for column in FLEET_USER_COLUMNS if allocated or column.key != "unused"]
    return fitting(columns, width - 10)


def user_row(
    use: UserUse, columns: Sequence[Column[UserUse]], width: int, marks: Marks = PLAIN
) -> Row:
    """One user, with their share of the machine's GPU memory as a bar."""
    cells = [column.fields(use, column.width) for column in columns]
    room = remaining(columns, width) - 2
    if room >= _LEAST_BAR:
        cells.append(((" ", ""), (bar(use.share, room), "bar.memory")))
    return line(cells, width, marks)
