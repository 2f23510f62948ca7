"""A snapshot as CSV, in nvidia-smi's column names and units, for spreadsheets and scripts.

``gpus_csv`` is what ``nvidia-smi --query-gpu=... --format=csv,nounits`` prints, for every metric
that nvidia-smi has a name for; ``processes_csv`` is its ``--query-compute-apps`` and more.
Deliberate differences: an unknown value is an empty cell, the time is ISO 8601 with its zone, and
no space follows a comma. Fields are quoted as RFC 4180 has it; lines end as nvidia-smi's do.

Names and command lines are untrusted. A text that a spreadsheet would read as a formula gets an
apostrophe in front, and invisible characters are replaced.
"""

from __future__ import annotations

import csv
import io
import math
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import structs

from gpumon.model.metrics import GPU_METRICS, PROCESS_METRICS, Unit, gpu_value
from gpumon.text.formatting import spreadsheet_safe

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.model.snapshot import Snapshot

_SMI_METRICS = tuple((metric, metric.smi) for metric in GPU_METRICS if metric.smi is not None)


def gpus_csv(snapshot: Snapshot) -> str:
    """One row per GPU, under a header, with a line break at the end."""
    taken = _moment(snapshot.time)
    return _table(
        ["timestamp", *(_column(smi, metric.unit) for metric, smi in _SMI_METRICS)],
        (
            [taken, *(_cell(gpu_value(gpu, metric), metric.unit) for metric, _ in _SMI_METRICS)]
            for gpu in snapshot.gpus
        ),
    )


def processes_csv(snapshot: Snapshot) -> str:
    """One row per process and GPU, under a header, with a line break at the end.

    GPU memory and SM share belong to the row's GPU. Values of the whole process, such as its CPU
    share, are repeated on each of its rows and must not be summed over them.
    """
    taken = _moment(snapshot.time)
    columns = (_column(metric.smi or metric.key, metric.unit) for metric in PROCESS_METRICS)
    rows = []
    for process in snapshot.processes:
        began = "" if process.started_at is None else _moment(process.started_at)
        for use in process.uses:
            here = structs.replace(process, uses=(use,))
            cells = (_cell(m.read(here, snapshot.time), m.unit) for m in PROCESS_METRICS)
            rows.append([taken, spreadsheet_safe(use.gpu_uuid), began, *cells])
    return _table(["timestamp", "gpu_uuid", "start_time", *columns], rows)


def _table(header: list[str], rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _column(name: str, unit: Unit) -> str:
    """A header as nvidia-smi writes it: with the unit, if there is one."""
    return f"{name} [{unit.csv}]" if unit.csv else name


def _moment(time: float) -> str:
    """A local time with its offset from UTC."""
    return datetime.fromtimestamp(time).astimezone().isoformat(timespec="milliseconds")


def _cell(value: object, unit: Unit) -> str:
    """A value in nvidia-smi's words and digits; empty if unknown."""
    if value is None:
        return ""
    if isinstance(value, bool):
        yes, no = ("Enabled", "Disabled") if unit is Unit.ENABLED else ("Yes", "No")
        return yes if value else no
    if isinstance(value, (int, float)):
        return _number(value, unit)
    return spreadsheet_safe(str(value))


def _number(value: float, unit: Unit) -> str:
    if not math.isfinite(value):
        return ""
    if unit is Unit.PSTATE:
        return f"P{value}"
    if unit is Unit.BITS:
        return f"0x{int(value):016X}"
    if unit is Unit.BYTES:
        return str(int(value // unit.per_csv))
    if unit is Unit.WATTS:
        return f"{value:.2f}"
    if isinstance(value, float):
        return f"{value / unit.per_csv:.1f}"
    return str(value)
