"""The notes that explain the figures of a report."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from gpumon.model.error_codes import error_code
from gpumon.model.makers import short_name
from gpumon.report.figures import (
    KNOWN,
    PARTLY,
    ReportRow,
    UsageReport,
    length,
)
from gpumon.report.gpu_totals import EARLIER_NAMES
from gpumon.report.owners import BY_PROCESSES
from gpumon.report.sums import HARMFUL
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.report.gpu_totals import GpuTotals
    from gpumon.report.sums import Sums


def notes(
    report: UsageReport, without_processes: Sequence[str], *, has_lost_message: bool = False
) -> list[str]:
    """The notes below a table.

    Args:
        report: The report.
        without_processes: The logs without processes, if processes were requested.
        has_lost_message: Whether a log has a message of nvidia-smi on a GPU that it cannot open.
    """
    if report.job is not None and report.gpus.allocated.whole and not report.gpus.seconds:
        found = _coverage(report)
        if not without_processes:
            found.insert(0, "No process of the job was on a GPU.")
    elif report.gpus.seconds:
        found = [
            *_coverage(report),
            *_sources(report),
            *_health(report, has_lost_message=has_lost_message),
        ]
    else:
        found = ["There is a single sample of each GPU, so durations are unknown."]
    if without_processes:
        what = "no row has its GPUs" if report.job is None else "only allocated GPUs count"
        found.insert(0, f"{', '.join(without_processes)}: lists no processes, so {what}.")
    return [printable(sentence) for sentence in found]


def _coverage(report: UsageReport) -> list[str]:
    found = []
    if report.missing:
        # A gap that began before the time range is not counted in it.
        gaps = f"{report.gaps} gaps" if report.gaps > 1 else "a gap"
        found.append(
            f"The samples have {gaps}, together at most {length(report.missing)} per GPU, which"
            " count as no time."
        )
    found += [
        f"GPU {line.gpu_name} was {', then '.join(_names(gpu))}: there are no UUIDs, so they count"
        " as one GPU."
        for line in report.lines
        if (gpu := line.gpu) is not None and gpu.earlier_names and gpu.uuid is None
    ]
    if any(_is_partly_known(sums) for sums in (report.total, *(one.sums for one in report.lines))):
        found.append(
            f"{PARTLY} is known for part of the time only; --format json says for how much."
        )
    return found


def _names(gpu: GpuTotals) -> list[str]:
    """The names that a GPU had, in order; not all if there were many."""
    names = [short_name(name) for name in gpu.earlier_names[:EARLIER_NAMES]]
    others = ["others"] if len(gpu.earlier_names) > EARLIER_NAMES else []
    return [*names, *others, short_name(gpu.name or "")]


def _is_partly_known(sums: Sums) -> bool:
    # Not what is known of no GPU that lacks a sensor.
    names = (
        "utilization",
        "memory",
        "computing",
        "idle",
        "energy",
        "slowed",
        "allocated",
        "unused",
    )
    parts = map(sums.known_share, names)
    return any(part is not None and 0 < part < KNOWN for part in parts)


def _sources(report: UsageReport) -> list[str]:
    found = []
    unit = report.energy_unit
    if report.by in BY_PROCESSES:
        used = f" GPUs without processes used {unit.format(report.alone)} {unit.name} more."
        found.append(
            f"{unit.name} is an estimate: a GPU's energy is split among its processes by "
            f"SM share.{used if report.alone else ''}"
        )
        if report.gpus.unlisted:
            found.append(
                "GPUs had processes that no list has, together for"
                f" {_short(report.gpus.unlisted)}: no row counts them."
            )
    elif not report.gpus.computing.known and report.lines:
        found.append(
            "No processes were logged: GPU-hours are unknown, and IDLE is the time at 0 % "
            "utilisation with more memory in use than an unused GPU needs."
        )
    if report.price.note:
        found.append(report.price.note)
    energy = report.gpus.energy
    for seconds, what in (
        (energy.impossible, "went down, or up by more than a GPU can use,"),
        (energy.stopped, "stood still while power was drawn"),
    ):
        if seconds > 0:
            found.append(
                f"The energy counter {what} for {_short(seconds)}: there {unit.name} is power draw"
                " times time, and unknown without power draw."
            )
    if energy.source == "power" and not (energy.impossible or energy.stopped):
        found.append(
            f"The log has no energy counter: {unit.name} is the power draw integrated over time."
        )
    return found


def _short(seconds: float) -> str:
    return length(seconds) if seconds >= 1 else f"{seconds:.2g}s"


def _health(report: UsageReport, *, has_lost_message: bool) -> list[str]:
    sums, slowed = report.gpus, report.gpus.slowed
    was_lost = sums.lost.seconds > 0 or sums.ended_lost or has_lost_message
    found = []
    if not slowed.harmful.known:
        why = " by heat, power brake or the hardware" if slowed.known else ""
        found.append(f"The log does not say whether GPUs were slowed down{why}.")
    elif not slowed.harmful.seconds and all(slowed.of(kind).known for kind in HARMFUL):
        found.append("No GPU was slowed down by heat or power brake.")
    if not sums.lost.known:
        found.append("The log has no XIDs and no lost GPUs.")
    elif not sums.watched:
        found.append(
            "The log has no XIDs." if was_lost else "The log has no XIDs; no GPU was lost."
        )
    elif not (sums.xids or sums.ecc or was_lost):
        found.append("No GPU reported an error.")
    if report.by not in BY_PROCESSES:
        found += _troubles(report)
    found += [
        f"{error.label}: {error.meaning}."
        for error in map(error_code, sorted(sums.xids))
        if error.meaning
    ]
    return found


def _troubles(report: UsageReport) -> list[str]:
    """The problems of each GPU, including those whose column did not fit."""
    several = len({line.host for line in report.lines}) > 1
    found: list[str] = []
    for what, name in _TROUBLES:
        where = [
            f"{_named(line, several=several)} for {length(seconds)}"
            for line in report.lines
            if (seconds := line.sums.time(name).seconds)
        ]
        if where:
            found.append(f"{what}: {', '.join(where)}.")
    ended = [
        _named(line, several=several)
        for line in report.lines
        if line.sums.ended_lost and not line.sums.lost.seconds
    ]
    if ended:
        found.append(f"Lost, or reset required, at the last sample: {', '.join(ended)}.")
    return found


def _named(line: ReportRow, *, several: bool) -> str:
    if line.by == "host":
        return line.host or "a host without a name"
    return f"GPU {line.gpu_name}{f' of {line.host}' if several else ''}"


_TROUBLES = (
    ("Slowed down by heat", "heat"),
    ("Slowed down by power brake", "brake"),
    ("Slowed down by the hardware for an unknown reason", "hardware"),
    ("Lost, or reset required", "lost"),
)


def wrapped(sentences: Sequence[str], width: int) -> str:
    """The notes below a table, each wrapped to lines of its own."""
    return "".join(
        f"{line}\n"
        for sentence in sentences
        for line in textwrap.wrap(sentence, max(20, width), subsequent_indent="  ")
    )
