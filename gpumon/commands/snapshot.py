"""``gpumon snapshot``: one sample on standard output."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, TextIO

import msgspec

from gpumon.collector import Collector
from gpumon.sources import SourceError
from gpumon.thresholds import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.filters import Filter
    from gpumon.host import ProcessHost
    from gpumon.layout.cells import Row
    from gpumon.lookup import Reservations
    from gpumon.model import GpuProcess, ProcessId, Snapshot
    from gpumon.sources import Source
    from gpumon.thresholds import Thresholds

_PATIENCE = 10.0
"""Seconds a driver gets: initialising cards without persistence mode takes seconds each."""

_NOT_WATCHED = (
    "the filter asks who is idle, which takes watching: in one sample nobody is seen to be; "
    "gpumon without snapshot watches."
)

_UNBOUNDED = 160
"""Cells of a table that no terminal bounds; the commands at its end are written whole."""


def print_snapshot(
    source: Source,
    form: str,
    stream: TextIO,
    *,
    host: ProcessHost | None = None,
    user: str | None = None,
    filter: Filter | None = None,  # noqa: A002 - the word of the command line
    by_process: bool = False,
    thresholds: Thresholds = DEFAULTS,
    reservations: Reservations | None = None,
) -> list[str]:
    """Print one sample.

    Args:
        source: Where from; opened and closed here.
        form: ``table``, ``json``, ``csv`` or ``prometheus``.
        stream: Where to.
        host: Who is asked where the processes run; by default nobody.
        user: Only this user's processes.
        filter: Only the processes that it matches. One sample does not tell who is idle.
        by_process: With ``csv``: a row a process and card.
        thresholds: Where the lines are drawn, for the words of the table.
        reservations: Who tells which cards are reserved; by default nobody.

    Returns:
        What is to be said besides, in sentences; mostly none.

    Raises:
        SourceError: There is nothing to print, or the driver does not answer.
        OSError: The stream takes no more.
    """
    snapshot = take_one(source)
    if snapshot.trouble is not None:
        raise SourceError(snapshot.trouble.sentence, snapshot.trouble.advice)
    if host is not None and (by_process or form in {"table", "json"}):
        from gpumon.lookup import Lookup

        snapshot = Lookup(host, reservations=reservations).look_once(snapshot)
    asked: list[ProcessId] = []
    shown, words = _narrowed(snapshot, user, filter, asked.append)
    if form == "table":
        stream.write(_table(snapshot, shown, words, stream, thresholds))
    else:
        kept = msgspec.structs.replace(snapshot, processes=tuple(shown))
        stream.write(_exported(kept, form, by_process))
    stream.flush()
    sentences = [_NOT_WATCHED] if asked else []
    if user is not None and all(process.user != user for process in snapshot.processes):
        sentences.append(f"{user} has no process on these cards")
    return sentences


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
            raise SourceError(
                f"The driver has not answered for {patience:.0f} s.",
                "Other programs that use the cards may hang too; `dmesg` may say why.",
            )
    finally:
        collector.stop()
    if not taken and collector.failure is not None:
        raise collector.failure
    return taken[0]


def _narrowed(
    snapshot: Snapshot,
    user: str | None,
    chosen: Filter | None,
    idle: Callable[[ProcessId], None],
) -> tuple[Sequence[GpuProcess], Sequence[str]]:
    """The processes to show, and in a few words which those are.

    Args:
        snapshot: The sample.
        user: Only this user's.
        chosen: Only those that it matches.
        idle: Asked for how long a process has been idle, which one sample does not tell.
    """
    if user is None and chosen is None:
        return snapshot.processes, ()
    from gpumon.filters import Facts
    from gpumon.layout.listing import Narrowing

    narrowing = Narrowing(user=user, filter=chosen)
    shown = narrowing.apply(snapshot.processes, Facts(snapshot.time, idle))
    return shown, narrowing.words(snapshot.processes)


def _exported(snapshot: Snapshot, form: str, by_process: bool) -> str:
    if form == "json":
        from gpumon.export.as_json import to_json

        return to_json(snapshot, indent=2) + "\n"
    if form == "csv":
        from gpumon.export.as_csv import gpus_csv, processes_csv

        return processes_csv(snapshot) if by_process else gpus_csv(snapshot)
    from gpumon.export.as_prometheus import to_prometheus

    return to_prometheus(snapshot)


def _table(
    snapshot: Snapshot,
    shown: Sequence[GpuProcess],
    narrowing: Sequence[str],
    stream: TextIO,
    thresholds: Thresholds,
) -> str:
    """What the dashboard shows, all of it, one after the other.

    Args:
        snapshot: With all processes, whoever they belong to.
        shown: Those to list.
        narrowing: Which those are, in words.
        stream: Where it will go; a terminal bounds its width.
        thresholds: Where the lines are drawn.
    """
    from gpumon.findings import card_state, conditions
    from gpumon.history import History
    from gpumon.layout.cards import Cards, CardsShape
    from gpumon.layout.chrome import Moment, Scrolled, header_row, rule_row
    from gpumon.layout.processes import (
        CHOSEN,
        Sight,
        Sort,
        heading_row,
        process_row,
        sort_processes,
        visible_columns,
        whole_width,
    )

    bounded, width = stream.isatty(), _UNBOUNDED
    if bounded:
        import shutil

        width = shutil.get_terminal_size().columns
    history = History(conditions(thresholds), thresholds)
    history.add(snapshot)
    states = {gpu.uuid: card_state(history, gpu) for gpu in snapshot.gpus}
    cards = Cards()
    shape = CardsShape(0, 1, cards.line_count(snapshot) + 1)
    sort, sight = Sort(), Sight(snapshot.time)
    # Nobody is seen to be idle in one sample, and a column left blank would say that nobody is.
    columns = visible_columns(width, tuple(key for key in CHOSEN if key != "idle"))
    processes = sort_processes(shown, sort, sight)
    table = width if bounded else max(width, whole_width(processes, columns))
    rows: list[Row] = [
        header_row(snapshot, Moment(), width),
        *cards.rows(snapshot, history, states, width, shape, graphs=False),
        rule_row(snapshot, processes, Scrolled(tuple(narrowing)), width),
        heading_row(columns, sort, width),
        *(process_row(process, columns, sight, table) for process in processes),
    ]
    return "".join("".join(text for text, _ in row).rstrip() + "\n" for row in rows)
