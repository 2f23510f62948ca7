"""The page of one card: what is wrong with it, where its memory went, and all that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from gpumon.cuda import visible_devices_line
from gpumon.findings import FindingKind, card_findings, memory_account
from gpumon.layout.cells import Field, Row, fill, row_width
from gpumon.layout.commands import command_line
from gpumon.layout.pages import (
    Fact,
    Section,
    Side,
    fact_rows,
    finding_rows,
    moment_text,
    page_rows,
    text_rows,
    wrap,
)
from gpumon.layout.words import short_name
from gpumon.metrics import GPU_METRIC, GPU_METRICS, Metric, Unit, clock_event_names, gpu_value
from gpumon.model import Unknown
from gpumon.text import (
    UNKNOWN,
    cell_width,
    fit,
    gib,
    gibibytes,
    memory_size,
    number,
    printable,
    temperature,
)
from gpumon.units import degree, memory_units

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.findings import Account, Finding
    from gpumon.history import History
    from gpumon.model import Gpu, GpuProcess, Snapshot, Suspect

_IDENTITY = (
    "name",
    "uuid",
    "index",
    "pci_bus_id",
    "minor_number",
    "serial",
    "architecture",
    "compute_capability",
    "vbios_version",
)
"""What tells which card it is; the rest stands in the table of values."""

_EVENTS = ("xid", "xid_at")
"""Known from events alone: no value is no event."""

_METRIC_WIDTH = 47
"""Cells of a column of that table: a label, its value, or why there is none."""
_METRIC_LABEL = 29
_MOST_COLUMNS = 3
_MOST_PROCESSES = 12
"""Processes that have a line of their own in the account; the smallest of more share one."""
_LABEL, _AMOUNT = 20, 8


class CardView(Struct, frozen=True):
    """A card as a page shows it.

    Attributes:
        gpu: As it was last seen.
        gone: That the driver no longer lists it, for a person; empty while it does.
    """

    gpu: Gpu
    gone: str = ""


def card_rows(
    view: CardView,
    history: History,
    snapshot: Snapshot | None,
    width: int,
    charts: Section | None = None,
) -> list[Row]:
    """The whole page, every row exactly ``width`` cells.

    Args:
        view: The card.
        history: What was seen of it.
        snapshot: As of now.
        width: Cells.
        charts: What stands below the findings.
    """
    gpu = view.gpu
    account = memory_account(history, gpu)
    findings = [_told_below(finding) for finding in card_findings(history, gpu)]
    if any(finding.sentence == account.sentence for finding in findings):
        account = msgspec.structs.replace(account, sentence="")
    sections = [
        Section("", lambda size: _summary(view, size), Side.BOTH),
        Section("", lambda size: finding_rows(findings, size), Side.BOTH),
        *(() if charts is None else (charts,)),
        Section(
            "Where the memory is",
            lambda size: _account(account, _holders(gpu, snapshot), size),
            Side.BOTH,
        ),
        Section(
            "Who else holds the card",
            lambda size: _suspects(account, size),
            Side.BOTH,
        ),
        Section("Card", lambda size: _identity(view, snapshot, size), Side.BOTH),
        Section("MIG instances", lambda size: _instances(gpu, size), Side.BOTH),
        Section("All values", lambda size: _metrics(gpu, history.now, size), Side.BOTH),
    ]
    return page_rows(sections, width)


def _summary(view: CardView, width: int) -> list[Row]:
    """Which card, and what it does; the findings below it say what to think of that."""
    gpu = view.gpu
    name = (f"GPU {gpu.index}  {short_name(gpu.name)}", "strong")
    if view.gone:
        return [fill([name], width), *text_rows(view.gone, width, "state.note")]
    total, cap = gibibytes(gpu.memory_total), number(gpu.power_limit)
    fields: list[Field] = [name]
    for value, rest in (
        (number(gpu.utilization_gpu), " % busy"),
        (gibibytes(gpu.memory_used), f"/{total} {gib()}"),
        (number(gpu.power_draw), f"/{cap} W"),
        (temperature(gpu.temperature_gpu), f" {degree()}"),
    ):
        told = (f"   {value}", ""), (rest, "dim")
        if value == UNKNOWN:
            continue
        # Half a number would be read as another one.
        if row_width((*fields, *told)) > width:
            break
        fields += told
    return [fill(fields, width)]


def _told_below(finding: Finding) -> Finding:
    """A finding without the evidence that the account under it spreads out."""
    if finding.kind is FindingKind.UNATTRIBUTED:
        return msgspec.structs.replace(finding, evidence=())
    return finding


class _Part(Struct, frozen=True):
    """A part of the memory.

    Attributes:
        glyph: What it is drawn with.
        style: In which style.
        label: Whose it is.
        size: Bytes; ``None`` is unknown.
        about: What else there is to say.
        lines: How many lines that may take.
    """

    glyph: str
    style: str
    label: str
    size: int | None
    about: str = ""
    lines: int = 1


class _Holder(Struct, frozen=True):
    """What a process has of the card."""

    process: GpuProcess
    memory: int | None


def _holders(gpu: Gpu, snapshot: Snapshot | None) -> list[_Holder]:
    """The processes on a card and their bytes there, who holds most first, the unknown last."""
    found: list[_Holder] = []
    for process in () if snapshot is None else snapshot.processes:
        here = [use.memory_used for use in process.uses if use.gpu_uuid == gpu.uuid]
        if here:
            known = [size for size in here if size is not None]
            found.append(_Holder(process, sum(known) if len(known) == len(here) else None))
    return sorted(found, key=lambda one: (one.memory is None, -(one.memory or 0)))


def _account(account: Account, holders: Sequence[_Holder], width: int) -> list[Row]:
    """The memory as a bar, then a line for each part of it."""
    parts = _parts(account, holders)
    rows: list[Row] = []
    if account.total:
        rows.append(_stacked(parts, account.total, width))
        rows.append(fill((), width))
    for part in parts:
        rows += _part_rows(part, width)
    rows += _part_rows(_Part(" ", "", "total", account.total), width)
    if account.sentence:
        rows.append(fill((), width))
        rows += text_rows(account.sentence, width)
    return rows


def _parts(account: Account, holders: Sequence[_Holder]) -> list[_Part]:
    parts = [_Part("▒", "dim", "driver, firmware", account.reserved, "reserved")]
    for place, holder in enumerate(holders[:_MOST_PROCESSES]):
        process = holder.process
        label = f"{process.id.pid:<7} {printable(process.user or UNKNOWN)}"
        parts.append(
            _Part("█▓"[place % 2], "graph.memory", label, holder.memory, command_line(process))
        )
    rest = holders[_MOST_PROCESSES:]
    if rest:
        sizes = [one.memory for one in rest if one.memory is not None]
        known = sum(sizes) if len(sizes) == len(rest) else None
        parts.append(_Part("▓", "graph.memory", f"{len(rest)} more processes", known))
    parts.append(_unattributed(account))
    parts.append(_Part("░", "rule", "free", account.free))
    return parts


def _unattributed(account: Account) -> _Part:
    """What no process owns, and up to where that is nothing to wonder at."""
    # The source of it stands at Thresholds.unlisted_bytes.
    size = memory_size(account.tolerance)
    normal = f"up to {size} is normal: the driver hides clients of its own"
    stray = account.unattributed
    style = "state.warning" if stray is not None and stray > account.tolerance else "dim"
    return _Part("▚", style, "stray", stray, normal, lines=3)


def _part_rows(part: _Part, width: int) -> list[Row]:
    head: list[Field] = [
        (f"{part.glyph} ", part.style),
        (fit(part.label, _LABEL), ""),
        (f"{gibibytes(part.size):>{_AMOUNT}}", "strong"),
        (f" {gib():<6}" if part.size is not None else "       ", "dim"),
    ]
    used = sum(cell_width(text) for text, _ in head)
    first, *more = wrap(part.about, max(1, width - used), part.lines)
    return [
        fill([*head, (first, "dim")], width),
        *(fill([(" " * used, ""), (line, "dim")], width) for line in more),
    ]


def _stacked(parts: Sequence[_Part], total: int, width: int) -> Row:
    """The parts side by side, as long as they are large, what is known at least a cell."""
    fields: list[Field] = []
    at, used = 0, 0
    for part in parts[:-1]:
        at += part.size or 0
        end = min(width, max(round(at / total * width), used + 1 if part.size else used))
        fields.append((part.glyph * (end - used), part.style))
        used = end
    free = parts[-1]
    if free.size is not None:
        fields.append((free.glyph * (width - used), free.style))
    return fill((field for field in fields if field[0]), width)


def _suspects(account: Account, width: int) -> list[Row]:
    """Who holds the card's device file and is not in the driver's list, and who was not seen."""
    rows: list[Row] = []
    for suspect in account.suspects:
        if rows:
            rows.append(fill((), width))
        rows += _suspect_rows(suspect, width)
    if account.unseen:
        many = account.unseen != 1
        rows += text_rows(
            f"{account.unseen} process{'es' if many else ''} of other users could not be looked "
            f"into: only root can tell whether {'they hold' if many else 'it holds'} the card.",
            width,
            "state.note",
        )
    if account.unseen is None:
        return text_rows("Not looked for yet, or nobody can look on this machine.", width, "dim")
    return rows or text_rows("Nobody: every process was looked into.", width, "dim")


def _suspect_rows(suspect: Suspect, width: int) -> list[Row]:
    command = " ".join(suspect.command) or f"[{suspect.name}]"
    head: list[Field] = [
        (f"{suspect.id.pid:<7} ", "strong"),
        (fit(printable(suspect.user or UNKNOWN), 9) + " ", "user"),
    ]
    room = max(1, width - 18)
    rows = [fill([*head, (line, "")], width) for line in wrap(command, room, most=1)]
    edge: Field = (" " * 18, "")
    return rows + [
        fill([edge, (line, "state.note")], width) for line in wrap(suspect.sentence, room)
    ]


def _identity(view: CardView, snapshot: Snapshot | None, width: int) -> list[Row]:
    """Which card it is, under every name it has."""
    gpu = view.gpu
    facts = []
    for field in _IDENTITY:
        metric = GPU_METRIC[field]
        facts.append(Fact(metric.label, *_value_or_reason(gpu, metric, 0.0)))
    if snapshot is not None:
        driver = snapshot.host.driver_version or UNKNOWN
        facts.append(Fact("Driver", driver, note=f"CUDA {snapshot.host.cuda_version or UNKNOWN}"))
    facts.append(Fact("To use it (y)", visible_devices_line([gpu.uuid])))
    return fact_rows(facts, width, 20)


def _instances(gpu: Gpu, width: int) -> list[Row]:
    rows: list[Row] = []
    for one in gpu.mig:
        memory = f"{gibibytes(one.memory_used)} of {gibibytes(one.memory_total)} {gib()}"
        place = "" if one.gpu_instance is None else f"{gpu.index}/{one.gpu_instance}"
        rows.append(
            fill(
                [
                    (fit(place, 8), ""),
                    (fit(printable(one.profile or UNKNOWN), 14), ""),
                    (fit(memory, 22), "strong"),
                    (printable(one.uuid), "dim"),
                ],
                width,
            )
        )
    return rows


def _metrics(gpu: Gpu, now: float, width: int) -> list[Row]:
    """Every metric, down one column and then the next, with its unit or why it is unknown."""
    metrics = [metric for metric in GPU_METRICS if metric.field not in _IDENTITY]
    columns = max(1, min(_MOST_COLUMNS, width // _METRIC_WIDTH))
    each = width // columns
    # Two cells part the columns.
    facts = [Fact(metric.label, *_value_or_reason(gpu, metric, now)) for metric in metrics]
    cells = [
        fill(row, each) for row in fact_rows(facts, max(1, each - 2), min(_METRIC_LABEL, each // 2))
    ]
    height = -(-len(cells) // columns)
    return [
        fill([field for cell in cells[y::height] for field in cell], width) for y in range(height)
    ]


def _value_or_reason(gpu: Gpu, metric: Metric, now: float) -> tuple[str, str]:
    """A metric's value with its unit, or ``–`` and the reason, and the style of that."""
    value = gpu_value(gpu, metric)
    if value is None:
        if metric.field in _EVENTS and metric.field not in gpu.unknown:
            return "none seen", "dim"
        reason = gpu.unknown.get(metric.field, Unknown.NOT_READ)
        return f"{UNKNOWN}  {reason.value}", "dim"
    if metric.unit is Unit.TIME and isinstance(value, float):
        return moment_text(value, now), ""
    write = _WRITERS.get(metric.unit)
    return (str(value) if write is None else write(value)), ""


def _bytes(value: object) -> str:
    """GiB from half a one on, and MiB below; GB and MB where these were chosen."""
    size, units = _number(value), memory_units()
    giga = units.kilo**3
    if size >= giga / 2:
        return f"{size / giga:.2f} {units.giga}"
    return f"{size / units.kilo**2:.0f} {units.mega}"


def _joules(value: object) -> str:
    return f"{_number(value) / 3.6e6:.2f} kWh"


def _bits(value: object) -> str:
    return ", ".join(clock_event_names(int(_number(value)))) or "none"


def _number(value: object) -> float:
    if isinstance(value, (int, float)):
        return value
    raise TypeError(value)


_WRITERS: dict[Unit, Callable[[object], str]] = {
    Unit.BYTES: _bytes,
    Unit.BYTES_PER_SECOND: lambda value: f"{memory_size(int(_number(value)))}/s",
    Unit.JOULES: _joules,
    Unit.BITS: _bits,
    Unit.PERCENT: lambda value: f"{value} %",
    Unit.CELSIUS: lambda value: f"{temperature(_number(value))} {degree()}",
    Unit.MEGAHERTZ: lambda value: f"{value} MHz",
    Unit.WATTS: lambda value: f"{_number(value):.0f} W",
    Unit.SECONDS: lambda value: f"{value} s",
    Unit.PSTATE: lambda value: f"P{value}",
    Unit.ENABLED: lambda value: "enabled" if value else "disabled",
    Unit.YES_NO: lambda value: "yes" if value else "no",
}
