"""``gpumon report --accidents``: the accidents in logs, with whose processes they concerned.

``docs/report.md`` documents each key of JSON and CSV.
"""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import msgspec

from gpumon.accidents import AccidentReport, details_of, first_lines
from gpumon.recording.accidents import recorded_accidents, recorded_report
from gpumon.recording.csv.columns import columns_of
from gpumon.recording.csv.index import open_sheet
from gpumon.recording.csv.recording import open_log
from gpumon.recording.csv.tables import rows_of
from gpumon.recording.recording import RecordingError
from gpumon.report.notes import wrapped
from gpumon.report.output import EXIT_USAGE, fail
from gpumon.report.reading import HostChoice, damage_in, find_logs, history_log
from gpumon.report.window import parse_span
from gpumon.text.csv_cells import csv_text
from gpumon.text.formatting import printable, spreadsheet_safe
from gpumon.text.status_line import tell
from gpumon.text.time_parsing import MomentError, day_and_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpumon.model.accidents import Accident
    from gpumon.recording.archive import Archive
    from gpumon.report.reading import Log
    from gpumon.report.window import TimeWindow

SCHEMA = "gpumon.accidents/1"
_MOST = 10_000
"""Accidents of a history that are listed, the newest."""
_PACE = 0.02
_UNBOUNDED = 160
"""Cells where no terminal bounds them."""


class HostAccident(NamedTuple):
    """An accident of a machine."""

    host: str | None
    report: AccidentReport


class AccidentFigure(NamedTuple):
    """A value of an accident: its key in JSON and CSV, and what it is, for the documentation."""

    key: str
    about: str
    read: Callable[[HostAccident], object]


FIGURES = (
    AccidentFigure(
        "time_unix_seconds",
        "When, by the clock of the kernel.",
        lambda one: round(one.report.accident.time, 3),
    ),
    AccidentFigure("host", "Name of the machine.", lambda one: one.host),
    AccidentFigure(
        "kind",
        "`error code` (an XID), `timeout`, `reset` or `out of memory`.",
        lambda one: one.report.accident.kind.value,
    ),
    AccidentFigure("number", "Number of the error code.", lambda one: one.report.accident.number),
    AccidentFigure("meaning", "What that means.", lambda one: one.report.meaning),
    AccidentFigure(
        "followed_by",
        "What else the driver reported right after it.",
        lambda one: " | ".join(one.report.then) or None,
    ),
    AccidentFigure("gpu", "Index of the GPU.", lambda one: one.report.gpu_index),
    AccidentFigure("gpu_uuid", "Its UUID.", lambda one: one.report.accident.gpu_uuid),
    AccidentFigure(
        "pid", "The process that the kernel names.", lambda one: one.report.accident.pid
    ),
    AccidentFigure(
        "process_name",
        "Its name, as the kernel writes it.",
        lambda one: one.report.accident.process_name,
    ),
    AccidentFigure(
        "user",
        "Its user, if gpumon had seen it on a GPU.",
        lambda one: None if one.report.process is None else one.report.process.user,
    ),
    AccidentFigure(
        "command",
        "Its command line.",
        lambda one: " ".join(one.report.process.command) or None if one.report.process else None,
    ),
    AccidentFigure(
        "ran_seconds", "How long it had run.", lambda one: _rounded(one.report.ran_seconds, 1)
    ),
    AccidentFigure("job", "Its job, or the only one that had the GPU.", lambda one: one.report.job),
    AccidentFigure(
        "present",
        "PIDs of the processes that were on the GPU, and of the same job on others.",
        lambda one: _pids(one.report.present),
    ),
    AccidentFigure(
        "left",
        "Those that no longer used their GPUs 30 seconds later.",
        lambda one: _pids(one.report.left),
    ),
    AccidentFigure(
        "lost_gpu_hours",
        "At least so many GPU-hours had been used by the processes that left.",
        lambda one: _rounded(one.report.lost_gpu_hours, 3),
    ),
    AccidentFigure(
        "kernel",
        "The lines of the kernel log, without what other keys have.",
        lambda one: (
            " | ".join(
                line.text for line in (one.report.accident, *one.report.further) if line.text
            )
            or None
        ),
    ),
)
"""The values of an accident, in order."""


def print_accidents(
    paths: Sequence[str],
    *,
    history: Archive | None = None,
    first: str | None = None,
    last: str | None = None,
    hosts: frozenset[str] | None = None,
    form: str = "table",
    out: TextIO | None = None,
    width: int | None = None,
    search_seconds: float = 30.0,
) -> int:
    """Read logs and print their accidents; errors go to standard error.

    Args:
        paths: The logs, by any of their files.
        history: The history of a machine, which is read instead of logs.
        first: The text of ``--from``.
        last: The text of ``--to``.
        hosts: Only these hosts.
        form: ``table``, ``json`` or ``csv``.
        out: The output stream; standard output by default.
        width: Line width; that of the terminal by default.
        search_seconds: Seconds after which the search of a history ends.

    Returns:
        The exit status: 0, 1 if a log cannot be read, 2 for invalid arguments.

    Raises:
        OSError: Writing to the stream failed.
    """
    stream = sys.stdout if out is None else out
    try:
        window = parse_span(first, last, time.time())
    except MomentError as error:
        return fail(str(error), EXIT_USAGE)
    choice = HostChoice(hosts)
    try:
        logs = find_logs(paths) if history is None else [history_log(history)]
        found = accidents_in(logs, window, choice, search_seconds)
    except RecordingError as error:
        return fail(error.sentence)
    notes = damage_in(logs)
    if not all(log.archive is None or log.archive.events_complete for log in logs):
        notes.append("The history has not been searched completely: reading it takes too long.")
    if form == "json":
        stream.write(to_json(found, notes))
    else:
        for sentence in notes:
            tell(printable(sentence))
        if form == "csv":
            stream.write(to_csv(found))
        else:
            columns = shutil.get_terminal_size().columns if stream.isatty() else _UNBOUNDED
            stream.write(to_text(found, columns if width is None else width))
    stream.flush()
    return 0


def accidents_in(
    logs: Sequence[Log], window: TimeWindow, hosts: HostChoice, search_seconds: float
) -> list[HostAccident]:
    """The accidents of logs in a time, oldest first; see ``print_accidents``.

    Raises:
        RecordingError: A log cannot be read.
    """
    found: list[HostAccident] = []
    for log in logs:
        if log.archive is None:
            found += _of_log(log, window, hosts)
        else:
            found += _of_history(log.archive, window, hosts, search_seconds)
    return sorted(found, key=lambda one: one.report.accident.time)


def _of_history(
    history: Archive, window: TimeWindow, hosts: HostChoice, search_seconds: float
) -> Iterator[HostAccident]:
    deadline = time.monotonic() + search_seconds
    while not history.events_complete and time.monotonic() < deadline:
        time.sleep(_PACE)
    for accident in recorded_accidents(history, _MOST):
        snapshot = history.at(accident.time) if window.holds(accident.time) else None
        if snapshot is not None and hosts.takes(snapshot.host.name):
            yield HostAccident(snapshot.host.name, recorded_report(history, accident))


def _of_log(log: Log, window: TimeWindow, hosts: HostChoice) -> Iterator[HostAccident]:
    """The accidents of a log: only that column is read, and the moments around each of them."""
    seen: dict[str | None, set[Accident]] = {}
    columns = columns_of(("host_name", "accidents"), processes=False)
    for part in log.parts:
        with closing(open_sheet(part.gpus, processes=False)) as sheet:
            for rows in rows_of(sheet, columns, _pairs, damage=log.damage_of(part.gpus)):
                for host, accidents in rows:
                    if accidents:
                        seen.setdefault(host, set()).update(accidents)
                    else:
                        seen.setdefault(host, set())
    for host, lines in seen.items():
        if not hosts.takes(host):
            continue
        with closing(open_log(log.path, host if len(seen) > 1 else None)) as recording:
            for accident in first_lines(lines):
                if window.holds(accident.time):
                    yield HostAccident(host, recorded_report(recording, accident))


def _pairs(
    _: Iterable[object], hosts: Iterable[str | None], accidents: Iterable[tuple[Accident, ...]]
) -> Iterable[tuple[str | None, tuple[Accident, ...]]]:
    return zip(hosts, accidents, strict=True)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _pids(processes: Sequence[Any] | None) -> list[int] | None:
    return None if processes is None else [process.id.pid for process in processes]


def to_text(found: Sequence[HostAccident], width: int) -> str:
    """A block for each accident, and a line with their number."""
    if not found:
        return "No accident is known in that time.\n"
    hosts = {one.host for one in found}
    blocks: list[str] = []
    for host, report in found:
        where = f"  {host}" if len(hosts) > 1 and host else ""
        gpu = "" if report.gpu_index is None else f"  GPU {report.gpu_index}"
        what, *details = map(printable, details_of(report))
        blocks.append(f"{day_and_time(report.accident.time)}{printable(where)}{gpu}  {what}\n")
        whose = printable(report.whose) or ("nobody" if report.present == () else "not known")
        if report.process is None and report.accident.pid is None:
            details.insert(0, f"whose it was: {whose}")
        blocks += [
            f"  {line}\n" for text in details for line in wrapped([text], width - 2).splitlines()
        ]
    return "".join(blocks)


def to_json(found: Sequence[HostAccident], notes: Sequence[str]) -> str:
    """All of them as one object, with a line break at its end."""
    document = {
        "schema": SCHEMA,
        "accidents": [
            {one.key: _harmless(one.read(accident)) for one in FIGURES} for accident in found
        ],
        "notes": list(notes),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def to_csv(found: Sequence[HostAccident]) -> str:
    """One row per accident under a header; an unknown value is an empty cell."""
    rows = [[_cell(one.read(accident)) for one in FIGURES] for accident in found]
    return csv_text([[one.key for one in FIGURES], *rows])


def _harmless(value: object) -> object:
    return printable(value) if isinstance(value, str) else value


def _cell(value: object) -> object:
    if isinstance(value, str):
        return spreadsheet_safe(value)
    return " ".join(map(str, value)) if isinstance(value, list) else value
