"""A job over several machines: what it has on each, and which of them lag."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from gpumon.allocations.scheduler import unknown
from gpumon.fleet.fleet import HostStatus
from gpumon.fleet.jobs import FleetJob, fleet_jobs
from gpumon.model.allocations import Allocation
from gpumon.model.processes import GpuProcess, ProcessId, Workload
from tests.build import GIB, NOON, gpu, process
from tests.hosts import host, host_state

if TYPE_CHECKING:
    from gpumon.fleet.summary import HostSummary

JOB = Allocation("slurm", "88123", "ann", ("GPU-0", "GPU-1"), since=NOON - 60, nodes="ada-[05-08]")


def worker(
    sm: int | None = 95, *, job: str = "88123", gpus: tuple[int, ...] = (0, 1)
) -> GpuProcess:
    made = process(7, memory_used=10 * GIB, sm=sm, gpus=gpus, user="ann")
    return msgspec.structs.replace(made, place=Workload(slurm_job=job))


def machine(
    name: str,
    *processes: GpuProcess,
    load: int | None = 95,
    seconds: int = 12,
    index: int = 0,
    allocations: tuple[Allocation, ...] | None = (JOB,),
    status: HostStatus = HostStatus.LIVE,
    hostname: str | None = None,
) -> HostSummary:
    """A host with two GPUs that have had this utilisation for so many seconds."""
    states = []
    for at in range(-seconds, 1, 2):
        gpus = (gpu(utilization_gpu=load), gpu(index=1, utilization_gpu=load))
        state = host_state(name, *gpus, processes=processes, time=NOON + at)
        assert state.snapshot is not None
        own = msgspec.structs.replace(state.snapshot.host, name=hostname or name)
        seen = msgspec.structs.replace(state.snapshot, allocations=allocations, host=own)
        states.append(msgspec.structs.replace(state, snapshot=seen, status=status))
    return msgspec.structs.replace(host(*states), index=index)


def only(*hosts: HostSummary) -> FleetJob:
    (job,) = fleet_jobs(hosts)
    return job


def lags(job: FleetJob) -> dict[str, str]:
    return {node.host.name: node.lag for node in job.nodes}


def test_a_job_of_several_machines_is_one() -> None:
    job = only(machine("ada-05", worker()), machine("root@ada-06.lab", worker(), index=1))
    assert (job.label, job.users, job.started_at) == ("slurm 88123", ("ann",), NOON - 60)
    assert job.total("gpus") == (4, True), "two machines are not among the hosts"
    assert job.total("memory") == (40 * GIB, True)
    assert job.absent == ("ada-07", "ada-08")
    assert job.sentence == "none of 2 machines lags; not among these hosts: ada-07, ada-08"


def test_jobs_of_a_single_host_stay_those_of_the_host() -> None:
    shell = msgspec.structs.replace(worker(), place=Workload(session=5))
    jobs = fleet_jobs([machine(name, shell, allocations=None) for name in ("ada-05", "ada-06")])
    assert len({job.key for job in jobs}) == len(jobs) == 2
    assert [job.sentence for job in jobs] == ["", ""]


def test_a_single_job_can_be_asked_for() -> None:
    shell = msgspec.structs.replace(worker(), id=ProcessId(8, None), place=Workload(session=5))
    hosts = [machine(name, worker(), shell) for name in ("ada-05", "ada-06")]
    jobs = fleet_jobs(hosts)
    assert len(jobs) == 3
    alone = [fleet_jobs(hosts, job.key) for job in jobs]
    assert [[job.key for job in found] for found in alone] == [[job.key] for job in jobs]
    assert all(node.load is not None for (job,) in alone for node in job.nodes)
    assert fleet_jobs(hosts, "slurm 5") == []


def test_the_machine_that_does_less_than_half_lags() -> None:
    hosts = [
        machine(f"ada-0{number}", worker(), load=load, index=number)
        for number, load in enumerate((95, 47, 48, 96), 5)
    ]
    job = only(*hosts)
    lag = "utilisation 47 %, median 95 %"
    assert lags(job) == {"ada-05": "", "ada-06": lag, "ada-07": "", "ada-08": ""}
    assert job.sentence == f"1 of 4 machines lags: ada-06 ({lag})"


def test_of_two_machines_one_can_lag_and_of_idle_ones_none() -> None:
    two = only(machine("ada-05", worker(), load=90), machine("ada-06", worker(), load=3))
    assert lags(two) == {"ada-05": "", "ada-06": "utilisation 3 %, median 90 %"}
    resting = only(machine("ada-05", worker(), load=19), machine("ada-06", worker(), load=0))
    assert lags(resting) == {"ada-05": "", "ada-06": ""}


def test_a_short_pause_is_no_lag() -> None:
    """Of the second machine too little has been seen."""
    job = only(machine("ada-05", worker()), machine("ada-06", worker(), load=0, seconds=8, index=1))
    assert lags(job) == {"ada-05": "", "ada-06": ""}
    assert job.nodes[1].load is None
    assert "lag" not in job.sentence


def test_a_machine_without_a_process_lags_unless_no_machine_has_one() -> None:
    both = only(machine("ada-05", worker()), machine("ada-06"))
    assert lags(both) == {"ada-05": "", "ada-06": "no process"}
    part = only(machine("ada-05", worker()), machine("ada-06", worker(gpus=(0,))))
    assert lags(part) == {"ada-05": "", "ada-06": "1 GPU unused"}
    assert lags(only(machine("ada-05"), machine("ada-06"))) == {"ada-05": "", "ada-06": ""}


def test_what_is_unknown_does_not_lag() -> None:
    """The process of the second machine may be the job's; the third one's load is unknown."""
    whose = msgspec.structs.replace(worker(), place=None)
    hosts = [
        machine("ada-05", worker()),
        machine("ada-06", whose, index=1),
        machine("ada-07", worker(None), load=None, index=2),
    ]
    (job,) = [job for job in fleet_jobs(hosts) if job.key == "slurm 88123"]
    assert set(lags(job).values()) == {""}
    second = job.nodes[1]
    assert (second.processes, second.memory, second.gpus) == (None, None, 2)
    assert "lag" not in job.sentence


@pytest.mark.parametrize("status", [HostStatus.DOWN, HostStatus.SILENT])
def test_a_machine_that_does_not_answer_is_of_the_job_and_nothing_is_known_of_it(
    status: HostStatus,
) -> None:
    job = only(machine("ada-05", worker()), machine("ada-06", worker(), status=status, index=1))
    assert [node.host.name for node in job.nodes] == ["ada-05", "ada-06"]
    assert (job.nodes[1].gpus, job.nodes[1].sm) == (None, None)
    assert "no current values of ada-06" in job.sentence


def test_a_machine_on_which_the_job_is_not_seen_lags_if_slurm_answers_there() -> None:
    asked = machine("ada-06", allocations=(), index=1)
    not_asked = machine("ada-07", allocations=None, index=2)
    job = only(machine("ada-05", worker()), asked, not_asked)
    assert lags(job) == {"ada-05": "", "ada-06": "not seen there", "ada-07": ""}
    assert job.total("gpus") == (2, True)


def test_a_machine_that_has_not_seen_a_new_job_yet_does_not_lag() -> None:
    new = msgspec.structs.replace(JOB, since=NOON - 5)
    job = only(machine("ada-05", worker(), allocations=(new,)), machine("ada-06", allocations=()))
    assert lags(job) == {"ada-05": "", "ada-06": ""}


@pytest.mark.parametrize(
    "known",
    [
        (unknown("slurm"),),
        (Allocation("slurm", devices=("GPU-0",)),),
        (Allocation("lsf", "7", "bo", ("GPU-0",)),),
    ],
)
def test_a_machine_whose_slurm_jobs_are_not_all_known_is_not_said_to_lag(
    known: tuple[Allocation, ...],
) -> None:
    other = machine("ada-06", allocations=known, index=1)
    jobs = fleet_jobs([machine("ada-05", worker()), other])
    (job,) = [job for job in jobs if job.key == "slurm 88123"]
    assert lags(job) == {"ada-05": "", "ada-06": ""}
    assert "lag" not in job.sentence


def test_the_load_of_a_shared_gpu_may_be_that_of_others() -> None:
    shard = msgspec.structs.replace(JOB, is_share=True)
    hosts = [
        machine(name, worker(1), load=load, allocations=(shard,))
        for name, load in (("ada-05", 95), ("ada-06", 2))
    ]
    job = only(*hosts)
    assert lags(job) == {"ada-05": "", "ada-06": ""}
    assert [node.load for node in job.nodes] == [None, None]


def test_of_gpus_that_are_gone_nothing_is_known() -> None:
    (node,) = only(machine("ada-05", worker(gpus=(0, 9)), allocations=None)).nodes
    assert (node.gpus, node.load, node.power) == (2, None, None)


def test_a_machine_is_found_by_the_name_that_it_has_for_itself() -> None:
    hosts = [
        machine(f"10.0.0.{number}", worker(), hostname=f"ada-0{number}.lab", index=number)
        for number in (5, 6)
    ]
    job = only(*hosts, machine("10.0.0.7", allocations=(), hostname="ada-07", index=7))
    assert job.absent == ("ada-08",)
    assert lags(job)["10.0.0.7"] == "not seen there"


def test_a_task_whose_processes_are_known_by_either_number_is_on_a_machine_once() -> None:
    task = Allocation("slurm", "88_3", "ann", ("GPU-0", "GPU-1"), number="91")
    other = msgspec.structs.replace(worker(job="91"), id=ProcessId(8, None))
    job = only(machine("ada-05", worker(job="88_3"), other, allocations=(task,)))
    assert [node.processes for node in job.nodes] == [2]
    assert job.total("gpus") == (2, False)


def test_forged_lists_of_machines_cost_little() -> None:
    """Each stands for 65,536 names, or is found to be malformed at its end only."""
    forged = tuple(
        Allocation("slurm", str(number), devices=("GPU-0",), nodes=nodes)
        for number, nodes in enumerate(("n[0-65535]", "n[0-9999],n[0-9999],]") * 200, 1)
    )
    began = time.process_time()
    jobs = fleet_jobs([machine("ada-05", allocations=forged)])
    assert time.process_time() - began < 5
    assert len(jobs) == 400
    assert jobs[0].total("gpus") == (1, True)
    assert jobs[0].absent == ()


def test_tasks_of_an_array_are_jobs_of_their_own_by_either_number() -> None:
    task = Allocation("slurm", "88_3", "ann", ("GPU-0",), number="91")
    named = machine("ada-05", worker(job="88_3"), allocations=(task,))
    numbered = machine("ada-06", worker(job="91"), allocations=(task,))
    assert only(named, numbered).label == "slurm 88_3"


@pytest.mark.parametrize("nodes", ["ada-[05-", "x" * 5000, "ada-[1-999999999]", "\x1b[31m", ""])
def test_a_forged_list_of_machines_does_no_harm(nodes: str) -> None:
    forged = msgspec.structs.replace(JOB, nodes=nodes)
    job = only(machine("ada-05", worker(), allocations=(forged,)))
    assert "\x1b" not in job.sentence
    assert len(job.sentence) < 6000
