"""The page of one GPU: findings, charts, memory and all values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpumon.findings import FindingKind, gpu_findings, is_of_the_past, memory_account
from gpumon.makers.visible_devices import assignment_line
from gpumon.model.error_codes import error_code
from gpumon.model.makers import maker_of, metric_label
from gpumon.model.metrics import Metric, Unit, clock_event_names, gpu_value
from gpumon.model.snapshot import GPU_METRIC, GPU_METRICS, GpuStatus, Unknown
from gpumon.text.cells import Field, Row, bar, bar_style, fill, row_width
from gpumon.text.formatting import (
    UNKNOWN,
    counted,
    fit,
    gibibytes,
    memory_size,
    mig_name,
    number,
    printable,
    temperature,
)
from gpumon.text.units import degree, memory_units
from gpumon.ui.view.chart_series import MEMORY, POWER, window_title
from gpumon.ui.view.gpu_charts import chart_rows, least_height
from gpumon.ui.view.gpu_memory import holder_rows, holders_of, memory_rows, process_holders
from gpumon.ui.view.gpu_text import core_name, short_name
from gpumon.ui.view.network_view import near_nics, nic_text, nic_warning
from gpumon.ui.view.page_layout import (
    Fact,
    Section,
    fact_rows,
    finding_rows,
    inside_width,
    moment_text,
    page_rows,
    text_rows,
    wrap,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.config.keymap import ChartWindow
    from gpumon.findings import Account, Finding
    from gpumon.model.processes import UnlistedHolder
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history import History
    from gpumon.recording.recording import Recording
    from gpumon.ui.view.frame import Memo

IDENTITY = (
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
"""The metrics that identify a GPU; all others are in the table of values."""

_EVENTS = ("xid", "xid_at")
"""Metrics that only events set: without a value there was no event."""

_SUMMARY = ("utilization_gpu", "clock_sm", "power_draw", "memory_used", "temperature_gpu")
"""The metrics in the first line."""
_WORK = (
    ("SMs active", "sm_active"),
    ("occupancy", "sm_occupancy"),
    ("tensor", "tensor_active"),
    ("DRAM", "dram_active"),
    ("FP32", "fp32_active"),
    ("FP16", "fp16_active"),
    ("FP64", "fp64_active"),
)
"""The metrics in the second line, with their labels there."""
_WORK_BAR = 4
"""Cells of the bar beside each of them."""
_SILENT = (GpuStatus.LOST, GpuStatus.RESET_REQUIRED, GpuStatus.NO_ANSWER)
_BEFORE = 60.0
"""Seconds before a GPU fell silent in which its last values are searched."""

_METRIC_WIDTH = 47
"""Cells of a column in the table of values."""
_METRIC_LABEL = 29
_MOST_COLUMNS = 3
_LEAST_HOLDERS, _MOST_HOLDERS = 3, 12
"""Number of lines for the holders of the memory."""
_AIRY = 30
"""From this height on there are blank rows between the sections, and all of the findings."""
_FINDINGS_SHARE = 0.2
"""The share of a lower page that the findings may take with their evidence."""
_LOW = 16
"""Below this height each finding has one line."""


def _last_values(history: History, gpu: Gpu) -> Gpu | None:
    """The GPU with the last values that the history has, if it does not answer."""
    if gpu.status not in _SILENT or gpu.status_since is None:
        return None
    seconds = history.now - gpu.status_since + _BEFORE
    seen = {field: history.gpu_series(gpu.uuid).window(field, seconds) for field in _SUMMARY}
    values = {field: round(points[-1][1]) for field, points in seen.items() if points}
    return msgspec.structs.replace(gpu, **values) if values else None


def gpu_rows(
    memo: Memo,
    gpu: Gpu,
    history: History,
    snapshot: Snapshot | None,
    window: ChartWindow,
    recording: Recording,
    width: int,
    height: int,
    gone: str = "",
    *,
    is_past: bool = False,
) -> list[Row]:
    """The whole page, every row exactly ``width`` cells.

    The visible part has the state, the memory with its holders, and the charts in what is left.

    Args:
        memo: Caches what is drawn of this GPU.
        gpu: Its newest values.
        history: Its history.
        snapshot: The newest snapshot.
        window: The time that the charts show.
        recording: Has the events of that time.
        width: Cells.
        height: Rows of the visible part.
        gone: Since when the driver no longer lists it; empty if it does.
        is_past: Whether the newest values are those of the past.
    """
    account = memory_account(history, gpu)
    findings = [_without_repeats(finding, gpu, history) for finding in gpu_findings(history, gpu)]
    if any(finding.sentence == account.sentence for finding in findings):
        account = msgspec.structs.replace(account, sentence="")
    airy = height >= _AIRY
    inside = inside_width(width)
    whole = airy or len(finding_rows(findings, inside)) <= height * _FINDINGS_SHARE
    lines = None if whole else 1 if height < _LOW else 3
    key = (history, gpu.status, gpu.status_since)
    before = memo.by(key, _last_values, history, gpu)
    rows = page_rows(
        [
            Section("", lambda size: _summary(gpu, before, gone, size)),
            Section("", lambda size: finding_rows(findings, size, lines)),
        ],
        width,
        airy=airy,
    )
    holders = holders_of(gpu, snapshot, history)
    unusual = account.unattributed is None or account.unattributed > account.tolerance
    sentence = text_rows(account.sentence, inside) if unusual and account.sentence else []
    # The heading of the charts, and without a single holder the bar and the rest of the memory.
    bare = 1 + airy + len(memory_rows(account, (), inside, 1)) + len(sentence) + 1 + airy
    left = height - len(rows) - bare - least_height(inside)
    most = max(_LEAST_HOLDERS, min(_MOST_HOLDERS, left))
    memory = Section("Memory", lambda size: [*memory_rows(account, holders, size, most), *sentence])
    rows += page_rows([memory], width, airy=airy)
    room = height - len(rows) - 1 - airy
    charts = Section(
        window_title(window, history),
        lambda size: chart_rows(memo, gpu, history, window, recording, size, room, is_past=is_past),
    )
    rows += page_rows([charts], width, airy=airy)
    processes = process_holders(gpu, snapshot, history)
    if not gpu.mig:
        # The largest ones stand above, all of them if there are few.
        processes = [] if len(holders) <= most else processes[most - 1 :]
    title = "All processes on it" if gpu.mig else "Further processes on it"
    cut = _cut_findings(findings, inside, lines)
    # That all of the memory has listed owners is plain from their list.
    is_plain = account.reserved is not None and gibibytes(account.unattributed) == gibibytes(0)
    note = "" if sentence or is_plain else account.sentence
    known = " ".join(finding.sentence for finding in findings)
    sections = [
        Section("More about the findings", lambda size: finding_rows(cut, size)),
        Section("Reported errors", lambda size: _errors(gpu, history, size)),
        Section(title, lambda size: holder_rows(processes, " " * len(processes), size)),
        Section("Who else holds the GPU", lambda size: _others(account, note, known, size)),
        Section("GPU", lambda size: _identity(gpu, snapshot, size)),
        Section("MIG devices", lambda size: _devices(gpu, size)),
        Section("All values", lambda size: _metrics(gpu, history.now, size)),
    ]
    return rows + page_rows(sections, width)


def _summary(gpu: Gpu, before: Gpu | None, gone: str, width: int) -> list[Row]:
    """The GPU and its main values in one line, or those before it stopped to answer."""
    model = short_name(gpu.name)
    name = (f"GPU {gpu.index}  {model}", "strong")
    if gone:
        return [fill([name], width), *text_rows(gone, width, "state.note")]
    rows = []
    if before is not None:
        rows = [fill([name], width)]
        name, gpu = ("Its last values:", "state.note"), before
    clock = "" if gpu.clock_sm_max is None else f"/{gpu.clock_sm_max}"
    values = [
        (value, rest)
        for value, rest in (
            (number(gpu.utilization_gpu), " % busy"),
            (number(gpu.clock_sm), f"{clock} {maker_of(gpu.name).clock_heading}"),
            *((series.text(gpu), series.rest(gpu, on_page=True)) for series in (POWER, MEMORY)),
            (temperature(gpu.temperature_gpu), f" {degree()}"),
        )
        if value != UNKNOWN
    ]
    return [*rows, _summary_row(name, core_name(model), values, width), *_work(gpu, width)]


def _summary_row(name: Field, core: str, values: Sequence[tuple[str, str]], width: int) -> Row:
    """The name and the values: with a shorter name if they do not fit, then without the last."""
    text, style = name
    shorter = f"{text.partition('  ')[0]}  {core}" if style else text
    for start in (text, shorter):
        for count in range(len(values), 0, -1):
            for gap in ("   ", "  "):
                fields: list[Field] = [(start, style)]
                for value, rest in values[:count]:
                    fields += [(f"{gap}{value}", ""), (rest, "dim")]
                # A number that is cut would look like another number.
                if row_width(fields) <= width:
                    return fill(fields, width)
            if start != shorter:
                break
    return fill([name], width)


def _work(gpu: Gpu, width: int) -> list[Row]:
    """How much of the GPU works, where the driver reports it.

    What does not fit is left out, the bars first.
    """
    known = [(label, value) for label, field in _WORK if (value := getattr(gpu, field)) is not None]
    if not known:
        return []
    for cells in (_WORK_BAR, 0):
        fields: list[Field] = []
        for label, value in known:
            filled = value / 100
            drawn: Field = (
                f" {bar(filled, cells)}" if cells else "",
                bar_style("bar.util", filled),
            )
            text = (f"{label} ", "dim"), (f"{value:.0f} %", ""), drawn
            added = (("   " if fields else "", ""), *text)
            if row_width((*fields, *added)) > width:
                break
            fields += added
        else:
            break
    return [fill(fields, width)]


def _without_repeats(finding: Finding, gpu: Gpu, history: History) -> Finding:
    """The finding without what other parts of the page show.

    These are the first line, the account of the memory with the holders, and the reported errors.
    """
    sentence, kind = finding.sentence, finding.kind
    if kind in _IN_ACCOUNT:
        return msgspec.structs.replace(finding, evidence=())
    if kind is FindingKind.WORKING:
        return msgspec.structs.replace(finding, sentence=sentence.partition(": ")[0], evidence=())
    if kind is FindingKind.IDLE:
        sentence = sentence.partition(" while ")[0]
    known = [f"status: {gpu.status.value}"]
    for xid in history.xids(gpu.uuid):
        error = error_code(xid, gpu.name)
        known += filter(None, (error.explanation, error.advice))
        sentence = sentence.removesuffix(f"; last {error.label}: {error.explanation}")
    evidence = tuple(
        fact
        for fact in finding.evidence
        if not any(text in fact for text in (*known, " on it, with "))
    )
    return msgspec.structs.replace(finding, sentence=sentence, evidence=evidence)


_IN_ACCOUNT = (FindingKind.UNATTRIBUTED, FindingKind.FULL)
"""Findings whose evidence is the account of the memory."""


def _cut_findings(findings: Sequence[Finding], width: int, lines: int | None) -> list[Finding]:
    """The findings that stand above without their evidence, or cut."""
    if lines is None:
        return []
    cut: list[Finding] = []
    for finding in findings:
        if len(wrap(finding.sentence, max(1, width - 2))) > lines:
            cut.append(finding)
        elif any(fact not in finding.sentence for fact in finding.evidence):
            facts = [fact for fact in finding.evidence if fact not in finding.sentence]
            text = f"{finding.kind.value}: {' · '.join(facts)}"
            cut.append(msgspec.structs.replace(finding, sentence=text, evidence=()))
    return cut


def _others(account: Account, note: str, known: str, width: int) -> list[Row]:
    """Processes that hold the device file but are not in the driver's list, below a note.

    Processes of one command and one reason, such as data loaders, stand together. A reason that is
    ``known`` from a finding is left out.
    """
    rows = text_rows(note, width) if note else []
    start = len(rows)
    groups: dict[tuple[object, ...], list[UnlistedHolder]] = {}
    for suspect in account.suspects:
        key = (suspect.user, suspect.command, suspect.name, suspect.sentence)
        groups.setdefault(key, []).append(suspect)
    for group in groups.values():
        if len(rows) > start:
            rows.append(fill((), width))
        rows += _suspect_rows(group, known, width)
    if account.unseen:
        many = account.unseen != 1
        rows += text_rows(
            (
                f"{counted(account.unseen, 'process', 'es')} of other users could not be "
                f"inspected: only root can see whether {'they hold' if many else 'it holds'} the "
                "GPU."
            ),
            width,
            "state.note",
        )
    if account.unseen is None:
        text = "Not searched yet, or not possible on this machine."
        return rows + text_rows(text, width, "dim")
    if len(rows) == start:
        rows += text_rows("No other holders (all processes checked).", width, "dim")
    return rows


def _suspect_rows(group: Sequence[UnlistedHolder], known: str, width: int) -> list[Row]:
    suspect, *others = group
    command = " ".join(suspect.command) or f"[{suspect.name}]"
    head: list[Field] = [
        (f"{suspect.id.pid:<7} ", "strong"),
        (fit(printable(suspect.user or UNKNOWN), 9) + " ", "user"),
    ]
    room = max(1, width - 18)
    rows = [fill([*head, (line, "")], width) for line in wrap(command, room, most=1)]
    reasons = [] if suspect.sentence in known else [suspect.sentence]
    if others:
        pids = ", ".join(str(other.id.pid) for other in others)
        reasons.append(f"and {counted(len(others), 'process', 'es')} like it: {pids}")
    edge: Field = (" " * 18, "")
    return rows + [
        fill([edge, (line, "state.note")], width)
        for reason in reasons
        for line in wrap(reason, room)
    ]


def _errors(gpu: Gpu, history: History, width: int) -> list[Row]:
    """The XIDs of the GPU, newest first, those from before gpumon was started too."""
    facts = []
    for xid, at in sorted(history.xids(gpu.uuid).items(), key=lambda item: -(item[1] or 0)):
        error = error_code(xid, gpu.name)
        notes = [] if error.severity is None or error.by_program else [error.severity.value]
        if is_of_the_past(history, at):
            notes.append("before gpumon was started")
        moment = UNKNOWN if at is None else moment_text(at, history.now)
        value = f"{moment}  {error.explanation}"
        facts.append(Fact(error.label, value, note=" · ".join(notes)))
        if error.advice is not None:
            facts.append(Fact("", f"what to do: {error.advice}", "dim"))
    return fact_rows(facts, width, 10)


def _identity(gpu: Gpu, snapshot: Snapshot | None, width: int) -> list[Row]:
    """All names of the GPU."""
    gpus = (gpu,) if snapshot is None else snapshot.gpus
    facts = [
        Fact(metric.label, *value_or_reason(gpu, metric, 0.0))
        for metric in map(GPU_METRIC.__getitem__, IDENTITY)
        if metric.is_for(maker_of(gpu.name))
    ]
    if snapshot is not None:
        driver = snapshot.host.driver_version or UNKNOWN
        has_cuda = maker_of(gpu.name).has_cuda
        cuda = f"CUDA {snapshot.host.cuda_version or UNKNOWN}" if has_cuda else ""
        facts.append(Fact("Driver", driver, note=cuda))
        facts += [
            Fact("Nearest NIC", nic_text(nic), note=nic_warning(nic, snapshot.time))
            for nic in near_nics(snapshot.host, gpu)
        ]
    facts.append(Fact("To use it (y)", assignment_line([gpu.uuid], gpus)))
    return fact_rows(facts, width, 20)


def _devices(gpu: Gpu, width: int) -> list[Row]:
    """The MIG devices with the numbers that other tools use for them."""
    facts = []
    for device in gpu.mig:
        numbers = (
            f"GPU instance {number(device.gpu_instance)}, {number(device.multiprocessors)} SMs"
        )
        for label, field in _WORK[:4]:
            value: float | None = getattr(device, field)
            if value is not None:
                numbers += f", {label} {value:.0f} %"
        name = f"MIG {mig_name(gpu.index, device.index)} {printable(device.profile or '')}"
        facts.append(Fact(name, device.uuid, note=numbers))
    return fact_rows(facts, width, 20)


def _metrics(gpu: Gpu, now: float, width: int) -> list[Row]:
    """All other metrics in columns, each with its value, or the reason why it is unknown."""
    metrics = [
        metric
        for metric in GPU_METRICS
        if metric.field not in IDENTITY and metric.is_for(maker_of(gpu.name))
    ]
    columns = max(1, min(_MOST_COLUMNS, width // _METRIC_WIDTH))
    each = width // columns
    # Two cells separate the columns.
    facts = [
        Fact(metric_label(metric.label, gpu.name), *value_or_reason(gpu, metric, now))
        for metric in metrics
    ]
    cells = [
        fill(row, each) for row in fact_rows(facts, max(1, each - 2), min(_METRIC_LABEL, each // 2))
    ]
    height = -(-len(cells) // columns)
    return [
        fill([field for cell in cells[y::height] for field in cell], width) for y in range(height)
    ]


def value_or_reason(gpu: Gpu, metric: Metric, now: float) -> tuple[str, str]:
    """The text and style of a metric: its value with the unit, or ``–`` and the reason."""
    value = gpu_value(gpu, metric)
    if value is None:
        if metric.field in _EVENTS and metric.field not in gpu.unknown:
            return "none seen", "dim"
        reason = gpu.unknown.get(metric.field, Unknown.NOT_READ)
        return f"{UNKNOWN}  {reason.words}", "dim"
    if metric.unit is Unit.TIME and isinstance(value, float):
        return moment_text(value, now), ""
    return _TEXT.get(metric.unit, str)(value), ""


def _bytes(size: float) -> str:
    """GiB from 0.5 GiB on, otherwise MiB; GB and MB if these units are configured."""
    units = memory_units()
    giga = units.kilo**3
    if size >= giga / 2:
        return f"{size / giga:.2f} {units.giga}"
    return f"{size / units.kilo**2:.0f} {units.mega}"


_TEXT: dict[Unit, Callable[[Any], str]] = {
    Unit.BYTES: _bytes,
    Unit.BYTES_PER_SECOND: lambda value: f"{memory_size(int(value))}/s",
    Unit.JOULES: lambda value: f"{value / 3.6e6:.2f} kWh",
    Unit.BITS: lambda value: ", ".join(clock_event_names(value)) or "none",
    Unit.PERCENT: "{} %".format,
    Unit.SHARE: "{:.1f} %".format,
    Unit.CELSIUS: lambda value: f"{temperature(value)} {degree()}",
    Unit.MEGAHERTZ: "{} MHz".format,
    Unit.RPM: "{} RPM".format,
    Unit.WATTS: "{:.0f} W".format,
    Unit.SECONDS: "{} s".format,
    Unit.PSTATE: "P{}".format,
    Unit.ENABLED: lambda value: "enabled" if value else "disabled",
    Unit.YES_NO: lambda value: "yes" if value else "no",
}
