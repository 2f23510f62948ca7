"""A report as JSON or CSV, for programs. ``docs/report.md`` documents each key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpumon.report.figures import KWH, SCHEMA, ReportRow, UsageReport, figures_of
from gpumon.text.csv_cells import csv_text
from gpumon.text.formatting import printable, spreadsheet_safe

if TYPE_CHECKING:
    from collections.abc import Sequence


def to_json(report: UsageReport, notes: Sequence[str]) -> str:
    """A report as one object, with a line break at its end."""
    figures = figures_of(report.by)
    total = ReportRow(report.by, None, report.total)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "by": report.by,
        "lines": [{one.key: _harmless(one.read(line)) for one in figures} for line in report.lines],
        "total": {one.key: one.read(total) for one in figures if report.by in one.adds_up},
        "energy_without_process_kwh": round(report.alone / KWH, 6),
        "notes": list(notes),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def to_csv(report: UsageReport) -> str:
    """One row per line under a header; an unknown value is an empty cell."""
    figures = figures_of(report.by)
    rows = [[_cell(one.read(line)) for one in figures] for line in report.lines]
    return csv_text([[one.key for one in figures], *rows])


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
