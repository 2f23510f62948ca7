"""The table of hosts: its columns, and a line of cells for each host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.findings import RULES, Severity
from gpumon.fleet.fleet import HostOrigin, HostStatus
from gpumon.text.cells import Field, Row, bar, bar_style, fill, restyle
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    counted,
    duration,
    fit,
    fit_right,
    gibibytes,
    memory_size,
    printable,
)
from gpumon.ui.view.gpu_text import GLYPHS, STATE_STYLES, state_glyph

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
_BAR = 10
_FRESH = 2.5
"""Intervals after which the newest data are old."""


class HostColumn(Struct, frozen=True):
    """A column of the table of hosts.

    Attributes:
        key: Identifies it; the key of the process column with the same meaning, if there is one.
        label: The heading.
        about: One sentence on what it means.
        value: The value that hosts are sorted by; ``None`` is unknown.
        width: Cells.
        left: Whether its text is left-aligned.
        descends: Whether the first press sorts in descending order.
    """

    key: str
    label: str
    about: str
    value: Callable[[HostSummary], object]
    width: int = 0
    left: bool = False
    descends: bool = True


def _received(host: HostSummary) -> float | None:
    at = host.state.received_at
    return None if at is None else -at


HOST_COLUMNS: tuple[HostColumn, ...] = (
    HostColumn(
        "host",
        "HOST",
        "Its name, as it was given; sorted by it, hosts stand in the order in which they were "
        "named.",
        lambda host: host.index,
        left=True,
        descends=False,
    ),
    HostColumn(
        "gpu",
        "GPUS",
        "A cell a GPU: ○ is free, a level is the memory in use and its colour the load, ▲ and ✖ "
        "need attention.",
        lambda host: len(host.gpus) or None,
        left=True,
    ),
    HostColumn("free", "FREE", "How many of its GPUs are free.", lambda host: host.free, 5),
    HostColumn(
        "most_free",
        "ROOM",
        "Free memory of the GPU that has most of it.",
        lambda host: host.most_free,
        5,
    ),
    HostColumn(
        "state",
        "STATE",
        "The worst state of its GPUs, or why there are no current values, and since when.",
        lambda host: host.severity,
        left=True,
    ),
    HostColumn(
        "memory_used",
        "MEMORY",
        "GPU memory in use, of all there is.",
        lambda host: host.memory_used,
        11,
    ),
    HostColumn(
        "user",
        "USERS",
        "Who holds GPU memory, most first.",
        lambda host: host.users[0].memory if host.users else None,
        left=True,
    ),
    HostColumn("age", "AGE", "How old its newest data are, if they are not current.", _received, 5),
)
"""The columns of the table of hosts, in order."""

_COLUMN = {one.key: one for one in HOST_COLUMNS}
# The last ones are left out first.
_PRIORITY = ("host", "free", "gpu", "state", "most_free", "age", "user", "memory_used")


def host_columns(hosts: Sequence[HostSummary], width: int) -> tuple[HostColumn, ...]:
    """The columns that fit, with their widths.

    Args:
        hosts: All hosts, whose names and GPUs set the width of columns.
        width: Cells for a line.
    """
    name = min(_MOST_NAME, max((cell_width(one.name) for one in hosts), default=0))
    gpus = min(_MOST_GPUS, max((len(one.gpus) for one in hosts), default=0))
    least = {one.key: one.width for one in HOST_COLUMNS} | {
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
    return tuple(replace(one, width=kept[one.key]) for one in HOST_COLUMNS if one.key in kept)


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
    columns: Sequence[HostColumn],
    age: str,
    status: str,
    width: int,
    cursor: bool,
) -> Row:
    """One host.

    Args:
        host: The host.
        columns: From ``host_columns``.
        age: From ``age_text``.
        status: From ``status_text``.
        width: Cells.
        cursor: Whether it is under the cursor.
    """
    fields: list[Field] = [("▸" if cursor else " ", "")]
    for column in columns:
        fields += _fields(host, column, age, status)
        fields.append((" ", ""))
    row = fill(fields, width)
    if cursor:
        return restyle(row, "cursor")
    return row if host.is_live else restyle(row, "stale")


def _fields(host: HostSummary, column: HostColumn, age: str, status: str) -> list[Field]:
    """The fields of one column, in exactly its width."""
    width = column.width
    if column.key == "host":
        return [(fit(printable(host.name), width), "strong")]
    if column.key == "gpu":
        return _cells(host, width)
    if column.key == "free":
        text = UNKNOWN if host.free is None else str(host.free)
        return [(fit_right(text, width), "state.good" if host.free else "dim")]
    if column.key == "most_free":
        return [(fit_right(_size(host.most_free), width), "")]
    if column.key == "state":
        return [_state_field(host, status, width)]
    if column.key == "memory_used":
        return _memory(host, width)
    if column.key == "user":
        return [(_users(host, width), "user")]
    return [(fit_right(age, width), "state.warning" if host.is_live else "stale")]


def _cells(host: HostSummary, width: int) -> list[Field]:
    """A cell for each GPU; the last one stands for those that do not fit."""
    fields = [_cell(gpu) for gpu in host.gpus]
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
    if severity >= Severity.WARNING or RULES[gpu.state.kind].hides_memory:
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


def _state_field(host: HostSummary, status: str, width: int) -> Field:
    if status:
        sign = "◔" if host.state.status is HostStatus.SILENT else "◌"
        return fit(f"{sign} {status}", width), "stale"
    worst = host.worst
    if worst is not None:
        more = sum(gpu.state.severity >= Severity.WARNING for gpu in host.gpus) - 1
        text = f"{state_glyph(worst.state)} {worst.index}: {printable(worst.state.short)}"
        if more > 0 and cell_width(text) + 4 <= width:
            text += f" +{more}"
        return fit(text, width), STATE_STYLES[worst.state.severity]
    if host.state.origin is not HostOrigin.GPUMON and host.state.origin is not None:
        return fit(f"{host.state.origin.value} only", width), "dim"
    return " " * width, ""


def _memory(host: HostSummary, width: int) -> list[Field]:
    """The memory in use and in all, with a bar if there is room."""
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
    if width > _COLUMN["memory_used"].width:
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


def _users(host: HostSummary, width: int) -> str:
    """The users that fit, and how many others there are."""
    texts = [
        f"{_user_name(use.user)} {_size(use.memory)}" if use.memory else _user_name(use.user)
        for use in host.users
    ]
    if not texts or not host.is_live:
        return " " * width
    text = names_within(texts, width)
    if cell_width(text) <= width:
        return fit(text, width)
    name = _user_name(host.users[0].user)
    rest_text = f" +{len(texts) - 1}" if len(texts) > 1 else ""
    return fit(fit(name, min(cell_width(name), width - len(rest_text))) + rest_text, width)


def names_within(names: Sequence[str], width: int) -> str:
    """The names that fit, but at least one, and how many others there are."""
    text = ""
    for shown in range(len(names), 0, -1):
        rest = len(names) - shown
        text = ", ".join(names[:shown]) + (f" +{rest}" if rest else "")
        if cell_width(text) <= width:
            break
    return text


def _size(size: int | None) -> str:
    """An amount in at most four cells, as far as whole gibibytes fit."""
    text = memory_size(size)
    return f"{gibibytes(size, 0)}G" if text.endswith("G") else text


def _user_name(user: str | None) -> str:
    return "not visible" if user is None else printable(user)


def host_sentence(host: HostSummary, now: float) -> str:
    """What there is to say of a host, in a sentence."""
    status = status_text(host, now)
    if status:
        return f"{printable(host.name)}: {status}"
    parts = []
    if host.worst is not None:
        worst = host.worst
        parts.append(f"GPU {worst.index}: {printable(worst.state.sentence)}")
    if host.state.sentence:
        parts.append(printable(host.state.sentence))
    if not parts:
        parts.append(f"{host.free or 'none'} of {counted(len(host.gpus), 'GPU')} free")
    return f"{printable(host.name)}: {'; '.join(parts)}"
