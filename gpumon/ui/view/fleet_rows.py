"""Draws the screen of a fleet as rows of cells."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.fleet.summary import FleetTotals, totals
from gpumon.text.cells import Field, Row, fill, row_width
from gpumon.text.command_lines import command_line
from gpumon.text.formatting import UNKNOWN, cell_width, counted, fit, memory_size, printable
from gpumon.text.table import AT_CURSOR, PLAIN, beside, heading_row, item_row, line
from gpumon.ui.view.fleet_hosts import age_text, host_row, host_sentence, status_text
from gpumon.ui.view.fleet_jobs import job_row, node_row
from gpumon.ui.view.fleet_view import HOST_WIDTH, FleetLayout, FleetListing, lay_out, row_context
from gpumon.ui.view.frame import Memo
from gpumon.ui.view.header_footer import first_fitting, footer_row, interval_text
from gpumon.ui.view.key_names import ALWAYS, COMMANDS, FILTERING, SELECT, SORT, footer_key, keycap
from gpumon.ui.view.process_table import process_row

if TYPE_CHECKING:
    from gpumon.fleet.summary import HostSummary
    from gpumon.text.table import Marks
    from gpumon.ui.view.fleet_view import FleetEntry, FleetView
    from gpumon.ui.view.key_names import FooterKey


class FleetParts(Struct, frozen=True):
    """The rows of the screen, from the top."""

    layout: FleetLayout  # Where everything is drawn.
    header: list[Row]
    lines: list[Row]
    rule: list[Row]
    footer: list[Row]


class FleetPicture:
    """Draws the screen. Equal hosts, view, time and size give equal rows."""

    def __init__(self) -> None:
        self._memo = Memo()

    def rows(
        self,
        hosts: tuple[HostSummary, ...],
        view: FleetView,
        now: float,
        width: int,
        height: int,
        source: str = "",
        title: str = "",
    ) -> FleetParts:
        """All rows for a terminal of this size.

        Args:
            hosts: The hosts.
            view: The view.
            now: The current time, seconds since the epoch.
            width: Cells.
            height: Rows.
            source: What the hosts are if they are not real, such as ``DEMO``.
            title: What they are together, such as ``slurm 88123``.
        """
        memo = self._memo
        layout = lay_out(memo, hosts, view, now, width, height)
        view = layout.view
        sums = memo(totals, hosts)
        return FleetParts(
            layout,
            [memo(header_row, sums, (source, title), int(now), view.interval, width)],
            _lines(memo, layout, now),
            [memo(_rule, *_rule_texts(layout, now), width)],
            [memo(footer_row, fleet_keys(layout), view.message, width)],
        )


_SUMS = ("hosts free gpus memory", "hosts free gpus", "hosts free", "free")
"""The sums in the header, from a wide one to a narrow one."""


def header_row(
    sums: FleetTotals, marks: tuple[str, str], second: int, interval: float, width: int
) -> Row:
    """The sums over the fleet that fit, and the time; ``marks`` are what the hosts are."""
    at_least = "" if sums.complete else "≥"
    left: list[Field] = [(" gpumon", "header.title")]
    left += [(f"  {mark}", "header.mark") for mark in marks if mark]
    live = f"{sums.live}/{sums.hosts}" if sums.live < sums.hosts else str(sums.hosts)
    used, total = memory_size(sums.memory_used), memory_size(sums.memory_total)
    style = "header.mark" if sums.live < sums.hosts else "header"
    parts: dict[str, list[Field]] = {
        "hosts": [("  hosts ", "header.dim"), (live, style)],
        "free": [("  free ", "header.dim"), (f"{at_least}{sums.free}", "header.title")],
        "gpus": [(f" of {at_least}{counted(sums.gpus, 'GPU')}", "header")],
        "memory": [
            ("  memory ", "header.dim"),
            (f"{at_least}{used} of {at_least}{total}", "header"),
        ],
    }
    clock = time.strftime("%H:%M:%S", time.localtime(second))
    right: list[Field] = [
        (f"  {clock}", "header"),
        (f"  {interval_text(interval)} ", "header.dim"),
    ]
    room = width - row_width(left) - row_width(right)
    # Without a live host nothing is known of their GPUs.
    middle = first_fitting(_SUMS if sums.live else ("hosts",), parts, room)
    gap = (" " * max(0, room - row_width(middle)), "header")
    return fill([*left, *middle, gap, *right], width, "header")


def _lines(memo: Memo, layout: FleetLayout, now: float) -> list[Row]:
    """The heading and the visible lines."""
    view, width = layout.view, layout.width
    heading = memo(heading_row, tuple(layout.headers), view.sort, layout.line_width)
    rows = beside([heading] * layout.beside, layout.beside, 1, width, "heading")
    if not layout.entries:
        rows.append(fill([(f"  {fit(_empty_text(layout), max(0, width - 2))}", "dim")], width))
    else:
        drawn = [
            _line(memo.part(entry.key), layout, entry, now)
            for entry in (layout.entries[at] for at in layout.visible)
        ]
        rows += beside(drawn, layout.beside, layout.room, width)
        memo.keep([layout.entries[at].key for at in layout.visible])
    blank = fill((), width)
    return rows + [blank] * (layout.room + 1 - len(rows))


def _line(memo: Memo, layout: FleetLayout, entry: FleetEntry, now: float) -> Row:
    view = layout.view
    marks = AT_CURSOR if entry.key == view.cursor else PLAIN
    if entry.user is not None:
        return memo(item_row, entry.user, layout.headers, layout.width, marks)
    if entry.node is not None:
        return memo(node_row, entry.node, layout.width, marks)
    if entry.job is not None:
        return memo(job_row, entry.job, now, layout.width, marks)
    assert entry.host is not None  # noqa: S101 - all other lines have one
    if entry.process is not None:
        # The texts of a process change with its host's samples.
        key = (entry.host, entry.process, layout.columns, layout.width, marks)
        return memo.by(key, _process_line, layout, entry, marks)
    texts = age_text(entry.host, now, view.interval), status_text(entry.host, now)
    return memo(host_row, entry.host, layout.host_columns, *texts, layout.line_width, marks)


def _process_line(layout: FleetLayout, entry: FleetEntry, marks: Marks) -> Row:
    """The host, then the process as in the table at home."""
    assert entry.host is not None  # noqa: S101 - a process has a host
    assert entry.process is not None  # noqa: S101 - the caller has checked it
    width = max(0, layout.width - HOST_WIDTH - 1)
    process = process_row(entry.process, layout.columns, row_context(entry.host), width)[1:]
    name = (fit(printable(entry.host.name), HOST_WIDTH), "strong")
    return line([[name], process], layout.width, marks)


def _empty_text(layout: FleetLayout) -> str:
    """What is shown in place of lines."""
    view = layout.view
    if view.filter:
        what = {"hosts": "host", "jobs": "job"}.get(view.listing.value, "process")
        return f"no {what} matches {printable(view.filter)} · {keycap('clear')} shows all"
    if not layout.hosts:
        return "connecting …"
    if view.listing is FleetListing.MACHINES:
        return f"the job has ended, or its machines do not answer · {keycap('clear')} shows all"
    return "no process is on a GPU of any host that answers"


def _rule_texts(layout: FleetLayout, now: float) -> tuple[str, str, str]:
    """The number of lines with the filter, a sentence on the cursor's line, and the range."""
    view, count = layout.view, len(layout.entries)
    if view.listing is FleetListing.HOSTS:
        whole = len(layout.hosts)
        text = counted(count, "host") if count == whole else f"{count} of {counted(whole, 'host')}"
    elif view.listing is FleetListing.USERS:
        text = counted(count, "user")
    elif view.listing is FleetListing.JOBS:
        text = counted(count, "job")
    elif view.listing is FleetListing.MACHINES:
        return _job_rule(layout)
    else:
        text = counted(count, "process", "es")
    if view.filter:
        text += f" · {printable(view.filter)}"
    entry = layout.entry
    about = ""
    if entry is not None and entry.process is not None:
        about = f"{entry.process.id.pid}: {command_line(entry.process)}"
    elif entry is not None and entry.job is not None:
        about = entry.job.sentence
    elif entry is not None and entry.host is not None:
        about = host_sentence(entry.host, now)
    return text, about, _range(layout)


def _job_rule(layout: FleetLayout) -> tuple[str, str, str]:
    """The job whose machines are listed, and what of it lags."""
    job = layout.entries[0].job if layout.entries else None
    if job is None:
        return "0 machines", "", ""
    users = ", ".join(printable(user or UNKNOWN) for user in job.users)
    text = f"{job.label} {users} · {counted(len(job.nodes), 'machine')}"
    return text, job.sentence, _range(layout)


def _range(layout: FleetLayout) -> str:
    """Which lines are visible; empty if all are."""
    visible, count = layout.visible, len(layout.entries)
    return f" {visible.start + 1}–{visible.stop} of {count} " if len(visible) < count else ""


def _rule(text: str, about: str, shown: str, width: int) -> Row:
    fields: list[Field] = [
        ("──", "rule"),
        (f" {fit(text, min(cell_width(text), width - 4))} ", "dim"),
    ]
    room = width - row_width(fields) - cell_width(shown) - 4
    if about and room > 12:
        fields += [("──", "rule"), (f" {fit(about, min(cell_width(about), room - 2))} ", "")]
    line = "─" * max(0, width - row_width(fields) - cell_width(shown))
    return fill([*fields, (line, "rule"), (shown, "dim")], width, "rule")


_FIRST = (
    footer_key("sort_free", label="free first"),
    footer_key("sort_state", label="worst first"),
)


def fleet_keys(layout: FleetLayout) -> tuple[FooterKey, ...]:
    """The keys for the footer, most needed first."""
    view = layout.view
    if view.dialog_open:
        return ()
    if view.editing:
        return FILTERING
    users, jobs, processes = FleetListing.USERS, FleetListing.JOBS, FleetListing.PROCESSES
    chosen = [SELECT] if layout.entry is None else [footer_key("open")]
    without_filter = {users, FleetListing.MACHINES}
    found = [] if view.listing in without_filter else [footer_key("filter")]
    return (
        *ALWAYS,
        *chosen,
        *found,
        footer_key("users", on=view.listing is users),
        footer_key("jobs", on=view.listing is jobs),
        footer_key("change_side", label="processes", on=view.listing is processes),
        *(_FIRST if view.listing is FleetListing.HOSTS else ()),
        SORT,
        footer_key("theme"),
        COMMANDS,
    )
