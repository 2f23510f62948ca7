"""The table of ``gpumon snapshot``: the dashboard as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.config.columns import PROCESS_DEFAULTS
from gpumon.findings import conditions, gpu_state, mig_state
from gpumon.model.snapshot import lines_of
from gpumon.recording.history import History
from gpumon.text.process_columns import ProcessItem, RowContext
from gpumon.text.table import Sort, heading_row
from gpumon.ui.view.dashboard_view import View
from gpumon.ui.view.frame import Frame, Memo
from gpumon.ui.view.gpu_line import line_columns
from gpumon.ui.view.gpu_table import GpusShape, gpu_rows, line_count
from gpumon.ui.view.gpu_text import load_word, mig_indices
from gpumon.ui.view.header_footer import (
    HeaderStatus,
    TableSummary,
    gpu_counts,
    header_row,
    rule_row,
)
from gpumon.ui.view.process_table import (
    fitting_columns,
    process_row,
    sort_processes,
    whole_width,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.text.cells import Row

_UNBOUNDED = 160
"""Width if the output is not a terminal; commands are then not cut."""


def table(
    snapshot: Snapshot,
    shown: Sequence[GpuProcess],
    narrowing: Sequence[str],
    stream: TextIO,
    thresholds: Thresholds,
) -> str:
    """The table as text, with the filters that selected the shown processes in words.

    A stream that is a terminal limits the width.
    """
    bounded, width = stream.isatty(), _UNBOUNDED
    if bounded:
        import shutil

        width = shutil.get_terminal_size().columns
    history = History(conditions(thresholds), thresholds)
    history.add(snapshot)
    states = {
        line.uuid: gpu_state(history, line.gpu)
        if line.mig is None
        else mig_state(history, line.gpu, line.mig)
        for line in lines_of(snapshot.gpus)
    }
    shape = GpusShape(panels=0, columns=1, rows=line_count(snapshot) + 1)
    parts = line_columns(width, snapshot.gpus, graphs=False)
    frame = Frame(Memo(), snapshot, history, states, View(interval=0.0), width)
    sort = Sort()
    context = RowContext(
        snapshot.time, host_memory=snapshot.host.memory_total, mig=mig_indices(snapshot.gpus)
    )
    # One sample cannot show that a process is idle, and a blank column would say that none is.
    keys = tuple(key for key in PROCESS_DEFAULTS if key != "idle")
    processes = sort_processes(shown, sort, context)
    items = [ProcessItem(process, context) for process in processes]
    columns = fitting_columns(items, width, sort, load_word(snapshot.gpus), keys)
    table = width if bounded else max(width, whole_width(processes, columns))
    status = HeaderStatus(counts=gpu_counts(history, snapshot.gpus, states))
    rows: list[Row] = [
        header_row(snapshot, status, width),
        *gpu_rows(frame, parts, shape),
        rule_row(snapshot, processes, TableSummary(tuple(narrowing)), width),
        heading_row(columns, sort, width),
        *(process_row(process, columns, context, table) for process in processes),
    ]
    return "".join("".join(text for text, _ in row).rstrip() + "\n" for row in rows)
