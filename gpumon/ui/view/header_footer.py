"""What stands around cards and processes: header, rule, footer, the empty state, the tiny view."""

from __future__ import annotations

import textwrap
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.findings import BRIEF_CELLS
from gpumon.model.snapshot import CardStatus, Unknown
from gpumon.text.cells import Field, Row, fill, row_width
from gpumon.text.formatting import UNKNOWN, cell_width, fit, gibibytes, number, printable
from gpumon.ui.view.key_names import keycap
from gpumon.ui.view.messages import state_field
from gpumon.ui.view.processes import users_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.findings import Finding
    from gpumon.model.snapshot import Gpu, GpuProcess, Host, OwnCost, Snapshot, Trouble
    from gpumon.ui.view.key_names import FooterKey


_TINY_MEMORY = 13
_BRIEF_WIDTH = BRIEF_CELLS + 2
"""A glyph, a space and the brief words."""


class LogNote(Struct, frozen=True):
    """How a log stands that is being written.

    Attributes:
        text: How much and how long, or how much is lost, in a few words.
        trouble: Why samples are being lost, in a sentence; empty while none are.
    """

    text: str
    trouble: str = ""


class Moment(Struct, frozen=True):
    """What the header says besides the machine.

    Attributes:
        interval: Seconds between samples; ``None`` for a single one.
        age: Seconds since the newest values, when that is too long; else ``None``.
        paused: Whether the picture is held.
        cost: Own cost, when it is to be shown.
        log: How the log stands, while there is one.
        source: What to call where this is from, in place of the snapshot's own word for it.
        in_gap: Whether nobody sampled between this and the moment that is looked at.
    """

    interval: float | None = None
    age: float | None = None
    paused: bool = False
    cost: OwnCost | None = None
    log: LogNote | None = None
    source: str = ""
    in_gap: bool = False


def interval_text(interval: float) -> str:
    """An interval as it is typed: ``0.5s``, ``2s``."""
    return f"{interval:g}s"


def header_row(snapshot: Snapshot, moment: Moment, width: int) -> Row:
    """Machine on the left, time on the right; between them as much as there is room for."""
    left: list[Field] = [(" gpumon", "header.title")]
    if not snapshot.is_live:
        left.append((f"  {moment.source or snapshot.source.upper()}", "header.mark"))
    left.append((f"  {printable(snapshot.host.name)}", "header"))
    right = _right(snapshot, moment)
    room = width - _cells(left) - _cells(right)
    for fields in _middle(snapshot.host, moment.cost):
        if _cells(fields) <= room:
            left += fields
            room -= _cells(fields)
    if room < 0:
        # The time, what is wrong and that this is no real machine matter more than its name.
        left = left[:-1]
        room = width - _cells(left) - _cells(right)
    return fill([*left, (" " * max(0, room), "header"), *right], width, "header")


def _cells(fields: Sequence[Field]) -> int:
    return sum(cell_width(text) for text, _ in fields)


def _right(snapshot: Snapshot, moment: Moment) -> list[Field]:
    fields: list[Field] = []
    if moment.log is not None:
        style = "header.alarm" if moment.log.trouble else "header.mark"
        fields.append((f" ● {printable(moment.log.text)} ", style))
    if moment.paused:
        fields.append((" PAUSED ", "header.mark"))
    if moment.age is not None:
        silent = [gpu for gpu in snapshot.gpus if gpu.status is CardStatus.NO_ANSWER]
        who = f"GPU {silent[0].index}: " if len(silent) == 1 else ""
        fields.append((f" {who}no answer for {moment.age:.0f} s ", "header.alarm"))
    else:
        clock = time.strftime("%H:%M:%S", time.localtime(snapshot.time))
        told = (f" no sample since {clock} ", "header.alarm")
        fields.append(told if moment.in_gap else (f"  {clock}", "header"))
    pace = "" if moment.interval is None else f"  {interval_text(moment.interval)}"
    fields.append((f"{pace} ", "header.dim"))
    return fields


def _middle(host: Host, cost: OwnCost | None) -> list[list[Field]]:
    """Parts of the header, most wanted first; each stands or falls as a whole."""
    parts: list[list[Field]] = []
    if cost is not None:
        parts.append([("  self ", "header.dim"), (_cost_text(cost), "header")])
    parts.append(_pair("driver", host.driver_version))
    parts.append(_pair("CUDA", host.cuda_version))
    cpu = None if host.cpu_percent is None else f"{host.cpu_percent:>3.0f}%"
    parts.append(_pair("cpu", cpu))
    if host.memory_total is not None and host.memory_used is not None:
        total = gibibytes(host.memory_total, 0)
        used = f"{gibibytes(host.memory_used, 0):>{len(total)}}"
        parts.append(_pair("mem", f"{used}/{total}G"))
    if host.load is not None:
        parts.append(_pair("load", f"{host.load[0]:>5.2f}"))
    return [part for part in parts if part]


def _pair(label: str, value: str | None) -> list[Field]:
    if value is None:
        return []
    return [(f"  {label} ", "header.dim"), (printable(value), "header")]


def _cost_text(cost: OwnCost) -> str:
    """What gpumon itself takes: share of a core, and of the time inside the driver."""
    cpu = UNKNOWN if cost.cpu_percent is None else f"{cost.cpu_percent:.1f}%"
    inside = UNKNOWN if cost.driver_share is None else f"{cost.driver_share * 1000:.0f}"
    return f"{cpu} cpu, {inside} ms/s in driver"


class Scrolled(Struct, frozen=True):
    """What is out of sight.

    Attributes:
        narrowing: What the table is narrowed to, in words.
        lines: Lines of the table.
        lines_above: Of these, how many are scrolled away.
        room: Rows for them; ``None`` when there is room for all.
        cards_above: Lines of cards scrolled away.
        cards_below: Lines of cards there was no room for.
        worst: What is wrong with the worst of the cards out of sight; ``None`` is nothing.
        note: What else is to be said of the table, or nothing.
    """

    narrowing: tuple[str, ...] = ()
    lines: int = 0
    lines_above: int = 0
    room: int | None = None
    cards_above: int = 0
    cards_below: int = 0
    worst: Field | None = None
    note: str = ""


def rule_facts(snapshot: Snapshot) -> tuple[object, ...]:
    """What ``rule_row`` tells of the cards."""
    return _memory_sum(snapshot), _has_incomplete_lists(snapshot), has_no_lists(snapshot)


def rule_row(
    snapshot: Snapshot, shown: Sequence[GpuProcess], scrolled: Scrolled, width: int
) -> Row:
    """The line between cards and processes, which counts them.

    Args:
        snapshot: What is on screen.
        shown: The processes of the table, all of them.
        scrolled: What of it is out of sight.
        width: Cells.
    """
    fields: list[Field] = [("──", "rule"), *_hidden_cards(scrolled)]
    tail = _range(scrolled)
    parts = [_count(len(shown), "process")]
    if len(shown) != len(snapshot.processes):
        parts = [f"{len(shown)} of {_count(len(snapshot.processes), 'process')}"]
    incomplete = _has_incomplete_lists(snapshot)
    if has_no_lists(snapshot):
        parts = ["processes: not in this log"]
    elif incomplete:
        parts[0] += " listed, lists incomplete"
    parts += [scrolled.note] if scrolled.note else []
    narrowing = " · ".join(map(printable, scrolled.narrowing))
    if not narrowing:
        parts += [_count(users_of(shown), "user")] if shown and not incomplete else []
        parts += [_memory_sum(snapshot)]
    room = width - _cells(fields) - cell_width(tail) - 2
    said = _as_many_as_fit([part for part in parts if part], room)
    if said:
        fields.append((f" {said} ", "dim"))
    room -= cell_width(said) + 2
    if narrowing and room > 0:
        fields.append((f"· {fit(narrowing, min(room, cell_width(narrowing)))} ", "narrowing"))
    line = "─" * max(0, width - _cells(fields) - cell_width(tail))
    return fill([*fields, (line, "rule"), (tail, "dim")], width, "rule")


def _has_incomplete_lists(snapshot: Snapshot) -> bool:
    """Whether a log does not name all who were on some card, as where its list was torn.

    Of a card that does not answer nobody could have named them.
    """
    return any(
        gpu.unknown.get("processes") is Unknown.NOT_RECORDED and gpu.status is CardStatus.OK
        for gpu in snapshot.gpus
    )


def has_no_lists(snapshot: Snapshot) -> bool:
    """Whether this is of a log that lists no processes, as nvidia-smi's output does not."""
    return snapshot.processes_at is None and any(
        gpu.unknown.get("processes") is Unknown.NOT_RECORDED for gpu in snapshot.gpus
    )


def _as_many_as_fit(parts: Sequence[str], room: int) -> str:
    """Of the parts, most wanted first, those that there is room for."""
    said = ""
    for part in parts:
        longer = f"{said} · {part}" if said else part
        if cell_width(longer) <= room:
            said = longer
    return said


def _hidden_cards(scrolled: Scrolled) -> list[Field]:
    """How many lines of cards are out of sight, the keys to them, and the worst of them."""
    above, below = scrolled.cards_above, scrolled.cards_below
    if not above and not below:
        return []
    where = " ".join([f"↑{above}"] * (above > 0) + [f"↓{below}"] * (below > 0))
    cards = "card" if above + below == 1 else "cards"
    keys = keycap("cards_before", "cards_after")
    fields: list[Field] = [(f" {where} more {cards} ({keys}) ", "strong")]
    if scrolled.worst is not None:
        words, style = scrolled.worst
        fields.append((f"{words} ", style))
    return [*fields, ("──", "rule")]


def _range(scrolled: Scrolled) -> str:
    """Which of the table's lines are on screen, where not all of them are."""
    count = scrolled.lines
    if scrolled.room is None or scrolled.room >= count:
        return ""
    first = scrolled.lines_above
    return f" {first + 1}–{min(count, first + scrolled.room)} of {count} "


def _count(number: int, word: str) -> str:
    plural = "es" if word.endswith("s") else "s"
    return f"{number} {word}{'' if number == 1 else plural}"


def _memory_sum(snapshot: Snapshot) -> str:
    """Memory of all cards together, when every one of them is known."""
    if len(snapshot.gpus) < 2:
        return ""
    used = [gpu.memory_used for gpu in snapshot.gpus]
    total = [gpu.memory_total for gpu in snapshot.gpus]
    if any(size is None for size in used + total):
        return ""
    return f"{gibibytes(sum(filter(None, used)))} of {gibibytes(sum(filter(None, total)))}G used"


def footer_row(keys: Sequence[FooterKey], message: str, width: int) -> Row:
    """The keys that matter, as many as fit; a message takes their place while there is one."""
    if message:
        return fill([(" " + printable(message), "footer.message")], width, "footer")
    fields: list[Field] = []
    for one, key in _fitting(keys, width):
        fields += [(f" {key} ", "footer.key"), (f"{one.label} ", "footer")]
    return fill(fields, width, "footer")


def key_at(keys: Sequence[FooterKey], width: int, x: int) -> str | None:
    """The action whose key or word stands at a cell of the footer.

    Of two keys that share a word the one that is hit, and by the word the first.
    """
    start = 0
    for one, key in _fitting(keys, width):
        end = start + cell_width(key) + cell_width(one.label) + 3
        if start <= x < end:
            return one.names[-1] if x == start + cell_width(key) else one.names[0]
        start = end
    return None


def _fitting(keys: Sequence[FooterKey], width: int) -> list[tuple[FooterKey, str]]:
    """As many of the keys, from the first on, as there is room for, and what they are called."""
    fitting: list[tuple[FooterKey, str]] = []
    for one in keys:
        key = keycap(*one.names)
        width -= cell_width(key) + cell_width(one.label) + 3
        if width < 0:
            break
        fitting.append((one, key))
    return fitting


def empty_rows(trouble: Trouble | None, width: int, height: int) -> list[Row]:
    """What stands in place of the cards when there are none."""
    if trouble is None:
        text = [("Waiting for the driver to answer ...", "dim")]
    else:
        inside = max(10, min(72, width - 4))
        text = [(line, "state.critical") for line in textwrap.wrap(trouble.sentence, inside)]
        text.append(("", ""))
        text += [(line, "") for line in textwrap.wrap(trouble.advice, inside)]
        text += [("", ""), ("Trying again every few seconds.", "dim")]
    top = max(0, (height - len(text)) // 2)
    rows = [fill((), width) for _ in range(top)]
    for line, style in text:
        shown = printable(line)
        indent = max(0, (width - cell_width(shown)) // 2)
        rows.append(fill([(" " * indent, ""), (shown, style)], width))
    rows += [fill((), width) for _ in range(height - len(rows))]
    return rows[: max(0, height)]


def tiny_rows(
    snapshot: Snapshot | None,
    states: Mapping[str, Finding],
    moment: Moment,
    width: int,
    height: int,
    message: str = "",
) -> list[Row]:
    """For a terminal too small for the dashboard: its header and a short, honest line a card.

    A message takes the place of the last line while there is one.
    """
    if message and height > 1:
        above = tiny_rows(snapshot, states, moment, width, height - 1)
        return [*above, footer_row((), message, width)]
    if snapshot is None or not snapshot.gpus:
        trouble = None if snapshot is None else snapshot.trouble
        words = "waiting" if trouble is None else printable(trouble.sentence)
        rows = [fill([(line, "")], width) for line in textwrap.wrap(words, max(1, width))]
        return _exactly(rows, width, height)
    header = [header_row(snapshot, moment, width)] if height > 1 else []
    room = height - len(header)
    # What is wrong comes first here too: the rest may not fit.
    cards = [(states[gpu.uuid], gpu) for gpu in snapshot.gpus]
    if len(cards) > room:
        cards.sort(key=lambda pair: -pair[0].severity)
    rows = [_tiny_line(gpu, state, width) for state, gpu in cards]
    if len(rows) > room > 2:
        hidden = len(rows) - room + 1
        rows = [*rows[: room - 1], fill([(fit(f"… {hidden} more cards", width), "dim")], width)]
    return _exactly([*header, *rows], width, height)


def _tiny_line(gpu: Gpu, state: Finding, width: int) -> Row:
    fields: list[Field] = [
        (f"{gpu.index:>2} ", "strong"),
        state_field(state, _BRIEF_WIDTH, brief=True),
        (f"{number(gpu.utilization_gpu, '%'):>4} ", ""),
    ]
    room = min(_TINY_MEMORY, width - row_width(tuple(fields)))
    used, total = gpu.memory_used, gpu.memory_total
    short = UNKNOWN if used is None else f"{gibibytes(used)}G"
    whole = UNKNOWN if used is total is None else f"{gibibytes(used)}/{gibibytes(total)}G"
    # Half a number would be read as another one.
    memory = next((text for text in (whole, short) if len(text) <= room), "")
    return fill([*fields, (f"{memory:>{max(0, room)}}", "")], width)


def _exactly(rows: list[Row], width: int, height: int) -> list[Row]:
    blank = [fill((), width) for _ in range(max(0, height - len(rows)))]
    return [*rows, *blank][: max(0, height)]


def own_cost_sentence(cost: OwnCost | None) -> str:
    """What gpumon itself takes, in words."""
    if cost is None or cost.cpu_percent is None or cost.driver_share is None:
        return "gpumon is still measuring what it costs itself."
    tick = "" if cost.tick_seconds is None else f", {cost.tick_seconds * 1000:.1f} ms a sample"
    missed = f", {cost.missed_ticks} samples skipped" if cost.missed_ticks else ""
    return (
        f"gpumon itself takes {cost.cpu_percent:.1f} % of one core and spends "
        f"{cost.driver_share * 1000:.0f} ms of every second inside the driver{tick}{missed}."
    )
