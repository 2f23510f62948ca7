"""The progress of ending processes, in sentences."""

from __future__ import annotations

import re
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gpumon.host.refusals import signal_name
from gpumon.kill.outcome import TOLERANCE, Outcome
from gpumon.text.formatting import duration, gib, gibibytes, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.kill.outcome import MemoryReclaimed, TargetOutcome, TerminationReport
    from gpumon.model.processes import ProcessId, UnlistedHolder

_Reason: TypeAlias = tuple[str, ...]
"""A sentence, split at the PID of its process."""

_OVER = (Outcome.ENDED, Outcome.GONE)


class Success(Enum):
    """Whether all went well."""

    PENDING = "pending"
    FULL = "full"
    PARTIAL = "partial"


class ReportText(NamedTuple):
    """A report in sentences, safe to print.

    Attributes:
        success: Whether all went well.
        summary: How many have ended, and what memory came back.
        processes: A sentence for each process with a problem, or for several with the same one.
        notes: Memory that did not come back, and what the audit log lacks.
    """

    success: Success
    summary: str
    processes: tuple[str, ...]
    notes: tuple[str, ...]


def report_text(report: TerminationReport, kill_hint: str) -> ReportText:
    """The sentences of a report.

    Args:
        report: The report.
        kill_hint: How to send KILL to the processes that do not end.
    """
    success, summary, notes = _summary(report, kill_hint)
    if report.name:
        summary = f"{report.name}: {summary}"
    if report.unlogged:
        notes = [*notes, report.unlogged]
    return ReportText(success, summary, tuple(_process_lines(report.outcomes)), tuple(notes))


def _summary(report: TerminationReport, kill_hint: str) -> tuple[Success, str, list[str]]:
    """The success, the summary, and further notes."""
    stays = [line for gpu in report.memory for line in _missing(gpu)]
    sent = [one for one in report.outcomes if one.outcome is not Outcome.REFUSED]
    over = [one for one in sent if one.outcome in _OVER]
    unknown = [one for one in sent if one.outcome is Outcome.UNKNOWN]
    name = signal_name(report.signal)
    if not sent:
        return Success.PARTIAL, f"{name} was not sent", stays
    count = f"{len(over)} of {len(sent)} ended"
    if unknown:
        count = f"{count}, {len(unknown)} unknown"
    if len(over) + len(unknown) < len(sent):
        parts = [f"{name} sent {duration(report.seconds)} ago", count]
        if report.offers_kill:
            parts.append(kill_hint if name != "KILL" else "KILL is pending")
        return Success.PENDING, " · ".join(parts), stays
    text = ", ".join([count, *filter(None, map(_came_back, report.memory))])
    if any(not gpu.settled for gpu in report.memory):
        return Success.PENDING, text, stays
    if stays:
        return Success.PARTIAL, f"{text}, but {stays[0]}", stays[1:]
    if unknown or any(gpu.returned is None for gpu in report.memory):
        return Success.PARTIAL, text, []
    return Success.FULL, text, []


def _came_back(gpu: MemoryReclaimed) -> str:
    """``73.8 GiB came back on GPU 5``; empty if none did."""
    on_gpu = f"on GPU {gpu.gpu_index}"
    if gpu.returned is None or gpu.now is None:
        return f"whether memory came back {on_gpu} is not known{'' if gpu.settled else ' yet'}"
    if not gpu.settled:
        size = gibibytes(max(0, gpu.returned))
        return f"{size} of {gibibytes(gpu.expected)} {gib()} back {on_gpu} so far"
    if gpu.others is None:
        change = gpu.before - gpu.now
        return (
            f"GPU {gpu.gpu_index} has {gibibytes(abs(change))} {gib()} "
            f"{'less' if change >= 0 else 'more'} in use (what others did there is not known)"
        )
    if gpu.short and gpu.returned <= TOLERANCE:
        return ""
    if gpu.returned < 0:
        return f"GPU {gpu.gpu_index} has {gibibytes(-gpu.returned)} {gib()} more in use"
    return f"{gibibytes(gpu.returned)} {gib()} came back {on_gpu}{_others(gpu)}"


def _others(gpu: MemoryReclaimed) -> str:
    """What other processes did meanwhile, which explains a different total."""
    if gpu.others is None or abs(gpu.others) <= TOLERANCE:
        return ""
    did = "took" if gpu.others > 0 else "gave back"
    return f" (others {did} {gibibytes(abs(gpu.others))} {gib()} meanwhile)"


def _process_lines(outcomes: Sequence[TargetOutcome]) -> list[str]:
    """The lines on single processes; processes with the same problem share a line."""
    zombies = Counter(_parent_not_waiting(outcome) for outcome in outcomes)
    refused: dict[_Reason, list[str]] = {}
    for outcome in outcomes:
        if (reason := _refusal_reason(outcome)) is not None:
            refused.setdefault(reason, []).append(str(outcome.target.id.pid))
    lines: list[str] = []
    for outcome in outcomes:
        parent = _parent_not_waiting(outcome)
        reason = _refusal_reason(outcome)
        line = _problem(outcome) if reason is None else _refusal(reason, refused[reason])
        if parent is not None and outcome.status is not None and zombies[parent] > 1:
            line = (
                f"{zombies[parent]} have ended; their parent {parent.pid} "
                f"({printable(outcome.status.parent_name or '')}) has not taken notice yet"
            )
        if line and line not in lines:
            lines.append(line)
    return lines


def _refusal_reason(outcome: TargetOutcome) -> _Reason | None:
    """Why it was refused or is unknown, without the PID; ``None`` if it is neither."""
    if outcome.outcome not in {Outcome.REFUSED, Outcome.UNKNOWN}:
        return None
    return tuple(re.split(rf"\b{outcome.target.id.pid}\b", _problem(outcome)))


def _refusal(reason: _Reason, pids: Sequence[str]) -> str:
    """The line on all processes that were refused for one reason: ``5 are chen's, not yours``."""
    first, *further = reason
    if len(pids) == 1 or first or not further:
        return pids[0].join(reason)
    words = [str(len(pids)), *further[:1]]
    if words[1].startswith(" is "):
        words[1] = words[1].replace(" is ", " are ", 1)
    return " ".join(pids).join(["".join(words), *further[1:]])


def _parent_not_waiting(outcome: TargetOutcome) -> ProcessId | None:
    """The parent that has not called ``wait`` for an ended process."""
    if outcome.outcome is not Outcome.ENDED or not outcome.sentence or outcome.status is None:
        return None
    return outcome.status.parent


def _problem(outcome: TargetOutcome) -> str:
    """A sentence on one process; may be empty."""
    if outcome.sentence:
        return outcome.sentence
    if outcome.outcome is Outcome.REFUSED:
        return f"{outcome.target.id.pid}: no signal was sent"
    return ""


def _missing(gpu: MemoryReclaimed) -> list[str]:
    """The memory that did not come back, and the reason."""
    if not gpu.settled or not gpu.short:
        return []
    stay = f"{gibibytes(gpu.missing)} {gib()} stay on GPU {gpu.gpu_index}"
    if gpu.listed:
        return [f"{stay}: {_still_listed(gpu.listed)}"]
    if not gpu.remaining:
        return [f"{stay}: no process was found that holds them"]
    return [f"{stay}: {_holder(suspect)}" for suspect in gpu.remaining]


_NAMED = 3
"""The maximum number of PIDs in a sentence."""


def _still_listed(pids: Sequence[int]) -> str:
    """The processes that the driver still lists although they have ended."""
    names = [*map(str, pids[:_NAMED])]
    if len(pids) > _NAMED:
        names.append(f"{len(pids) - _NAMED} more")
    *first, last = names
    named = f"{', '.join(first)} and {last}" if first else last
    return f"the driver still lists {named}, which {'has' if len(pids) == 1 else 'have'} ended"


def _holder(suspect: UnlistedHolder) -> str:
    name, user = printable(suspect.name or "unknown"), printable(suspect.user or "unknown")
    return f"{suspect.id.pid} ({name} of {user}) still holds the GPU; {printable(suspect.sentence)}"
