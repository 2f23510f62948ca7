"""The version and the two tables of ``docs/log.md`` that follow from the log's columns.

``python -m tests.recording.csv.log_page`` writes them into the page; a test checks that they are
what stands there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.model.metrics import Unit
from gpumon.recording.csv.columns import VERSION
from gpumon.recording.csv.rows import SEVERAL_MACHINES
from tests.pages import with_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.recording.csv.columns import CsvColumn

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
    Unit.SHARE: "%",
    Unit.CELSIUS: "°C",
    Unit.WATTS: "W",
    Unit.JOULES: "J",
    Unit.MEGAHERTZ: "MHz",
    Unit.RPM: "RPM",
    Unit.BYTES_PER_SECOND: "MiB/s",
    Unit.PER_SECOND: "/s",
    Unit.SECONDS: "s",
    Unit.TIME: "time",
}


def with_tables(page: str) -> str:
    """The page with the version and both tables made anew, each between its mark and the next."""
    page = re.sub(r"(version of their columns, now )\d+", rf"\g<1>{VERSION}", page)
    layout = SEVERAL_MACHINES
    for name, columns in (("cards", layout.gpus), ("processes", layout.processes)):
        page = with_table(page, f"columns: {name}", _table(columns))
    return page


def _table(columns: Sequence[CsvColumn]) -> str:
    rows = [("column", "cells", "what it is"), ("---",) * 3]
    rows += [(f"`{column.name}`", _CELLS[column.unit], column.about) for column in columns]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
