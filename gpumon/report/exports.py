"""A report as JSON or CSV, for programs. ``docs/report.md`` documents each key."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import msgspec

from gpumon.report.figures import KWH, SCHEMA, ReportRow, UsageReport, figures_of
from gpumon.text.formatting import printable, spreadsheet_safe

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENERGY = ("energy_kwh", "energy_known", "energy_source", "energy_estimated")
_WASTED = ("empty_kwh", "starved_kwh", "idle_kwh", "slowed_kwh")
TOTALS: dict[str, tuple[str, ...]] = {
    "gpu": (
        "covered_hours",
        "gaps",
        "gap_hours",
        "gpu_hours",
        "gpu_hours_known",
        "utilization_mean_percent",
        "utilization_median_percent",
        "utilization_p95_percent",
        "utilization_known",
        "busy_hours",
        "idle_hours",
        "idle_known",
        *_ENERGY,
        "heat_hours",
        "power_brake_hours",
        "hw_slowdown_hours",
        "power_cap_hours",
        "slowdown_known",
        "empty_hours",
        "empty_known",
        "starved_hours",
        *_WASTED,
        "ecc_uncorrected",
        "lost_hours",
    ),
    "user": (*_ENERGY, *_WASTED),
    **dict.fromkeys(("process", "job"), (*_ENERGY, *_WASTED, "left_out_kwh")),
}
TOTALS["host"] = tuple(key for key in TOTALS["gpu"] if key != "covered_hours")
"""The figures that can be added up over rows: subjects on one GPU share its energy, but each has
the full hours."""


def to_json(report: UsageReport, notes: Sequence[str]) -> str:
    """A report as one object, with a line break at its end."""
    figures = figures_of(report.by)
    total = ReportRow(report.by, None, report.total)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "by": report.by,
        "lines": [{one.key: _harmless(one.read(line)) for one in figures} for line in report.lines],
        "total": {one.key: one.read(total) for one in figures if one.key in TOTALS[report.by]},
        "energy_without_process_kwh": round(report.alone / KWH, 6),
        "notes": list(notes),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def to_csv(report: UsageReport) -> str:
    """One row per line under a header; an unknown value is an empty cell."""
    figures = figures_of(report.by)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([one.key for one in figures])
    for line in report.lines:
        writer.writerow([_cell(one.read(line)) for one in figures])
    return text.getvalue()


def _harmless(value: object) -> object:
    """Untrusted names and commands without terminal control sequences."""
    return printable(value) if isinstance(value, str) else value


def _cell(value: object) -> object:
    if isinstance(value, str):
        return spreadsheet_safe(value)
    if isinstance(value, dict):
        return " ".join(f"{name}:{count}" for name, count in value.items())
    if isinstance(value, bool):
        return "true" if value else "false"
    return value
