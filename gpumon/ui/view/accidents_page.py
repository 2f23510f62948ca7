"""The page of accidents: a line per accident, and all that is known of the one at the cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.accidents import details_of
from gpumon.text.cells import fill
from gpumon.text.formatting import cell_width, fit, printable
from gpumon.text.table import at_cursor
from gpumon.ui.view.page_layout import moment_text, text_rows, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpumon.accidents import AccidentReport
    from gpumon.text.cells import Field, Row

_MARGIN = 2
_GPU_WIDTH, _HOURS_WIDTH, _LABEL_WIDTH = 3, 10, 13
_LEFT_SHARE = 0.3
_WIDE = 90
"""From this width on there is a column for what left its GPUs."""
_DETAIL_INDENT = 8


def accident_rows(
    reports: Sequence[AccidentReport],
    chosen: int | None,
    first: float | None,
    now: float,
    width: int,
    *,
    is_complete: bool,
) -> tuple[list[Row], list[int | None]]:
    """The whole page, every row exactly ``width`` cells.

    Args:
        reports: The accidents, newest first.
        chosen: Index of the accident under the cursor, of which all is shown.
        first: When the recording begins; ``None`` while it is empty.
        now: The time of the view, in seconds since the epoch.
        width: Cells.
        is_complete: Whether the whole recording was searched.

    Returns:
        The rows, and for each of them the index of its accident; ``None`` for other rows.
    """
    rows: list[Row] = []
    owners: list[int | None] = []
    when = max((cell_width(moment_text(each.accident.time, now)) for each in reports), default=5)
    if reports:
        rows.append(_heading(when, width))
        owners.append(None)
    for index, report in enumerate(reports):
        lines = [_line(report, now, when, width, chosen=index == chosen)]
        if index == chosen:
            room = max(1, width - _DETAIL_INDENT - _MARGIN)
            edge: Field = (" " * _DETAIL_INDENT, "")
            for text in details_of(report):
                lines += [fill([edge, (line, "")], width) for line in wrap(printable(text), room)]
        rows += lines
        owners += [index] * len(lines)
    notes = list(_notes(reports, first, now, is_complete=is_complete))
    for note in notes:
        rows.append(fill((), width))
        rows += [
            fill([(" " * _MARGIN, ""), *row], width)
            for row in text_rows(note, max(1, width - 2 * _MARGIN), "")
        ]
    return rows, [*owners, *([None] * (len(rows) - len(owners)))]


def _notes(
    reports: Sequence[AccidentReport], first: float | None, now: float, *, is_complete: bool
) -> Iterator[str]:
    if first is None:
        yield "Nothing is recorded yet."
    elif not reports:
        since = moment_text(first, now)
        yield f"No accident is known since {since}, when the recording began."
        yield "gpumon reads them from the kernel log, if it may."
    if not is_complete:
        yield "The log has not been searched completely yet."


def _widths(when: int, width: int) -> tuple[int, int]:
    """The widths of whose it was, and of what left; 0 if there is no room for it."""
    room = width - 2 * _MARGIN - when - _GPU_WIDTH - _LABEL_WIDTH - _HOURS_WIDTH - 4
    left = int(room * _LEFT_SHARE) if width >= _WIDE else 0
    return max(1, room - left - bool(left)), left


def _cells(parts: Sequence[str], when: int, width: int) -> list[str]:
    whose, left = _widths(when, width)
    widths = (when, _GPU_WIDTH, _LABEL_WIDTH, whose, left, _HOURS_WIDTH)
    return [fit(printable(part), wide) for part, wide in zip(parts, widths, strict=True) if wide]


def _heading(when: int, width: int) -> Row:
    parts = ("WHEN", "GPU", "WHAT", "PROCESS", "LEFT", "GPU-H LOST")
    return fill([(" " * _MARGIN, ""), (" ".join(_cells(parts, when, width)), "dim")], width)


def _line(report: AccidentReport, now: float, when: int, width: int, *, chosen: bool) -> Row:
    parts = (
        moment_text(report.accident.time, now),
        "–" if report.gpu_index is None else str(report.gpu_index),
        report.label,
        report.whose or ("nobody" if report.present == () else "not known"),
        report.left_text or "not known",
        report.lost_text or "–",
    )
    cells = _cells(parts, when, width)
    fields: list[Field] = [(" " * _MARGIN, "")]
    for place, cell in enumerate(cells):
        style = ("dim", "", "state.critical")[place] if place < 3 else ""
        fields += [(cell, style), (" ", "")]
    row = fill(fields, width)
    return at_cursor(row) if chosen else row
