"""The pages of a process and of a job: owner, command, environment, GPUs, values over time."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.findings import process_findings
from gpumon.model.arithmetic import known_sum
from gpumon.model.process_states import ENDED, HALTED, STATES, UNINTERRUPTIBLE
from gpumon.model.processes import GpuUse
from gpumon.text.cells import Field, Row, fill, row_width
from gpumon.text.command_lines import command_line, script_of, split_command
from gpumon.text.formatting import (
    UNKNOWN,
    counted,
    duration,
    fit,
    fit_right,
    gib,
    gibibytes,
    gpu_list,
    mig_name,
    number,
    printable,
)
from gpumon.text.process_columns import ProcessItem, devices
from gpumon.text.table import Sort, heading_row
from gpumon.ui.view.allocated import job_facts
from gpumon.ui.view.chart_plot import curve_cells, curve_fields, span_until, time_rows
from gpumon.ui.view.chart_series import (
    PROCESS_SERIES,
    SERVER_SERIES,
    end_of_chart,
    highest,
    window_seconds,
    window_title,
)
from gpumon.ui.view.gpu_text import load_word, mig_indices, short_name
from gpumon.ui.view.page_layout import (
    LABEL_WIDTH,
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
from gpumon.ui.view.process_details import (
    cgroup_memory_facts,
    environment_rows,
    environment_title,
    family_rows,
    visible_gpu_rows,
)
from gpumon.ui.view.process_table import fitting_columns, process_row, sort_processes
from gpumon.ui.view.server_facts import server_sections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.config.keymap import ChartWindow
    from gpumon.findings.groups import JobGroup
    from gpumon.host.process_host import Details
    from gpumon.model.processes import GpuProcess, Workload
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history import History
    from gpumon.text.process_columns import MigIndices, RowContext
    from gpumon.ui.view.chart_series import ChartEnd, ChartSeries, Points
    from gpumon.ui.view.frame import Memo


_CAPTION = 36
"""Cells of a chart's text; its graph takes the rest."""
_GRAPH_ROWS = 2
_LOOKING = "being looked up …"
_NOT_VISIBLE = (
    "Not visible here: it runs in another PID namespace, or /proc hides it. Only the "
    "driver's values are known."
)
_UNSEEN = "It ended before gpumon saw it. Only the driver's values are known."
_NO_PLACE = "no container, Slurm job, notebook or tmux session found"


def process_rows(
    memo: Memo,
    process: GpuProcess,
    history: History,
    snapshot: Snapshot | None,
    window: ChartWindow,
    width: int,
    *,
    is_past: bool = False,
    details: Details | None = None,
    reading: bool = False,
    reveals: bool = False,
    gone: str = "",
    ended: bool = False,
) -> list[Row]:
    """The whole page, every row exactly ``width`` cells.

    Args:
        memo: Caches the charts of this process.
        process: Its newest values.
        history: The values over time.
        snapshot: The newest snapshot.
        window: The time that the charts show.
        width: Cells.
        is_past: Whether the newest values are those of the past.
        details: Its details; ``None`` if they are not known.
        reading: Whether they are still being read.
        reveals: Whether values that look like secrets are shown.
        gone: Why it is no longer listed; empty if it is.
        ended: Whether it has ended.
    """
    now = history.now if snapshot is None else snapshot.time
    gpus = () if snapshot is None else snapshot.gpus
    seconds = window_seconds(window, history)
    sections = [
        Section("", lambda size: _summary(process, details, gone, ended, gpus, now, size)),
        Section(
            "",
            lambda size: finding_rows(process_findings(history, process, details=details), size),
        ),
        Section(
            "Process",
            lambda size: _process(process, details, ended, reading, now, size),
            Side.LEFT,
        ),
        Section("On the GPUs", lambda size: _gpus(process, gpus, size), Side.RIGHT),
        *server_sections([process]),
        Section(
            _charts_title(memo, process, history, window),
            lambda size: _charts(memo, process, history, seconds, size, is_past),
            Side.RIGHT,
        ),
        Section("Command", lambda size: _command(process, details, size), Side.LEFT),
    ]
    if details is not None:
        sections += [
            Section(
                "GPUs it may use",
                lambda size: visible_gpu_rows(details, snapshot, size),
                Side.RIGHT,
            ),
            Section("Family", lambda size: family_rows(details, size), Side.LEFT),
            Section(
                environment_title(details, reveals),
                lambda size: environment_rows(details, reveals, size),
            ),
        ]
    return page_rows(sections, width)


def state_words(state: str | None, wait_channel: str | None = None) -> str:
    """A state letter of ``ps`` in words, and the kernel function that the process waits in."""
    if state is None:
        return UNKNOWN
    words = STATES[state].about if state in STATES else f"state {state}"
    return f"{words} in {wait_channel}" if state == UNINTERRUPTIBLE and wait_channel else words


def _state_style(state: str | None) -> str:
    return "state.warning" if state in HALTED else ""


def _summary(
    process: GpuProcess,
    details: Details | None,
    gone: str,
    ended: bool,
    gpus: Sequence[Gpu],
    now: float,
    width: int,
) -> list[Row]:
    """The command and the main values."""
    rows = [fill([(line, "strong")], width) for line in wrap(command_line(process), width, most=2)]
    fields: list[Field] = [(printable(process.user or UNKNOWN), "user")]
    if process.uses:
        load = load_word(gpus, process.uses)
        named = devices(process, mig_indices(gpus))
        fields += _use_fields(process.memory_used, named, load, process.sm)
    if process.started_at is not None and not ended:
        fields += [("   for ", "dim"), (duration(now - process.started_at), "")]
    if gone:
        return [*rows, fill(fields, width), *text_rows(gone, width, "state.note")]
    state = _state(process, details)
    if state is not None:
        added = ("   ", ""), (state_words(state).partition(":")[0], _state_style(state))
        # It may be left out here, because the facts below contain it too.
        if row_width((*fields, *added)) <= width:
            fields += added
    return [*rows, fill(fields, width)]


def _use_fields(memory: int | None, gpus: str, load: str, sm: float | None) -> list[Field]:
    """How much memory is held, on which GPUs, and the load there, which makers name differently."""
    return [
        (f"   {gibibytes(memory)} {gib()}", "strong"),
        (f" on GPU {gpus}", ""),
        (f"   {load} ", "dim"),
        (number(sm, " %"), ""),
    ]


def _state(process: GpuProcess, details: Details | None) -> str | None:
    return process.state if details is None or details.state is None else details.state


def _process(
    process: GpuProcess,
    details: Details | None,
    ended: bool,
    reading: bool,
    now: float,
    width: int,
) -> list[Row]:
    """Owner, state, start time, program and place, and what could not be read."""
    if not process.visible:
        known = _UNSEEN if process.state == ENDED else _NOT_VISIBLE
        return text_rows(known, width, "dim")
    uid = "" if process.uid is None else f"uid {process.uid}"
    facts = [Fact("user", process.user or UNKNOWN, "user", uid)]
    threads = None if details is None else details.threads
    channel = None if details is None else details.wait_channel
    state = _state(process, details)
    facts.append(
        Fact(
            "state",
            "ended" if ended else state_words(state, channel),
            "" if ended else _state_style(state),
            "" if threads is None else counted(threads, "thread"),
        )
    )
    if process.started_at is not None:
        age = f"{duration(now - process.started_at)} ago"
        facts.append(Fact("started", moment_text(process.started_at, now), note=age))
    facts += _program(process, details, reading)
    place = process.place if details is None or details.place is None else details.place
    facts += cgroup_memory_facts(None if ended else process.cgroup_memory)
    facts += workload_facts(place, looked_up=details is not None or not (reading or ended))
    rows = fact_rows(facts, width)
    for sentence in () if details is None else details.unreadable:
        rows += text_rows(sentence, width, "dim")
    return rows


def _program(process: GpuProcess, details: Details | None, reading: bool) -> list[Fact]:
    """Script, program and working directory."""
    if details is None:
        return [Fact("directory", _LOOKING if reading else UNKNOWN, "dim")]
    script = script_of(details.command or process.command)
    facts = [] if script is None else [Fact("script", script)]
    facts.append(Fact("directory", details.cwd or UNKNOWN))
    facts.append(Fact("program", details.executable or UNKNOWN))
    return facts


def workload_facts(place: Workload | None, *, looked_up: bool) -> list[Fact]:
    """Job, container, notebook and so on, a line for each that is known."""
    if place is None:
        return [Fact("where", UNKNOWN)] if looked_up else []
    facts: list[Fact] = []
    if place.slurm_job is not None:
        step = "" if place.slurm_step is None else f", step {place.slurm_step}"
        facts.append(Fact("Slurm", f"job {place.slurm_job}{step}"))
    if place.container is not None:
        named = place.container.label.rpartition(" ")[2]
        id_ = (place.container.id or "")[:12]
        facts.append(
            Fact(
                "container",
                place.container.label,
                note=f"id {id_}" if id_ not in ("", named) else "",
            )
        )
    if place.notebook is not None or place.jupyter_kernel is not None:
        kernel = f"kernel {place.jupyter_kernel}" if place.jupyter_kernel else ""
        facts.append(
            Fact("Jupyter", place.notebook or kernel, note=kernel if place.notebook else "")
        )
    if place.tmux is not None:
        facts.append(Fact("tmux", place.tmux))
    if place.environment is not None:
        facts.append(Fact("Python env", place.environment))
    if not facts:
        facts.append(Fact("where", _NO_PLACE, "dim"))
    if place.launcher is not None:
        name = place.launcher_name or "launcher"
        facts.append(Fact("started by", f"{name} {place.launcher.pid}"))
    return facts


def _gpus(process: GpuProcess, gpus: Sequence[Gpu], width: int) -> list[Row]:
    """Its memory and utilisation on each GPU."""
    if not process.uses:
        return text_rows("The driver lists it on no GPU.", width, "dim")
    return use_rows(process.uses, process.memory_used, gpus, width)


def use_rows(
    uses: Sequence[GpuUse], memory: int | None, gpus: Sequence[Gpu], width: int
) -> list[Row]:
    """A line for each use of a GPU, and their memory together."""
    names = {gpu.uuid: gpu.name for gpu in gpus}
    mig = mig_indices(gpus)
    rows = [
        _use(use, short_name(names.get(use.gpu_uuid)), load_word(gpus, [use]), mig, width)
        for use in uses
    ]
    if len(uses) > 1:
        total = f"{gibibytes(memory):>7} {gib()}"
        rows.append(fill([(fit("together", 10), "dim"), (total, "strong")], width))
    return rows


def _use(use: GpuUse, name: str, load: str, mig: MigIndices, width: int) -> Row:
    gpu = f"GPU {use.gpu_index}"
    if use.instance is not None:
        gpu = f"MIG {mig_name(use.gpu_index, mig.get((use.gpu_uuid, use.instance)))}"
    fields: list[Field] = [
        (fit(gpu, 10), ""),
        (f"{gibibytes(use.memory_used):>7}", "strong"),
        (f" {gib()}", "dim"),
        (f"   {load}", "dim"),
        (fit_right(number(use.sm), 4), ""),
        (" %" if use.sm is not None else "  ", "dim"),
    ]
    for label, value in (("encoder", use.encoder), ("decoder", use.decoder)):
        if value:
            fields += [(f"   {label} ", "dim"), (f"{value} %", "")]
    return fill([*fields, ("   " + name, "dim")], width)


_COURSE_VALUES = 120
"""The text beside a chart is written anew as often as a chart of so many values is drawn."""


class _Course(Struct, gc=False):
    """The values that the text beside a chart is made of."""

    points: Points
    peak: float | None  # Newer values raise it until it is searched again.
    slope: float | None  # Per second.


def _course(
    memo: Memo,
    series: ChartSeries[GpuProcess],
    process: GpuProcess,
    history: History,
    seconds: float,
) -> _Course:
    end = end_of_chart(history.now, seconds, _COURSE_VALUES)
    key = (process.id, history, seconds, end)
    return memo.part(series.label).by(key, _read_course, series, process, history, seconds)


def _read_course(
    series: ChartSeries[GpuProcess], process: GpuProcess, history: History, seconds: float
) -> _Course:
    (field,), values = series.fields, series.over_time(history, process)
    points = values.window(field, seconds)
    return _Course(points, values.peak(field, seconds), values.slope(field, seconds))


def _charts_title(memo: Memo, process: GpuProcess, history: History, window: ChartWindow) -> str:
    """The time that the charts show, and how much of it has samples."""
    title, seconds = window_title(window, history), window_seconds(window, history)
    points = _course(memo, PROCESS_SERIES[0], process, history, seconds).points
    if points and history.now - points[0][0] < seconds - 10:
        return f"{title}, seen for {duration(history.now - points[0][0])}"
    return title


def _charts(
    memo: Memo, process: GpuProcess, history: History, seconds: float, width: int, is_past: bool
) -> list[Row]:
    """Its values over time: the text on the left, the graph on the right, below them the times."""
    caption = min(_CAPTION, width * 2 // 3)
    room = max(1, width - caption)
    before: Field = (" " * caption, "")
    end = end_of_chart(history.now, seconds, 2 * room)
    rows: list[Row] = []
    reports = process.load is not None and process.load.problem is None
    for series in (*PROCESS_SERIES, *(SERVER_SERIES if reports else ())):
        if rows:
            rows.append(fill([before, ("─" * room, "rule")], width))
        rows += _chart(memo, series, process, history, seconds, end, width, caption)
    span = span_until(end.time, seconds, 2 * room)
    return [*rows, *([(before, *row) for row in time_rows(span, room, is_past=is_past)])]


def _chart(
    memo: Memo,
    series: ChartSeries[GpuProcess],
    process: GpuProcess,
    history: History,
    seconds: float,
    end: ChartEnd,
    width: int,
    caption: int,
) -> list[Row]:
    quantity = series.quantity
    gpus = () if history.latest is None else history.latest.gpus
    label = series.label or load_word(gpus, process.uses)
    newest = series.newest(process)
    now = "not known" if newest is None else f"{quantity.text(newest)}{quantity.unit()}"
    part, room = memo.part(series.label), max(1, width - caption)
    course = _course(memo, series, process, history, seconds)
    course.peak = highest((course.peak, newest))
    shown = course.points, course.peak, course.slope
    trend, top = part(quantity.trend, *shown), series.small_top(course.peak)
    key = (process.id, history, seconds, end, room, top)
    graph = part.by(key, _graph, series, process, history, seconds, end, room, top)
    newest_width = max(1, caption - LABEL_WIDTH)
    name, value = (fit(label, LABEL_WIDTH), "dim"), (fit(now, newest_width), "strong")
    texts: list[list[Field]] = [[name, value], [(fit(trend, caption), "dim")]]
    return [
        fill([*text, *curve_fields(cells, series.style)], width)
        for text, cells in zip(texts, graph, strict=True)
    ]


def _graph(
    series: ChartSeries[GpuProcess],
    process: GpuProcess,
    history: History,
    seconds: float,
    end: ChartEnd,
    room: int,
    top: float,
) -> list[str]:
    values = series.values(history, process, series.fields[0], seconds, 2 * room, end)
    return curve_cells(values, top, room, _GRAPH_ROWS)


def _command(process: GpuProcess, details: Details | None, width: int) -> list[Row]:
    """The whole command, split at its arguments."""
    command = (details.command if details is not None else None) or process.command
    if not command:
        return text_rows(UNKNOWN, width)
    return [fill([(printable(line), "")], width) for line in split_command(command, width)]


_SORT = Sort()


def job_rows(
    job: JobGroup, gone: str, gpus: Sequence[Gpu], context: RowContext, width: int
) -> list[Row]:
    """The whole page, every row exactly ``width`` cells.

    Args:
        job: The newest values of the job.
        gone: A text that says that none of its processes is on a GPU; empty if one is.
        gpus: The GPUs.
        context: What the rows of its processes need.
        width: Cells.
    """
    now = context.now
    uses = _merged(job)
    load = load_word(gpus, uses)
    sections = [
        Section("", lambda size: _job_summary(job, gone, load, now, size)),
        Section("Job", lambda size: fact_rows(_job_facts(job, now), size), Side.LEFT),
    ]
    if job.processes:
        sections += [
            Section("On the GPUs", lambda size: use_rows(uses, job.memory, gpus, size), Side.RIGHT),
            *server_sections(job.processes),
            Section("Processes", lambda size: _job_processes(job, load, context, size)),
        ]
    return page_rows(sections, width)


def _job_summary(job: JobGroup, gone: str, load: str, now: float, width: int) -> list[Row]:
    """The name and the main values."""
    fields: list[Field] = [(", ".join(printable(user or UNKNOWN) for user in job.users), "user")]
    if job.processes:
        fields += _use_fields(job.memory, gpu_list(job.gpus), load, job.sm)
    else:
        known = "no process on a GPU" if job.has_all_processes else "its processes are not known"
        fields.append((f"   {known}", "state.note"))
    if job.started_at is not None and not gone:
        fields += [("   for ", "dim"), (duration(now - job.started_at), "")]
    rows = [fill([(job.label, "strong")], width), fill(fields, width)]
    return rows + (text_rows(gone, width, "state.note") if gone else [])


def _job_facts(job: JobGroup, now: float) -> list[Fact]:
    count = len(job.processes)
    number = (count or "none") if job.has_all_processes else "an unknown number"
    facts = [Fact("processes", f"{number} on GPUs")]
    if job.started_at is not None:
        age = f"{duration(now - job.started_at)} ago"
        facts.append(Fact("started", moment_text(job.started_at, now), note=age))
    if job.allocated is not None:
        facts += job_facts(job.allocated, now)
    # Processes of one job run in one place; what differs is on their own pages.
    for process in job.processes[:1]:
        facts += cgroup_memory_facts(process.cgroup_memory)
        facts += workload_facts(process.place, looked_up=True)
    return facts


def _merged(job: JobGroup) -> list[GpuUse]:
    """What its processes use of each GPU together."""
    on_gpu: defaultdict[tuple[int, str, tuple[int, int] | None], list[GpuUse]] = defaultdict(list)
    for process in job.processes:
        for use in process.uses:
            on_gpu[use.gpu_index, use.gpu_uuid, use.instance].append(use)
    return [
        GpuUse(
            uuid,
            index,
            instance,
            memory_used=known_sum(use.memory_used for use in uses),
            sm=known_sum(use.sm for use in uses),
        )
        for (index, uuid, instance), uses in sorted(on_gpu.items(), key=lambda pair: pair[0][0])
    ]


def _job_processes(job: JobGroup, load: str, context: RowContext, width: int) -> list[Row]:
    ordered = sort_processes(job.processes, _SORT, context)
    items = [ProcessItem(process, context) for process in ordered]
    columns = fitting_columns(items, width, _SORT, load)
    rows = [process_row(process, columns, context, width) for process in ordered]
    return [heading_row(columns, _SORT, width), *rows]
