"""What a value is: its unit, its names, how often it is read.

A value of a GPU is declared on its field of ``snapshot.Gpu``, one of a process in
``PROCESS_METRICS``. Columns, JSON, CSV, the Prometheus exporter, charts and the help page follow.
CONTRIBUTING.md says how to add a metric.

The names of nvidia-smi are those of ``nvidia-smi --help-query-gpu``. The names of DCGM are those of
dcgm-exporter's default counters and of ``dcgm_fields.h``, which Grafana dashboards use.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.number_types import TIMES

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Annotated as Annotated  # noqa: PLC0414 - exported
    from typing import Literal

    from gpumon.model.makers import Maker
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu
else:

    class Annotated:
        """In place of ``typing.Annotated``, which would take 1.2 ms for all fields of ``Gpu``."""

        def __class_getitem__(cls, parts):
            """The type and the metric, which ``snapshot`` takes apart again."""
            return parts


class Unit(Enum):
    """The unit of a value in the model.

    Attributes:
        suffix: Ending of the JSON key, which names the unit.
        csv: The unit nvidia-smi writes in a CSV header; empty where it writes none.
        per_csv: Number of model units in one CSV unit.
        possible: The lowest and the highest value, in the model's unit, that hardware can report;
            any other value is corrupt. A metric may set other limits.
    """

    TEXT = ("text", "", "", 1)
    NUMBER = ("number", "", "", 1, (0, 2**48))
    ENABLED = ("enabled or disabled", "enabled", "", 1)
    YES_NO = ("yes or no", "", "", 1)
    PSTATE = ("performance state", "", "", 1, (0, 15))
    BITS = ("bits", "bits", "", 1, (0, 2**31))
    BYTES = ("bytes", "bytes", "MiB", 2**20, (0, 2**50))
    PERCENT = ("percent", "percent", "%", 1, (0, 100))
    SHARE = ("percent with a fraction", "percent", "%", 1, (0, 100))
    CELSIUS = ("degrees Celsius", "celsius", "", 1, (-100, 300))
    WATTS = ("watts", "watts", "W", 1, (0, 10_000))
    # 10 kW for 30 years.
    JOULES = ("joules", "joules", "J", 1, (0, 10**13))
    # Below all bits of 16 set, which stand for an unknown value, as in the next one.
    MEGAHERTZ = ("megahertz", "mhz", "MHz", 1, (0, 50_000))
    RPM = ("revolutions per minute", "", "RPM", 1, (0, 50_000))
    PER_SECOND = ("per second", "per_second", "1/s", 1, (0, 2**48))
    BYTES_PER_SECOND = ("bytes per second", "bytes_per_second", "MiB/s", 2**20, (0, 2**50))
    SECONDS = ("seconds", "seconds", "s", 1)
    TIME = ("time", "unix_seconds", "", 1, TIMES)

    def __init__(
        self,
        _: str,
        suffix: str,
        csv: str,
        per_csv: int,
        possible: tuple[float, float] = (-math.inf, math.inf),
    ) -> None:
        self.suffix = suffix
        self.csv = csv
        self.per_csv = per_csv
        self.possible = possible


class Tier(Enum):
    """How often to read a value. ``tests/driver/README.md`` lists what each call costs."""

    STATIC = "once"
    FAST = "every sample"
    MEDIUM = "every second"
    SLOW = "every few seconds"


NVIDIA = "NVIDIA"
"""For ``only`` and ``never`` of a metric: the name of a ``Maker``."""


class Metric(Struct, frozen=True):
    """What a field of ``Gpu`` means."""

    label: str  # On screen.
    unit: Unit  # Of the value in the model.
    tier: Tier  # How often it is read.
    about: str  # The meaning, for users.
    smi: str | None = None  # nvidia-smi's name.
    dcgm: str | None = None  # DCGM's name.
    is_counter: bool = False  # As dcgm-exporter's ``etc/default-counters.csv`` has it.
    lowest: float | None = None  # The lowest possible value, if it differs from the unit's.
    highest: float | None = None  # The highest possible value, if it differs from the unit's.
    at_most: str | None = None  # The field whose value this one never exceeds.
    since: int = 1  # The version of the log's columns that added it; the newest is the log's.
    logged: bool = True  # False for a text that is the same in every row, and nothing of the work.
    only: str | None = None  # The maker whose GPUs or driver have this feature.
    never: str | None = None  # The maker whose driver does not report it.
    column: str | None = None  # Its heading in the list of GPUs, where users may add it.
    # Which of its values over time are kept, and drawn on the GPU's page: the means and the peaks,
    # or the means only. ``None`` keeps none.
    charted: Literal["mean", "peak"] | None = None
    field: str = ""  # The name of the field.

    @property
    def possible(self) -> tuple[float, float]:
        """The lowest and the highest value that hardware can report."""
        lowest, highest = self.unit.possible
        return (
            lowest if self.lowest is None else self.lowest,
            highest if self.highest is None else self.highest,
        )

    def is_for(self, maker: Maker) -> bool:
        """Whether it has a meaning for the GPUs of a maker."""
        return self.only in (None, maker.name) and self.never != maker.name

    @property
    def is_bounded(self) -> bool:
        """Whether its values are numbers within bounds."""
        return self.unit.possible != (-math.inf, math.inf)

    @property
    def json_key(self) -> str:
        """The field with its unit, such as ``memory_used_bytes``."""
        return f"{self.field}_{self.unit.suffix}" if self.unit.suffix else self.field


class ProcessMetric(Struct, frozen=True):
    """A row of the table of process values."""

    key: str  # Name of the column, also its JSON key less the unit.
    label: str  # The column header on screen.
    unit: Unit  # Of what ``read`` gives.
    read: Callable[[GpuProcess, float], object]  # Takes the process and the snapshot's time.
    smi: str | None  # nvidia-smi's name in ``--query-compute-apps``.
    about: str  # The meaning, for users.
    # Whether it is a value of ``GpuProcess.load``, which in JSON has the keys of its values.
    in_load: bool = False

    @property
    def json_key(self) -> str:
        """The key with its unit, such as ``rss_bytes``."""
        return f"{self.key}_{self.unit.suffix}" if self.unit.suffix else self.key


_T, _N, _PCT = Unit.TEXT, Unit.NUMBER, Unit.PERCENT


def _age(process: GpuProcess, now: float) -> float | None:
    return None if process.started_at is None else max(0.0, now - process.started_at)


def _where(process: GpuProcess) -> str | None:
    labels = process.place.labels if process.place else ()
    return labels[0] if labels else None


def _container(process: GpuProcess) -> str | None:
    return process.place.container.label if process.place and process.place.container else None


def _job(process: GpuProcess) -> str | None:
    """Show a launcher's PID with its name, because many launchers have the same name."""
    place = process.place
    if place is None:
        return None
    if place.slurm_job is None and place.launcher is not None:
        return f"{place.launcher_name or 'launcher'} {place.launcher.pid}"
    return place.slurm_job


def _of_load(field: str) -> Callable[[GpuProcess, float], object]:
    return lambda process, _: getattr(process.load, field, None)


# The order is that of the CSV columns, which scripts count: add new lines at the end.
# One line per metric is easier to read here than short lines.
# ruff: noqa: E501
# fmt: off
PROCESS_METRICS: tuple[ProcessMetric, ...] = (
    ProcessMetric("gpu", "GPU", _T, lambda p, _: ",".join(map(str, p.gpu_indices)), None, "Indices of the GPUs that it uses."),
    ProcessMetric("pid", "PID", _N, lambda p, _: p.id.pid, "pid", "Process ID."),
    ProcessMetric("user", "USER", _T, lambda p, _: p.user, None, "Owner of the process."),
    ProcessMetric("type", "TYPE", _T, lambda p, _: p.type, None, "C compute, G graphics, M a client of MPS; C+G is both."),
    ProcessMetric("memory_used", "GPU-MEM", Unit.BYTES, lambda p, _: p.memory_used, "used_gpu_memory", "GPU memory on all its GPUs together."),
    ProcessMetric("sm", "SM%", _PCT, lambda p, _: p.sm, None, "Share of time in which one of its kernels ran, mean of its GPUs."),
    ProcessMetric("cpu", "CPU%", _PCT, lambda p, _: p.cpu_percent, None, "CPU use in percent of one core; more than 100 with several cores."),
    ProcessMetric("rss", "RSS", Unit.BYTES, lambda p, _: p.rss, None, "Resident host memory."),
    ProcessMetric("age", "AGE", Unit.SECONDS, _age, None, "Time since it started."),
    ProcessMetric("command", "COMMAND", _T, lambda p, _: " ".join(p.command) or p.name, "process_name", "Command line."),
    ProcessMetric("where", "WHERE", _T, lambda p, _: _where(p), None, "Where it runs: its Slurm job, container, notebook, tmux session or Python environment, the most specific of them."),
    ProcessMetric("container", "CONTAINER", _T, lambda p, _: _container(p), None, "Its container or Kubernetes pod."),
    ProcessMetric("job", "JOB", _T, lambda p, _: _job(p), None, "Its Slurm job, else its launcher (torchrun, mpirun and others) with PID."),
    ProcessMetric("state", "S", _T, lambda p, _: p.state, None, "One letter, as in ps: R runs, S sleeps, D waits in the kernel and receives no signals, T is stopped, Z is a zombie, X has ended and the driver still lists it."),
    ProcessMetric("memory_activity", "MBW%", _PCT, lambda p, _: p.memory_activity, None, "Share of time in which its kernels read or wrote GPU memory (memory bandwidth utilization), mean of its GPUs."),
    ProcessMetric("running", "RUN", _N, _of_load("running"), None, "Requests that its inference server works on.", in_load=True),
    ProcessMetric("waiting", "WAIT", _N, _of_load("waiting"), None, "Requests that wait for its inference server.", in_load=True),
    ProcessMetric("requests", "REQ/S", Unit.PER_SECOND, _of_load("requests"), None, "Requests a second that its inference server finished, over about the last half minute.", in_load=True),
    ProcessMetric("tokens", "TOK/S", Unit.PER_SECOND, _of_load("tokens"), None, "Tokens a second that its inference server generated, over about the last half minute.", in_load=True),
    ProcessMetric("kv_cache", "KV%", _PCT, _of_load("kv_cache"), None, "Use of the KV cache of its inference server; of several, that of the fullest.", in_load=True),
)
# fmt: on

PROCESS_METRIC: dict[str, ProcessMetric] = {metric.key: metric for metric in PROCESS_METRICS}


CLOCK_EVENT_REASONS: dict[int, str] = {
    0x001: "idle",
    0x002: "application clocks",
    0x004: "SW power cap",
    0x008: "HW slowdown",
    0x010: "sync boost",
    0x020: "SW thermal",
    0x040: "HW thermal",
    0x080: "HW power brake",
    0x100: "display clock",
}
"""The bits of ``Gpu.clock_event_reasons`` with nvidia-smi's names."""

HARMFUL_CLOCK_EVENTS = 0x008 | 0x020 | 0x040 | 0x080
"""The bits that mean heat, a problem of the power supply, or an unnamed fault. A software power cap is
normal under load; the other bits are settings."""


def clock_event_names(reasons: int) -> list[str]:
    """The names of the set bits; a bit that is not in this table is named by its number."""
    names = [name for bit, name in CLOCK_EVENT_REASONS.items() if reasons & bit]
    unknown = reasons & ~sum(CLOCK_EVENT_REASONS)
    if unknown:
        names.append(f"reason {unknown:#x}")
    return names


def gpu_value(gpu: Gpu, metric: Metric) -> object:
    """The value of a metric in the model's unit; ``None`` if unknown."""
    return getattr(gpu, metric.field)
