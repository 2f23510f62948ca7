"""Header, rule and footer, the screen without GPUs, and the one for tiny terminals."""

from __future__ import annotations

import textwrap
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.findings import BRIEF_CELLS, Severity, not_free
from gpumon.model.allocations import unplaced_count, unplaced_of
from gpumon.model.snapshot import GpuStatus, Unknown, lines_of
from gpumon.text.cells import Field, Row, fill, row_width
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    counted,
    fit,
    gibibytes,
    number,
    printable,
    temperature,
)
from gpumon.text.table import beside, line_width
from gpumon.text.units import degree
from gpumon.ui.view.gpu_text import (
    STATE_STYLES,
    holders,
    state_field,
    state_fields,
    unlisted_holder,
)
from gpumon.ui.view.key_names import is_refused, keycap
from gpumon.ui.view.process_table import users_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpumon.findings import Finding
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu, OwnCost, Snapshot, Trouble
    from gpumon.recording.history import History
    from gpumon.ui.view.key_names import FooterKey


_KILOWATT = 1000.0
_IN_KILOWATTS = 2000.0
"""From this limit on, in watts, power is given in kilowatts: less would often read ``0.0 kW``."""
_TINY_MEMORY = 13
_BRIEF_WIDTH = BRIEF_CELLS + 2
"""A glyph, a space and the brief text."""


class LogNote(Struct, frozen=True):
    """The state of the log that is being written."""

    text: str  # Its size and duration, or the number of lost samples, briefly.
    trouble: str = ""  # Why samples are being lost, in a sentence; empty if none are.


class GpuCounts(Struct, frozen=True):
    """How many GPUs are free or need attention; a MIG device counts in place of its GPU."""

    devices: int = 0  # Number of GPUs and MIG devices that a job can have.
    free: int = 0  # Number of those that are free.
    unknown: int = 0  # Number of those of which this is unknown.
    attention: int = 0  # Number of GPUs whose state is a warning or worse.
    worst: Severity = Severity.QUIET  # The worst of all states.

    def fields(self) -> list[Field]:
        """``1 of 8 free`` and ``4 need attention``, each if known; empty for a single device."""
        fields: list[Field] = []
        if self.devices > max(1, self.unknown):
            text = f"{'≥ ' if self.unknown else ''}{self.free} of {self.devices} free"
            fields.append((text, "panel.state.good" if self.free else "header"))
        if self.devices > 1 and self.attention:
            text = f"{self.attention} need{'s' if self.attention == 1 else ''} attention"
            fields.append((text, f"panel.{STATE_STYLES[self.worst]}"))
        return fields


def gpu_counts(history: History, gpus: Sequence[Gpu], states: Mapping[str, Finding]) -> GpuCounts:
    """Count the GPUs in the newest snapshot of a history.

    Args:
        history: The history.
        gpus: The GPUs.
        states: The state of each GPU and MIG device, by UUID.
    """
    warned = {
        line.gpu.uuid for line in lines_of(gpus) if states[line.uuid].severity >= Severity.WARNING
    }
    devices = [(gpu, mig) for gpu in gpus for mig in gpu.mig or (None,)]
    reasons = [not_free(history, gpu, mig) for gpu, mig in devices]
    unknown = [reason for reason in reasons if reason is not None and reason.is_unknown]
    # Of some it is not known which ones are jobs', but how many.
    allocations = None if history.latest is None else history.latest.allocations
    left = unplaced_count(unplaced_of(allocations))
    perhaps = sum(reason.kind == "allocated" for reason in unknown) if left is not None else 0
    return GpuCounts(
        len(devices),
        reasons.count(None) + max(0, perhaps - (left or 0)),
        len(unknown) - perhaps,
        len(warned),
        max((state.severity for state in states.values()), default=Severity.QUIET),
    )


NO_COUNTS = GpuCounts()


class HeaderStatus(Struct, frozen=True):
    """The values of the header that do not describe the machine."""

    interval: float | None = None  # Seconds between samples; ``None`` for a single sample.
    # Seconds since the newest values if a GPU does not answer; otherwise ``None``.
    age: float | None = None
    paused: bool = False  # Whether the screen is paused.
    cost: OwnCost | None = None  # Own cost, if it is shown.
    log: LogNote | None = None  # The state of the log that is being written.
    unread: int = 0  # How many notices of alerts have not been seen on their page.
    counts: GpuCounts = NO_COUNTS
    source: str = ""  # Replaces the name of the snapshot's source.
    # Whether the shown moment is in a gap of the log, so that the sample is older.
    in_gap: bool = False


def interval_text(interval: float) -> str:
    """An interval as the user types it: ``0.5s``, ``2s``."""
    return f"{interval:g}s"


def header_row(snapshot: Snapshot, status: HeaderStatus, width: int) -> Row:
    """The machine on the left, the time on the right, and between them the values that fit."""
    left: list[Field] = [(" gpumon", "header.title")]
    if not snapshot.is_live:
        left.append((f"  {status.source or snapshot.source.upper()}", "header.mark"))
    left.append((f"  {printable(snapshot.host.name)}", "header"))
    right = _right(snapshot, status)
    room = width - row_width(left) - row_width(right)
    middle = _middle(snapshot, status, room)
    left += middle
    room -= row_width(middle)
    if room < 0:
        # Without the name of the machine: the time, warnings and the source matter more.
        left = left[:-1]
        room = width - row_width(left) - row_width(right)
    return fill([*left, (" " * max(0, room), "header"), *right], width, "header")


def _right(snapshot: Snapshot, status: HeaderStatus) -> list[Field]:
    fields: list[Field] = []
    if status.log is not None:
        style = "header.alarm" if status.log.trouble else "header.mark"
        fields.append((f" ● {printable(status.log.text)} ", style))
    if status.unread:
        fields.append((f" {keycap('alerts')} {counted(status.unread, 'alert')} ", "header.mark"))
    if status.paused:
        fields.append((" PAUSED ", "header.mark"))
    if status.age is not None:
        silent = [gpu for gpu in snapshot.gpus if gpu.status is GpuStatus.NO_ANSWER]
        who = f"GPU {silent[0].index}: " if len(silent) == 1 else ""
        fields.append((f" {who}no answer for {status.age:.0f} s ", "header.alarm"))
    else:
        clock = time.strftime("%H:%M:%S", time.localtime(snapshot.time))
        gap = (f" no sample since {clock} ", "header.alarm")
        fields.append(gap if status.in_gap else (f"  {clock}", "header"))
    interval = "" if status.interval is None else f"  {interval_text(status.interval)}"
    fields.append((f"{interval} ", "header.dim"))
    return fields


_MIDDLE = (
    "self gpus host_cpu ram load driver CUDA",
    "self gpus host_cpu ram load",
    "self gpus host_cpu ram",
    "self gpus host_cpu",
    "self gpus cpu",
    "self gpus",
    "self states",
    "self free",
    "self",
    "states",
    "free",
)
"""What stands between the machine and the time, from a wide header to a narrow one: the user has
asked for ``self``."""


def _middle(snapshot: Snapshot, status: HeaderStatus, room: int) -> list[Field]:
    """The first line of ``_MIDDLE`` that fits, without the values that are unknown."""
    host, cost, counts = snapshot.host, status.cost, status.counts
    cpu = None if host.cpu_percent is None else f"{host.cpu_percent:>3.0f}%"
    ram = None
    if host.memory_total is not None and host.memory_used is not None:
        total = gibibytes(host.memory_total, 0)
        ram = f"{gibibytes(host.memory_used, 0):>{len(total)}}/{total}G"
    states, power = counts.fields(), _power_text(snapshot.gpus)
    parts = {
        "self": _pair("self", None if cost is None else _cost_text(cost)),
        "gpus": _joined([*states, (power, "header")]),
        "states": _joined(states),
        "free": _joined(states[:1]),
        "host_cpu": _pair("host cpu", cpu),
        "cpu": _pair("cpu", cpu),
        "ram": _pair("ram", ram),
        "load": _pair("load", None if host.load is None else f"{host.load[0]:>5.2f}"),
        "driver": _pair("driver", host.driver_version),
        "CUDA": _pair("CUDA", host.cuda_version),
    }
    return first_fitting(_MIDDLE, parts, room)


def _power_text(gpus: Sequence[Gpu]) -> str:
    """The draw of all GPUs, ``2.1 kW``, in a constant width; empty for a single GPU.

    Its unit depends on the limits, so that it does not change with the draw. ``≥`` if the draw of a
    GPU is unknown or too old to count.
    """
    draws = [gpu.power_draw for gpu in gpus if gpu.status is GpuStatus.OK]
    known = [draw for draw in draws if draw is not None]
    if len(gpus) < 2 or not known:
        return ""
    most = sum(max(gpu.power_limit or 0, gpu.power_draw or 0) for gpu in gpus)
    kilo = most >= _IN_KILOWATTS
    texts = [
        f"{watts / _KILOWATT:.1f} kW" if kilo else f"{watts:.0f} W" for watts in (sum(known), most)
    ]
    return ("≥ " if len(known) < len(gpus) else "") + texts[0].ljust(len(texts[1]))


def _joined(values: Iterable[Field]) -> list[Field]:
    """Values that are not empty, with points between them."""
    fields: list[Field] = []
    for value in values:
        if value[0]:
            fields += [(" · " if fields else "  ", "header.dim"), value]
    return fields


def first_fitting(
    lines: Iterable[str], parts: Mapping[str, Sequence[Field]], room: int
) -> list[Field]:
    """The parts named in the first of the lines that fits."""
    for line in lines:
        fields = [field for name in line.split() for field in parts[name]]
        if row_width(fields) <= room:
            return fields
    return []


def _pair(label: str, value: str | None) -> list[Field]:
    if value is None:
        return []
    return [(f"  {label} ", "header.dim"), (printable(value), "header")]


def _cost_text(cost: OwnCost) -> str:
    """Gpumon's own cost: the share of a core, and the time inside the driver."""
    cpu = UNKNOWN if cost.cpu_percent is None else f"{cost.cpu_percent:.1f}%"
    inside = UNKNOWN if cost.driver_share is None else f"{cost.driver_share * 1000:.0f}"
    return f"{cpu} cpu, {inside} ms/s in driver"


class TableSummary(Struct, frozen=True):
    """The filters and scroll positions, for the rule."""

    narrowing: tuple[str, ...] = ()  # The conditions that select the processes, in words.
    lines: int = 0  # Number of lines of the table.
    lines_above: int = 0  # Number of these that are scrolled away.
    room: int | None = None  # Number of rows for them; ``None`` if all fit.
    gpus_above: int = 0  # Number of lines of GPUs scrolled away.
    gpus_below: int = 0  # Number of lines of GPUs that do not fit below.
    worst: Field | None = None  # The worst state of a hidden GPU, if it is a warning or worse.
    notes: tuple[str, ...] = ()  # Further texts on the table.
    gpu: str = ""  # The GPU whose processes alone are shown.


def rule_facts(snapshot: Snapshot) -> tuple[object, ...]:
    """The facts about the GPUs that ``rule_row`` shows."""
    lists = _has_incomplete_lists(snapshot), has_no_lists(snapshot), is_from_metrics(snapshot)
    return _memory_sum(snapshot), *lists


def rule_row(
    snapshot: Snapshot, shown: Sequence[GpuProcess], summary: TableSummary, width: int
) -> Row:
    """The line between GPUs and processes, with the number of processes.

    Args:
        snapshot: The snapshot.
        shown: The processes that pass the filter.
        summary: The filters and scroll positions.
        width: Cells.
    """
    fields: list[Field] = [("──", "rule"), *_hidden_gpus(summary)]
    if summary.gpu:
        fields.append((f" {summary.gpu} ·", "narrowing"))
    tail = _range(summary)
    parts = [counted(len(shown), "process", "es")]
    if len(shown) != len(snapshot.processes):
        parts = [f"{len(shown)} of {counted(len(snapshot.processes), 'process', 'es')}"]
    incomplete = _has_incomplete_lists(snapshot)
    if is_from_metrics(snapshot):
        parts = ["processes: not in Prometheus"]
    elif has_no_lists(snapshot):
        parts = ["processes: not in this log"]
    elif incomplete:
        parts[0] += " listed, lists incomplete"
    parts += summary.notes
    narrowing = " · ".join(map(printable, summary.narrowing))
    if not narrowing and not summary.gpu:
        parts += [counted(users_of(shown), "user")] if shown and not incomplete else []
        parts += [_memory_sum(snapshot)]
    room = width - row_width(fields) - cell_width(tail) - 2
    text = _join_fitting([part for part in parts if part], room)
    if text:
        fields.append((f" {text} ", "dim"))
    room -= cell_width(text) + 2
    if narrowing and room > 0:
        fields.append((f"· {fit(narrowing, min(room, cell_width(narrowing)))} ", "narrowing"))
    line = "─" * max(0, width - row_width(fields) - cell_width(tail))
    return fill([*fields, (line, "rule"), (tail, "dim")], width, "rule")


def _has_incomplete_lists(snapshot: Snapshot) -> bool:
    """Whether a log has no process list of a GPU that answered, for example in a damaged file."""
    return any(
        gpu.unknown.get("processes") is Unknown.NOT_RECORDED and gpu.status is GpuStatus.OK
        for gpu in snapshot.gpus
    )


def has_no_lists(snapshot: Snapshot) -> bool:
    """Whether the snapshot is from a log without processes, such as the output of nvidia-smi."""
    return snapshot.processes_at is None and any(
        gpu.unknown.get("processes") is Unknown.NOT_RECORDED for gpu in snapshot.gpus
    )


def is_from_metrics(snapshot: Snapshot) -> bool:
    """Whether the values are metrics of an exporter, which reports no processes."""
    return any(gpu.unknown.get("processes") is Unknown.NOT_EXPORTED for gpu in snapshot.gpus)


def _join_fitting(parts: Sequence[str], room: int) -> str:
    """Join the parts that fit, the first before the others."""
    text = ""
    for part in parts:
        longer = f"{text} · {part}" if text else part
        if cell_width(longer) <= room:
            text = longer
    return text


def _hidden_gpus(summary: TableSummary) -> list[Field]:
    """The number of hidden lines of GPUs, the keys that scroll to them, and their worst state."""
    above, below = summary.gpus_above, summary.gpus_below
    if not above and not below:
        return []
    where = " ".join([f"↑{above}"] * (above > 0) + [f"↓{below}"] * (below > 0))
    gpus = "GPU" if above + below == 1 else "GPUs"
    keys = keycap("gpus_before", "gpus_after")
    fields: list[Field] = [(f" {where} more {gpus} ({keys}) ", "strong")]
    if summary.worst is not None:
        text, style = summary.worst
        fields.append((f"{text} ", style))
    return [*fields, ("──", "rule")]


def _range(summary: TableSummary) -> str:
    """The visible range of the table's lines, if not all are visible."""
    count = summary.lines
    if summary.room is None or summary.room >= count:
        return ""
    first = summary.lines_above
    return f" {first + 1}–{min(count, first + summary.room)} of {count} "


def _memory_sum(snapshot: Snapshot) -> str:
    """The memory of all GPUs together; ``≥`` if that of a GPU is unknown or too old to count."""
    if len(snapshot.gpus) < 2:
        return ""
    used = [gpu.memory_used for gpu in snapshot.gpus if gpu.status is GpuStatus.OK]
    total = [gpu.memory_total for gpu in snapshot.gpus]
    if all(size is None for size in used):
        return ""
    exact = len(used) == len(total) and None not in used
    return (
        f"{'' if exact else '≥ '}{gibibytes(sum(filter(None, used)))} of "
        f"{'≥ ' if None in total else ''}{gibibytes(sum(filter(None, total)))}G used"
    )


def footer_row(keys: Sequence[FooterKey], message: str, width: int) -> Row:
    """The keys that fit; a message replaces them."""
    if message:
        return fill([(" " + printable(message), "footer.message")], width, "footer")
    fields: list[Field] = []
    for shown, key in _fitting(keys, width):
        if shown.on:
            # Brackets, because not every terminal has colours; and as wide as without them.
            fields += [(f" {key}", "footer.key"), (f"[{shown.label}]", "footer.on")]
        else:
            fields += [(f" {key} ", "footer.key"), (f"{shown.label} ", "footer")]
    return fill(fields, width, "footer")


def key_at(keys: Sequence[FooterKey], width: int, x: int) -> str | None:
    """The action at a cell of the footer.

    If two keys share a label, the label stands for the first.
    """
    start = 0
    for shown, key in _fitting(keys, width):
        end = start + cell_width(key) + cell_width(shown.label) + 3
        if start <= x < end:
            return shown.names[-1] if x == start + cell_width(key) else shown.names[0]
        start = end
    return None


def _fitting(keys: Sequence[FooterKey], width: int) -> list[tuple[FooterKey, str]]:
    """The first keys that fit, with their names."""
    fitting: list[tuple[FooterKey, str]] = []
    for shown in keys:
        if is_refused(shown.names[0]):
            continue
        key = keycap(*shown.names)
        width -= cell_width(key) + cell_width(shown.label) + 3
        if width < 0:
            break
        fitting.append((shown, key))
    return fitting


def empty_rows(trouble: Trouble | None, width: int, height: int) -> list[Row]:
    """What is shown instead of GPUs: why there are none."""
    if trouble is None:
        text = [("Waiting for the driver to answer ...", "dim")]
    else:
        inside = max(10, min(72, width - 4))
        text = [(line, "state.critical") for line in textwrap.wrap(trouble.sentence, inside)]
        text.append(("", ""))
        text += [(line, "") for line in textwrap.wrap(trouble.advice, inside)]
        text += [("", ""), ("Trying again every few seconds.", "dim")]
    top = max(0, (height - len(text)) // 2)
    rows = [fill((), width) for _ in range(top)]
    for line, style in text:
        shown = printable(line)
        indent = max(0, (width - cell_width(shown)) // 2)
        rows.append(fill([(" " * indent, ""), (shown, style)], width))
    return exactly(rows, width, height)


def tiny_rows(
    snapshot: Snapshot | None,
    states: Mapping[str, Finding],
    status: HeaderStatus,
    width: int,
    height: int,
    message: str = "",
) -> list[Row]:
    """The screen for a terminal too small for the dashboard: a header and a short line per GPU.

    A message replaces the last line.
    """
    if message and height > 1:
        above = tiny_rows(snapshot, states, status, width, height - 1)
        return [*above, footer_row((), message, width)]
    if snapshot is None or not snapshot.gpus:
        trouble = None if snapshot is None else snapshot.trouble
        text = "waiting" if trouble is None else printable(trouble.sentence)
        rows = [fill([(line, "")], width) for line in textwrap.wrap(text, max(1, width))]
        return exactly(rows, width, height)
    header = [header_row(snapshot, status, width)] if height > 1 else []
    room, columns = height - len(header), 1
    while columns * room < len(snapshot.gpus) and line_width(width, columns + 1) >= _TINY_ACROSS:
        columns += 1
    # Not all lines may fit: warnings come first, the worst before the others, then what is free.
    gpus = [(states[gpu.uuid], gpu) for gpu in snapshot.gpus]
    if len(gpus) > columns * room:
        gpus.sort(key=lambda pair: _urgency(pair[0]))
    held = holders(snapshot.processes)
    each = line_width(width, columns)
    rows = [_tiny_line(gpu, state, held.get(gpu.uuid) or (), each) for state, gpu in gpus]
    if len(rows) > columns * room > 2:
        hidden = len(rows) - columns * room + 1
        more = fill([(f"… {counted(hidden, 'more GPU')}", "dim")], each)
        rows = [*rows[: columns * room - 1], more]
    return exactly([*header, *beside(rows, columns, room, width)], width, height)


def _urgency(state: Finding) -> tuple[bool, bool, int]:
    """The order of states in which the first are wanted most."""
    is_free = state.severity is Severity.GOOD
    return state.severity < Severity.WARNING, not is_free, -state.severity


def _tiny_line(gpu: Gpu, state: Finding, holder: Sequence[str], width: int) -> Row:
    """The state with its holder, and the values that fit; the state gets the rest of the width."""
    more, state_width = 0, _BRIEF_WIDTH
    spare = width - _TINY_INDEX - _BRIEF_WIDTH - _TINY_UTIL - _TINY_MEMORY
    while more < len(_TINY_VALUES) and spare >= _TINY_STATE + _TINY_VALUES[more][0]:
        spare -= _TINY_VALUES[more][0]
        more += 1
    if spare > _TINY_GAP:
        state_width = min(_TINY_MOST_STATE, state_width + spare - _TINY_GAP)
    words: Sequence[Field] = [state_field(state, _BRIEF_WIDTH)]
    if state_width > _BRIEF_WIDTH:
        words = [*state_fields(state, holder or unlisted_holder(gpu), state_width), _TINY_SPACE]
    fields: list[Field] = [
        (f"{gpu.index:>2} ", "strong"),
        *words,
        (f"{number(gpu.utilization_gpu, '%'):>4} ", ""),
    ]
    values: list[Field] = [(f"{text(gpu):>{size}}", "") for size, text in _TINY_VALUES[:more]]
    room = min(_TINY_MEMORY, width - row_width(fields))
    used, total = gpu.memory_used, gpu.memory_total
    short = UNKNOWN if used is None else f"{gibibytes(used)}G"
    whole = UNKNOWN if used is total is None else f"{gibibytes(used)}/{gibibytes(total)}G"
    # A number that is cut would look like another number.
    memory = next((text for text in (whole, short) if len(text) <= room), "")
    return fill([*fields, (f"{memory:>{max(0, room)}}", ""), *values], width)


_TINY_INDEX, _TINY_UTIL, _TINY_STATE, _TINY_GAP = 3, 5, 8, 2
"""Cells of the index and the utilisation; what a holder needs; the gap after it."""
_TINY_MOST_STATE, _TINY_ACROSS = 72, 58
"""The most cells of the state, and the least of a line beside another."""
_TINY_SPACE: Field = (" " * _TINY_GAP, "")
_TINY_VALUES: tuple[tuple[int, Callable[[Gpu], str]], ...] = (
    (7, lambda gpu: temperature(gpu.temperature_gpu, degree())),
    (7, lambda gpu: number(gpu.power_draw, "W")),
)
"""Values after the memory, with their cells."""


def exactly(rows: list[Row], width: int, height: int) -> list[Row]:
    """The rows, cut or with blank ones after them."""
    blank = fill((), width)
    return [*rows, *[blank] * (height - len(rows))][: max(0, height)]


def own_cost_sentence(cost: OwnCost | None) -> str:
    """Gpumon's own cost, as a sentence."""
    if cost is None or cost.cpu_percent is None or cost.driver_share is None:
        return "gpumon is still measuring its own cost."
    tick = "" if cost.tick_seconds is None else f", {cost.tick_seconds * 1000:.1f} ms a sample"
    missed = f", {counted(cost.missed_ticks, 'sample')} skipped" if cost.missed_ticks else ""
    return (
        f"gpumon itself takes {cost.cpu_percent:.1f} % of one core and spends "
        f"{cost.driver_share * 1000:.0f} ms of every second inside the driver{tick}{missed}."
    )
