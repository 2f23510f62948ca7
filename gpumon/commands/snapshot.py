"""``gpumon snapshot``: one sample on standard output."""

from __future__ import annotations

import shutil
import sys
import threading
from typing import TYPE_CHECKING, TextIO

import msgspec

from gpumon.collector import Collector
from gpumon.sources import SourceError

if TYPE_CHECKING:
    from gpumon.layout.cells import Row
    from gpumon.model import Snapshot
    from gpumon.sources import Source

_PATIENCE = 10.0
"""Seconds a driver gets: initialising cards without persistence mode takes seconds each."""

_UNBOUNDED = 160
"""Cells of a table that no terminal bounds."""


def print_snapshot(
    source: Source, form: str, *, user: str | None = None, by_process: bool = False
) -> int:
    """Print one sample.

    Args:
        source: Where from; opened and closed here.
        form: ``table``, ``json``, ``csv`` or ``prometheus``.
        user: Only this user's processes.
        by_process: With ``csv``: a row a process and card.

    Returns:
        The exit status.

    Raises:
        SourceError: There is nothing to print, or the driver does not answer.
    """
    snapshot = take_one(source)
    if snapshot.trouble is not None:
        raise SourceError(snapshot.trouble.sentence, snapshot.trouble.advice)
    if user is not None:
        kept = tuple(process for process in snapshot.processes if process.user == user)
        snapshot = msgspec.structs.replace(snapshot, processes=kept)
    sys.stdout.write(_text(snapshot, form, by_process, sys.stdout))
    sys.stdout.flush()
    return 0


def take_one(source: Source, patience: float = _PATIENCE) -> Snapshot:
    """One snapshot, from a thread of its own: a driver that hangs must not hang this program.

    Raises:
        SourceError: The source cannot be opened, or has not answered in time.
    """
    arrived = threading.Event()
    taken: list[Snapshot] = []

    def take(snapshot: Snapshot) -> None:
        taken.append(snapshot)
        arrived.set()

    collector = Collector(source, 3600.0)
    collector.subscribe(take)
    collector.start()
    try:
        opened = collector.wait_open(patience)
        if not opened or not arrived.wait(patience):
            call = source.current_call
            name = "" if call is None else f" ({call.function} has not come back)"
            raise SourceError(
                f"The driver has not answered for {patience:.0f} s{name}.",
                "Other programs that use the cards may hang too; `dmesg` may say why.",
            )
    finally:
        collector.stop()
    if collector.failure is not None:
        raise collector.failure
    return taken[0]


def _text(snapshot: Snapshot, form: str, by_process: bool, stream: TextIO) -> str:
    if form == "json":
        from gpumon.export.as_json import to_json

        return to_json(snapshot, indent=2) + "\n"
    if form == "csv":
        from gpumon.export.as_csv import gpus_csv, processes_csv

        return processes_csv(snapshot) if by_process else gpus_csv(snapshot)
    if form == "prometheus":
        from gpumon.export.as_prometheus import to_prometheus

        return to_prometheus(snapshot)
    return _table(snapshot, stream)


def _table(snapshot: Snapshot, stream: TextIO) -> str:
    """What the dashboard shows, all of it, one after the other."""
    from gpumon.findings import conditions
    from gpumon.history import History
    from gpumon.layout.cards import Cards, CardsShape
    from gpumon.layout.chrome import Moment, Scrolled, header_row, rule_row
    from gpumon.layout.processes import (
        Sort,
        heading_row,
        process_row,
        sort_processes,
        visible_columns,
    )

    width = shutil.get_terminal_size().columns if stream.isatty() else _UNBOUNDED
    history = History(conditions())
    history.add(snapshot)
    cards = Cards()
    shape = CardsShape(0, 1, cards.line_count(snapshot) + 1)
    sort = Sort()
    columns = visible_columns(width)
    processes = sort_processes(snapshot.processes, sort, snapshot.time)
    rows: list[Row] = [
        header_row(snapshot, Moment(), width),
        *cards.rows(snapshot, history, width, shape, graphs=False),
        rule_row(snapshot, processes, Scrolled(), width),
        heading_row(columns, sort, width),
        *(process_row(process, columns, snapshot.time, width, False) for process in processes),
    ]
    return "".join("".join(text for text, _ in row).rstrip() + "\n" for row in rows)
