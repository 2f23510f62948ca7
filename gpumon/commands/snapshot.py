"""``gpumon snapshot``: one sample on standard output."""

from __future__ import annotations

import shutil
import threading
import time
from typing import TYPE_CHECKING, TextIO

import msgspec

from gpumon.collector import Collector
from gpumon.layout.processes import filter_user
from gpumon.sources import SourceError

if TYPE_CHECKING:
    from gpumon.layout.cells import Row
    from gpumon.model import Snapshot
    from gpumon.sources import Source

_PATIENCE = 10.0
"""Seconds a driver gets: initialising cards without persistence mode takes seconds each."""

_UNBOUNDED = 160
"""Cells of a table that no terminal bounds; the commands at its end are written whole."""


def print_snapshot(
    source: Source,
    form: str,
    stream: TextIO,
    *,
    user: str | None = None,
    by_process: bool = False,
) -> None:
    """Print one sample.

    Args:
        source: Where from; opened and closed here.
        form: ``table``, ``json``, ``csv`` or ``prometheus``.
        stream: Where to.
        user: Only this user's processes.
        by_process: With ``csv``: a row a process and card.

    Raises:
        SourceError: There is nothing to print, or the driver does not answer.
        OSError: The stream takes no more.
    """
    snapshot = take_one(source)
    if snapshot.trouble is not None:
        raise SourceError(snapshot.trouble.sentence, snapshot.trouble.advice)
    if form == "table":
        stream.write(_table(snapshot, user, stream))
    else:
        kept = tuple(filter_user(snapshot.processes, user))
        stream.write(_exported(msgspec.structs.replace(snapshot, processes=kept), form, by_process))
    stream.flush()


def take_one(source: Source, patience: float = _PATIENCE) -> Snapshot:
    """One snapshot, from a thread of its own: a driver that hangs must not hang this program.

    Args:
        source: Where from; opened and closed here.
        patience: Seconds it may take altogether.

    Raises:
        SourceError: The source cannot be opened, or has not answered in time.
    """
    deadline = time.monotonic() + patience
    settled = threading.Event()
    taken: list[Snapshot] = []

    def take(snapshot: Snapshot) -> None:
        taken.append(snapshot)
        settled.set()

    collector = Collector(source, 3600.0)
    collector.subscribe(take, lambda _: settled.set())
    collector.start()
    try:
        collector.wait_open(patience)
        if not settled.wait(max(0.0, deadline - time.monotonic())):
            call = source.current_call
            name = "" if call is None else f" ({call.function} has not come back)"
            raise SourceError(
                f"The driver has not answered for {patience:.0f} s{name}.",
                "Other programs that use the cards may hang too; `dmesg` may say why.",
            )
    finally:
        collector.stop()
    if not taken and collector.failure is not None:
        raise collector.failure
    return taken[0]


def _exported(snapshot: Snapshot, form: str, by_process: bool) -> str:
    if form == "json":
        from gpumon.export.as_json import to_json

        return to_json(snapshot, indent=2) + "\n"
    if form == "csv":
        from gpumon.export.as_csv import gpus_csv, processes_csv

        return processes_csv(snapshot) if by_process else gpus_csv(snapshot)
    from gpumon.export.as_prometheus import to_prometheus

    return to_prometheus(snapshot)


def _table(snapshot: Snapshot, user: str | None, stream: TextIO) -> str:
    """What the dashboard shows, all of it, one after the other."""
    from gpumon.findings import card_state, conditions
    from gpumon.history import History
    from gpumon.layout.cards import Cards, CardsShape
    from gpumon.layout.chrome import Moment, Scrolled, header_row, rule_row
    from gpumon.layout.processes import (
        Sort,
        heading_row,
        process_row,
        sort_processes,
        visible_columns,
        whole_width,
    )

    bounded = stream.isatty()
    width = shutil.get_terminal_size().columns if bounded else _UNBOUNDED
    history = History(conditions())
    history.add(snapshot)
    states = {gpu.uuid: card_state(history, gpu) for gpu in snapshot.gpus}
    cards = Cards()
    shape = CardsShape(0, 1, cards.line_count(snapshot) + 1)
    sort = Sort()
    columns = visible_columns(width)
    shown = filter_user(snapshot.processes, user)
    processes = sort_processes(shown, sort, snapshot.time)
    table = width if bounded else max(width, whole_width(processes, columns))
    rows: list[Row] = [
        header_row(snapshot, Moment(), width),
        *cards.rows(snapshot, history, states, width, shape, graphs=False),
        rule_row(snapshot, processes, Scrolled(user), width),
        heading_row(columns, sort, width),
        *(process_row(process, columns, snapshot.time, table, False) for process in processes),
    ]
    return "".join("".join(text for text, _ in row).rstrip() + "\n" for row in rows)
