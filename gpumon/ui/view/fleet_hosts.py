"""The table of hosts: its columns, and a line of cells for each host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.findings import RULES, Severity
from gpumon.fleet.fleet import HostOrigin, HostStatus
from gpumon.fleet.terms import HOST_TERMS
from gpumon.text.cells import Field, Row, bar, bar_style
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    counted,
    duration,
    fit,
    fit_right,
    gibibytes,
    memory_size,
    names_within,
    printable,
)
from gpumon.text.table import PLAIN, Column, Marks, line
from gpumon.ui.view.fleet_jobs import JOB_COLUMNS, NODE_COLUMNS
from gpumon.ui.view.gpu_text import GLYPHS, STATE_STYLES, state_glyph
from gpumon.ui.view.help_page import HelpSection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.fleet.summary import GpuSummary, HostSummary


_LEVELS = "▁▂▃▄▅▆▇"
_MOST_NAME = 24
_MOST_GPUS = 16
_LEAST_LABEL = 5
"""Four letters, and the arrow of the sorted column."""
_LEAST_STATE, _LEAST_USERS = 12, 9
_SHARES = (
    ("user", 11),
    ("state", 18),
    ("user", 13),
    ("state", 28),
    ("user", 24),
    ("state", 44),
    ("user", 48),
)
"""What the two texts get of the remaining cells, in turn."""
_BAR, _MEMORY_WIDTH = 10, 11
_FRESH = 2.5
"""Intervals after which the newest data are old."""


class HostItem(Struct, gc=False):
    """A host as the columns see it, with ``age_text`` and ``status_text``."""

    host: HostSummary
    age: str = ""
    status: str = ""


def _received(item: HostItem) -> float | None:
    at = item.host.state.received_at
    return None if at is None else -at


def age_text(host: HostSummary, now: float, interval: float) -> str:
    """The age of a host's newest data; empty if they are current."""
    received = host.state.received_at
    if received is None:
        return ""
    age = now - received
    return "" if host.is_live and age < max(2.0, _FRESH * interval) else duration(age)


def status_text(host: HostSummary, now: float) -> str:
    """Why a host has no current values, and since when; empty for a live one."""
    state = host.state
    if state.status is HostStatus.LIVE:
        return ""
    length = duration(now - state.since)
    if state.status is HostStatus.CONNECTING:
        return printable(state.sentence) or f"connecting {length}"
    return f"{state.status.value} {length}" + (
        f": {printable(state.sentence)}" if state.sentence else ""
    )


def host_row(
    host: HostSummary,
    columns: Sequence[Column[HostItem]],
    age: str,
    status: str,
    width: int,
    marks: Marks = PLAIN,
) -> Row:
    """One host, with texts from ``age_text`` and ``status_text``."""
    item = HostItem(host, age, status)
    cells = [column.fields(item, column.width) for column in columns]
    return line(cells, width, marks, "" if host.is_live else "stale")


def _free(item: HostItem, width: int) -> Sequence[Field]:
    free = item.host.free
    text = UNKNOWN if free is None else str(free)
    return ((fit_right(text, width), "state.good" if free else "dim"),)


def _age(item: HostItem, width: int) -> Sequence[Field]:
    return ((fit_right(item.age, width), "state.warning" if item.host.is_live else "stale"),)


def _cells(item: HostItem, width: int) -> Sequence[Field]:
    """A cell for each GPU; the last one stands for those that do not fit."""
    fields = [_cell(gpu) for gpu in item.host.gpus]
    if len(fields) > width:
        fields = [*fields[: width - 1], (fit("……", 1), "dim")]
    merged: list[Field] = []
    for text, style in fields:
        if merged and merged[-1][1] == style:
            merged[-1] = (merged[-1][0] + text, style)
        else:
            merged.append((text, style))
    return [*merged, (" " * (width - len(fields)), "")]


def _cell(gpu: GpuSummary) -> Field:
    """One GPU in one cell: a sign if something is wrong, else its memory and its load."""
    severity = gpu.state.severity
    hides = severity >= Severity.NOTE and RULES[gpu.state.kind].hides_memory
    if severity >= Severity.WARNING or hides:
        return state_glyph(gpu.state), STATE_STYLES[severity]
    if gpu.free:
        return GLYPHS[Severity.GOOD], STATE_STYLES[Severity.GOOD]
    if gpu.memory is None:
        return "?", "dim"
    level = _LEVELS[min(len(_LEVELS) - 1, int(gpu.memory * len(_LEVELS)))]
    if not gpu.load:
        return level, "bar.stale" if gpu.load is None else "state.note"
    # In the hue of memory: that of utilisation is the one of free GPUs in most themes.
    return level, bar_style("bar.memory", gpu.load)


def _state(item: HostItem, width: int) -> Sequence[Field]:
    text, style = _state_text(item, width)
    return ((fit(text, width), style),)


def _state_text(item: HostItem, width: int) -> Field:
    host = item.host
    if item.status:
        sign = "◔" if host.state.status is HostStatus.SILENT else "◌"
        return f"{sign} {item.status}", "stale"
    worst = host.worst
    if worst is not None:
        more = sum(gpu.state.severity >= Severity.WARNING for gpu in host.gpus) - 1
        text = f"{state_glyph(worst.state)} {worst.index}: {printable(worst.state.short)}"
        if more > 0 and cell_width(text) + 4 <= width:
            text += f" +{more}"
        return text, STATE_STYLES[worst.state.severity]
    if host.state.origin is not HostOrigin.GPUMON and host.state.origin is not None:
        return f"{host.state.origin.value} only", "dim"
    return printable(host.state.note), "dim"


def _memory(item: HostItem, width: int) -> Sequence[Field]:
    """The memory in use and in all, with a bar if there is room."""
    host = item.host
    used, total = host.memory_used, host.memory_total
    snapshot = host.state.snapshot
    sign = ""
    if host.is_live and snapshot is not None and used is None:
        known = [gpu.memory_used for gpu in snapshot.gpus if gpu.memory_used is not None]
        used, sign = (sum(known), "≥") if known else (None, "")
        total = sum(gpu.memory_total or 0 for gpu in snapshot.gpus) or None
    whole = "" if total is None else f"/{gibibytes(total, 0)}G"
    figure = f"{sign}{gibibytes(used, 0)}"
    room = width
    fields: list[Field] = []
    if width > _MEMORY_WIDTH:
        share = used / total if used is not None and total else None
        fields = [(bar(share, _BAR), bar_style("bar.memory", share)), (" ", "")]
        room -= _BAR + 1
    if len(figure) + len(whole) > room:
        whole = ""
    return [
        *fields,
        (fit_right(figure, room - len(whole)), "strong" if host.is_live else ""),
        (whole, "dim"),
    ]


def _users(item: HostItem, width: int) -> Sequence[Field]:
    return ((fit(_user_texts(item.host, width), width), "user"),)


def _user_texts(host: HostSummary, width: int) -> str:
    """The users that fit, and how many others there are."""
    texts = [
        f"{_user_name(use.user)} {_size(use.memory)}" if use.memory else _user_name(use.user)
        for use in host.users
    ]
    if not texts or not host.is_live:
        return ""
    text = names_within(texts, width)
    if cell_width(text) <= width:
        return text
    name = _user_name(host.users[0].user)
    rest_text = f" +{len(texts) - 1}" if len(texts) > 1 else ""
    return fit(name, min(cell_width(name), width - len(rest_text))) + rest_text


def _size(size: int | None) -> str:
    """An amount in at most four cells, as far as whole gibibytes fit."""
    text = memory_size(size)
    return f"{gibibytes(size, 0)}G" if text.endswith("G") else text


def _user_name(user: str | None) -> str:
    return "not visible" if user is None else printable(user)


HOST_COLUMNS: tuple[Column[HostItem], ...] = (
    Column(
        *("host", "HOST", 0),
        "Its name, as you gave it; sorting by it restores the order in which you named the hosts.",
        lambda item: item.host.index,
        lambda item: printable(item.host.name),
        style="strong",
        left=True,
        descends=False,
    ),
    Column(
        *("gpu", "GPUS", 0),
        "A cell a GPU: ○ is free, a level is the memory in use and its colour the load, ▲ and ✖ "
        "need attention.",
        lambda item: len(item.host.gpus) or None,
        left=True,
        draw=_cells,
    ),
    Column(
        *("free", "FREE", 5, "How many of its GPUs are free."),
        lambda item: item.host.free,
        draw=_free,
    ),
    Column(
        *("most_free", "ROOM", 5, "Free memory of the GPU that has most of it."),
        lambda item: item.host.most_free,
        lambda item: _size(item.host.most_free),
    ),
    Column(
        *("state", "STATE", 0),
        "The worst state of its GPUs, or why there are no current values, and since when.",
        lambda item: item.host.severity,
        left=True,
        draw=_state,
    ),
    Column(
        *("memory_used", "MEMORY", _MEMORY_WIDTH, "GPU memory in use, of the total."),
        lambda item: item.host.memory_used,
        draw=_memory,
    ),
    Column(
        *("user", "USERS", 0, "Who holds GPU memory, most first."),
        lambda item: item.host.users[0].memory if item.host.users else None,
        left=True,
        draw=_users,
    ),
    Column(
        *("age", "AGE", 5, "How old its newest data are, if they are not current."),
        _received,
        draw=_age,
    ),
)
"""The columns of the table of hosts, in order."""

# The last ones are left out first.
_PRIORITY = ("host", "free", "gpu", "state", "most_free", "age", "user", "memory_used")


def host_columns(hosts: Sequence[HostSummary], width: int) -> tuple[Column[HostItem], ...]:
    """The columns that fit on a line; the names and GPUs of all hosts set their widths."""
    name = min(_MOST_NAME, max((cell_width(host.name) for host in hosts), default=0))
    gpus = min(_MOST_GPUS, max((len(host.gpus) for host in hosts), default=0))
    least = {column.key: column.width for column in HOST_COLUMNS} | {
        "host": max(_LEAST_LABEL, name),
        "gpu": max(_LEAST_LABEL, gpus),
        "state": _LEAST_STATE,
        "user": _LEAST_USERS,
    }
    left = width - 1
    kept: dict[str, int] = {}
    for key in _PRIORITY:
        if left >= least[key] + 1 or not kept:
            kept[key] = min(least[key], max(1, left))
            left -= least[key] + 1
    # What is left goes to the two texts, then to a bar.
    for key, most in _SHARES:
        if key in kept and left > 0:
            more = min(left, most - kept[key])
            kept[key] += max(0, more)
            left -= max(0, more)
    if "memory_used" in kept and left > _BAR:
        kept["memory_used"] += _BAR + 1
    return tuple(
        replace(column, width=kept[column.key]) for column in HOST_COLUMNS if column.key in kept
    )


def host_sentence(host: HostSummary, now: float) -> str:
    """What there is to say of a host, in a sentence."""
    status = status_text(host, now)
    if status:
        return f"{printable(host.name)}: {status}"
    parts = []
    if host.worst is not None:
        worst = host.worst
        parts.append(f"GPU {worst.index}: {printable(worst.state.sentence)}")
    if host.state.remark:
        parts.append(printable(host.state.remark))
    if not parts:
        parts.append(f"{host.free or 'none'} of {counted(len(host.gpus), 'GPU')} free")
    return f"{printable(host.name)}: {'; '.join(parts)}"


_CELLS = (
    ("○", "a free GPU"),
    ("▁ ▇", "the level is the memory in use; the colour is the load, stronger where it is higher"),
    ("▲ ✖", "a GPU that needs attention; the state says why"),
    ("◌ ◔", "a host that is down or silent: the rest of its line is from its last answer"),
    ("≥", "at least: a host, or a GPU of a host, is missing in the sum"),
)


def fleet_sections() -> list[HelpSection]:
    """The cells and the filter of hosts, and the columns of hosts and jobs."""
    return [
        HelpSection("A host's GPUs", _CELLS),
        HelpSection(
            "The filter of hosts",
            tuple((term.example, term.about) for term in HOST_TERMS),
            "Words match the host, its users, GPU models and states; all words and terms must "
            "match. The list of processes has the terms below, and host.",
        ),
        *(
            HelpSection(title, tuple((column.label, column.about) for column in columns))
            for title, columns in (
                ("Host columns", HOST_COLUMNS),
                ("Job columns", JOB_COLUMNS),
                ("Columns of a job's machines", NODE_COLUMNS),
            )
        ),
    ]
