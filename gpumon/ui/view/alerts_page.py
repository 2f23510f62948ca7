"""The page of alerts: a line per notice, what is watched, and the alerts that are checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.text.cells import Field, Row, fill
from gpumon.text.formatting import cell_width, duration, fit, printable
from gpumon.text.table import at_cursor
from gpumon.ui.view.gpu_text import GLYPHS, STATE_STYLES
from gpumon.ui.view.key_names import keycap
from gpumon.ui.view.page_layout import moment_text, text_rows, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.alerts.alert import Alert
    from gpumon.alerts.notice import Notice

_MARGIN = 2
_SHORT_TIME = 5
_LEAST_TITLE = 24


def alert_rows(
    notices: Sequence[Notice],
    chosen: int | None,
    watched: Sequence[str],
    alerts: Sequence[Alert],
    notes: Sequence[str],
    now: float,
    width: int,
) -> tuple[list[Row], list[int | None]]:
    """The whole page, every row exactly ``width`` cells.

    Args:
        notices: The notices, newest first.
        chosen: Index of the notice under the cursor, whose sentence is shown.
        watched: What is watched by key.
        alerts: The alerts of the configuration that are checked.
        notes: What is not done here, and which channels failed.
        now: The current time, in seconds since the epoch.
        width: Cells.

    Returns:
        The rows, and for each of them the index of its notice; ``None`` for other rows.
    """
    rows: list[Row] = []
    owners: list[int | None] = []
    ended = _ends(notices)
    for index, notice in enumerate(notices):
        lines = [_line(notice, ended.get(index), now, width, chosen=index == chosen)]
        if index == chosen:
            room = max(1, width - 2 * _MARGIN - _SHORT_TIME - 1)
            edge: Field = (" " * (_MARGIN + _SHORT_TIME + 1), "")
            text = f"{notice.sentence} (alert {notice.alert})"
            lines += [fill([edge, (line, "")], width) for line in wrap(text, room)]
        rows += lines
        owners += [index] * len(lines)
    rest = [fill((), width)]
    if not notices:
        rest += _indented("There are no notifications yet.", width)
        rest.append(fill((), width))
    rest += _watched(watched, width)
    rest += _checked(alerts, notes, width)
    if not notices:
        rest += _how_to_watch(width)
    return [*rows, *rest], [*owners, *([None] * len(rest))]


def _ends(notices: Sequence[Notice]) -> dict[int, float]:
    """When what a notice reports ended, by the index of the notice, if that was reported."""
    ends: dict[int, float] = {}
    newer: dict[tuple[str, str], float] = {}
    for index, notice in enumerate(notices):
        about = (notice.alert, notice.key)
        if notice.ended:
            newer[about] = notice.at
        elif about in newer:
            ends[index] = newer.pop(about)
    return ends


def _line(notice: Notice, ended: float | None, now: float, width: int, *, chosen: bool) -> Row:
    at = moment_text(notice.at, now)
    sign = f"{GLYPHS[notice.severity]} "
    since = ""
    if notice.since is not None:
        since = f"since {moment_text(notice.since, now)}"
        if notice.ended or ended is not None:
            over = notice.at if ended is None else ended
            since += f", ended after {duration(max(0.0, over - notice.since))}"
    fields: list[Field] = [("  ", ""), (at, "dim"), (" ", "")]
    room = width - sum(cell_width(text) for text, _ in fields) - cell_width(sign)
    style = STATE_STYLES[notice.severity]
    beside = room - cell_width(since) - 2
    if since and beside >= min(_LEAST_TITLE, cell_width(notice.title)):
        title = fit(printable(notice.title), beside)
        fields += [(sign, style), (title, style), ("  ", ""), (since, "dim")]
    else:
        fields += [(sign, style), (fit(printable(notice.title), max(1, room)), style)]
    row = fill(fields, width)
    return at_cursor(row) if chosen else row


def _how_to_watch(width: int) -> list[Row]:
    text = (
        f"{keycap('notify')} on a GPU notifies you when it is free, on a process or job when it "
        "ends. Add [[alerts]] to the configuration to be notified of states such as hot, idle or "
        "lost: see docs/alerts.md."
    )
    return _indented(text, width)


def _watched(watched: Sequence[str], width: int) -> list[Row]:
    if not watched:
        return []
    title = f"Watched with {keycap('notify')}, which cancels "
    rows = [_title(title, width)]
    for line in watched:
        rows += _indented(printable(line), width)
    return [*rows, fill((), width)]


def _title(title: str, width: int) -> Row:
    line = "─" * max(0, width - 2 * _MARGIN - cell_width(title))
    return fill([(" " * _MARGIN, ""), (title, "strong"), (line, "rule")], width)


def _checked(alerts: Sequence[Alert], notes: Sequence[str], width: int) -> list[Row]:
    rows: list[Row] = []
    if alerts:
        rows.append(_title("Alerts that are checked ", width))
        for alert in alerts:
            channels = ", ".join(channel.name for channel in alert.channels) or "this page only"
            lasting = f" for {duration(alert.for_seconds)}" if alert.for_seconds else ""
            name = "" if alert.name == alert.when else f"{alert.name}: "
            rows += _indented(f"{name}{alert.when}{lasting} → {channels}", width)
    for note in notes:
        rows += _indented(note, width, "state.note")
    return rows


def _indented(text: str, width: int, style: str = "") -> list[Row]:
    room = max(1, width - 2 * _MARGIN)
    return [fill([(" " * _MARGIN, ""), *row], width) for row in text_rows(text, room, style)]
