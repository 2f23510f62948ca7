"""What must be known to read the figures of a report, in sentences."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from gpumon.findings.errors import XID_MEANINGS
from gpumon.report.figures import Report, energy_source, share
from gpumon.report.words import KNOWN, PARTLY, card_name, energy_unit, length
from gpumon.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.report.reading import Log
    from gpumon.report.sums import Sums


_MOST_DAMAGED = 8
"""Files whose damage is told one by one."""


def damage_notes(logs: Sequence[Log]) -> list[str]:
    """What could not be read of logs, in sentences for a person."""
    found = []
    for log in logs:
        for path, damage in log.damage.items():
            if damage.lines:
                lines = counted(damage.lines, "damaged line")
                first = "" if damage.lines == 1 else "the first is "
                found.append(
                    f"{path} has {lines}, {first}line {damage.first}; what cannot be read there"
                    " counts as unknown."
                )
    more = len(found) - _MOST_DAMAGED
    if more > 0:
        found[_MOST_DAMAGED:] = [f"{counted(more, 'more file')} of these logs have damaged lines."]
    return [printable(sentence) for sentence in found]


def notes(report: Report, told_nothing: Sequence[str]) -> list[str]:
    """The sentences for below a table.

    Args:
        report: What they are of.
        told_nothing: The logs without processes, where these were asked for.
    """
    if report.cards.seconds:
        found = [*_coverage(report), *_sources(report), *_health(report)]
    else:
        found = ["There is a single sample of each card, so that nothing is known over time."]
    if told_nothing:
        found.insert(
            0, f"{', '.join(told_nothing)}: lists no processes, so nobody has a part in it."
        )
    return [printable(sentence) for sentence in found]


def _coverage(report: Report) -> list[str]:
    found = []
    if report.gaps:
        gaps = "a gap" if report.gaps == 1 else f"{report.gaps} gaps"
        found.append(
            f"The samples have {gaps}, at most {length(report.missing)} of a card; what is missing "
            "counts for nothing."
        )
    if any(_is_partly_known(sums) for sums in (report.total, *(one.sums for one in report.lines))):
        found.append(f"{PARTLY} is known for a part of the time only; --format json says which.")
    return found


def _is_partly_known(sums: Sums) -> bool:
    energy = sums.energy
    parts = (
        share(sums.utilization.seconds, sums.seconds),
        share(sums.memory.seconds, sums.present),
        share(sums.listed, sums.seconds),
        share(sums.idle_known, sums.seconds),
        share(energy.counted + energy.integrated, sums.seconds),
        share(sums.slowed.known, sums.seconds),
    )
    return any(part is not None and 0 < part < KNOWN for part in parts)


def _sources(report: Report) -> list[str]:
    found = []
    unit = energy_unit(report)
    if report.by != "gpu":
        used = f" {unit.told(report.alone)} {unit.name} more went to cards that nobody was on."
        found.append(
            f"{unit.name} is an estimate: what a card used is split among the processes on it by "
            f"their SM share.{used if report.alone else ''}"
        )
    elif not report.cards.listed and report.lines:
        found.append(
            "No processes were logged: GPU-hours are not known, and IDLE is a card that does "
            "nothing while more memory is in use than an unused card needs."
        )
    if energy_source(report.cards) == "power":
        found.append(
            f"The log has no energy counter: {unit.name} is the power draw added up over time."
        )
    return found


def _health(report: Report) -> list[str]:
    faults, slowed = report.cards.faults, report.cards.slowed
    found = []
    if not slowed.known:
        found.append("Whether cards were slowed down is not in the log.")
    elif not (slowed.heat or slowed.brake or slowed.hardware):
        found.append("No card was slowed down by heat or power brake.")
    if not faults.watched:
        found.append("XIDs and lost cards are not in the log.")
    elif not (faults.xids or faults.ecc or faults.lost):
        found.append("No card reported an error.")
    if report.by == "gpu":
        found += _troubles(report)
    found += [
        f"XID {number}: {XID_MEANINGS[number]}."
        for number in sorted(faults.xids)
        if number in XID_MEANINGS
    ]
    return found


def _troubles(report: Report) -> list[str]:
    """What is wrong with which card, also where its column found no room."""
    several = len({line.host for line in report.lines}) > 1
    found: list[str] = []
    for what, value in _TROUBLES:
        where = [
            f"GPU {card_name(line)}{f' of {line.host}' if several else ''} for {length(seconds)}"
            for line in report.lines
            if (seconds := value(line.sums))
        ]
        if where:
            found.append(f"{what}: {', '.join(where)}.")
    return found


_TROUBLES: tuple[tuple[str, Callable[[Sums], float]], ...] = (
    ("Slowed down by heat", lambda sums: sums.slowed.heat),
    ("Slowed down by power brake", lambda sums: sums.slowed.brake),
    ("Slowed down by the hardware, which did not say why", lambda sums: sums.slowed.hardware),
    ("Lost, or in need of a reset", lambda sums: sums.faults.lost),
)


def wrapped(sentences: Sequence[str], width: int) -> str:
    """Sentences below a table, each on lines of its own."""
    return "".join(
        f"{line}\n"
        for sentence in sentences
        for line in textwrap.wrap(sentence, max(20, width), subsequent_indent="  ")
    )
