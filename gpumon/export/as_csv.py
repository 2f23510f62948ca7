"""A snapshot as CSV, in nvidia-smi's column names and units, for spreadsheets and scripts.

``gpus_csv`` is what ``nvidia-smi --query-gpu=... --format=csv,nounits`` prints, for every metric
that nvidia-smi has a name for; ``processes_csv`` is its ``--query-compute-apps`` and more.
Deliberate differences: an unknown value is an empty cell, the time is ISO 8601 with its zone, and
no space follows a comma. Fields are quoted as RFC 4180 has it; lines end as nvidia-smi's do.

Names and command lines are untrusted. A text that a spreadsheet would read as a formula gets an
apostrophe in front, and invisible characters are replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from gpumon.model.metrics import PROCESS_METRICS, Unit, gpu_value
from gpumon.model.snapshot import GPU_METRICS
from gpumon.text.csv_cells import csv_cell, csv_heading, csv_text, iso_time
from gpumon.text.formatting import spreadsheet_safe

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot

_SMI_METRICS = tuple((metric, metric.smi) for metric in GPU_METRICS if metric.smi is not None)


def gpus_csv(snapshot: Snapshot) -> str:
    """One row per GPU, under a header, with a line break at the end."""
    taken = iso_time(snapshot.time)
    rows = [["timestamp", *(csv_heading(smi, metric.unit) for metric, smi in _SMI_METRICS)]]
    for gpu in snapshot.gpus:
        cells = (csv_cell(gpu_value(gpu, one), one.unit, _number) for one, _ in _SMI_METRICS)
        rows.append([taken, *cells])
    return csv_text(rows)


def processes_csv(snapshot: Snapshot) -> str:
    """One row per process and GPU, under a header, with a line break at the end.

    GPU memory and SM share belong to the row's GPU. Values of the whole process, such as its CPU
    share, are repeated on each of its rows and must not be summed over them.
    """
    taken = iso_time(snapshot.time)
    columns = (csv_heading(metric.smi or metric.key, metric.unit) for metric in PROCESS_METRICS)
    rows = [["timestamp", "gpu_uuid", "start_time", *columns]]
    for process in snapshot.processes:
        began = iso_time(process.started_at)
        for use in process.uses:
            here = structs.replace(process, uses=(use,))
            cells = (
                csv_cell(m.read(here, snapshot.time), m.unit, _number) for m in PROCESS_METRICS
            )
            rows.append([taken, spreadsheet_safe(use.gpu_uuid), began, *cells])
    return csv_text(rows)


def _number(value: float, unit: Unit) -> str:
    """A number with as many digits as nvidia-smi gives it."""
    if unit is Unit.BYTES:
        return str(int(value // unit.per_csv))
    if unit is Unit.WATTS:
        return f"{value:.2f}"
    if isinstance(value, float):
        return f"{value / unit.per_csv:.1f}"
    return str(value)
