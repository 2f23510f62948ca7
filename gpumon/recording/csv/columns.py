"""The columns of a log: what each contains, how it is written, and how it is read back.

These two tables are the only place that knows a column: the writer, the readers, the report and the
documentation use them. A column's name never changes, and new columns are only added at the end, so
scripts that count columns stay correct; only ``hostname``, which logs of several machines have, is
always the last one. The number in ``gpumon_log`` says which columns exist. An
empty cell is unknown, never 0.

Numbers are exact: a reader gets the sampled value back, rates to a thousandth. Untrusted text is
made visible and safe for spreadsheets (``gpumon.text.formatting.spreadsheet_safe``), which cannot
be reversed for invisible characters.
"""

from __future__ import annotations

import shlex
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import fields

from gpumon.model.bounds import MOST_ENGINES
from gpumon.model.metrics import PROCESS_METRIC, Metric, Unit
from gpumon.model.processes import GpuProcess, GpuUse, ProcessId, Workload
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.model.snapshot import GPU_METRIC, GPU_METRICS, Gpu, Host
from gpumon.recording.csv.accident_cells import accidents_cell, parse_accidents, row_accidents
from gpumon.recording.csv.allocation_cells import (
    allocation_count,
    allocations_in_row,
    jobs_cell,
    parse_jobs,
    parse_users,
    users_cell,
)
from gpumon.recording.csv.nvidia_smi import OTHER_NAMES
from gpumon.recording.csv.parsers import (
    LATEST,
    container,
    identity,
    mig_devices,
    parse_quoted,
    parse_smi_text,
    parse_text,
    parser,
)
from gpumon.text.csv_cells import csv_cell, csv_heading
from gpumon.text.formatting import spreadsheet_safe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpumon.model.processes import Container
    from gpumon.model.snapshot import MigInstance, Snapshot

VERSION = max(4, *(metric.since for metric in GPU_METRICS))
"""Each version after the first added metrics at the end of the GPU file, see ``Metric.since``; the
third added the allocations and the inference servers too, the fourth the accidents."""

TEXT_CHARACTERS = 2000
"""Longest text in a cell; a command line is cut there."""

_NOWHERE = Workload()
_NOT_REPORTED = ServerLoad()


class GpuRow(NamedTuple):
    """What a row of the GPU file is written from.

    Attributes:
        snapshot: The sample.
        gpu: The GPU.
        elapsed: Seconds since the log began.
        hostname: The machine in a log of several.
    """

    snapshot: Snapshot
    gpu: Gpu
    elapsed: float
    hostname: str | None = None

    @property
    def host(self) -> Host:
        """The machine."""
        return self.snapshot.host


class ProcessRow(NamedTuple):
    """What a row of the process file is written from: one process on one GPU; see ``GpuRow``."""

    snapshot: Snapshot
    process: GpuProcess
    use: GpuUse
    elapsed: float
    hostname: str | None = None

    @property
    def place(self) -> Workload:
        """Where the process runs, as far as known."""
        return self.process.place or _NOWHERE

    @property
    def load(self) -> ServerLoad:
        """What the process's inference server reports, as far as known."""
        return self.process.load or _NOT_REPORTED


class CsvColumn(Struct, frozen=True):
    """A column of a file of the log.

    Attributes:
        name: Its heading, with nvidia-smi's name and unit where there is one.
        about: What it contains.
        unit: The unit of its values in the model.
        part: What it describes: ``snapshot``, ``host``, ``gpu``, ``process``, ``use``, ``place``,
            ``server``, ``load`` or ``log``.
        field: The name of its value; that of a field in the model, if its value is one.
        value: Takes the value from a ``GpuRow`` or a ``ProcessRow``.
        write: Formats the value as a cell.
        parse: Parses a cell that is not empty, see ``parsers``.
        possible: The lowest and the highest possible value.
        is_real: Whether its cells are numbers in the model's unit that may have a fraction.
        metric: The metric that it shows, or ``None``.
    """

    name: str
    about: str
    unit: Unit
    part: str
    field: str
    value: Callable[[Any], object]
    write: Callable[[Any], str]
    parse: Callable[[str], object]
    possible: tuple[float, float]
    is_real: bool
    metric: Metric | None = None

    def cell(self, row: GpuRow | ProcessRow) -> str:
        """The cell of a row."""
        return self.write(self.value(row))


def cell(value: object, unit: Unit) -> str:
    """A value in nvidia-smi's words and units, with as many digits as needed to be exact."""
    if isinstance(value, str):
        value = value[:TEXT_CHARACTERS]
    return csv_cell(value, unit, _number)


def _number(value: float, unit: Unit) -> str:
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


def mig_cell(devices: tuple[MigInstance, ...]) -> str:
    """The MIG devices of a GPU in one cell: ``index uuid gi ci profile SMs total used free``.

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


def quoted_cell(texts: Sequence[str]) -> str:
    """Texts quoted for a shell, such as a command line; ``shlex.split`` gives them back."""
    return spreadsheet_safe(shlex.join(texts)[:TEXT_CHARACTERS])


def identity_cell(process: ProcessId | None) -> str:
    """``PID:start`` with the start in clock ticks since boot, or ``PID`` if it is unknown."""
    if process is None:
        return ""
    return str(process.pid) if process.start_time is None else f"{process.pid}:{process.start_time}"


def _container_cell(around: Container | None) -> str:
    return "" if around is None else cell(around.label, Unit.TEXT)


def _age(row: GpuRow) -> float | None:
    read = row.gpu.sampled_at
    return None if read is None else row.snapshot.time - read


def _listed(row: GpuRow) -> int | None:
    """Number of processes in a GPU's list; ``None`` without a list."""
    snapshot, gpu = row.snapshot, row.gpu
    if "processes" in gpu.unknown or snapshot.processes_at is None:
        return None
    listed, uuid = 0, gpu.uuid
    for process in snapshot.processes:
        for use in process.uses:
            if use.gpu_uuid == uuid:
                listed += 1
                break
    return listed


def _allocated_jobs(row: GpuRow) -> str:
    return jobs_cell(allocations_in_row(row.snapshot.allocations, row.gpu), row.gpu)


def _allocated_users(row: GpuRow) -> str:
    return users_cell(allocations_in_row(row.snapshot.allocations, row.gpu))


def _host_load(place: int) -> Callable[[GpuRow], float | None]:
    return lambda row: None if row.host.load is None else row.host.load[place]


def _instance(place: int) -> Callable[[ProcessRow], int | None]:
    return lambda row: None if row.use.instance is None else row.use.instance[place]


def _server(field: str) -> Callable[[ProcessRow], object]:
    return lambda row: None if row.place.server is None else getattr(row.place.server, field)


def _server_process(row: ProcessRow) -> ProcessId | None:
    server = row.place.server
    return (
        None if server is None or server.pid is None else ProcessId(server.pid, server.start_time)
    )


_MODEL: dict[str, type[Struct]] = {
    "gpu": Gpu,
    "host": Host,
    "process": GpuProcess,
    "use": GpuUse,
    "place": Workload,
    "server": InferenceServer,
    "load": ServerLoad,
}


def _is_real(unit: Unit, part: str, field: str) -> bool:
    """Whether a number may have a fraction: as in the model, else if it is in seconds."""
    return unit is Unit.SECONDS or (
        part in _MODEL and "float" in _types(_MODEL[part]).get(field, "")
    )


@cache
def _types(struct: type[Struct]) -> dict[str, str]:
    """The types of its fields, as text."""
    return {field.name: str(field.type) for field in fields(struct)}


def _column(
    name: str,
    unit: Unit,
    path: str,
    about: str,
    *,
    value: Callable[[Any], object] | None = None,
    write: Callable[[Any], str] | None = None,
    parse: Callable[[str], object] | None = None,
    possible: tuple[float, float] | None = None,
    metric: Metric | None = None,
) -> CsvColumn:
    """A column, by its path in a ``GpuRow`` or ``ProcessRow``; the rest follows from its unit.

    Args:
        name: Its name without the unit.
        unit: Its unit.
        path: Part and field.
        about: What it contains.
        value: Takes the value, if it is not what stands at the path.
        write: Formats the value, if it is not a plain one.
        parse: Parses the cell, if it is not a plain one.
        possible: The lowest and the highest value, if they are not those of the unit.
        metric: The metric that it shows.
    """
    part, _, field = path.rpartition(".")
    bounds = possible or unit.possible
    real = _is_real(unit, part, field)
    if parse is None:
        parse = parse_text if unit is Unit.TEXT else parser(unit, bounds, real=real)
    return CsvColumn(
        name=csv_heading(name, unit),
        about=about,
        unit=unit,
        part=part or "log",
        field=field,
        value=value or attrgetter(path),
        write=write or (lambda value: cell(value, unit)),
        parse=parse,
        possible=bounds,
        is_real=real and unit.per_csv == 1 and unit is not Unit.TIME,
        metric=metric,
    )


def _metric_column(metric: Metric) -> CsvColumn:
    return _column(
        metric.smi or metric.field.replace("_", "."),
        metric.unit,
        f"gpu.{metric.field}",
        metric.about,
        parse=parse_smi_text if metric.unit is Unit.TEXT else None,
        possible=metric.possible,
        metric=metric,
    )


_T, _N, _PCT, _MIB, _S, _RATE, _TIME = (
    Unit.TEXT,
    Unit.NUMBER,
    Unit.PERCENT,
    Unit.BYTES,
    Unit.SECONDS,
    Unit.PER_SECOND,
    Unit.TIME,
)
_FIRST = (
    "index",
    "uuid",
    "name",
    "utilization_gpu",
    "memory_used",
    "memory_total",
    "temperature_gpu",
    "power_draw",
)
_LOGGED = sorted((metric for metric in GPU_METRICS if metric.logged), key=lambda one: one.since)
# A process may use several engines and many cores.
_ENGINES, _CORES = (0, MOST_ENGINES), (0, 100 * 2**20)
# Less than 0 if the clock was set back between the reading and the sample.
_AGES = (-LATEST, LATEST)

# One line per column is easier to read here than short lines.
# ruff: noqa: E501
# fmt: off
GPU_COLUMNS: tuple[CsvColumn, ...] = (
    _column("timestamp", _TIME, "snapshot.time", "When the sample was taken, in ISO 8601 with its zone."),
    *(_metric_column(GPU_METRIC[field]) for field in _FIRST),
    _column("status", _T, "gpu.status", "ok, or why the GPU does not answer: asleep, no answer, lost, reset required, no permission, failing.", value=lambda row: row.gpu.status.value),
    _column("processes", _N, "gpu.processes", "How many processes the newest list of the GPU holds; empty where there is none.", value=_listed),
    *(_metric_column(metric) for metric in _LOGGED if metric.since == 1 and metric.field not in _FIRST),
    _column("age", _S, "gpu.age", "How long before the timestamp the GPU's values were read; large while it hangs.", value=_age, possible=_AGES),
    _column("status.since", _TIME, "gpu.status_since", "When the status began, as far as was seen."),
    _column("mig.devices", _T, "gpu.mig", "The MIG devices: index uuid gi ci profile SMs total used free (bytes), separated by semicolons; - is unknown.", write=mig_cell, parse=mig_devices),
    _column("host", _T, "host.name", "Name of the machine."),
    _column("driver_version", _T, "host.driver_version", "Of the NVIDIA driver.", parse=parse_smi_text),
    _column("cuda_version", _T, "host.cuda_version", "The newest CUDA that driver supports."),
    _column("host.cpu", _PCT, "host.cpu_percent", "CPU use of all cores of the machine together."),
    _column("host.cpu.count", _N, "host.cpu_count", "Logical cores."),
    *(_column(f"host.load.{minutes}", _N, "host.load", f"Load average of the machine over {words}.", value=_host_load(place)) for place, (minutes, words) in enumerate(((1, "a minute"), (5, "5 minutes"), (15, "15 minutes")))),
    _column("host.memory.used", _MIB, "host.memory_used", "Of the machine, neither free nor reclaimable."),
    _column("host.memory.total", _MIB, "host.memory_total", "Of the machine."),
    _column("elapsed", _S, "elapsed", "Since this log began to be written, by a clock that nobody sets; begins again at 0 when the log is continued.", possible=(0, LATEST)),
    _column("gpumon_log", _N, "log.version", "Version of these columns.", value=lambda _: VERSION),
    *(_metric_column(metric) for metric in _LOGGED if 1 < metric.since <= 3),
    _column("allocations", _N, "gpu.allocations", "Number of jobs that a scheduler has given the GPU to, or a part of it. Empty without a scheduler, and while that is not known.", value=lambda row: allocation_count(row.snapshot.allocations, row.gpu)),
    _column("allocated.jobs", _T, "gpu.allocated_jobs", "These jobs: scheduler and job, `=` and Slurm's own number for a task of an array or a part of a heterogeneous job, then `mig` and the indices of its MIG devices if it has only these, separated by semicolons; - is unknown. A ? follows a job that may have another GPU instead.", value=_allocated_jobs, write=str, parse=parse_jobs),
    _column("allocated.users", _T, "gpu.allocated_users", "The users of these jobs in the same order, separated by semicolons; nothing between them is unknown.", value=_allocated_users, write=str, parse=parse_users),
    _column("accidents", _T, "gpu.accidents", "What the kernel reported about the GPU in the last 10 minutes, oldest first: a JSON array with an array per accident, whose items are time (seconds since 1970), kind, UUID, error code, PID, process name, channel, the rest of the line, memory cgroup and bytes of host memory; null is unknown; [] is none. The first row has the accidents of no GPU, too.", value=lambda row: row_accidents(row.snapshot, row.gpu), write=accidents_cell, parse=parse_accidents),
    *(_metric_column(metric) for metric in _LOGGED if metric.since > 3),
)

PROCESS_COLUMNS: tuple[CsvColumn, ...] = (
    _column("timestamp", _TIME, "snapshot.time", "When the sample was taken; that of the GPUs' rows of the same moment."),
    _column("index", _N, "use.gpu_index", "Index of the GPU."),
    _column("uuid", _T, "use.gpu_uuid", "UUID of the GPU."),
    _column("pid", _N, "process.pid", "Its number.", value=lambda row: row.process.id.pid),
    _column("start_time", _TIME, "process.started_at", "When it started."),
    _column("user", _T, "process.user", "Owner of the process."),
    _column("type", _T, "process.type", "C compute, G graphics, C+G both, M a client of MPS."),
    _column("used_gpu_memory", _MIB, "use.memory_used", "GPU memory on this GPU."),
    _column("sm", _PCT, "use.sm", "Share of time one of its kernels ran on this GPU.", possible=_ENGINES),
    _column("cpu", _PCT, "process.cpu_percent", "CPU use in percent of one core, for the process as a whole: do not add it up over GPUs.", possible=_CORES),
    _column("rss", _MIB, "process.rss", "Host memory it keeps resident; as a whole."),
    _column("container", _T, "place.container", "The container or pod around it.", write=_container_cell, parse=container),
    _column("job", _T, "process.job", "Its Slurm job, else what launched it.", value=lambda row: PROCESS_METRIC["job"].read(row.process, row.snapshot.time)),
    _column("command", _T, "process.command", "Its command line, quoted for a shell.", write=quoted_cell),
    _column("name", _T, "process.name", "The kernel's short name of it."),
    _column("state", _T, "process.state", "One letter, as in ps."),
    _column("memory_activity", _PCT, "use.memory_activity", "Share of time its kernels read or wrote memory of this GPU.", possible=_ENGINES),
    _column("encoder", _PCT, "use.encoder", "Of the GPU's video encoder.", possible=_ENGINES),
    _column("decoder", _PCT, "use.decoder", "Of the GPU's video decoder.", possible=_ENGINES),
    _column("gpu_instance", _N, "use.gpu_instance", "Under MIG.", value=_instance(0)),
    _column("compute_instance", _N, "use.compute_instance", "Under MIG.", value=_instance(1)),
    _column("uid", _N, "process.uid", "The owner's number."),
    _column("start_ticks", _N, "process.start_ticks", "When it started in clock ticks since boot: with the PID, its identity. Empty where the process was not visible.", value=lambda row: row.process.id.start_time),
    _column("visible", Unit.YES_NO, "process.visible", "Yes, or No where the machine did not show the process to gpumon."),
    _column("slurm_job", _T, "place.slurm_job", "Number of its Slurm job."),
    _column("slurm_step", _T, "place.slurm_step", "The step of that job."),
    _column("notebook", _T, "place.notebook", "Path of its Jupyter notebook."),
    _column("jupyter_kernel", _T, "place.jupyter_kernel", "Id of its Jupyter kernel."),
    _column("tmux", _T, "place.tmux", "Its tmux session."),
    _column("environment", _T, "place.environment", "Its conda or virtual environment."),
    _column("session", _N, "place.session", "Its session id (setsid)."),
    _column("launcher", _T, "place.launcher", "PID:start of what launched the job.", write=identity_cell, parse=identity),
    _column("launcher_name", _T, "place.launcher_name", "Its name."),
    _column("parent", _T, "place.parent", "PID:start of its parent.", write=identity_cell, parse=identity),
    _column("elapsed", _S, "elapsed", "As in the GPUs' file.", possible=(0, LATEST)),
    _column("gpumon_log", _N, "log.version", "Version of these columns.", value=lambda _: VERSION),
    _column("server", _T, "server.engine", "The inference server that it is part of: vllm, ollama.", value=_server("engine")),
    _column("server_model", _T, "server.model", "Its model, as its command line names it.", value=_server("model")),
    _column("server_process", _T, "server.server_id", "PID:start of the server's outermost process, the same for all processes of a server: its identity.", value=_server_process, write=identity_cell, parse=identity),
    _column("server_memory_setting", _T, "server.memory_setting", "The setting that limits the GPU memory that it takes at its start.", value=_server("memory_setting")),
    _column("server_memory_value", _T, "server.memory_value", "What that was set to. Empty where its default applies.", value=_server("memory_value")),
    _column("server_has_config_file", Unit.YES_NO, "server.has_config_file", "Whether it also has a configuration file, which may set that.", value=_server("has_config_file")),
    _column("server_running", _N, "load.running", "Requests that the server works on. This and what follows are of the server as a whole: not to be added up over its processes."),
    _column("server_waiting", _N, "load.waiting", "Requests that wait for it."),
    _column("server_requests", _RATE, "load.requests", "Requests that it finished, over about half a minute."),
    _column("server_tokens", _RATE, "load.tokens", "Tokens that it generated, over about half a minute."),
    _column("server_prompt_tokens", _RATE, "load.prompt_tokens", "Tokens of prompts that it read, over about half a minute."),
    _column("server_kv_cache", _PCT, "load.kv_cache", "Use of its KV cache, that of the fullest engine."),
    _column("server_models", _T, "load.models", "The models that it names, quoted for a shell.", write=quoted_cell, parse=parse_quoted),
    _column("server_problem", _T, "load.problem", "Why it reports nothing, such as: it needs a key."),
)
HOSTNAME = _column("hostname", _T, "hostname", "The machine, as `--hosts` names it. Only logs of several machines have this column; it is always the last one.")
CLOCK_EVENTS_KNOWN = _column("clocks_event_reasons.known", Unit.BITS, "gpu.clock_events_known", "The bits of the reasons that are known, where they are not all.")
# fmt: on

_READABLE: dict[bool, dict[str, CsvColumn]] = {
    False: {
        column.name: column
        for column in (
            *GPU_COLUMNS,
            HOSTNAME,
            CLOCK_EVENTS_KNOWN,
            # A file of nvidia-smi may have them.
            *(_metric_column(metric) for metric in GPU_METRICS if not metric.logged),
        )
    },
    True: {column.name: column for column in (*PROCESS_COLUMNS, HOSTNAME)},
}
_BARE_NAMES = {
    processes: {name.partition(" [")[0]: name for name in columns}
    for processes, columns in _READABLE.items()
}


_BY_FIELD = {
    processes: {
        f"host_{column.field}" if column.part == "host" else column.field: column
        for column in columns.values()
    }
    for processes, columns in _READABLE.items()
}


def columns_of(fields: Iterable[str], *, processes: bool) -> list[CsvColumn]:
    """The columns with these fields; the names of those of the host begin with ``host_``."""
    return [_BY_FIELD[processes][field] for field in fields]


def readable_columns(*, processes: bool) -> tuple[CsvColumn, ...]:
    """The columns that can be read: those of the log, and metrics that only nvidia-smi writes."""
    return tuple(_READABLE[processes].values())


def readable_column(name: str, *, processes: bool) -> CsvColumn:
    """The column with a name."""
    return _READABLE[processes][name]


def column_name(text: str, *, processes: bool) -> str | None:
    """The name of the column with a header, which may be nvidia-smi's name and lack the unit.

    ``None`` if gpumon does not know the header.
    """
    bare = text.strip().partition(" [")[0]
    names = _BARE_NAMES[processes]
    return names.get(OTHER_NAMES.get(bare, bare) if not processes else bare)
