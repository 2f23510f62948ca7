"""The columns of a log: what each contains, and how it is written.

Both tables are made from the metric tables. A column's name never changes, and new columns are only
added at the end, so scripts that count columns stay correct; the number in ``gpumon_log`` says
which columns exist. An empty cell is unknown, never 0.

Numbers are exact: a reader gets the sampled value back, rates to a thousandth. Untrusted text is
made visible and safe for spreadsheets (``gpumon.text.formatting.spreadsheet_safe``), which cannot
be reversed for invisible characters.
"""

from __future__ import annotations

import math
import shlex
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.metrics import GPU_METRICS, PROCESS_METRIC, Metric, Unit
from gpumon.text.formatting import spreadsheet_safe

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.snapshot import (
        Gpu,
        GpuProcess,
        GpuUse,
        MigInstance,
        Place,
        ProcessId,
        Snapshot,
    )

VERSION = 1

TEXT_CHARACTERS = 2000
"""Longest text in a cell; a command line is cut there."""

_NOT_LOGGED = frozenset(("serial", "vbios_version", "architecture"))
"""Text that says the same in every row, and nothing of the work."""


class GpuColumn(Struct, frozen=True):
    """A column of the GPU file.

    Attributes:
        name: Its heading, with nvidia-smi's name and unit where there is one.
        about: What it contains.
        write: Writes the cell of a GPU; ``elapsed`` is seconds since the start of the log.
        metric: The line of the metric table that it shows, or ``None``.
    """

    name: str
    about: str
    write: Callable[[Snapshot, Gpu, float], str]
    metric: Metric | None = None


class ProcessColumn(Struct, frozen=True):
    """A column of the process file.

    Attributes:
        name: Its heading.
        about: What it contains.
        write: Writes the cell of a process on a GPU.
    """

    name: str
    about: str
    write: Callable[[Snapshot, GpuProcess, GpuUse, float], str]


def heading(name: str, unit: Unit) -> str:
    """A header as nvidia-smi writes it: with the unit, if there is one."""
    return f"{name} [{unit.csv}]" if unit.csv else name


def moment(time: float | None) -> str:
    """A local time in ISO 8601, with its offset from UTC."""
    if time is None:
        return ""
    return datetime.fromtimestamp(time).astimezone().isoformat(timespec="milliseconds")


def cell(value: object, unit: Unit) -> str:
    """A value in nvidia-smi's words and units, with as many digits as needed to be exact."""
    if value is None:
        return ""
    if unit is Unit.TIME and isinstance(value, (int, float)):
        return moment(value)
    if isinstance(value, bool):
        yes, no = ("Enabled", "Disabled") if unit is Unit.ENABLED else ("Yes", "No")
        return yes if value else no
    if isinstance(value, (int, float)):
        return _number(value, unit)
    return spreadsheet_safe(str(value)[:TEXT_CHARACTERS])


def _number(value: float, unit: Unit) -> str:
    if not math.isfinite(value):
        return ""
    if unit is Unit.PSTATE:
        return f"P{value:g}"
    if unit is Unit.BITS:
        return f"0x{int(value):016X}"
    if unit.per_csv == 1 and isinstance(value, int):
        return str(value)
    # Seven digits of a MiB are less than half a byte; the driver's other numbers are thousandths.
    digits = 7 if unit is Unit.BYTES else 3
    return _shortest(value / unit.per_csv, digits)


def _shortest(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    # Keep the decimal point: readers infer the type of a column from its first rows.
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction.rstrip('0') or '0'}"


def _metric_column(metric: Metric) -> GpuColumn:
    field, unit = metric.field, metric.unit
    return GpuColumn(
        heading(metric.smi or field.replace("_", "."), unit),
        metric.about,
        lambda _, gpu, __: cell(getattr(gpu, field), unit),
        metric,
    )


def _age(snapshot: Snapshot, gpu: Gpu) -> float | None:
    return None if gpu.sampled_at is None else snapshot.time - gpu.sampled_at


def _listed(snapshot: Snapshot, gpu: Gpu) -> int | None:
    """Number of processes in a GPU's list; ``None`` without a list."""
    if "processes" in gpu.unknown or snapshot.processes_at is None:
        return None
    listed, uuid = 0, gpu.uuid
    for process in snapshot.processes:
        for use in process.uses:
            if use.gpu_uuid == uuid:
                listed += 1
                break
    return listed


def _load(place: int) -> Callable[[Snapshot, Gpu, float], str]:
    return lambda snapshot, _, __: cell(
        None if snapshot.host.load is None else snapshot.host.load[place], Unit.NUMBER
    )


def mig_cell(devices: tuple[MigInstance, ...]) -> str:
    """The MIG devices of a card in one cell: ``index uuid gi ci profile SMs total used free``.

    Sizes are in bytes; ``-`` is unknown; semicolons separate devices.
    """
    parts = []
    for mig in devices:
        facts = (
            mig.index,
            mig.uuid,
            mig.gpu_instance,
            mig.compute_instance,
            mig.profile,
            mig.multiprocessors,
            mig.memory_total,
            mig.memory_used,
            mig.memory_free,
        )
        parts.append(" ".join("-" if fact is None else str(fact) for fact in facts))
    return spreadsheet_safe(";".join(parts))


_T, _N, _PCT, _MIB, _S = Unit.TEXT, Unit.NUMBER, Unit.PERCENT, Unit.BYTES, Unit.SECONDS
_SMI = {metric.field: metric for metric in GPU_METRICS}

# One line per column is easier to read here than short lines.
# ruff: noqa: E501
# fmt: off
GPU_COLUMNS: tuple[GpuColumn, ...] = (
    GpuColumn("timestamp", "When the sample was taken, in ISO 8601 with its zone.", lambda s, _, __: moment(s.time)),
    *(_metric_column(_SMI[field]) for field in ("index", "uuid", "name", "utilization_gpu", "memory_used", "memory_total", "temperature_gpu", "power_draw")),
    GpuColumn("status", "ok, or why the card does not answer: asleep, no answer, lost, reset required, no permission, failing.", lambda _, g, __: g.status.value),
    GpuColumn("processes", "How many processes the newest list of the card holds; empty where there is none.", lambda s, g, _: cell(_listed(s, g), _N)),
    # New metrics go to the end, not here: see tests/recording/csv/test_columns.py.
    *(_metric_column(metric) for metric in GPU_METRICS if metric.field not in {"index", "uuid", "name", "utilization_gpu", "memory_used", "memory_total", "temperature_gpu", "power_draw", *_NOT_LOGGED}),
    GpuColumn("age [s]", "How long before the timestamp the card's values were read; large while it hangs.", lambda s, g, _: cell(_age(s, g), _S)),
    GpuColumn("status.since", "When the status began, as far as was seen.", lambda _, g, __: moment(g.status_since)),
    GpuColumn("mig.devices", "The MIG devices: index uuid gi ci profile SMs total used free (bytes), parted by semicolons; - is unknown.", lambda _, g, __: mig_cell(g.mig)),
    GpuColumn("host", "Name of the machine.", lambda s, _, __: cell(s.host.name, _T)),
    GpuColumn("driver_version", "Of the NVIDIA driver.", lambda s, _, __: cell(s.host.driver_version, _T)),
    GpuColumn("cuda_version", "The newest CUDA that driver supports.", lambda s, _, __: cell(s.host.cuda_version, _T)),
    GpuColumn("host.cpu [%]", "Of all cores of the machine together.", lambda s, _, __: cell(s.host.cpu_percent, _PCT)),
    GpuColumn("host.cpu.count", "Logical cores.", lambda s, _, __: cell(s.host.cpu_count, _N)),
    *(GpuColumn(f"host.load.{minutes}", f"Load average of the machine over {words}.", _load(place)) for place, (minutes, words) in enumerate(((1, "a minute"), (5, "5 minutes"), (15, "15 minutes")))),
    GpuColumn("host.memory.used [MiB]", "Of the machine, neither free nor reclaimable.", lambda s, _, __: cell(s.host.memory_used, _MIB)),
    GpuColumn("host.memory.total [MiB]", "Of the machine.", lambda s, _, __: cell(s.host.memory_total, _MIB)),
    GpuColumn("elapsed [s]", "Since this log began to be written, by a clock that nobody sets; begins again at 0 when the log is continued.", lambda _, __, elapsed: cell(elapsed, _S)),
    GpuColumn("gpumon_log", "Version of these columns.", lambda _, __, ___: str(VERSION)),
)
# fmt: on


def command_cell(process: GpuProcess) -> str:
    """The shell-quoted command line; ``shlex.split`` gives the arguments back."""
    return spreadsheet_safe(shlex.join(process.command)[:TEXT_CHARACTERS])


def identity_cell(process: ProcessId | None) -> str:
    """``PID:start`` with the start in clock ticks since boot, or ``PID`` if it is unknown."""
    if process is None:
        return ""
    return str(process.pid) if process.start_time is None else f"{process.pid}:{process.start_time}"


def _place(read: Callable[[Place], object], unit: Unit = Unit.TEXT) -> Callable[..., str]:
    def write(_: Snapshot, process: GpuProcess, __: GpuUse, ___: float) -> str:
        return "" if process.place is None else cell(read(process.place), unit)

    return write


def _metric(key: str) -> Callable[..., str]:
    """A column for a metric of the process as a whole."""
    metric = PROCESS_METRIC[key]
    return lambda s, p, _, __: cell(metric.read(p, s.time), metric.unit)


# fmt: off
PROCESS_COLUMNS: tuple[ProcessColumn, ...] = (
    ProcessColumn("timestamp", "When the sample was taken; that of the cards' rows of the same moment.", lambda s, _, __, ___: moment(s.time)),
    ProcessColumn("index", "Index of the card.", lambda _, __, u, ___: cell(u.gpu_index, _N)),
    ProcessColumn("uuid", "UUID of the card.", lambda _, __, u, ___: cell(u.gpu_uuid, _T)),
    ProcessColumn("pid", "Its number.", lambda _, p, __, ___: cell(p.id.pid, _N)),
    ProcessColumn("start_time", "When it started.", lambda _, p, __, ___: moment(p.started_at)),
    ProcessColumn("user", "Whose it is.", _metric("user")),
    ProcessColumn("type", "C compute, G graphics, C+G both, M a client of MPS.", _metric("type")),
    ProcessColumn("used_gpu_memory [MiB]", "GPU memory on this card.", lambda _, __, u, ___: cell(u.memory_used, _MIB)),
    ProcessColumn("sm [%]", "Share of time one of its kernels ran on this card.", lambda _, __, u, ___: cell(u.sm, _PCT)),
    ProcessColumn("cpu [%]", "Of one core; of the process as a whole, so not to be added up over cards.", _metric("cpu")),
    ProcessColumn("rss [MiB]", "Host memory it keeps resident; as a whole.", _metric("rss")),
    ProcessColumn("container", "The container or pod around it.", _metric("container")),
    ProcessColumn("job", "Its Slurm job, else what launched it.", _metric("job")),
    ProcessColumn("command", "Its command line, quoted for a shell.", lambda _, p, __, ___: command_cell(p)),
    ProcessColumn("name", "The kernel's short name of it.", lambda _, p, __, ___: cell(p.name, _T)),
    ProcessColumn("state", "One letter, as in ps.", _metric("state")),
    ProcessColumn("memory_activity [%]", "Share of time its kernels read or wrote memory of this card.", lambda _, __, u, ___: cell(u.memory_activity, _PCT)),
    ProcessColumn("encoder [%]", "Of the card's video encoder.", lambda _, __, u, ___: cell(u.encoder, _PCT)),
    ProcessColumn("decoder [%]", "Of the card's video decoder.", lambda _, __, u, ___: cell(u.decoder, _PCT)),
    ProcessColumn("gpu_instance", "Under MIG.", lambda _, __, u, ___: "" if u.instance is None else str(u.instance[0])),
    ProcessColumn("compute_instance", "Under MIG.", lambda _, __, u, ___: "" if u.instance is None else str(u.instance[1])),
    ProcessColumn("uid", "The owner's number.", lambda _, p, __, ___: cell(p.uid, _N)),
    ProcessColumn("start_ticks", "When it started in clock ticks since boot: with the PID, its identity. Empty where the process was not visible.", lambda _, p, __, ___: cell(p.id.start_time, _N)),
    ProcessColumn("visible", "Yes, or No where the machine did not show the process to gpumon.", lambda _, p, __, ___: cell(p.visible, Unit.YES_NO)),
    ProcessColumn("slurm_job", "Number of its Slurm job.", _place(lambda one: one.slurm_job)),
    ProcessColumn("slurm_step", "The step of that job.", _place(lambda one: one.slurm_step)),
    ProcessColumn("notebook", "Path of its Jupyter notebook.", _place(lambda one: one.notebook)),
    ProcessColumn("jupyter_kernel", "Id of its Jupyter kernel.", _place(lambda one: one.jupyter_kernel)),
    ProcessColumn("tmux", "Its tmux session.", _place(lambda one: one.tmux)),
    ProcessColumn("environment", "Its conda or virtual environment.", _place(lambda one: one.environment)),
    ProcessColumn("session", "Its session id (setsid).", _place(lambda one: one.session, _N)),
    ProcessColumn("launcher", "PID:start of what launched the job.", _place(lambda one: identity_cell(one.launcher))),
    ProcessColumn("launcher_name", "Its name.", _place(lambda one: one.launcher_name)),
    ProcessColumn("parent", "PID:start of its parent.", _place(lambda one: identity_cell(one.parent))),
    ProcessColumn("elapsed [s]", "As in the cards' file.", lambda _, __, ___, elapsed: cell(elapsed, _S)),
    ProcessColumn("gpumon_log", "Version of these columns.", lambda _, __, ___, ____: str(VERSION)),
)
# fmt: on
