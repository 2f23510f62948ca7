"""The table of ``gpumon snapshot``: what the dashboard shows, from top to bottom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.config.columns import CHOSEN
from gpumon.findings import card_state, conditions
from gpumon.recording.history import History
from gpumon.ui.view.cards import CardsShape, card_columns, card_lines, card_rows
from gpumon.ui.view.header_footer import Moment, Scrolled, header_row, rule_row
from gpumon.ui.view.memo import Memo
from gpumon.ui.view.processes import (
    RowContext,
    Sort,
    heading_row,
    process_row,
    sort_processes,
    visible_columns,
    whole_width,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from gpumon.model.snapshot import GpuProcess, Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.text.cells import Row

_UNBOUNDED = 160
"""Cells of a table that no terminal bounds; the commands at its end are written whole."""


def table(
    snapshot: Snapshot,
    shown: Sequence[GpuProcess],
    narrowing: Sequence[str],
    stream: TextIO,
    thresholds: Thresholds,
) -> str:
    """The table as text.

    Args:
        snapshot: With all processes, whoever they belong to.
        shown: The processes to list.
        narrowing: The filters that chose them, in words.
        stream: Where it will go; a terminal bounds its width.
        thresholds: Thresholds of the findings.
    """
    bounded, width = stream.isatty(), _UNBOUNDED
    if bounded:
        import shutil

        width = shutil.get_terminal_size().columns
    history = History(conditions(thresholds), thresholds)
    history.add(snapshot)
    states = {gpu.uuid: card_state(history, gpu) for gpu in snapshot.gpus}
    shape = CardsShape(panels=0, columns=1, rows=card_lines(snapshot) + 1)
    parts = card_columns(width, snapshot.gpus, graphs=False)
    sort, sight = Sort(), RowContext(snapshot.time)
    # Nobody is seen to be idle in one sample, and a column left blank would say that nobody is.
    columns = visible_columns(width, tuple(key for key in CHOSEN if key != "idle"))
    processes = sort_processes(shown, sort, sight)
    table = width if bounded else max(width, whole_width(processes, columns))
    rows: list[Row] = [
        header_row(snapshot, Moment(), width),
        *card_rows(Memo(), snapshot, history, states, parts, width, shape),
        rule_row(snapshot, processes, Scrolled(tuple(narrowing)), width),
        heading_row(columns, sort, width),
        *(process_row(process, columns, sight, table) for process in processes),
    ]
    return "".join("".join(text for text, _ in row).rstrip() + "\n" for row in rows)
