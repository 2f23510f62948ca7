"""What became of processes and memory, in a sentence."""

from __future__ import annotations

import signal

import pytest
from msgspec.structs import replace

from gpumon.host.process_host import ProcessStatus, Refusal, Target
from gpumon.kill.outcome import (
    TOLERANCE,
    MemoryReclaimed,
    Outcome,
    Success,
    TargetOutcome,
    TerminationReport,
    report_text,
)
from gpumon.model.processes import HoldReason, ProcessId, UnlistedHolder
from tests.build import GIB

HINT = "KILL ends them"
BACK = MemoryReclaimed("GPU-0", 5, 30 * GIB, 40 * GIB, 10 * GIB, 0, settled=True)
HOLDER = UnlistedHolder(ProcessId(9, 7), ("GPU-0",), HoldReason.ORPHAN, "its parent ended", "py")
HOLDS = "9 (unknown of py) still holds the GPU; its parent ended"
DID = "1 of 1 ended, "
CAME = f"{DID}30.0 GiB came back on GPU 5"


def target(pid: int) -> Target:
    return Target(ProcessId(pid, 7), 1001)


def ended(*memory: MemoryReclaimed, **changes: object) -> TerminationReport:
    outcomes = (TargetOutcome(target(1), Outcome.ENDED, signal=15),)
    values = {"outcomes": outcomes, "memory": memory, **changes}
    return TerminationReport(signal.SIGTERM, 6.0, **values)  # type: ignore[arg-type]  # keywords pass through


def of(*outcomes: Outcome, **changes: object) -> TerminationReport:
    each = tuple(TargetOutcome(target(pid), outcome) for pid, outcome in enumerate(outcomes, 1))
    return ended(**{"outcomes": each, **changes})


@pytest.mark.parametrize(
    ("report", "success", "summary"),
    [
        (ended(), Success.FULL, "1 of 1 ended"),
        (ended(name="job 5"), Success.FULL, "job 5: 1 of 1 ended"),
        (ended(BACK), Success.FULL, CAME),
        (ended(BACK, replace(BACK, gpu_index=6)), Success.FULL, f"{CAME}, {CAME[len(DID) : -1]}6"),
        (
            ended(replace(BACK, settled=False, now=33 * GIB)),
            Success.PENDING,
            f"{DID}7.0 of 30.0 GiB back on GPU 5 so far",
        ),
        (
            ended(replace(BACK, settled=False, now=50 * GIB)),
            Success.PENDING,
            f"{DID}0.0 of 30.0 GiB back on GPU 5 so far",
        ),
        (
            ended(replace(BACK, now=None)),
            Success.PARTIAL,
            f"{DID}whether memory came back on GPU 5 is not known",
        ),
        (
            ended(replace(BACK, now=None, settled=False)),
            Success.PENDING,
            f"{DID}whether memory came back on GPU 5 is not known yet",
        ),
        (
            ended(replace(BACK, others=None)),
            Success.FULL,
            f"{DID}GPU 5 has 30.0 GiB less in use (the share of other processes is not known)",
        ),
        (
            ended(replace(BACK, expected=None, now=42 * GIB, others=None)),
            Success.FULL,
            f"{DID}GPU 5 has 2.0 GiB more in use (the share of other processes is not known)",
        ),
        (
            ended(replace(BACK, expected=None, now=42 * GIB)),
            Success.FULL,
            f"{DID}GPU 5 has 2.0 GiB more in use",
        ),
        (ended(replace(BACK, now=10 * GIB + TOLERANCE, others=TOLERANCE)), Success.FULL, CAME),
        (
            ended(replace(BACK, now=11 * GIB, others=GIB)),
            Success.FULL,
            f"{CAME} (others took 1.0 GiB meanwhile)",
        ),
        (
            ended(replace(BACK, now=9 * GIB, others=-GIB)),
            Success.FULL,
            f"{CAME} (others gave back 1.0 GiB meanwhile)",
        ),
        (ended(replace(BACK, now=10 * GIB + TOLERANCE)), Success.FULL, f"{DID}29.9{CAME[18:]}"),
        (
            ended(replace(BACK, now=40 * GIB)),
            Success.PARTIAL,
            "1 of 1 ended, but 30.0 GiB stay on GPU 5: no process was found that holds them",
        ),
        (
            ended(replace(BACK, now=20 * GIB, remaining=(HOLDER,))),
            Success.PARTIAL,
            f"{DID}20.0{CAME[18:]}, but 10.0 GiB stay on GPU 5: {HOLDS}",
        ),
        (of(Outcome.REFUSED), Success.PARTIAL, "TERM was not sent"),
        (of(Outcome.REFUSED, Outcome.GONE), Success.FULL, "1 of 1 ended"),
        (of(Outcome.UNKNOWN, Outcome.ENDED), Success.PARTIAL, "1 of 2 ended, 1 unknown"),
        (of(Outcome.WAITING), Success.PENDING, "TERM sent 6s ago · 0 of 1 ended"),
        (
            of(Outcome.WAITING, Outcome.UNKNOWN, offers_kill=True),
            Success.PENDING,
            f"TERM sent 6s ago · 0 of 2 ended, 1 unknown · {HINT}",
        ),
        (
            replace(of(Outcome.WAITING, offers_kill=True), signal=signal.SIGKILL),
            Success.PENDING,
            "KILL sent 6s ago · 0 of 1 ended · KILL is pending",
        ),
    ],
)
def test_the_summary_says_who_ended_and_what_came_back(
    report: TerminationReport, success: Success, summary: str
) -> None:
    text = report_text(report, HINT)
    assert (text.success, text.summary) == (success, summary)


@pytest.mark.parametrize(
    ("pids", "named"),
    [
        ((3,), "3, which has ended"),
        ((3, 4), "3 and 4, which have ended"),
        ((3, 4, 5), "3, 4 and 5, which have ended"),
        ((3, 4, 5, 6), "3, 4, 5 and 1 more, which have ended"),
    ],
)
def test_the_ended_processes_that_the_driver_lists_are_named(
    pids: tuple[int, ...], named: str
) -> None:
    text = report_text(ended(replace(BACK, now=40 * GIB, listed=pids)), HINT)
    assert text.summary.endswith(f"stay on GPU 5: the driver still lists {named}")


def refused(pid: int, sentence: str) -> TargetOutcome:
    reason = Refusal.NOT_PERMITTED
    return TargetOutcome(target(pid), Outcome.REFUSED, refusal=reason, sentence=sentence)


def zombie(pid: int) -> TargetOutcome:
    status = ProcessStatus("Z", None, ProcessId(7, 1), "sh")
    sentence = f"{pid} has ended; its parent 7 (sh) has not reaped it yet"
    return TargetOutcome(target(pid), Outcome.ENDED, sentence=sentence, status=status)


@pytest.mark.parametrize(
    ("outcomes", "lines"),
    [
        ([refused(1, "1 is bo's: ask bo")], ["1 is bo's: ask bo"]),
        (
            [refused(1, "1 is bo's: kill 1"), refused(2, "2 is bo's: kill 2")],
            ["2 are bo's: kill 1 2"],
        ),
        (
            [refused(1, "gpumon was started from 1"), refused(2, "gpumon was started from 2")],
            ["gpumon was started from 1", "gpumon was started from 2"],
        ),
        ([refused(1, "")], ["1: no signal was sent"]),
        ([zombie(1)], ["1 has ended; its parent 7 (sh) has not reaped it yet"]),
        ([zombie(1), zombie(2)], ["2 have ended; their parent 7 (sh) has not reaped them yet"]),
    ],
)
def test_processes_with_the_same_problem_share_a_line(
    outcomes: list[TargetOutcome], lines: list[str]
) -> None:
    assert report_text(ended(outcomes=tuple(outcomes)), HINT).processes == tuple(lines)
