"""``gpumon report``: prints totals over logs to standard output.

``docs/report.md`` documents each key of JSON and CSV.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

import msgspec
from msgspec.structs import replace

from gpumon.recording.csv.hosts import in_words
from gpumon.recording.recording import NO_SAMPLES, RecordingError
from gpumon.report.curves import Curves
from gpumon.report.figures import KWH, SCHEMA, UsageReport, figures_of, make_report
from gpumon.report.job_text import WIDTH, gpu_hours, lagging, lagging_note, shortened
from gpumon.report.notes import notes, wrapped
from gpumon.report.owners import BY_PROCESSES
from gpumon.report.parallel import PART_BYTES, tally_parts
from gpumon.report.price import NO_PRICE, Price
from gpumon.report.reading import (
    HostChoice,
    PastNeededError,
    ReadDepth,
    damage_in,
    find_logs,
    history_log,
    merged_samples,
    span_of,
)
from gpumon.report.table import heading, left_out, to_table
from gpumon.report.tally import UsageTotals
from gpumon.report.window import TimeWindow, parse_span
from gpumon.text.csv_cells import csv_text
from gpumon.text.formatting import printable, spreadsheet_safe
from gpumon.text.status_line import tell
from gpumon.text.time_parsing import MomentError, day_and_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.recording.archive import Archive
    from gpumon.report.chosen_job import ChosenJob
    from gpumon.report.reading import Log

EXIT_NOTHING = 1
EXIT_USAGE = 2

_DAY = 86400.0
_NOW_SECONDS = 60.0
"""A history whose newest sample is no older is being kept."""
_UNBOUNDED = 160, 50
"""Cells and lines where no terminal bounds them."""


def print_report(
    paths: Sequence[str],
    *,
    history: Archive | None = None,
    by: str = "gpu",
    first: str | None = None,
    last: str | None = None,
    hosts: frozenset[str] | None = None,
    job: ChosenJob | None = None,
    price: Price = NO_PRICE,
    form: str = "table",
    plot: bool = False,
    out: TextIO | None = None,
    width: int | None = None,
    now: float | None = None,
) -> int:
    """Read logs and print the report; errors go to standard error.

    Args:
        paths: The logs, by any of their files.
        history: The history of a machine, which is summed up instead of logs; without ``first`` and
            ``last`` that of the last day.
        by: One of ``report.figures.BY``.
        first: The text of ``--from``.
        last: The text of ``--to``.
        hosts: Only these hosts.
        job: Only this job, with a line for each host; ``by`` is then ``job``.
        price: What energy costs.
        form: ``table``, ``json`` or ``csv``.
        plot: Whether to draw the GPUs' curves below the table.
        out: The output stream; standard output by default.
        width: Line width; that of the terminal by default.
        now: The reference time; now by default.

    Returns:
        The exit status: 0, 1 without data, 2 for invalid arguments.

    Raises:
        OSError: Writing to the stream failed.
    """
    stream = sys.stdout if out is None else out
    if plot and form != "table":
        return fail(
            f"--plot needs --format table: it cannot be used with --format {form}.", EXIT_USAGE
        )
    now = time.time() if now is None else now
    try:
        window = parse_span(first, last, now)
    except MomentError as error:
        return fail(str(error), EXIT_USAGE)
    when = "" if window == TimeWindow() else _when(window)
    if history is not None and window == TimeWindow():
        window, when = TimeWindow(now - _DAY), "of the last day"
    try:
        logs = find_logs(paths) if history is None else [history_log(history)]
        without_processes = [
            log.path for log in logs if by in BY_PROCESSES and not log.has_processes
        ]
        if job is None and len(without_processes) == len(logs):
            empty = span_of(logs) is None
            return fail(NO_SAMPLES if empty else _no_processes(without_processes, by))
        choice = HostChoice(hosts)
        report, curves = _read(logs, by, window, choice, job, plot=plot)
        report = report.priced(price)
    except RecordingError as error:
        return fail(error.sentence)
    damaged = damage_in(logs)
    if not report.lines:
        nothing = _no_host(choice) or _nothing(report, logs, when, choice)
        return fail(" ".join([nothing, *damaged]))
    if history is not None:
        damaged.insert(0, _origin(history, report, now))
    has_lost_message = any(
        damage.has_lost_message for log in logs for damage in log.damage.values()
    )
    said = [*damaged, *notes(report, without_processes, has_lost_message=has_lost_message)]
    if form == "json":
        stream.write(_to_json(report, said))
    elif form == "csv":
        stream.write(_to_csv(report))
        for sentence in damaged:
            tell(printable(sentence))
    else:
        _write_table(report, curves, logs, said, stream, width)
    stream.flush()
    return 0


def _read(
    logs: Sequence[Log],
    by: str,
    window: TimeWindow,
    hosts: HostChoice,
    job: ChosenJob | None,
    *,
    plot: bool,
) -> tuple[UsageReport, Curves | None]:
    if not plot and job is None:
        in_parts = tally_parts(logs, by, window, hosts, PART_BYTES)
        if in_parts is not None:
            return make_report(in_parts), None
    depth = ReadDepth(owners=by in BY_PROCESSES, jobs=by == "job")
    while True:
        tally = UsageTotals(by, window, job=job)
        curves = Curves(window) if plot else None
        for log in logs:
            log.damage.clear()
        try:
            for sample in merged_samples(logs, window, hosts, depth):
                tally.add(sample)
                if curves is not None:
                    curves.add(sample)
        except PastNeededError:
            depth = replace(depth, from_start=True)
            continue
        tally.close()
        return make_report(tally), curves


def _write_table(
    report: UsageReport,
    curves: Curves | None,
    logs: Sequence[Log],
    said: Sequence[str],
    stream: TextIO,
    width: int | None,
) -> None:
    bounded = stream.isatty()
    columns, lines = shutil.get_terminal_size() if bounded else _UNBOUNDED
    if report.job is not None and not bounded:
        columns = WIDTH
    columns = columns if width is None else width
    colour = bounded and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    stream.write(heading(report, [os.path.basename(log.path) for log in logs], columns))  # noqa: PTH119 - text
    if report.job is not None:
        _write_job(report, said, stream, columns, colour=colour)
        return
    stream.write(to_table(report, columns, colour=colour))
    stream.write(wrapped([*left_out(report, columns), *said], columns))
    if curves is not None:
        from gpumon.report.plot import draw

        gpus = sorted(curves.gpus.values(), key=lambda gpu: (gpu.host or "", gpu.index or 0))
        stream.write("\n" + draw(gpus, columns, lines, colour=colour))


def _write_job(
    report: UsageReport, said: Sequence[str], stream: TextIO, columns: int, *, colour: bool
) -> None:
    """Write the report of a job below its first line, short enough for a mail."""
    shown, left = shortened(report)
    stream.write(wrapped([gpu_hours(report)], columns))
    stream.write(to_table(shown, columns, colour=colour))
    lags = map(printable, lagging_note(report.lines))
    stream.write(wrapped([*left, *lags, *said], columns))


def _to_json(report: UsageReport, notes: Sequence[str]) -> str:
    """A report as one object, with a line break at its end."""
    figures = figures_of(report.by)
    total = report.whole
    adding = report.by
    own: dict[str, Any] = {"energy_without_process_kwh": round(report.alone / KWH, 6)}
    if report.job is not None:
        # Each line is of another host, so that no GPU is in two.
        adding = "host"
        lags = [*map(printable, lagging(report.lines))]
        own = {"job": report.job.name, "lagging": lags}
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "by": report.by,
        "lines": [{one.key: _harmless(one.read(line)) for one in figures} for line in report.lines],
        "total": {one.key: one.read(total) for one in figures if adding in one.adds_up},
        **own,
        "price_per_kwh": report.price.per_kwh,
        "co2_grams_per_kwh": report.price.co2_grams,
        "notes": list(notes),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _to_csv(report: UsageReport) -> str:
    """One row per line under a header; an unknown value is an empty cell."""
    figures = figures_of(report.by)
    rows = [[_cell(one.read(line)) for one in figures] for line in report.lines]
    return csv_text([[one.key for one in figures], *rows])


def _harmless(value: object) -> object:
    """Untrusted names and commands without terminal control sequences."""
    return printable(value) if isinstance(value, str) else value


def _cell(value: object) -> object:
    if isinstance(value, str):
        return spreadsheet_safe(value)
    if isinstance(value, dict):
        return " ".join(f"{name}:{count}" for name, count in value.items())
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def _no_processes(logs: Sequence[str], by: str) -> str:
    return (
        f"{', '.join(logs)}: lists no processes, like the output of nvidia-smi, so it cannot be "
        f"grouped by {by}; use --by gpu."
    )


def _no_host(choice: HostChoice) -> str | None:
    """That the logs do not have the hosts, in a sentence; ``None`` if they have any of them."""
    if choice.wanted is None or not choice.seen or choice.wanted & choice.seen:
        return None
    asked = ", ".join(sorted(choice.wanted))
    return f"There is no sample of {asked} in that time, only of {in_words(choice.seen)}."


def _nothing(report: UsageReport, logs: Sequence[Log], when: str, choice: HostChoice) -> str:
    """That there is nothing to report; ``when`` is the time range in words, if there is one."""
    if report.job is not None and choice.seen:
        seen = choice.seen if choice.wanted is None else choice.seen & choice.wanted
        where = f" on {in_words(seen)}" if any(seen) else ""
        during = f" {when}" if when else ""
        return (
            f"Slurm job {report.job.name} was not found{where}{during}: no process, and no GPU that"
            " was allocated to it."
        )
    if report.gpus.first is not None:
        return f"No process used a GPU in that time, so there is no {report.by} to list."
    there = span_of(logs)
    if there is None:
        return NO_SAMPLES
    what = "history" if any(log.archive is not None for log in logs) else "log"
    if not when:
        return f"No sample of the {what} can be read."
    began, ended = map(day_and_time, there)
    return f"The {what} has no sample {when}: it goes from {began} to {ended}."


def _origin(history: Archive, report: UsageReport, now: float) -> str:
    """Which history was read, and from when to when there is one."""
    hosts = in_words({line.host for line in report.lines if line.host})
    whose = f" of {hosts}" if hosts else ""
    began, ended = history.first or now, history.last or now
    until = "now" if history.is_kept(now, _NOW_SECONDS) else day_and_time(ended)
    return f"From the history{whose}, {history.folder}: {day_and_time(began)} to {until}."


def _when(window: TimeWindow) -> str:
    """The time range in words."""
    if math.isinf(window.first):
        return "before --to"
    return "after --from" if math.isinf(window.last) else "between --from and --to"


def fail(sentence: str, status: int = EXIT_NOTHING) -> int:
    """Print why there is no report; the exit status."""
    tell(printable(sentence))
    return status
