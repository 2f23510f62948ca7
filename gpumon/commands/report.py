"""``gpumon report``: what logs come to, on standard output."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, TextIO

from gpumon.commands.telling import tell
from gpumon.moments import day_and_time
from gpumon.report.curves import Curves
from gpumon.report.exports import to_csv, to_json
from gpumon.report.figures import Report, make_report
from gpumon.report.notes import damage_notes, notes, wrapped
from gpumon.report.reading import find_logs, moments, span_of
from gpumon.report.span import SpanError, parse_span
from gpumon.report.table import heading, left_out, to_table
from gpumon.report.tally import Tally, Window
from gpumon.tape import NO_SAMPLES, TapeError
from gpumon.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.report.reading import Log

EXIT_NOTHING = 1
EXIT_USAGE = 2

_UNBOUNDED = 160, 50
"""Cells and lines where no terminal bounds them."""


def print_report(
    paths: Sequence[str],
    *,
    by: str = "gpu",
    first: str | None = None,
    last: str | None = None,
    form: str = "table",
    plot: bool = False,
    out: TextIO | None = None,
    width: int | None = None,
    now: float | None = None,
) -> int:
    """Read logs and print what they come to; what cannot be done is said on standard error.

    Args:
        paths: The logs, by any of their files.
        by: One of ``report.figures.BY``.
        first: The text of ``--from``.
        last: The text of ``--to``.
        form: ``table``, ``json`` or ``csv``.
        plot: Whether to draw the cards' curves below the table.
        out: Where to; standard output by default.
        width: Cells of a line; those of the terminal by default.
        now: What the times count from; the present by default.

    Returns:
        The exit status: 0, 1 when there is nothing to tell, 2 for what cannot be asked.

    Raises:
        OSError: The stream takes no more.
    """
    stream = sys.stdout if out is None else out
    if plot and form != "table":
        return _fail(
            f"--plot is for a person and --format {form} is not: leave one out.", EXIT_USAGE
        )
    try:
        began, ended = parse_span(first, last, time.time() if now is None else now)
    except SpanError as error:
        return _fail(error.sentence, EXIT_USAGE)
    window = Window(
        float("-inf") if began is None else began, float("inf") if ended is None else ended
    )
    try:
        logs = find_logs(paths)
        told_nothing = [log.path for log in logs if by != "gpu" and not log.has_processes]
        if len(told_nothing) == len(logs):
            empty = span_of(logs) is None
            return _fail(NO_SAMPLES if empty else _no_processes(told_nothing, by))
        report, curves = _read(logs, by, window, plot=plot)
    except TapeError as error:
        return _fail(error.sentence)
    damaged = damage_notes(logs)
    if not report.lines:
        return _fail(" ".join([_nothing(report, by, logs, began, ended), *damaged]))
    said = [*damaged, *notes(report, told_nothing)]
    if form == "json":
        stream.write(to_json(report, said))
    elif form == "csv":
        stream.write(to_csv(report))
        for sentence in damaged:
            tell(printable(sentence))
    else:
        _write_table(report, curves, logs, said, stream, width)
    stream.flush()
    return 0


def _read(
    logs: Sequence[Log], by: str, window: Window, *, plot: bool
) -> tuple[Report, Curves | None]:
    tally = Tally(by, window)
    curves = Curves(window) if plot else None
    first = None if window.first == float("-inf") else window.first
    last = None if window.last == float("inf") else window.last
    for moment in moments(logs, first, last, owners=by != "gpu"):
        tally.add(moment)
        if curves is not None:
            curves.add(moment)
    tally.close()
    return make_report(tally), curves


def _write_table(
    report: Report,
    curves: Curves | None,
    logs: Sequence[Log],
    said: Sequence[str],
    stream: TextIO,
    width: int | None,
) -> None:
    bounded = stream.isatty()
    columns, lines = shutil.get_terminal_size() if bounded else _UNBOUNDED
    columns = columns if width is None else width
    colour = bounded and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    stream.write(heading(report, [os.path.basename(log.path) for log in logs], columns))  # noqa: PTH119 - text
    stream.write(to_table(report, columns, colour=colour))
    stream.write(wrapped([*left_out(report, columns), *said], columns))
    if curves is not None:
        from gpumon.report.plot import draw

        cards = sorted(curves.cards.values(), key=lambda card: (card.host or "", card.index or 0))
        stream.write("\n" + draw(cards, columns, lines, colour=colour))


def _no_processes(logs: Sequence[str], by: str) -> str:
    return (
        f"{', '.join(logs)}: lists no processes, as nvidia-smi's output does, so it cannot be told "
        f"by {by}; use --by gpu."
    )


def _nothing(
    report: Report, by: str, logs: Sequence[Log], first: float | None, last: float | None
) -> str:
    if report.cards.first is not None:
        return f"No process was on any card in that time, so there is no {by} to tell of."
    there = span_of(logs)
    if there is None:
        return NO_SAMPLES
    if first is None and last is None:
        return "No sample of the log can be read."
    when = "between --from and --to"
    if first is None or last is None:
        when = "before --to" if first is None else "after --from"
    began, ended = map(day_and_time, there)
    return f"The log has no sample {when}: it goes from {began} to {ended}."


def _fail(sentence: str, status: int = EXIT_NOTHING) -> int:
    tell(printable(sentence))
    return status
