"""Schedulers of a machine, and their programs, take bounded time and memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpumon.allocations import Allocations, local_allocations
from gpumon.allocations.programs import Printed, printed_by
from gpumon.allocations.slurm import scontrol
from gpumon.model.allocations import Allocation
from gpumon.model.snapshot import Snapshot
from tests.build import gpu, snapshot
from tests.clock import HandClock
from tests.command import write_program


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of ``scontrol``, the first on the path."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "scontrol"


def write(program: Path, script: str) -> None:
    write_program(program, f"#!/bin/sh\n{script}\n")


def test_what_it_prints_is_returned_with_its_exit_status(program: Path) -> None:
    write(program, 'echo "$1 $SLURM_TIME_FORMAT $LC_ALL"; echo wrong >&2; exit 3')
    printed = scontrol(("show",), 5.0)
    assert printed == Printed(b"show standard C\n", b"wrong\n", 3)


@pytest.mark.parametrize(
    "script",
    [
        "sleep 60",
        # It has closed its output, and does not end.
        "exec >/dev/null 2>&1; sleep 60",
        # What it started has its output.
        "sleep 60 & exit 0",
        "trap '' TERM; while :; do echo no >&2; done",
    ],
)
def test_one_that_hangs_is_killed_in_time(program: Path, script: str) -> None:
    write(program, script)
    began = time.monotonic()
    assert printed_by(("scontrol",), patience=0.5) is None
    assert time.monotonic() - began < 5


def test_one_that_prints_without_end_is_killed_early(program: Path) -> None:
    write(program, "exec cat /dev/zero")
    began = time.monotonic()
    assert printed_by(("scontrol",), patience=20.0) is None
    assert time.monotonic() - began < 10


def test_one_that_does_not_start_prints_nothing(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(program.parent))
    write_program(program, "#!/no/such/program\n")
    assert printed_by(("scontrol",), 5.0) is None


def test_without_a_scheduler_none_is_asked(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(program.parent))
    assert local_allocations() is None
    write(program, "exit 1")
    assert local_allocations() is not None


SEEN = snapshot(0.0, gpu())


class FakeScheduler:
    """Has one job, answers after some looks, each of which takes a second."""

    def __init__(self, name: str, clock: HandClock, looks: int, pause: float) -> None:
        self.name, self.clock, self.looks, self.pause = name, clock, looks, pause
        self.patience: list[float] = []

    def find(self, snapshot: Snapshot, patience: float) -> tuple[tuple[Allocation, ...], float]:
        assert snapshot is SEEN
        self.patience.append(patience)
        self.clock.now += 1.0
        self.looks -= 1
        if self.looks > 0:
            return (Allocation(self.name, unplaced=None),), 0.0
        return (Allocation(self.name, "7"),), self.pause


def test_what_all_of_them_have_given_away_counts() -> None:
    clock = HandClock(0.0)
    slow, fast = FakeScheduler("slow", clock, 3, 60.0), FakeScheduler("fast", clock, 1, 5.0)
    allocations = Allocations({"slow": lambda: slow, "fast": lambda: fast}, clock)
    unknown = Allocation("slow", unplaced=None)
    assert allocations.unknown == (unknown, Allocation("fast", unplaced=None))
    assert allocations.find(SEEN) == ((unknown, Allocation("fast", "7")), 0.0)
    assert allocations.settle(SEEN, 10.0) == (Allocation("slow", "7"), Allocation("fast", "7"))
    assert allocations.find(SEEN)[1] == 5.0


@pytest.mark.parametrize(("seconds", "patience"), [(2.5, [2.5, 1.5, 1.0]), (0.0, [1.0])])
def test_waiting_for_them_ends(seconds: float, patience: list[float]) -> None:
    clock = HandClock(0.0)
    slow = FakeScheduler("slow", clock, 99, 5.0)
    found = Allocations({"slow": lambda: slow}, clock).settle(SEEN, seconds)
    assert found == (Allocation("slow", unplaced=None),)
    assert slow.patience == patience
