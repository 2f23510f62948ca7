"""The results of a report: one row per GPU or subject, and the table of its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.recording.csv.columns import moment
from gpumon.report.sums import Sums

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.report.owners import Subject
    from gpumon.report.tally import CardTotals, Tally

SCHEMA = "gpumon.report/1"
"""The value of the key ``schema``."""

BY = ("gpu", "user", "process", "job")
"""What a line of a report can be about."""

KWH = 3.6e6
"""Joules of a kilowatt hour."""


class ReportRow(Struct, frozen=True):
    """The results for a GPU, or for a user, process or job of one host.

    Attributes:
        by: Which of these it is.
        host: Name of the machine; ``None`` if the log does not say.
        sums: The sums.
        card: The GPU, if it is one.
        subject: The user, process or job, if it is one.
    """

    by: str
    host: str | None
    sums: Sums
    card: CardTotals | None = None
    subject: Subject | None = None


class Report(Struct, frozen=True):
    """The results for all logs.

    Attributes:
        by: The grouping: one of ``BY``.
        lines: The rows, sorted by host; then GPUs by index, subjects by GPU-hours.
        total: Of all lines together.
        cards: The sums of all GPUs, for any grouping.
        alone: Joules used by GPUs without processes.
        gaps: Number of gaps of the GPU with the most missing time.
        missing: Missing seconds of that GPU.
    """

    by: str
    lines: tuple[ReportRow, ...]
    total: Sums
    cards: Sums
    alone: float
    gaps: int
    missing: float


def make_report(tally: Tally) -> Report:
    """The results in order. Consumes the tally."""
    lines: list[ReportRow] = []
    cards, total, holed = Sums(), Sums(), Sums()
    alone = 0.0
    for name, host in sorted(tally.hosts.items(), key=lambda one: one[0] or ""):
        seen = [card for card in host.cards.values() if card.sums.first is not None]
        seen.sort(key=lambda card: (card.index is None, card.index, card.uuid or ""))
        for card in seen:
            cards.join(card.sums)
            alone += card.alone.joules
            holed = max(holed, card.sums, key=lambda sums: sums.missing)
        if host.subjects is None:
            lines += [ReportRow(tally.by, name, card.sums, card=card) for card in seen]
            continue
        for own, key in host.subjects.merged().items():
            host.sums[key].join(host.sums.pop(own))
            host.subjects.known[key].join(host.subjects.known.pop(own))
        there = [
            ReportRow(tally.by, name, host.sums[key], subject=subject)
            for key, subject in host.subjects.known.items()
            if host.sums[key].first is not None
        ]
        lines += sorted(there, key=lambda line: (-line.sums.computing, -line.sums.seconds))
    for line in lines:
        total.join(line.sums)
    return Report(tally.by, tuple(lines), total, cards, alone, holed.gaps, holed.missing)


class Figure(Struct, frozen=True):
    """A row of the table of figures.

    Attributes:
        key: Its JSON key and CSV header, with the unit.
        by: Groupings that have it.
        read: Reads it from a row; ``None`` is unknown.
        about: What it means, in a sentence.
        heading: Its column header in the table.
    """

    key: str
    by: tuple[str, ...]
    read: Callable[[ReportRow], object]
    about: str
    heading: str = ""


def hours(seconds: float, known: float) -> float | None:
    """Hours, if any time was known."""
    return round(seconds / 3600, 6) if known > 0 else None


def share(known: float, seconds: float) -> float | None:
    """The share of the known time, 0 to 1."""
    return round(min(1.0, known / seconds), 4) if seconds > 0 else None


def kilowatt_hours(sums: Sums) -> float | None:
    """The energy used; ``None`` if none of it is known."""
    energy = sums.energy
    return round(energy.joules / KWH, 6) if energy.counted or energy.integrated else None


def energy_source(sums: Sums) -> str | None:
    """The source of the energy value."""
    energy = sums.energy
    named = [("counter", energy.counted), ("power", energy.integrated)]
    return "+".join(name for name, seconds in named if seconds) or None


def xids(sums: Sums) -> dict[str, int] | None:
    """The count of each XID; ``None`` if the log does not say."""
    if not sums.faults.watched and not sums.faults.xids:
        return None
    return {str(number): count for number, count in sorted(sums.faults.xids.items())}


def _rounded(value: float | None, digits: int | None = None) -> float | None:
    return None if value is None else round(value, digits)


def _card(read: Callable[[CardTotals], object]) -> Callable[[ReportRow], object]:
    return lambda line: None if line.card is None else read(line.card)


def _subject(read: Callable[[Subject], object]) -> Callable[[ReportRow], object]:
    return lambda line: None if line.subject is None else read(line.subject)


def user_names(subject: Subject) -> str | None:
    """The owners; several if processes of several users form one job."""
    return ",".join(sorted(user for user in subject.users if user is not None)) or None


def card_indices(subject: Subject) -> str:
    """The GPUs it was on, ascending."""
    return ",".join(map(str, sorted(subject.cards)))


_GPU = ("gpu",)
_OTHERS = ("user", "process", "job")

# One line per figure is easier to read here than short lines.
# ruff: noqa: E501
# fmt: off
FIGURES: tuple[Figure, ...] = (
    Figure("host", BY, lambda line: line.host, "Name of the machine; open where the log does not tell it, as that of nvidia-smi.", "HOST"),
    Figure("index", _GPU, _card(lambda card: card.index), "Index of the card in nvidia-smi's order, as last seen.", "GPU"),
    Figure("uuid", _GPU, _card(lambda card: card.uuid), "UUID of the card."),
    Figure("name", _GPU, _card(lambda card: card.name), "The product's name.", "NAME"),
    Figure("memory_total_bytes", _GPU, _card(lambda card: _rounded(card.memory_total)), "All of the card's memory."),
    Figure("job", ("job",), _subject(lambda one: one.label), "The Slurm job, container or pod, launcher or session that its processes are part of; else the process itself.", "JOB"),
    Figure("pid", ("process",), _subject(lambda one: one.pid), "Its number.", "PID"),
    Figure("start_time", ("process",), _subject(lambda one: moment(one.started_at) or None), "When it started."),
    Figure("user", _OTHERS, _subject(user_names), "Whose it is; open where that is unknown.", "USER"),
    Figure("gpus", _OTHERS, _subject(card_indices), "Indices of the cards it was on, comma-separated.", "GPU"),
    Figure("processes", ("user", "job"), _subject(lambda one: len(one.processes)), "How many processes were seen."),
    Figure("command", ("process", "job"), _subject(lambda one: one.command), "Command line of the process, or of the first one seen of the job.", "COMMAND"),
    Figure("first", BY, lambda line: moment(line.sums.first) or None, "When it was first seen, in ISO 8601.", "FIRST"),
    Figure("last", BY, lambda line: moment(line.sums.last) or None, "When it was last seen.", "LAST"),
    Figure("covered_hours", _GPU, lambda line: round(line.sums.seconds / 3600, 6), "For how long samples tell of the card: all else is of this time.", "COVERED"),
    Figure("gaps", _GPU, lambda line: line.sums.gaps, "How often samples stayed away for more than 2.5 usual intervals.", "GAPS"),
    Figure("gap_hours", _GPU, lambda line: round(line.sums.missing / 3600, 6), "How long these gaps are together; they count for nothing.", "GAPS"),
    Figure("present_hours", _OTHERS, lambda line: round(line.sums.present / 3600, 6), "For how long it was on any card."),
    Figure("gpu_hours", BY, lambda line: hours(line.sums.computing, line.sums.listed), "Hours times cards with a process of it (of a card: of anybody) that computes; those that only draw do not count, and two on one card count once.", "GPU-H"),
    Figure("gpu_hours_known", _GPU, lambda line: share(line.sums.listed, line.sums.seconds), "For which part of the time it was known who is on the card, 0 to 1."),
    Figure("utilization_mean_percent", BY, lambda line: _rounded(line.sums.utilization.mean, 3), "GPU utilisation of a card; SM share of a process, or of all processes of a user or job on a card together. Weighted by time and by card.", "UTIL%, SM%"),
    Figure("utilization_median_percent", BY, lambda line: line.sums.utilization.quantile(0.5), "It was no higher than this for half of the time.", "MED"),
    Figure("utilization_p95_percent", BY, lambda line: line.sums.utilization.quantile(0.95), "It was no higher than this for 95 % of the time.", "P95"),
    Figure("utilization_known", BY, lambda line: share(line.sums.utilization.seconds, line.sums.seconds), "For which part of the time it was known, 0 to 1."),
    Figure("memory_mean_bytes", BY, lambda line: _rounded(line.sums.memory.mean), "GPU memory in use, of a subject on all its cards together, weighted by time.", "MEAN-GiB"),
    Figure("memory_peak_bytes", BY, lambda line: _rounded(line.sums.memory.peak), "The most of it in any sample.", "PEAK-GiB"),
    Figure("memory_known", BY, lambda line: share(line.sums.memory.seconds, line.sums.present), "For which part of the time it was known, 0 to 1."),
    Figure("busy_hours", BY, lambda line: hours(line.sums.busy, line.sums.utilization.seconds), "Hours times cards with a utilisation above 0.", "BUSY"),
    Figure("idle_hours", BY, lambda line: hours(line.sums.idle, line.sums.idle_known), "Hours times cards with a utilisation of 0 while a process that computes was there; where the log lists no processes, while more memory was in use than an unused card needs.", "IDLE"),
    Figure("idle_known", BY, lambda line: share(line.sums.idle_known, line.sums.seconds), "For which part of the time that could be told, 0 to 1."),
    Figure("energy_kwh", BY, lambda line: kilowatt_hours(line.sums), "Energy used; of a subject its part, see `energy_estimated`.", "kWh, Wh"),
    Figure("energy_known", BY, lambda line: share(line.sums.energy.counted + line.sums.energy.integrated, line.sums.seconds), "For which part of the time it is known, 0 to 1."),
    Figure("energy_source", BY, lambda line: energy_source(line.sums), "`counter` of the card, `power` draw added up over time, or `counter+power`."),
    Figure("energy_estimated", BY, lambda line: line.by != "gpu", "true for subjects: a card's energy is split among the processes on it by their SM share, equally where that of any is unknown or all are 0."),
    Figure("heat_hours", BY, lambda line: hours(line.sums.slowed.heat, line.sums.slowed.known), "Hours times cards slowed down by heat (SW thermal, HW thermal).", "HEAT"),
    Figure("power_brake_hours", BY, lambda line: hours(line.sums.slowed.brake, line.sums.slowed.known), "The same by HW power brake: the machine's power supply asked for it.", "BRAKE"),
    Figure("hw_slowdown_hours", BY, lambda line: hours(line.sums.slowed.hardware, line.sums.slowed.known), "The same by HW slowdown that names neither.", "HW-SLOW"),
    Figure("power_cap_hours", BY, lambda line: hours(line.sums.slowed.capped, line.sums.slowed.known), "Hours times cards at their power limit (SW power cap), which is normal for a busy card.", "CAPPED"),
    Figure("slowdown_known", BY, lambda line: share(line.sums.slowed.known, line.sums.seconds), "For which part of the time these four were known, 0 to 1."),
    Figure("xids", BY, lambda line: xids(line.sums), "XID errors of the card, or of its cards while it was on them: number and how often; in CSV `79:1 31:2`.", "ERRORS"),
    Figure("ecc_uncorrected", BY, lambda line: line.sums.faults.ecc, "Uncorrected memory errors that came, of the card or as with `xids`.", "ERRORS"),
    Figure("lost_hours", BY, lambda line: hours(line.sums.faults.lost, line.sums.faults.watched), "Hours times cards that were lost or asked for a reset.", "ERRORS"),
)
# fmt: on


def figures_of(by: str) -> tuple[Figure, ...]:
    """The figures of a grouping, in column order."""
    return tuple(figure for figure in FIGURES if by in figure.by)
