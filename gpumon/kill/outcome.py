"""What became of the terminated processes and their memory, as data and in sentences."""

from __future__ import annotations

import re
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec import Struct

from gpumon.host.process_host import ProcessStatus, Refusal, Target  # noqa: TC001 - msgspec resolves them
from gpumon.host.refusals import signal_name
from gpumon.model.processes import UnlistedHolder  # noqa: TC001 - msgspec resolves annotations at run time
from gpumon.text.formatting import duration, gib, gibibytes, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.processes import ProcessId

PATIENCE = 5.0
"""Seconds after a signal until SIGKILL is offered."""

TOLERANCE = 64 * 2**20
"""Missing bytes that are tolerated without a search for their holder. Libraries of other processes
allocate this much at any time (cuBLAS: a workspace of 32 MiB on Hopper), and their process list is
not read at the same time as the GPU's memory."""


class Outcome(str, Enum):
    """The outcome for a process."""

    WAITING = "waiting"
    """The signal was sent and it has not ended yet."""
    ENDED = "ended"
    GONE = "already gone"
    """It had ended before the signal was sent."""
    REFUSED = "refused"
    """No signal was sent; ``TargetOutcome.refusal`` says why."""
    UNKNOWN = "unknown"
    """It got a signal, or may have got one, and its machine cannot be asked any more."""


class TargetOutcome(Struct, frozen=True):
    """The outcome for one process, with details."""

    target: Target
    outcome: Outcome
    late: bool = False  # found only during the session: a child forked meanwhile
    signal: int | None = None  # the last that was sent
    refusal: Refusal | None = None  # why no signal was sent
    # More for the user than the outcome says: its owner, what it waits for, who has to reap it.
    sentence: str = ""
    status: ProcessStatus | None = None  # while it has not exited
    seconds: float | None = None  # from the first signal to its exit


class MemoryReclaimed(Struct, frozen=True):
    """The memory of one GPU since the first signal, in bytes."""

    gpu_uuid: str
    gpu_index: int
    expected: int | None  # held by the targets there; ``None`` if unknown
    before: int  # in use when the first signal was sent
    now: int | None  # in use now; ``None`` while the GPU does not report it
    # Allocated by other processes on the GPU meanwhile, by the driver's list; negative if freed.
    others: int | None = None
    # Unlisted processes that have the device file open, relatives of the targets first; scanned for
    # if memory is missing. Without monitors and children of processes that continue.
    remaining: tuple[UnlistedHolder, ...] = ()
    # ``now`` is not expected to change any more: two equal values, complete, or waited long enough.
    # A GPU with missing memory is still observed.
    settled: bool = False
    listed: tuple[int, ...] = ()  # PIDs of exited targets that the driver still lists there

    @property
    def returned(self) -> int | None:
        """Bytes reclaimed, whatever others did; negative if they allocated more unobserved."""
        return None if self.now is None else self.before - self.now + (self.others or 0)

    @property
    def missing(self) -> int | None:
        """Bytes that should have been reclaimed and were not."""
        if self.expected is None or self.returned is None:
            return None
        return min(self.expected, max(0, self.expected - self.returned))

    @property
    def open(self) -> bool:
        """Whether a newer snapshot may change the result."""
        return not self.settled or self.short or self.now is None

    @property
    def short(self) -> bool:
        """Whether so much is missing that a process must hold it."""
        return self.missing is not None and self.missing > TOLERANCE


class TerminationReport(Struct, frozen=True):
    """The state of a termination session."""

    signal: int  # the last that was sent; 0 before the first
    seconds: float  # since that signal
    outcomes: tuple[TargetOutcome, ...]  # in the order of sending
    memory: tuple[MemoryReclaimed, ...] = ()  # by index of the GPU
    offers_kill: bool = False  # some are still alive ``PATIENCE`` seconds after the last signal
    done: bool = False  # nothing is left to wait for
    unlogged: str = ""  # why the audit log lacks sent signals
    name: str = ""  # what the targets are together, such as a job


_Reason: TypeAlias = tuple[str, ...]
"""A sentence, split at the PID of its process."""

_OVER = (Outcome.ENDED, Outcome.GONE)


class Success(Enum):
    """Whether all went well."""

    PENDING = "pending"
    FULL = "full"
    PARTIAL = "partial"


class ReportText(NamedTuple):
    """A report in sentences, safe to print."""

    success: Success
    summary: str  # how many have ended, and what memory came back
    processes: tuple[str, ...]  # for each process with a problem, or several with the same problem
    notes: tuple[str, ...]  # memory that did not come back, and what the audit log lacks


def report_text(report: TerminationReport, kill_hint: str) -> ReportText:
    """The sentences of a report; ``kill_hint`` says how to send KILL to those that do not end."""
    success, summary, notes = _summary(report, kill_hint)
    if report.name:
        summary = f"{report.name}: {summary}"
    if report.unlogged:
        notes = [*notes, report.unlogged]
    return ReportText(success, summary, tuple(_process_lines(report.outcomes)), tuple(notes))


def _summary(report: TerminationReport, kill_hint: str) -> tuple[Success, str, list[str]]:
    """The success, the summary, and further notes."""
    stays = [line for gpu in report.memory for line in _missing(gpu)]
    sent = [each for each in report.outcomes if each.outcome is not Outcome.REFUSED]
    over = [each for each in sent if each.outcome in _OVER]
    unknown = [each for each in sent if each.outcome is Outcome.UNKNOWN]
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
            f"{'less' if change >= 0 else 'more'} in use (the share of other processes is not "
            "known)"
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
        line = _problem(outcome)
        if reason is not None and len(pids := refused[reason]) > 1 and _begins_with_pid(reason):
            line = _refusal(reason, pids)
        if parent is not None and outcome.status is not None and zombies[parent] > 1:
            line = (
                f"{zombies[parent]} have ended; their parent {parent.pid} "
                f"({printable(outcome.status.parent_name or '')}) has not reaped them yet"
            )
        if line and line not in lines:
            lines.append(line)
    return lines


def _refusal_reason(outcome: TargetOutcome) -> _Reason | None:
    """Why it was refused or is unknown, without the PID; ``None`` if it is neither."""
    if outcome.outcome not in {Outcome.REFUSED, Outcome.UNKNOWN}:
        return None
    return tuple(re.split(rf"\b{outcome.target.id.pid}\b", _problem(outcome)))


def _begins_with_pid(reason: _Reason) -> bool:
    return len(reason) > 1 and not reason[0]


def _refusal(reason: _Reason, pids: Sequence[str]) -> str:
    """The line on all processes that were refused for one reason: ``5 are chen's, not yours``."""
    _, second, *further = reason
    if second.startswith(" is "):
        second = second.replace(" is ", " are ", 1)
    return " ".join(pids).join([f"{len(pids)}{second}", *further])


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
