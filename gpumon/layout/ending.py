"""How the ending of processes stands, in lines for a person."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gpumon.ending import TOLERANCE, Outcome
from gpumon.host.signals import signal_name
from gpumon.layout.cells import Row, fill
from gpumon.layout.key_names import keycap
from gpumon.layout.pages import wrap
from gpumon.text import duration, gib, gibibytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.ending import Fate, Report, Return
    from gpumon.model import ProcessId, Suspect

_Line = tuple[str, str, str]
"""A sign, words, and the style of the sign."""

_Reason: TypeAlias = tuple[str, ...]
"""What a sentence says around the number of its process."""

_SIGN = 4
"""Cells of a line's sign, with the blanks around it."""
_OVER = (Outcome.ENDED, Outcome.GONE)


class _Told(NamedTuple):
    """What there is to say of a case."""

    sum: _Line
    fates: list[_Line]
    cards: list[_Line]

    @property
    def least(self) -> int:
        """Lines without which what matters would be missing."""
        return 1 + bool(self.fates) + len(self.cards)

    def lines(self, room: int) -> list[_Line]:
        """All of it, or with fewer processes where there is no room for each."""
        for_fates = max(1, room - 1 - len(self.cards))
        fates = self.fates
        if len(fates) > for_fates:
            fates = fates[: for_fates - 1]
            fates.append((" ", f"and {len(self.fates) - len(fates)} more", ""))
        return [self.sum, *fates, *self.cards]


def report_rows(reports: Sequence[Report], width: int, room: int) -> list[Row]:
    """How the cases stand, the newest last.

    Each has a line in sum, and one for each process and card that needs a word. Where there is no
    room for all, single processes go first, those of the oldest case before others', and then the
    oldest cases.

    Args:
        reports: Those of the cases, the oldest first.
        width: Cells.
        room: Rows at most.
    """
    told = [_told(report) for report in reports]
    lines: list[_Line] = []
    while told:
        newest = told.pop()
        left = room - len(lines)
        lines[:0] = newest.lines(left - sum(older.least for older in told))[: max(0, left)]
    return _whole(lines, width, room - len(lines))


def _whole(lines: Sequence[_Line], width: int, spare: int) -> list[Row]:
    """The lines, those that are too long going on in the spare ones, the first of them first."""
    rows: list[Row] = []
    for sign, text, style in lines:
        parts = wrap(text, max(1, width - _SIGN), most=1 + max(0, spare))
        spare -= len(parts) - 1
        signs = (sign, *" " * (len(parts) - 1))
        rows += [
            fill([(f" {one}  ", style), (part, "")], width)
            for one, part in zip(signs, parts, strict=True)
        ]
    return rows


def _told(report: Report) -> _Told:
    total, notes = _sum(report)
    fates = [("!", line, "state.warning") for line in _fate_lines(report.fates)]
    if report.unlogged:
        notes.append(report.unlogged)
    return _Told(total, fates, [("!", note, "state.warning") for note in notes])


def sum_sentence(report: Report) -> str:
    """How a case stands, in a sentence."""
    return _sum(report)[0][1]


def _sum(report: Report) -> tuple[_Line, list[str]]:
    """The line that says it all, and what it has no room for."""
    stays = [line for card in report.returns for line in _missing(card)]
    sent = [fate for fate in report.fates if fate.outcome is not Outcome.REFUSED]
    over = [fate for fate in sent if fate.outcome in _OVER]
    name = signal_name(report.signal)
    if not sent:
        return ("!", f"{name} was not sent", "state.warning"), stays
    count = f"{len(over)} of {len(sent)} ended"
    if len(over) < len(sent):
        parts = [f"{name} sent {duration(report.seconds)} ago", count]
        if report.offers_kill:
            parts.append(
                f"{keycap('k')}: send KILL to the rest" if name != "KILL" else "KILL is pending"
            )
        return ("…", " · ".join(parts), "state.note"), stays
    text = ", ".join([count, *filter(None, map(_came_back, report.returns))])
    if any(not card.settled for card in report.returns):
        return ("…", text, "state.note"), stays
    if stays:
        return ("!", f"{text}, but {stays[0]}", "state.warning"), stays[1:]
    if any(card.returned is None for card in report.returns):
        return ("!", text, "state.warning"), []
    return ("✓", text, "state.good"), []


def _came_back(card: Return) -> str:
    """``73.8 GiB came back on GPU 5``; nothing where all of it stays."""
    on_card = f"on GPU {card.gpu_index}"
    if card.returned is None or card.now is None:
        return f"whether memory came back {on_card} is not known{'' if card.settled else ' yet'}"
    if not card.settled:
        size = gibibytes(max(0, card.returned))
        return f"{size} of {gibibytes(card.expected)} {gib()} back {on_card} so far"
    if card.others is None:
        change = card.before - card.now
        return (
            f"GPU {card.gpu_index} has {gibibytes(abs(change))} {gib()} "
            f"{'less' if change >= 0 else 'more'} in use (what others did there is not known)"
        )
    if card.short and card.returned <= TOLERANCE:
        return ""
    if card.returned < 0:
        return f"GPU {card.gpu_index} has {gibibytes(-card.returned)} {gib()} more in use"
    return f"{gibibytes(card.returned)} {gib()} came back {on_card}{_others(card)}"


def _others(card: Return) -> str:
    """What others did on the card meanwhile, which is why its sum is another."""
    if card.others is None or abs(card.others) <= TOLERANCE:
        return ""
    did = "took" if card.others > 0 else "gave back"
    return f" (others {did} {gibibytes(abs(card.others))} {gib()} meanwhile)"


def _fate_lines(fates: Sequence[Fate]) -> list[str]:
    """A line for each process of which there is something to say, one for those of a parent."""
    careless = Counter(_careless(fate) for fate in fates)
    alike: dict[_Reason, list[str]] = {}
    for fate in fates:
        if (reason := _reason(fate)) is not None:
            alike.setdefault(reason, []).append(str(fate.target.id.pid))
    lines: list[str] = []
    for fate in fates:
        parent = _careless(fate)
        reason = _reason(fate)
        line = _of(fate) if reason is None else _refusal(reason, alike[reason])
        if parent is not None and fate.standing is not None and careless[parent] > 1:
            line = (
                f"{careless[parent]} have ended; their parent {parent.pid} "
                f"({fate.standing.parent_name}) has not taken notice yet"
            )
        if line and line not in lines:
            lines.append(line)
    return lines


def _reason(fate: Fate) -> _Reason | None:
    """Why it was sent nothing, without its number; ``None`` where it was sent something."""
    if fate.outcome is not Outcome.REFUSED:
        return None
    return tuple(re.split(rf"\b{fate.target.id.pid}\b", _of(fate)))


def _refusal(reason: _Reason, pids: Sequence[str]) -> str:
    """What is to be said of all that were refused for a reason: ``5 are chen's, not yours``."""
    first, *further = reason
    if len(pids) == 1 or first or not further:
        return pids[0].join(reason)
    words = [str(len(pids)), *further[:1]]
    if words[1].startswith(" is "):
        words[1] = words[1].replace(" is ", " are ", 1)
    return " ".join(pids).join(["".join(words), *further[1:]])


def _careless(fate: Fate) -> ProcessId | None:
    """The parent that takes no notice of its end."""
    if fate.outcome is not Outcome.ENDED or not fate.sentence or fate.standing is None:
        return None
    return fate.standing.parent


def _of(fate: Fate) -> str:
    """What is to be said of one process beyond the count, or nothing."""
    if fate.sentence:
        return fate.sentence
    if fate.outcome is Outcome.REFUSED:
        return f"{fate.target.id.pid}: no signal was sent"
    return ""


def _missing(card: Return) -> list[str]:
    """What did not come back, and why."""
    if not card.settled or not card.short:
        return []
    stay = f"{gibibytes(card.missing)} {gib()} stay on GPU {card.gpu_index}"
    if card.listed:
        return [f"{stay}: {_still_listed(card.listed)}"]
    if not card.remaining:
        return [f"{stay}: no process was found that holds them"]
    return [f"{stay}: {_who(suspect)}" for suspect in card.remaining]


_NAMED = 3
"""How many processes are named by their numbers in a sentence."""


def _still_listed(pids: Sequence[int]) -> str:
    """Whom the driver lists though gpumon saw their end."""
    names = [*map(str, pids[:_NAMED])]
    if len(pids) > _NAMED:
        names.append(f"{len(pids) - _NAMED} more")
    *first, last = names
    named = f"{', '.join(first)} and {last}" if first else last
    return f"the driver still lists {named}, which {'has' if len(pids) == 1 else 'have'} ended"


def _who(suspect: Suspect) -> str:
    who = f"{suspect.id.pid} ({suspect.name or 'unknown'} of {suspect.user or 'unknown'})"
    return f"{who} still holds the card; {suspect.sentence}"
