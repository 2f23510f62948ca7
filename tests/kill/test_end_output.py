"""What ``gpumon end`` writes, apart from the processes that it ends."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from gpumon.host.process_host import Refusal, Refused, Target
from gpumon.kill.end_output import Plan, as_json, plan_table, report_lines
from gpumon.kill.outcome import MemoryReclaimed, Outcome, TargetOutcome, TerminationReport
from gpumon.model.processes import GpuUse, ProcessId
from tests.build import GIB


def target(pid: int, *sizes: int | None) -> Target:
    """A process with so much memory on GPU 0, on GPU 1 and so on."""
    uses = tuple(
        GpuUse(f"GPU-{index}", index, memory_used=size) for index, size in enumerate(sizes)
    )
    return Target(ProcessId(pid, 7), 1001, "ann", "python", ("python", "train.py"), uses)


def plan(*targets: Target, refused: Sequence[int] = (), machine: str | None = None) -> Plan:
    obstacles = {
        each.id: Refused(Refusal.NOT_PERMITTED, f"{each.id.pid} is bo's")
        for each in targets
        if each.id.pid in refused
    }
    return Plan(signal.SIGTERM, targets, frozenset(), obstacles, machine)


@pytest.mark.parametrize(
    ("planned", "sentence"),
    [
        (plan(target(1, 2 * GIB)), "1 process, which holds 2.0 GiB on GPU 0."),
        (plan(target(1)), "1 process."),
        (
            plan(target(1, 2 * GIB), target(2, GIB, 4 * GIB)),
            "2 processes, which hold 3.0 GiB on GPU 0, 4.0 GiB on GPU 1.",
        ),
        (
            plan(target(1, 2 * GIB), target(2, 4 * GIB), refused=[2], machine="ada"),
            "1 process of 2 on ada, which holds 2.0 GiB on GPU 0.",
        ),
        (
            plan(target(1, None, GIB), target(2, GIB)),
            "2 processes, which hold an unknown amount on GPU 0, 1.0 GiB on GPU 1.",
        ),
        (
            plan(target(1, GIB), target(2, None), target(3, GIB)),
            "3 processes, which hold an unknown amount on GPU 0.",
        ),
    ],
)
def test_the_memory_that_may_come_back_is_that_of_the_processes_a_signal_would_reach(
    planned: Plan, sentence: str
) -> None:
    assert plan_table(planned, None).splitlines()[-1] == f"TERM would reach {sentence}"


@pytest.mark.parametrize(
    ("sizes", "shown"), [((GIB, GIB), "2.0"), ((GIB, None), "–"), ((0,), "0.0"), ((), "–")]
)
def test_the_memory_of_a_process_is_unknown_if_any_part_is(
    sizes: Sequence[int | None], shown: str
) -> None:
    row = plan_table(plan(target(1, *sizes)), None).splitlines()[1]
    assert row.split("  ")[-2].strip() == shown


REPORT = TerminationReport(
    signal.SIGTERM,
    6.0,
    (
        TargetOutcome(target(1), Outcome.ENDED, signal=15, seconds=1.5),
        TargetOutcome(target(2), Outcome.REFUSED, refusal=Refusal.NOT_PERMITTED, sentence="2 is b"),
        TargetOutcome(target(3), Outcome.WAITING, late=True, signal=15, sentence="3 is stopped"),
        TargetOutcome(target(31), Outcome.WAITING, signal=15),
    ),
    (MemoryReclaimed("GPU-0", 0, 5 * GIB, 9 * GIB, 6 * GIB, 0, settled=True),),
    unlogged="the log is full",
)


def test_a_program_reads_why_each_process_has_not_ended() -> None:
    read = json.loads(as_json(plan(target(1), target(2), target(3), machine="ada"), REPORT))
    keys = ("pid", "outcome", "reason", "sentence", "seconds", "child")
    assert [tuple(process[key] for key in keys) for process in read["processes"]] == [
        (1, "ended", None, None, 1.5, False),
        (2, "refused", "not_permitted", "2 is b", None, False),
        (3, "alive", None, "3 is stopped", None, True),
        (31, "alive", None, None, None, False),
    ]
    assert (read["machine"], read["dry_run"], read["log_fault"]) == (
        "ada",
        False,
        "the log is full",
    )
    assert [card["missing_bytes"] for card in read["memory"]] == [2 * GIB]


def test_a_program_reads_whom_a_dry_run_would_reach() -> None:
    read = json.loads(as_json(plan(target(1), target(2), refused=[2])))
    keys = ("outcome", "reason", "sentence")
    assert [tuple(process[key] for key in keys) for process in read["processes"]] == [
        ("would_send", None, None),
        ("refused", "not_permitted", "2 is bo's"),
    ]
    assert (read["dry_run"], read["log_fault"], read["memory"]) == (True, None, [])


def test_each_process_that_lives_on_has_a_line_and_none_has_two() -> None:
    lines = report_lines(REPORT, "KILL ends them", None).splitlines()
    assert lines[1:4] == ["2 is b", "3 is stopped", "31 has not ended"]
    assert lines[4].startswith("2.0 GiB stay on GPU 0")
    assert lines[5:] == ["the log is full"]


@pytest.mark.parametrize(("width", "wraps"), [(23, False), (24, True)])
def test_a_terminal_of_few_cells_wraps_by_itself(width: int, *, wraps: bool) -> None:
    last = plan_table(plan(target(1)), width).splitlines()[-1]
    assert (last != "TERM would reach 1 process.") is wraps


def shown(width: int | None) -> list[str]:
    """The table of a process, its child without an owner, and one of the kernel."""
    command = ("python", "train.py", "--model", "m" * 60)
    trained = replace(target(1, 2 * GIB, GIB), command=command)
    child = replace(target(20), user=None, uid=None)
    kernel = replace(target(3), id=ProcessId(3, None), command=(), name="kworker")
    planned = plan(trained, child, kernel)
    return plan_table(planned._replace(children=frozenset({child.id})), width).splitlines()


def test_the_table_has_a_line_for_each_process() -> None:
    head, trained, child, kernel, _ = shown(None)
    assert head == "PID:START  USER  GPU  GiB  COMMAND"
    assert trained.startswith("1:7        ann   0,1  3.0  python train.py --model m")
    assert child == "20:7       –     –      –  child: python train.py"
    assert kernel == "3          ann   –      –  [kworker]"


@pytest.mark.parametrize(("width", "cells"), [(None, 80), (60, 60), (20, 43)])
def test_a_command_is_as_long_as_its_line_has_room_and_never_shorter_than_16_cells(
    width: int | None, cells: int
) -> None:
    assert len(shown(width)[1]) == cells


def test_a_program_reads_that_an_owner_is_unknown() -> None:
    (process,) = json.loads(as_json(plan(replace(target(1), user=None, uid=None))))["processes"]
    assert (process["user"], process["uid"], process["gpus"]) == (None, None, [])


def test_a_name_longer_than_a_line_is_not_broken() -> None:
    held = Refused(Refusal.NOT_PERMITTED, "1 is held by a-unit-with-a-very-long-name.service")
    planned = plan(target(1))._replace(obstacles={target(1).id: held})
    assert "a-unit-with-a-very-long-name.service." in plan_table(planned, 24).splitlines()
