"""The results of a report: one row per GPU, host or subject, and the table of its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gpumon.report.chosen_job import CHOSEN, ChosenJob
from gpumon.report.owners import ALLOCATION_GROUPINGS, BY_PROCESSES
from gpumon.report.price import NO_PRICE, Price
from gpumon.report.sums import Served, Sums
from gpumon.text.csv_cells import iso_time as moment
from gpumon.text.formatting import UNKNOWN, duration, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.report.gpu_totals import GpuTotals
    from gpumon.report.owners import Subject
    from gpumon.report.tally import UsageTotals

SCHEMA = "gpumon.report/1"
"""The value of the key ``schema``."""

BY = ("gpu", "host", *BY_PROCESSES)
"""The groupings of a report."""

KNOWN = 0.995
"""Share of the time from which on a figure counts as fully known."""
PARTLY = "*"
"""Marks a figure that is known for less."""
SHORT = 600.0
"""Durations and time spans below this many seconds are shown to the second."""
KWH = 3.6e6
"""Joules of a kilowatt hour."""
_SMALL = 0.1 * KWH
"""Energy is shown in watt hours if every row has fewer joules than this."""


class EnergyUnit(NamedTuple):
    """A unit of energy."""

    name: str  # its symbol
    joules: float  # its size in joules
    digits: int  # decimal places

    def format(self, joules: float) -> str:
        """An amount in this unit, without the symbol."""
        return f"{joules / self.joules:.{self.digits}f}"


KILOWATT_HOURS = EnergyUnit("kWh", KWH, 3)


def unit_of(joules: float) -> EnergyUnit:
    """The unit in which this energy, and smaller amounts beside it, do not round to 0."""
    if joules >= _SMALL:
        return KILOWATT_HOURS
    return EnergyUnit("Wh", 3.6e3, 1 if joules >= _SMALL / 10 else 2)


def length(seconds: float) -> str:
    """A duration that may be a sum: ``42s``, ``1m36s``, ``22m``, ``57h12m``; no days."""
    whole = round(seconds)
    if 60 <= whole < SHORT:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 3600:
        return duration(whole)
    return f"{whole // 3600}h{whole // 60 % 60:02d}m"


class ReportRow(Struct, frozen=True):
    """The results for a GPU, for a host, or for a user, process or job of one host."""

    by: str  # which of these it is
    host: str | None  # name of the machine; ``None`` if the log does not say
    sums: Sums
    gpu: GpuTotals | None = None  # the GPU, if it is one
    subject: Subject | None = None  # the user, process or job, if it is one
    indices: tuple[int, ...] = ()  # the indices of the GPUs of a host, ascending
    price: Price = NO_PRICE

    @property
    def kilowatt_hours(self) -> float | None:
        """The energy used; ``None`` if none of it is known."""
        energy = self.sums.energy
        return energy.joules / KWH if energy.known else None

    @property
    def cost(self) -> float | None:
        """The cost of that energy; ``None`` if it or the price is unknown."""
        return self.price.cost(self.kilowatt_hours)

    @property
    def co2(self) -> float | None:
        """The kilograms of carbon dioxide of that energy; ``None`` if they are unknown."""
        return self.price.co2(self.kilowatt_hours)

    @property
    def gpu_name(self) -> str:
        """The index of its GPU, or what else the log identifies it by; safe to print."""
        gpu = self.gpu
        if gpu is None:
            return ""
        return printable(gpu.hardware_id or UNKNOWN) if gpu.index is None else str(gpu.index)


class UsageReport(Struct, frozen=True):
    """The results for all logs."""

    by: str  # the grouping: one of ``BY``
    # the rows, sorted by host; then GPUs by index, subjects by GPU-hours
    lines: tuple[ReportRow, ...]
    total: Sums  # of all lines together
    gpus: Sums  # the sums of all GPUs, for any grouping
    alone: float  # joules used by GPUs without processes
    gaps: int  # number of gaps of the GPU with the most missing time
    missing: float  # missing seconds of that GPU
    # the job that alone is reported; ``gpus`` are then its sums, too
    job: ChosenJob | None = None
    price: Price = NO_PRICE

    @property
    def whole(self) -> ReportRow:
        """All lines together as one row."""
        return ReportRow(self.by, None, self.total, price=self.price)

    def priced(self, price: Price) -> UsageReport:
        """The same report with this price of energy."""
        lines = tuple([replace(line, price=price) for line in self.lines])
        return replace(self, lines=lines, price=price)

    @property
    def energy_unit(self) -> EnergyUnit:
        """One unit for the whole report, in which small amounts do not round to 0."""
        return unit_of(max(self.total.energy.joules, self.alone))


def make_report(tally: UsageTotals) -> UsageReport:
    """The results in order. Consumes the tally."""
    lines: list[ReportRow] = []
    gpus, total, holed = Sums(), Sums(), Sums()
    alone = 0.0
    each = (gpu for host in tally.hosts.values() for gpu in host.gpus.values())
    has_samples = any(gpu.sums.first is not None for gpu in each)
    for name, host in sorted(tally.hosts.items(), key=lambda one: one[0] or ""):
        seen = [gpu for gpu in host.gpus.values() if gpu.sums.has_any]
        if not has_samples:
            continue
        seen.sort(key=lambda gpu: (gpu.index is None, gpu.index, gpu.hardware_id or ""))
        for gpu in seen:
            gpus.join(gpu.sums)
            alone += gpu.alone
            holed = max(holed, gpu.sums, key=lambda sums: sums.missing)
        if host.whole is not None:
            lines += [_of_host(name, host.whole, seen)] if seen else []
            continue
        if host.subjects is None:
            lines += [ReportRow(tally.by, name, gpu.sums, gpu=gpu) for gpu in seen]
            continue
        for own, key in host.subjects.merged().items():
            if own in host.sums:
                host.sums.setdefault(key, Sums()).join(host.sums.pop(own))
            host.subjects.known[key].join(host.subjects.known.pop(own))
        there = [
            ReportRow(tally.by, name, host.sums[key], subject=subject)
            for key, subject in host.subjects.known.items()
            if key in host.sums and host.sums[key].has_any
            if tally.job is None or key == CHOSEN
        ]
        lines += sorted(there, key=lambda line: (-line.sums.computing.seconds, -line.sums.seconds))
    for line in lines:
        total.join(line.sums)
    if tally.job is not None:
        gpus, alone = total, 0.0
    return UsageReport(
        tally.by, tuple(lines), total, gpus, alone, holed.gaps, holed.missing, tally.job
    )


def _of_host(name: str | None, whole: Sums, gpus: Sequence[GpuTotals]) -> ReportRow:
    """The row of a host, of which ``whole`` has the presence and the memory."""
    sums = Sums()
    for gpu in gpus:
        sums.join(gpu.sums)
    sums.present, sums.memory = whole.present, whole.memory
    # Most gaps are of the whole host, and count once.
    sums.gaps, sums.missing = whole.gaps, whole.missing
    indices = tuple([gpu.index for gpu in gpus if gpu.index is not None])
    return ReportRow("host", name, sums, indices=indices)


class Figure(Struct, frozen=True):
    """A row of the table of figures."""

    key: str  # its JSON key and CSV header, with the unit
    by: tuple[str, ...]  # groupings that have it
    read: Callable[[ReportRow], object]  # reads it from a row; ``None`` is unknown
    about: str  # what it means, in a sentence
    heading: str = ""  # its column header in the table
    # groupings in which it can be added up over rows: subjects on one GPU share its energy, but
    # each has the full hours
    adds_up: tuple[str, ...] = ()


def _hours(name: str) -> Callable[[ReportRow], float | None]:
    """The hours of a ``TimeSum``; ``None`` if no time was known."""

    def read(line: ReportRow) -> float | None:
        time = line.sums.time(name)
        return round(time.seconds / 3600, 6) if time.known > 0 else None

    return read


def _known(name: str) -> Callable[[ReportRow], float | None]:
    """The share of the time for which a field of the sums was known."""
    return lambda line: line.sums.known_share(name)


def _amount(served: Served) -> int | None:
    """What servers did; ``None`` if none of it is known."""
    return round(served.total) if served.known else None


def _server_idle(sums: Sums) -> float | None:
    return round(sums.server_idle.total / 3600, 6) if sums.server_idle.known else None


def _spent(name: str) -> Callable[[ReportRow], float | None]:
    """The energy used in the time of a ``TimeSum``; ``None`` if it, or that time, is unknown."""

    def read(line: ReportRow) -> float | None:
        time = line.sums.time(name)
        return round(time.joules / KWH, 6) if time.known and line.sums.energy.known else None

    return read


def _xids(sums: Sums) -> dict[str, int] | None:
    """The count of each XID; ``None`` if the log does not say."""
    if not sums.watched and not sums.xids:
        return None
    return {str(number): count for number, count in sorted(sums.xids.items())}


def _rounded(value: float | None, digits: int | None = None) -> float | None:
    return None if value is None else round(value, digits)


def _gpu(read: Callable[[GpuTotals], object]) -> Callable[[ReportRow], object]:
    return lambda line: None if line.gpu is None else read(line.gpu)


def _subject(read: Callable[[Subject], object]) -> Callable[[ReportRow], object]:
    return lambda line: None if line.subject is None else read(line.subject)


def user_names(subject: Subject) -> str | None:
    """The owners; several if processes of several users form one job."""
    return ",".join(sorted(user for user in subject.users if user is not None)) or None


def gpu_indices(line: ReportRow) -> str:
    """The GPUs of a host, or those that a subject was on, ascending."""
    gpus = line.indices if line.subject is None else sorted(line.subject.gpus)
    return ",".join(map(str, gpus))


_GPU = ("gpu",)
_GPUS = ("gpu", "host")
_OTHERS = BY_PROCESSES
_GROUPS = ("process", "job")
_ALLOCATED = (*_GPUS, *ALLOCATION_GROUPINGS)

# One line per figure is easier to read here than short lines.
# ruff: noqa: E501
# fmt: off
FIGURES: tuple[Figure, ...] = (
    Figure("host", BY, lambda line: line.host, "Name of the machine; unknown if the log lacks it, as nvidia-smi's does.", "HOST"),
    Figure("index", _GPU, _gpu(lambda gpu: gpu.index), "Last index of the GPU in nvidia-smi's order.", "GPU"),
    Figure("uuid", _GPU, _gpu(lambda gpu: gpu.uuid), "UUID of the GPU."),
    Figure("name", _GPU, _gpu(lambda gpu: gpu.name), "The product's name.", "NAME"),
    Figure("memory_total_bytes", _GPU, _gpu(lambda gpu: _rounded(gpu.memory_total)), "Total memory of the GPU."),
    Figure("job", ("job",), _subject(lambda one: one.label), "The Slurm job, container or pod, inference server, launcher or session of its processes, else the process itself.", "JOB"),
    Figure("pid", ("process",), _subject(lambda one: one.pid), "The PID.", "PID"),
    Figure("start_time", ("process",), _subject(lambda one: moment(one.started_at) or None), "When it started."),
    Figure("user", _OTHERS, _subject(user_names), "The owner.", "USER"),
    Figure("gpus", ("host", *_OTHERS), gpu_indices, "Indices of the GPUs of the host, or of those that the subject used, comma-separated.", "GPU"),
    Figure("processes", ("user", "job"), _subject(lambda one: len(one.processes)), "Number of processes."),
    Figure("command", ("process", "job"), _subject(lambda one: one.command), "Command line of the process, or of the first process of the job.", "COMMAND"),
    Figure("first", BY, lambda line: moment(line.sums.first) or None, "First time it was seen, in ISO 8601.", "FIRST"),
    Figure("last", BY, lambda line: moment(line.sums.last) or None, "Last time it was seen.", "LAST"),
    Figure("covered_hours", _GPU, lambda line: round(line.sums.seconds / 3600, 6), "Hours covered by samples; all other figures are for this time.", "COVERED", adds_up=_GPU),
    Figure("gaps", _GPUS, lambda line: line.sums.gaps, "Number of gaps of more than 2.5 usual intervals that began in the time range; of a host those without samples of any of its GPUs.", "GAPS", adds_up=_GPUS),
    Figure("gap_hours", _GPUS, lambda line: round(line.sums.missing / 3600, 6), "Total length of the gaps, which are not counted.", "GAPS", adds_up=_GPUS),
    Figure("present_hours", ("host", *_OTHERS), lambda line: round(line.sums.present / 3600, 6), "Hours on any GPU; of a host, hours covered by samples of any of its GPUs.", "COVERED"),
    Figure("gpu_hours", BY, _hours("computing"), "Hours times GPUs with a compute process (of a GPU or host: of any user). Processes that only draw do not count; several on one GPU count once.", "GPU-H", adds_up=_GPUS),
    Figure("gpu_hours_known", _GPUS, _known("computing"), "Share of the time for which the processes were known, 0 to 1.", adds_up=_GPUS),
    Figure("utilization_mean_percent", BY, lambda line: _rounded(line.sums.utilization.mean, 3), "GPU utilisation; for a process its SM share, for a user or job the SM share of all its processes on a GPU. Weighted by time and GPU.", "UTIL%, SM%", adds_up=_GPUS),
    Figure("utilization_median_percent", BY, lambda line: line.sums.utilization.quantile(0.5), "Median: not exceeded for half of the time.", "MED", adds_up=_GPUS),
    Figure("utilization_p95_percent", BY, lambda line: line.sums.utilization.quantile(0.95), "95th percentile: not exceeded for 95 % of the time.", "P95", adds_up=_GPUS),
    Figure("utilization_known", BY, _known("utilization"), "Share of the time for which it was known, 0 to 1.", adds_up=_GPUS),
    Figure("memory_mean_bytes", BY, lambda line: _rounded(line.sums.memory.mean), "GPU memory in use, mean over time; of a host or subject on all its GPUs together.", "MEAN-GiB"),
    Figure("memory_peak_bytes", BY, lambda line: _rounded(line.sums.memory.peak), "GPU memory in use, maximum of all samples; of a host or subject on all its GPUs together.", "PEAK-GiB"),
    Figure("memory_known", BY, _known("memory"), "Share of the time for which it was known, 0 to 1."),
    Figure("busy_hours", BY, _hours("busy"), "Hours times GPUs with a utilisation above 0.", "BUSY", adds_up=_GPUS),
    Figure("idle_hours", BY, _hours("idle"), "Hours times GPUs with a utilisation of 0 and a compute process; if the log lists no processes, with more memory in use than an unused GPU needs.", "IDLE", adds_up=_GPUS),
    Figure("idle_known", BY, _known("idle"), "Share of the time for which that was known, 0 to 1.", adds_up=_GPUS),
    Figure("energy_kwh", BY, lambda line: _rounded(line.kilowatt_hours, 6), "Energy used; for a subject its share, see `energy_estimated`.", "kWh, Wh", adds_up=BY),
    Figure("energy_known", BY, _known("energy"), "Share of the time for which it was known, 0 to 1.", adds_up=BY),
    Figure("energy_source", BY, lambda line: line.sums.energy.source, "`counter`: the GPU's energy counter; `power`: power draw integrated over time; `counter+power`: both.", adds_up=BY),
    Figure("energy_estimated", BY, lambda line: line.by in BY_PROCESSES, "true for subjects: a GPU's energy is split among its processes by SM share, or equally if any share is unknown or all are 0.", adds_up=BY),
    Figure("cost", BY, lambda line: _rounded(line.cost, 6), "Cost of that energy in `currency`, see [Cost and CO2](#cost-and-co2); unknown without a price.", "COST", adds_up=BY),
    Figure("currency", BY, lambda line: line.price.currency or None, "The currency of `cost`, if it is configured.", adds_up=BY),
    Figure("co2_kg", BY, lambda line: _rounded(line.co2, 6), "Kilograms of carbon dioxide for that energy; unknown without `--co2`.", "CO2-kg", adds_up=BY),
    Figure("heat_hours", BY, _hours("heat"), "Hours times GPUs slowed down by heat (SW thermal, HW thermal).", "HEAT", adds_up=_GPUS),
    Figure("power_brake_hours", BY, _hours("brake"), "The same by HW power brake, which the machine's power supply requests.", "BRAKE", adds_up=_GPUS),
    Figure("hw_slowdown_hours", BY, _hours("hardware"), "The same by HW slowdown for neither of these reasons.", "HW-SLOW", adds_up=_GPUS),
    Figure("power_cap_hours", BY, _hours("capped"), "Hours times GPUs at their power limit (SW power cap), which is normal for a busy GPU.", "CAPPED", adds_up=_GPUS),
    Figure("slowdown_known", BY, _known("slowed"), "Share of the time for which any of these four was known, 0 to 1.", adds_up=_GPUS),
    Figure("empty_hours", BY, _hours("empty"), "Hours times GPUs that were busy but empty: a utilisation of at least 90 %, and at most 20 % of the multiprocessors active. Unknown if the log has no `sm_active`.", "EMPTY", adds_up=_GPUS),
    Figure("empty_known", BY, _known("empty"), "Share of the time for which that was known, 0 to 1.", adds_up=_GPUS),
    Figure("empty_kwh", BY, _spent("empty"), "Energy used in these hours; for a subject its share.", adds_up=BY),
    Figure("starved_hours", BY, _hours("starved"), "Hours times GPUs that waited for up to 30 s between two spells of load while a computing process on them was at one full CPU core or waited inside the kernel: perhaps for data, perhaps for a checkpoint. Unknown if the log has no CPU use of processes.", "STARVED", adds_up=_GPUS),
    Figure("starved_kwh", BY, _spent("starved"), "Energy used in these hours; for a subject its share.", adds_up=BY),
    Figure("left_out_hours", _GROUPS, _hours("left_out"), "Hours times GPUs on which it ran no kernel while it did on most of its other GPUs; part of `idle_hours`. Unknown on a single GPU.", "LEFT-OUT"),
    Figure("left_out_kwh", _GROUPS, _spent("left_out"), "Its share of the energy used in these hours.", adds_up=_GROUPS),
    Figure("idle_kwh", BY, _spent("idle"), "Energy used in the hours of `idle_hours`; for a subject its share.", adds_up=BY),
    Figure("slowed_kwh", BY, _spent("slowed"), "Energy used while slowed down by heat, power brake or HW slowdown; for a subject its share.", adds_up=BY),
    Figure("xids", BY, lambda line: _xids(line.sums), "XID errors of the GPU, or of a subject's GPUs while it used them: number and count; in CSV `79:1 31:2`.", "ERRORS"),
    Figure("ecc_uncorrected", BY, lambda line: line.sums.ecc, "New uncorrected memory errors, of the same GPUs as `xids`.", "ERRORS", adds_up=_GPUS),
    Figure("lost_hours", BY, _hours("lost"), "Hours times GPUs that were lost or required a reset.", "ERRORS", adds_up=_GPUS),
    Figure("pci_bus_id", _GPU, _gpu(lambda gpu: gpu.pci_bus_id), "Bus id of the GPU, if the log has it.", "GPU"),
    Figure("serial", _GPU, _gpu(lambda gpu: gpu.serial), "Serial number of the GPU, which only logs of nvidia-smi may have.", "GPU"),
    Figure("allocated_hours", _ALLOCATED, _hours("allocated"), "Hours times GPUs that a scheduler had given to a job; for a user or job those given to it. Unknown without a scheduler, and for subjects that were given none.", "ALLOC", adds_up=_GPUS),
    Figure("allocated_known", _ALLOCATED, _known("allocated"), "Share of the time for which it was known, 0 to 1; for a user or job, share of the time in which a GPU was or may have been allocated to it.", adds_up=_GPUS),
    Figure("unused_allocated_hours", _ALLOCATED, _hours("unused"), "The part of `allocated_hours` in which no process of any user computed on the GPU.", "UNUSED", adds_up=_GPUS),
    Figure("unused_allocated_known", _ALLOCATED, _known("unused"), "Share of the same time for which that was known, 0 to 1.", adds_up=_GPUS),
    Figure("unused_allocated_kwh", _GPUS, _spent("unused"), "Energy used in the hours of `unused_allocated_hours`.", adds_up=_GPUS),
    Figure("tokens", _OTHERS, lambda line: _amount(line.sums.tokens), "Tokens that its inference servers generated: their rate times the time for which it is known, each server once. A process has those of its server as a whole.", "TOKENS"),
    Figure("tokens_known", _OTHERS, _known("tokens"), "Share of the servers' time for which that was known, 0 to 1."),
    Figure("requests", _OTHERS, lambda line: _amount(line.sums.requests), "Requests that they finished, counted in the same way.", "REQUESTS"),
    Figure("requests_known", _OTHERS, _known("requests"), "Share of the servers' time for which that was known, 0 to 1."),
    Figure("server_idle_hours", _OTHERS, lambda line: _server_idle(line.sums), "Hours times servers in which an inference server served nobody.", "SERVER-IDLE"),
    Figure("server_idle_known", _OTHERS, _known("server_idle"), "Share of the servers' time for which that was known, 0 to 1."),
)
# fmt: on


def figures_of(by: str) -> tuple[Figure, ...]:
    """The figures of a grouping, in column order."""
    return tuple(figure for figure in FIGURES if by in figure.by)
