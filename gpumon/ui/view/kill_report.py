"""The progress of ending processes, as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.kill.outcome import ReportText, Success, report_text
from gpumon.text.cells import Row, fill
from gpumon.ui.view.key_names import keycap
from gpumon.ui.view.page_layout import wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.kill.outcome import TerminationReport

_Line = tuple[str, str, str]
"""A glyph, a text, and the style of the glyph."""

_GLYPH_WIDTH = 4
"""A line's glyph with the blanks around it."""
_SIGNS = {
    Success.PENDING: ("…", "state.note"),
    Success.FULL: ("✓", "state.good"),
    Success.PARTIAL: ("!", "state.warning"),
}
"""The glyph of a summary and its style."""


class _Lines(NamedTuple):
    """The lines of one report."""

    summary: _Line
    processes: list[_Line]
    notes: list[_Line]

    @property
    def least(self) -> int:
        """The least number of lines: the processes may share one."""
        return 1 + bool(self.processes) + len(self.notes)

    def fitting(self, room: int) -> list[_Line]:
        """All lines; if they do not fit, with fewer processes."""
        most = max(1, room - 1 - len(self.notes))
        processes = self.processes
        if len(processes) > most:
            processes = processes[: most - 1]
            processes.append((" ", f"and {len(self.processes) - len(processes)} more", ""))
        return [self.summary, *processes, *self.notes]


def report_rows(reports: Sequence[TerminationReport], width: int, room: int) -> list[Row]:
    """The reports, the newest last.

    Each has a summary, and a line for each process and GPU with a problem. If not all lines fit,
    processes are dropped first, beginning with those of the oldest report, then the oldest reports.

    Args:
        reports: The reports, oldest first.
        width: Cells.
        room: Maximum number of rows.
    """
    remaining = [_report_lines(report) for report in reports]
    lines: list[_Line] = []
    while remaining:
        newest = remaining.pop()
        left = room - len(lines)
        lines[:0] = newest.fitting(left - sum(report.least for report in remaining))[: max(0, left)]
    return _wrapped(lines, width, room - len(lines))


def _wrapped(lines: Sequence[_Line], width: int, spare: int) -> list[Row]:
    """The lines; long ones are wrapped into spare rows, the first lines first."""
    rows: list[Row] = []
    for glyph, text, style in lines:
        parts = wrap(text, max(1, width - _GLYPH_WIDTH), most=1 + max(0, spare))
        spare -= len(parts) - 1
        glyphs = (glyph, *" " * (len(parts) - 1))
        rows += [
            fill([(f" {glyph}  ", style), (part, "")], width)
            for glyph, part in zip(glyphs, parts, strict=True)
        ]
    return rows


def summary_text(report: TerminationReport) -> str:
    """The summary of a report."""
    return _text(report).summary


def _text(report: TerminationReport) -> ReportText:
    return report_text(report, f"{keycap('end')}: send KILL to the rest")


def _report_lines(report: TerminationReport) -> _Lines:
    text = _text(report)
    glyph, style = _SIGNS[text.success]
    processes = [("!", line, "state.warning") for line in text.processes]
    notes = [("!", note, "state.warning") for note in text.notes]
    return _Lines((glyph, text.summary, style), processes, notes)
