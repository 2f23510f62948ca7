"""The two tables of ``docs/log.md`` that follow from the log's columns.

``python -m tests.recording.csv.log_page`` writes them into the page; a test checks that they are
what stands there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.model.metrics import Unit
from gpumon.recording.csv.columns import GPU_COLUMNS, PROCESS_COLUMNS, GpuColumn, ProcessColumn

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = Path(__file__).parents[3] / "docs" / "log.md"

_CELLS = {
    Unit.TEXT: "text",
    Unit.NUMBER: "number",
    Unit.ENABLED: "`Enabled`, `Disabled`",
    Unit.YES_NO: "`Yes`, `No`",
    Unit.PSTATE: "`P0` to `P15`",
    Unit.BITS: "bits, in hex",
    Unit.BYTES: "MiB",
    Unit.PERCENT: "%",
    Unit.CELSIUS: "°C",
    Unit.WATTS: "W",
    Unit.JOULES: "J",
    Unit.MEGAHERTZ: "MHz",
    Unit.BYTES_PER_SECOND: "MiB/s",
    Unit.SECONDS: "s",
    Unit.TIME: "time",
}
_NUMBERS = frozenset(
    (
        "index",
        "pid",
        "uid",
        "session",
        "processes",
        "host.cpu.count",
        "host.load.1",
        "host.load.5",
        "host.load.15",
        "gpu_instance",
        "compute_instance",
        "start_ticks",
        "gpumon_log",
    )
)
_TIMES = frozenset(("timestamp", "start_time", "status.since"))


def with_tables(page: str) -> str:
    """The page with both tables made anew, each between its mark and the next."""
    for name, columns in (("cards", GPU_COLUMNS), ("processes", PROCESS_COLUMNS)):
        before, begin, rest = page.partition(f"<!-- columns: {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        page = before + begin + _table(columns) + end + after
    return page


def cells_of(column: GpuColumn | ProcessColumn) -> str:
    """What kind of cells a column has."""
    if isinstance(column, GpuColumn) and column.metric is not None:
        return _CELLS[column.metric.unit]
    _, bracket, unit = column.name.rstrip("]").partition(" [")
    if bracket:
        return unit
    if column.name in _NUMBERS:
        return "number"
    if column.name in _TIMES:
        return "time"
    return "`Yes`, `No`" if column.name == "visible" else "text"


def _table(columns: Sequence[GpuColumn | ProcessColumn]) -> str:
    rows = [("column", "cells", "what it is"), ("---",) * 3]
    rows += [(f"`{column.name}`", cells_of(column), column.about) for column in columns]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
