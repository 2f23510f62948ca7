"""The content of the help page: the state under the cursor, sections, search, and columns."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time
from itertools import chain, groupby
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.config.keymap import display
from gpumon.filters.terms import TERMS
from gpumon.findings import explain, process_findings
from gpumon.model.snapshot import GPU_METRICS
from gpumon.text.cells import row_width
from gpumon.text.formatting import cell_width
from gpumon.text.gpu_columns import GPU_COLUMNS
from gpumon.text.process_columns import PROCESS_COLUMNS
from gpumon.ui.view.gpu_line import EXPLAINED
from gpumon.ui.view.gpu_text import STATE_SIGNS, state_glyph
from gpumon.ui.view.key_names import keycap, keys_of
from gpumon.ui.view.page_layout import wrap
from gpumon.ui.view.timeline import SIGNS
from gpumon.ui.view.user_table import USER_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpumon.config.keymap import KeyAction
    from gpumon.findings import Finding
    from gpumon.model.processes import GpuProcess
    from gpumon.recording.history import History
    from gpumon.text.cells import Field, Row


_GAP = 2
"""Cells between two columns, and between a term and its meaning."""
_KEYS_WIDTH, _TEXT_WIDTH = 37, 55
"""Minimum widths of a column of keys, and of a column of other terms."""
_MOST_TERM = 20
_READING_WIDTH = 110
"""Maximum cells of a line of text that is read from left to right."""

_SIGNS = (
    ("– ·", "unknown, never zero"),
    ("≥", "at least: it began before gpumon started"),
    ("?", "a guess from the evidence, such as stuck? for a busy job that draws little power"),
    ("▸", "the line under the cursor; it stays on that process, however the list moves"),
    ("●", "tagged; ◉ tagged and under the cursor"),
    ("▼ ▲", "sorted by this column, largest or smallest first"),
    ("0,1", "a process on several GPUs is one row"),
    ("0:3", "MIG device 3 of GPU 0, numbered as gpumon select does"),
    (
        "31G unattributed",
        "memory in use, held by no process in the driver's list; then who may hold it unlisted",
    ),
    (
        "busy, by …",
        "kernels run, but the driver lists no process: it may be in another container",
    ),
    ("orphan", "a process whose parent has ended, such as a data loader that outlived its run"),
    ("grey row", "not visible here: a process of another container, or hidden in /proc"),
    ("★", "watched: you are notified when this GPU is free, or this process or job ends"),
    ("! 2 alerts", "new notifications, which you have not seen on the page of alerts"),
    ("‹", "commands are scrolled to the right; their beginning is cut off"),
    ("✓ …", "processes being ended: done; still waiting"),
    ("PAUSED", "the screen does not change; sampling continues"),
    ("DEMO", "a simulated machine"),
    ("REWIND", "the past, since gpumon was started"),
    ("HISTORY", "the past before that, from the history that gpumon log --local keeps"),
    ("REPLAY", "a log is shown, not this machine; nothing can be ended in it"),
    ("● 12 MB 5m", "a log is being written: how much, how long; in red: samples are being lost"),
    ("no answer", "how long a GPU has not answered: its values are that old"),
)


class HelpSection(Struct, frozen=True):
    """A section of the help page."""

    title: str  # Its title.
    entries: tuple[tuple[str, str], ...] = ()  # Its terms and their meanings.
    about: str = ""  # A sentence under the title.
    group: bool = False  # Whether it is a group of keys, which stands beside other groups.
    beside: bool = True  # Whether its entries stand in several columns on a wide terminal.
    further: Mapping[tuple[str, str], str] = {}  # Other words by which a search finds entries.


def key_groups(actions: Iterable[tuple[KeyAction, str]]) -> list[HelpSection]:
    """The keys in the groups of the keymap."""
    groups: dict[str, dict[tuple[str, str], str]] = {}
    for action, about in actions:
        now = keys_of(action.name)
        missing = display(key for key in action.keys if key not in now)
        changed = f" (usually {missing})" if missing else ""
        entry = (display(now), about + changed)
        groups.setdefault(action.group, {})[entry] = action.synonyms
    return [
        HelpSection(title, tuple(further), group=True, further=further)
        for title, further in groups.items()
    ]


def page_keys(name: str, actions: Iterable[tuple[KeyAction, str]]) -> list[HelpSection]:
    """The keys of a page, before those of the dashboard.

    Args:
        name: The name of the page.
        actions: Its actions with their descriptions.
    """
    further = {
        entry: words for group in key_groups(actions) for entry, words in group.further.items()
    }
    return [
        HelpSection(f"Keys on this page: {name}", tuple(further), further=further),
        HelpSection("Keys on the dashboard"),
    ]


def other_sections() -> list[HelpSection]:
    """All sections but the keys."""
    added = f"Added with {keycap('columns')}."
    return [
        HelpSection(
            "The mouse",
            about="A click on a heading sorts, a click on a row or GPU selects, a double click "
            "opens it, the wheel scrolls what is under it; a click on a word of the last line does "
            "what its key does.",
        ),
        HelpSection(
            "The filter",
            tuple((term.example, term.about) for term in TERMS),
            "Words match user, command, container and job; all words and terms must match; ! or "
            "not negates the one after it.",
        ),
        HelpSection("Signs", STATE_SIGNS + _SIGNS),
        HelpSection(f"On the timeline ({keycap('step_back', 'step_on')})", tuple(SIGNS)),
        HelpSection(
            "Memory",
            about="The sum of the processes is less than the memory used: the driver and the "
            "contexts of its clients take some.",
        ),
        HelpSection(
            "Columns of a GPU",
            (
                *EXPLAINED,
                *((column.label, f"{column.about} {added}") for column in GPU_COLUMNS),
            ),
        ),
        HelpSection(
            "Process columns", tuple((column.label, column.about) for column in PROCESS_COLUMNS)
        ),
        HelpSection(
            f"User columns ({keycap('users')})",
            tuple((column.label, column.about) for column in USER_COLUMNS),
        ),
        HelpSection("Metrics", tuple((metric.label, metric.about) for metric in GPU_METRICS)),
    ]


def find(sections: Sequence[HelpSection], search: str) -> list[HelpSection]:
    """The sections with only the entries that match; a single character is a key or a sign first.

    Args:
        sections: All sections.
        search: Words that must all be in an entry or the title of its section.
    """
    words = search.casefold().split()
    if not words:
        return list(sections)
    if len(search.strip()) == 1:
        exact = _matching(sections, lambda _, term, *__: search.strip() in term.split())
        if exact:
            return exact
    return _matching(
        sections,
        lambda title, term, about, further: all(
            word in f"{title} {term} {about} {further}".casefold() for word in words
        ),
    )


def _matching(
    sections: Sequence[HelpSection], matches: Callable[[str, str, str, str], bool]
) -> list[HelpSection]:
    found = []
    for section in sections:
        entries = tuple(
            entry
            for entry in section.entries
            if matches(section.title, *entry, section.further.get(entry, ""))
        )
        if entries or (section.about and matches(section.title, "", section.about, "")):
            found.append(replace(section, entries=entries))
    return found


def help_rows(sections: Sequence[HelpSection], width: int) -> list[Row]:
    """The sections in as many columns as the width has room for; rows may be shorter."""
    rows: list[Row] = []
    for is_group, together in groupby(sections, lambda section: section.group):
        run = list(together)
        rows += _key_rows(run, width) if is_group else []
        for section in () if is_group else run:
            room = width if section.beside else min(width, _READING_WIDTH)
            rows += [
                _title(section),
                *(((line, ""),) for line in wrap(section.about, room) if line),
            ]
            rows += [*_in_columns(section, room), ()]
    return rows


def _key_rows(groups: Sequence[HelpSection], width: int) -> list[Row]:
    """Groups beside each other: the first ones stand first in all columns."""
    count = max(1, min(width // _KEYS_WIDTH, len(groups)))
    room = (width - _GAP * (count - 1)) // count
    columns: list[list[Row]] = [[] for _ in range(count)]
    for group in groups:
        shortest = min(columns, key=len)
        shortest += [_title(group), *chain(*_entries(group.entries, room)), ()]
    return _beside(columns, room)


def _title(section: HelpSection) -> Row:
    return ((section.title, "title"),)


def _in_columns(section: HelpSection, width: int) -> list[Row]:
    """The entries of a section, one after the other down the columns."""
    most = width // _TEXT_WIDTH if section.beside else 1
    count = max(1, min(most, len(section.entries)))
    room = (width - _GAP * (count - 1)) // count
    entries = _entries(section.entries, room)
    height = sum(map(len, entries)) / count
    columns: list[list[Row]] = [[]]
    for entry in entries:
        if len(columns[-1]) >= height:
            columns.append([])
        columns[-1] += entry
    return _beside(columns, room)


def _entries(entries: Sequence[tuple[str, str]], width: int) -> list[list[Row]]:
    """The rows of each entry: its term, and its meaning beside or under it."""
    most = max((cell_width(term) for term, _ in entries), default=0)
    indent = min(most, _MOST_TERM) + _GAP
    found: list[list[Row]] = []
    for term, about in entries:
        lines = wrap(about, max(1, width - indent))
        beside = cell_width(term) <= indent - _GAP
        room = " " * (indent - cell_width(term)) + lines.pop(0) if beside else ""
        under: list[Row] = [((" " * indent + line, ""),) for line in lines]
        found.append([((term, "strong"), (room, "")), *under])
    return found


def _beside(columns: Sequence[Sequence[Row]], room: int) -> list[Row]:
    """Columns of rows beside each other."""
    rows: list[Row] = []
    for at in range(max(map(len, columns), default=0)):
        row: list[Field] = []
        for number, column in enumerate(columns):
            if at < len(column):
                start = number * (room + _GAP)
                row.append((" " * (start - row_width(row)), ""))
                row += column[at]
        rows.append(tuple(row))
    return rows


_MOST_PROCESSES = 8
"""The largest number of processes of a job that are judged: growth takes time to look for."""


def state_sections(name: str, history: History, findings: Iterable[Finding]) -> list[HelpSection]:
    """Explain findings, a section each.

    Args:
        name: What they are about, such as ``GPU 3``; safe to print.
        history: The history at the moment that is shown.
        findings: The findings.
    """
    sections = []
    for finding in findings:
        text = explain(history, finding)
        seen = " · ".join(fact for fact in text.seen if fact not in finding.sentence)
        entries = (
            ("seen", seen),
            ("since", (text.since or "").removeprefix("since ")),
            ("means", text.meaning),
            ("could be", "; ".join(text.causes)),
            ("to do", " ".join(text.advice)),
            ("source", text.source),
        )
        sections.append(
            HelpSection(
                f"{state_glyph(finding)} {name}: {finding.short}",
                tuple((term, about) for term, about in entries if about),
                finding.sentence if finding.sentence != finding.short else "",
                beside=False,
            )
        )
    return sections


def process_sections(history: History, processes: Iterable[GpuProcess]) -> list[HelpSection]:
    """Explain the findings of processes, such as those of a job: each kind once.

    Args:
        history: The history at the moment that is shown.
        processes: The processes.
    """
    kinds = set()
    sections = []
    for process in tuple(processes)[:_MOST_PROCESSES]:
        found = process_findings(history, process)
        new = [finding for finding in found if finding.kind not in kinds]
        kinds |= {finding.kind for finding in new}
        sections += state_sections(f"process {process.id.pid}", history, new)
    return sections
