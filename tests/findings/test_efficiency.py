"""Why a busy GPU is slow: each verdict comes in its time, with its evidence, and goes away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gpumon.findings import (
    Finding,
    FindingKind,
    Severity,
    Thresholds,
    conditions,
    gpu_findings,
    gpu_state,
)
from gpumon.model.processes import GpuProcess, GpuUse, ProcessId, Workload
from gpumon.model.snapshot import Gpu, Snapshot
from gpumon.recording.history import History
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.known import known

pytestmark = pytest.mark.usefixtures("utc")

EMPTY = {"utilization_gpu": 98, "sm_active": 12.0, "power_draw": 400.0}
BOUND = {"utilization_gpu": 97, "dram_active": 86.0, "tensor_active": 9.0, "power_draw": 500.0}


class Machine:
    """A history that receives a sample a second, with a list of processes in each."""

    def __init__(self) -> None:
        self.history = History(conditions())
        self.now = NOON

    def see(self, *gpus: Gpu, processes: tuple[GpuProcess, ...] = ()) -> None:
        self.history.add(snapshot(self.now, *gpus, processes=processes))
        self.now += 1

    def play(self, seconds: int, moment: Callable[[int], Snapshot | tuple[Gpu, ...]]) -> None:
        """So many seconds, each with its GPUs, or with GPUs and processes."""
        for second in range(seconds):
            seen = moment(second)
            if isinstance(seen, tuple):
                self.see(*seen, processes=(working(uses=_uses(seen[0])),))
            else:
                self.see(*seen.gpus, processes=seen.processes)

    def state(self, index: int = 0) -> Finding:
        return gpu_state(self.history, known(self.history.latest).gpus[index])

    def kinds(self, index: int = 0) -> list[FindingKind]:
        found = gpu_findings(self.history, known(self.history.latest).gpus[index])
        return [finding.kind for finding in found]


@pytest.fixture
def machine() -> Machine:
    """A machine on which a GPU was busy and well."""
    machine = Machine()
    well = {"sm_active": 50.0, "dram_active": 40.0, "tensor_active": 30.0, "power_draw": 400.0}
    machine.play(5, lambda _: (gpu(utilization_gpu=60, **well),))
    return machine


def _uses(card: Gpu) -> tuple[GpuUse, ...]:
    """All the memory in use, and some work."""
    return (GpuUse(card.uuid, card.index, memory_used=card.memory_used, sm=50),)


def working(
    *,
    pid: int = 100,
    gpus: tuple[int, ...] = (0,),
    sm: int | None = 90,
    session: int = 7,
    **changes: Any,
) -> GpuProcess:
    """A process whose place is known, of the job that its session says."""
    changes = {"place": Workload(session=session), **changes}
    return msgspec.structs.replace(process(pid, sm=sm, gpus=gpus), **changes)


# Busy but empty


def test_busy_but_empty_comes_after_five_minutes_and_goes_at_once(machine: Machine) -> None:
    machine.play(300, lambda _: (gpu(**EMPTY),))
    assert machine.state().kind is FindingKind.WORKING
    machine.play(1, lambda _: (gpu(**EMPTY),))
    found = machine.state()
    assert (found.kind, found.severity) == (FindingKind.BUSY_EMPTY, Severity.NOTE)
    assert (found.since, found.short) == (NOON + 5, "busy but empty, SMs 12%, 5m")
    assert "probably" in found.sentence
    assert found.evidence[0] == "utilisation 98 %, SMs active 12 %"
    machine.play(6, lambda _: (gpu(**{**EMPTY, "sm_active": 70.0}),))
    assert machine.state().kind is FindingKind.WORKING


def test_a_moment_of_more_work_does_not_end_busy_but_empty(machine: Machine) -> None:
    machine.play(200, lambda _: (gpu(**EMPTY),))
    machine.play(3, lambda _: (gpu(**{**EMPTY, "sm_active": 24.0}),))
    machine.play(150, lambda _: (gpu(**EMPTY),))
    assert machine.state().since == NOON + 5


def test_without_the_use_of_its_sms_a_gpu_is_not_called_empty(machine: Machine) -> None:
    machine.play(400, lambda _: (gpu(**{**EMPTY, "sm_active": None}),))
    assert machine.kinds() == [FindingKind.WORKING]


def test_a_verdict_never_hides_a_fault(machine: Machine) -> None:
    sick = {**EMPTY, "remapped_rows_pending": True}
    machine.play(400, lambda _: (gpu(**sick),))
    assert machine.state().kind is FindingKind.MEMORY_ERRORS
    assert machine.kinds() == [FindingKind.MEMORY_ERRORS, FindingKind.BUSY_EMPTY]


def test_a_hung_job_is_called_stuck_and_not_empty(machine: Machine) -> None:
    machine.play(700, lambda _: (gpu(**{**EMPTY, "power_draw": 120.0}),))
    assert machine.state().kind is FindingKind.STUCK


# Memory-bound


def test_memory_bound_is_a_note_and_goes_away(machine: Machine) -> None:
    machine.play(180, lambda _: (gpu(**BOUND),))
    assert machine.state().kind is FindingKind.WORKING
    machine.play(1, lambda _: (gpu(**BOUND),))
    found = machine.state()
    assert (found.kind, found.severity) == (FindingKind.MEMORY_BOUND, Severity.NOTE)
    assert found.short == "memory-bound, DRAM 86%, 3m"
    assert "not a fault" in found.sentence
    machine.play(6, lambda _: (gpu(**{**BOUND, "tensor_active": 55.0}),))
    assert machine.state().kind is FindingKind.WORKING


# Starved


def turns(second: int, *, of: int = 8, busy: int = 95, low: int = 4, **changes: Any) -> Snapshot:
    """A load that comes for half of each ``of`` seconds."""
    load = busy if second % of < of // 2 else low
    one = working(sm=load, **{"cpu_percent": 100.0, "state": "R", **changes})
    card = gpu(utilization_gpu=load, power_draw=300.0)
    return snapshot(NOON, card, processes=(one,))


def test_a_gpu_that_waits_for_one_full_core_is_called_starved(machine: Machine) -> None:
    machine.play(180, turns)
    assert machine.state().kind is FindingKind.WORKING
    machine.play(20, turns)
    found = machine.state()
    assert (found.kind, found.short) == (FindingKind.STARVED, "starved? CPU core full, 3m")
    assert found.since == NOON + 9  # the first low second
    assert "perhaps" in found.sentence
    assert "a process is at one full CPU core" in found.evidence
    machine.play(40, lambda _: turns(0))
    assert machine.state().kind is FindingKind.WORKING


def test_turns_of_less_than_half_a_minute_are_one_starvation(machine: Machine) -> None:
    machine.play(300, lambda second: turns(second, of=50))
    found = machine.state()
    assert found.kind is FindingKind.STARVED
    assert found.since == NOON + 30  # the first low second


def test_a_gpu_that_waits_for_a_disk_says_so(machine: Machine) -> None:
    machine.play(240, lambda second: turns(second, cpu_percent=12.0, state="D"))
    assert machine.state().short == "starved? waits for disk, 3m"
    machine.play(40, lambda second: turns(second, cpu_percent=12.0, state="S"))
    assert machine.state().kind is FindingKind.WORKING


@pytest.mark.parametrize(
    "changes",
    [
        {"cpu_percent": 30.0},
        {"cpu_percent": 800.0},
        {"cpu_percent": None, "state": None},
        {"of": 200},
        {"low": 45},
        {"busy": 28},
    ],
    ids=["idle", "threads", "unknown", "checkpoints", "steady", "light"],
)
def test_a_load_that_comes_and_goes_without_evidence_is_no_verdict(
    machine: Machine, changes: dict[str, Any]
) -> None:
    machine.play(900, lambda second: turns(second, **changes))
    assert machine.kinds() == [FindingKind.WORKING]


# Jobs


def ranks(idle: tuple[int, ...] = (), **changes: Any) -> Snapshot:
    """A job with a process on each of four GPUs, of which some do nothing."""
    loads = [0 if index in idle else 95 for index in range(4)]
    return snapshot(
        NOON,
        *(gpu(index=i, utilization_gpu=load, power_draw=300.0) for i, load in enumerate(loads)),
        processes=tuple(
            working(pid=100 + i, gpus=(i,), sm=load, **changes) for i, load in enumerate(loads)
        ),
    )


def test_a_gpu_that_its_job_leaves_out_is_told_after_a_minute(machine: Machine) -> None:
    machine.play(10, lambda _: ranks())
    machine.play(60, lambda _: ranks(idle=(2,)))
    assert FindingKind.IDLE_IN_JOB not in machine.kinds(2)
    machine.play(2, lambda _: ranks(idle=(2,)))
    found = machine.state(2)
    assert (found.kind, found.short) == (FindingKind.IDLE_IN_JOB, "idle 1m, its job works")
    assert "session 7, works on GPU 0, 1, 3" in found.sentence
    assert machine.state(1).kind is FindingKind.WORKING
    machine.see(*ranks().gpus, processes=ranks().processes)
    assert machine.state(2).kind is FindingKind.WORKING


@pytest.mark.parametrize("idle", [(0, 1, 2, 3), (1, 2, 3), (0, 1, 2)])
def test_a_job_that_rests_on_most_gpus_leaves_none_out(
    machine: Machine, idle: tuple[int, ...]
) -> None:
    machine.play(10, lambda _: ranks())
    machine.play(120, lambda _: ranks(idle=idle))
    assert {machine.state(index).kind for index in idle} == {FindingKind.IDLE}


def test_gpus_of_different_jobs_leave_none_out(machine: Machine) -> None:
    machine.play(120, lambda _: ranks(idle=(2,), place=None))
    assert machine.state(2).kind is FindingKind.IDLE


def two_jobs(*, second_sm: int = 40, session: int = 8, **changes: Any) -> Snapshot:
    """Two processes at work on one GPU."""
    return snapshot(
        NOON,
        gpu(utilization_gpu=95, power_draw=400.0),
        processes=(
            working(pid=1, sm=50),
            working(pid=2, sm=second_sm, session=session, user="bo", **changes),
        ),
    )


def test_two_jobs_on_one_gpu_are_told_after_two_minutes(machine: Machine) -> None:
    machine.play(121, lambda _: two_jobs())
    found = machine.state()
    assert (found.kind, found.severity) == (FindingKind.SHARED, Severity.NOTE)
    assert found.short == "shared by 2 jobs, 2m"
    assert "session 7 of ann: SM 50 %" in found.evidence
    assert "session 8 of bo: SM 40 %" in found.evidence
    machine.play(16, lambda _: two_jobs(second_sm=0))
    assert machine.state().kind is FindingKind.WORKING


def test_a_job_that_only_holds_memory_is_no_evidence(machine: Machine) -> None:
    seen = two_jobs()
    third = working(pid=3, sm=0, session=9, user="cy")
    processes = (third, *seen.processes)
    machine.play(121, lambda _: snapshot(NOON, *seen.gpus, processes=processes))
    found = machine.state()
    assert found.short == "shared by 2 jobs, 2m"
    assert found.evidence == ("session 7 of ann: SM 50 %", "session 8 of bo: SM 40 %")


@pytest.mark.parametrize(
    "changes",
    [
        {"second_sm": 0},
        {"second_sm": 9},
        {"session": 7, "uid": None, "user": "ann"},
        {"place": None},
        {"type": "G"},
    ],
    ids=["idle", "light", "same job", "place unknown", "display"],
)
def test_processes_of_one_job_do_not_share(machine: Machine, changes: dict[str, Any]) -> None:
    changes = dict(changes)
    user = changes.pop("user", "bo")
    seen = two_jobs(**changes)
    first, second = seen.processes
    second = msgspec.structs.replace(second, user=user)
    machine.play(200, lambda _: snapshot(NOON, *seen.gpus, processes=(first, second)))
    assert FindingKind.SHARED not in machine.kinds()


def test_a_process_that_becomes_a_launcher_is_of_the_job_of_its_processes(machine: Machine) -> None:
    parent = msgspec.structs.replace(process(1, sm=50), place=Workload(session=7))
    child = msgspec.structs.replace(process(2, sm=40), place=Workload(session=9))
    started = msgspec.structs.replace(
        process(2, sm=40),
        place=Workload(session=9, launcher=ProcessId(1, 1), launcher_name="torchrun"),
    )
    card = gpu(utilization_gpu=95, power_draw=400.0)
    machine.play(130, lambda _: snapshot(NOON, card, processes=(parent, child)))
    assert machine.state().kind is FindingKind.SHARED
    machine.play(16, lambda _: snapshot(NOON, card, processes=(parent, started)))
    assert machine.state().kind is FindingKind.WORKING


# The memory


def test_a_gpu_whose_memory_grows_says_when_it_is_full(machine: Machine) -> None:
    def growing(second: int) -> tuple[Gpu, ...]:
        used = 20 * GIB + second * GIB // 60
        return (
            gpu(
                utilization_gpu=95, power_draw=400.0, memory_used=used, memory_free=80 * GIB - used
            ),
        )

    machine.play(800, growing)
    assert machine.state().kind is FindingKind.WORKING
    machine.play(1000, lambda second: growing(800 + second))
    found = machine.state()
    assert found.kind is FindingKind.FILLING
    # 30 GiB were added in as many minutes: 30 of 80 are free.
    assert found.short == "full in about 30 min"
    machine.play(400, lambda _: growing(1800))
    assert machine.state().kind is FindingKind.WORKING


def test_memory_that_is_loaded_at_the_start_is_not_called_filling(machine: Machine) -> None:
    def loading(second: int) -> tuple[Gpu, ...]:
        used = min(60 * GIB, second * GIB // 5)
        return (
            gpu(
                utilization_gpu=20, power_draw=100.0, memory_used=used, memory_free=80 * GIB - used
            ),
        )

    for start in range(0, 1800, 30):
        machine.play(30, lambda second, start=start: loading(start + second))  # type: ignore[misc]  # a default binds the value
        assert FindingKind.FILLING not in machine.kinds(), start


def test_thresholds_are_the_ones_of_the_history() -> None:
    machine = Machine()
    quick = Thresholds(stuck_after=20.0)
    machine.history = History(conditions(quick), quick)
    machine.play(22, lambda _: (gpu(utilization_gpu=100, power_draw=90.0, power_limit=700.0),))
    assert machine.state().kind is FindingKind.STUCK
