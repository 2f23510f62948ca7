"""The page of one process: its owner, command, environment, GPUs and values over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from gpumon.findings import process_findings
from gpumon.model.process_states import ENDED, HALTED, STATES, UNINTERRUPTIBLE
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
    mig_name,
    number,
    printable,
)
from gpumon.text.process_columns import devices
from gpumon.ui.view.gpu_text import load_word, mig_indices, short_name
from gpumon.ui.view.page_layout import (
    Chart,
    Fact,
    Section,
    Side,
    chart_rows,
    fact_rows,
    finding_rows,
    moment_text,
    page_rows,
    text_rows,
    wrap,
)
from gpumon.ui.view.process_details import (
    environment_rows,
    environment_title,
    family_rows,
    visible_gpu_rows,
)
from gpumon.ui.view.trend_text import SPAN, bytes_trend, percent_trend, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.host.process_host import Details
    from gpumon.model.processes import GpuProcess, GpuUse, Workload
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history import History
    from gpumon.text.process_columns import MigIndices
    from gpumon.ui.view.trend_text import Points

_LOOKING = "being looked up …"
_NOT_VISIBLE = (
    "Not visible here: it runs in another PID name space, or /proc hides it. What the driver "
    "tells is all that is known."
)
_UNSEEN = "It ended before gpumon saw it. Only the driver's values are known."
_NO_PLACE = "no container, Slurm job, notebook or tmux session found"


class ProcessView(Struct, frozen=True):
    """The process of a page.

    Attributes:
        process: Its newest values.
        details: Its details; ``None`` before they are read, and if it is not visible.
        revealed: Whether values that look like secrets are shown.
        gone: A text that says that it ended or left the GPUs; empty if it did not.
        ended: Whether it has ended.
        past: Whether the page shows a past moment, for which there are no details.
    """

    process: GpuProcess
    details: Details | None = None
    revealed: bool = False
    gone: str = ""
    ended: bool = False
    past: bool = False


def process_rows(
    view: ProcessView, history: History, snapshot: Snapshot | None, width: int
) -> list[Row]:
    """The whole page, every row exactly ``width`` cells."""
    process, details = view.process, view.details
    now = history.now if snapshot is None else snapshot.time
    gpus = () if snapshot is None else snapshot.gpus
    sections = [
        Section("", lambda size: _summary(view, gpus, now, size)),
        Section("", lambda size: _findings(view, history, size)),
        Section("Process", lambda size: _process(view, now, size), Side.LEFT),
        Section("On the GPUs", lambda size: _gpus(process, gpus, size), Side.RIGHT),
        Section(
            _span_title(process, history), lambda size: _charts(process, history, size), Side.RIGHT
        ),
        Section("Command", lambda size: _command(view, size), Side.LEFT),
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
                environment_title(details, view.revealed),
                lambda size: environment_rows(details, view.revealed, size),
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


def _summary(view: ProcessView, gpus: Sequence[Gpu], now: float, width: int) -> list[Row]:
    """The command and the main values."""
    process = view.process
    rows = [fill([(line, "strong")], width) for line in wrap(command_line(process), width, most=2)]
    fields: list[Field] = [(printable(process.user or UNKNOWN), "user")]
    if process.uses:
        fields += [
            (f"   {gibibytes(process.memory_used)} {gib()}", "strong"),
            (f" on GPU {devices(process, mig_indices(gpus))}", ""),
            (f"   {load_word(gpus, process.uses)} ", "dim"),
            (number(process.sm, " %"), ""),
        ]
    if process.started_at is not None and not view.ended:
        fields += [("   for ", "dim"), (duration(now - process.started_at), "")]
    if view.gone:
        return [*rows, fill(fields, width), *text_rows(view.gone, width, "state.note")]
    state = _state(view)
    if state is not None:
        added = ("   ", ""), (state_words(state).partition(":")[0], _state_style(state))
        # It may be left out here, because the facts below contain it too.
        if row_width((*fields, *added)) <= width:
            fields += added
    return [*rows, fill(fields, width)]


def _state(view: ProcessView) -> str | None:
    if view.details is not None and view.details.state is not None:
        return view.details.state
    return view.process.state


def _findings(view: ProcessView, history: History, width: int) -> list[Row]:
    return finding_rows(process_findings(history, view.process, details=view.details), width)


def _process(view: ProcessView, now: float, width: int) -> list[Row]:
    """Owner, state, start time, program and place, and what could not be read."""
    process, details = view.process, view.details
    if not process.visible:
        known = _UNSEEN if process.state == ENDED else _NOT_VISIBLE
        return text_rows(known, width, "dim")
    uid = "" if process.uid is None else f"uid {process.uid}"
    facts = [Fact("user", process.user or UNKNOWN, "user", uid)]
    threads = None if details is None else details.threads
    channel = None if details is None else details.wait_channel
    state = _state(view)
    facts.append(
        Fact(
            "state",
            "ended" if view.ended else state_words(state, channel),
            "" if view.ended else _state_style(state),
            "" if threads is None else counted(threads, "thread"),
        )
    )
    if process.started_at is not None:
        age = f"{duration(now - process.started_at)} ago"
        facts.append(Fact("started", moment_text(process.started_at, now), note=age))
    facts += _program(view)
    place = process.place if details is None or details.place is None else details.place
    facts += workload_facts(place, looked_up=view.past or details is not None)
    rows = fact_rows(facts, width)
    for sentence in () if details is None else details.unreadable:
        rows += text_rows(sentence, width, "dim")
    return rows


def _program(view: ProcessView) -> list[Fact]:
    """Script, program and working directory."""
    details = view.details
    if details is None:
        return [Fact("directory", UNKNOWN if view.ended or view.past else _LOOKING, "dim")]
    script = script_of(details.command or view.process.command)
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


def _span_title(process: GpuProcess, history: History) -> str:
    """The time that the charts show, and how much of it has samples."""
    title = f"Last {SPAN // 60:.0f} minutes"
    points = history.process_series(process.id).window("memory_used", SPAN)
    if points and history.now - points[0][0] < SPAN - 10:
        return f"{title}, seen for {duration(history.now - points[0][0])}"
    return title


def _charts(process: GpuProcess, history: History, width: int) -> list[Row]:
    """Its memory and utilisation over time."""
    gpus = () if history.latest is None else history.latest.gpus
    load = load_word(gpus, process.uses)
    charts = [
        _chart(process, history, "memory_used", "GPU memory", _BYTES),
        _chart(process, history, "sm", load, _PERCENT),
        _chart(process, history, "cpu_percent", "CPU", _PERCENT),
        _chart(process, history, "rss", "host memory", _BYTES),
    ]
    return chart_rows(charts, width)


class _Quantity(NamedTuple):
    """How values of one unit are drawn and told; ``top`` makes the upper edge of the peak."""

    text: Callable[[float], str]
    trend: Callable[[Points, float | None, float | None], str]
    style: str
    top: Callable[[float], float]


# Room above a level that is held, so that it looks like one.
_BYTES = _Quantity(size_text, bytes_trend, "graph.memory", lambda peak: (peak or 1) * 1.25)
_PERCENT = _Quantity("{:.0f} %".format, percent_trend, "graph.util", lambda peak: max(100.0, peak))


def _chart(
    process: GpuProcess, history: History, field: str, label: str, quantity: _Quantity
) -> Chart:
    now: float | None = getattr(process, field)
    series = history.process_series(process.id)
    points, peak = series.window(field, SPAN), series.peak(field, SPAN)
    return Chart(
        label,
        "not known" if now is None else quantity.text(now),
        quantity.trend(points, peak, series.slope(field, SPAN)),
        quantity.style,
        quantity.top(peak or 0.0),
        lambda count: series.buckets(field, SPAN, count),
    )


def _command(view: ProcessView, width: int) -> list[Row]:
    """The whole command, split at its arguments."""
    command = view.process.command
    if view.details is not None and view.details.command:
        command = view.details.command
    if not command:
        return text_rows(UNKNOWN, width)
    return [fill([(printable(line), "")], width) for line in split_command(command, width)]
