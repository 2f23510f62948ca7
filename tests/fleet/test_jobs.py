"""A job over several machines: what it has on each, and which of them lag."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from gpumon.allocations.scheduler import unknown
from gpumon.fleet.fleet import HostStatus
from gpumon.fleet.jobs import FleetJob, fleet_jobs
from gpumon.fleet.summary import HostSummary
from gpumon.model.allocations import Allocation
from gpumon.model.processes import GpuProcess, ProcessId, Workload
from tests.build import GIB, NOON, gpu, process
from tests.hosts import host, host_state, with_snapshot
from tests.known import known

JOB = Allocation("slurm", "88123", "ann", ("GPU-0", "GPU-1"), since=NOON - 60, nodes="ada-[05-08]")


def worker(
    sm: int | None = 95, *, job: str = "88123", gpus: tuple[int, ...] = (0, 1)
) -> GpuProcess:
    made = process(7, memory_used=10 * GIB, sm=sm, gpus=gpus, user="ann")
    return replace(made, place=Workload(slurm_job=job))


def machine(
    name: str,
    *processes: GpuProcess,
    load: int | None = 95,
    seconds: int = 12,
    allocations: tuple[Allocation, ...] | None = (JOB,),
    status: HostStatus = HostStatus.LIVE,
    hostname: str | None = None,
) -> HostSummary:
    """A host with two GPUs that have had this utilisation for so many seconds."""
    states = []
    for at in range(-seconds, 1, 2):
        gpus = (gpu(utilization_gpu=load), gpu(index=1, utilization_gpu=load))
        state = host_state(name, *gpus, processes=processes, time=NOON + at, status=status)
        own = replace(known(state.snapshot).host, name=hostname or name)
        states.append(with_snapshot(state, allocations=allocations, host=own))
    return host(*states)


def job_of(*hosts: HostSummary) -> FleetJob:
    """The job of these hosts, in this order."""
    ordered = [replace(host, index=index) for index, host in enumerate(hosts)]
    (job,) = [job for job in fleet_jobs(ordered) if job.key == "slurm 88123"]
    return job


def only(*hosts: HostSummary) -> FleetJob:
    (job,) = fleet_jobs(hosts)
    return job


def lags(job: FleetJob) -> dict[str, str]:
    return {node.host.name: node.lag for node in job.nodes}


def test_a_job_of_several_machines_is_one() -> None:
    job = only(machine("ada-05", worker()), machine("root@ada-06.lab", worker()))
    assert (job.label, job.users, job.started_at) == ("slurm 88123", ("ann",), NOON - 60)
    assert job.total("gpus") == (4, True), "two machines are not among the hosts"
    assert job.total("memory") == (40 * GIB, True)
    assert job.absent == ("ada-07", "ada-08")
    assert job.sentence == "none of 2 machines lags; not among these hosts: ada-07, ada-08"


def test_jobs_of_a_single_host_stay_those_of_the_host() -> None:
    shell = replace(worker(), place=Workload(session=5))
    jobs = fleet_jobs([machine(name, shell, allocations=None) for name in ("ada-05", "ada-06")])
    assert len({job.key for job in jobs}) == len(jobs) == 2
    assert [job.sentence for job in jobs] == ["", ""]


def test_a_single_job_can_be_asked_for() -> None:
    shell = replace(worker(), id=ProcessId(8, None), place=Workload(session=5))
    hosts = [machine(name, worker(), shell) for name in ("ada-05", "ada-06")]
    jobs = fleet_jobs(hosts)
    assert len(jobs) == 3
    alone = [fleet_jobs(hosts, job.key) for job in jobs]
    assert [[job.key for job in found] for found in alone] == [[job.key] for job in jobs]
    assert all(node.load is not None for (job,) in alone for node in job.nodes)
    assert fleet_jobs(hosts, "slurm 5") == []


def test_the_machine_that_does_less_than_half_lags() -> None:
    loads = {"ada-05": 95, "ada-06": 47, "ada-07": 48, "ada-08": 96}
    job = job_of(*(machine(name, worker(), load=load) for name, load in loads.items()))
    lag = "utilisation 47 %, median 95 %"
    assert lags(job) == {**dict.fromkeys(loads, ""), "ada-06": lag}
    assert job.sentence == f"1 of 4 machines lags: ada-06 ({lag})"


BUSY = machine("ada-05", worker())
NEW = replace(JOB, since=NOON - 5)
SHARD = replace(JOB, is_share=True)


LAGS = {
    "less work": (BUSY, machine("ada-06", worker(), load=3), "utilisation 3 %, median 95 %"),
    "no process": (BUSY, machine("ada-06"), "no process"),
    "a GPU is not used": (BUSY, machine("ada-06", worker(gpus=(0,))), "1 GPU unused"),
    "not seen": (BUSY, machine("ada-06", allocations=()), "not seen there"),
    "both are idle": (
        machine("ada-05", worker(), load=19),
        machine("ada-06", worker(), load=0),
        "",
    ),
    "a short pause": (BUSY, machine("ada-06", worker(), load=0, seconds=8), ""),
    "neither has a process": (machine("ada-05"), machine("ada-06"), ""),
    "unknown load": (BUSY, machine("ada-06", worker(None), load=None), ""),
    "unknown job of a process": (BUSY, machine("ada-06", replace(worker(), place=None)), ""),
    "no Slurm": (BUSY, machine("ada-06", allocations=None), ""),
    **{
        f"Slurm is not known: {each.scheduler} {each.job}": (
            BUSY,
            machine("ada-06", allocations=(each,)),
            "",
        )
        for each in (
            unknown("slurm"),
            Allocation("slurm", devices=("GPU-0",)),
            Allocation("lsf", "7", "bo", ("GPU-0",)),
        )
    },
    "a new job": (
        machine("ada-05", worker(), allocations=(NEW,)),
        machine("ada-06", allocations=()),
        "",
    ),
    "a load that may be that of others": (
        machine("ada-05", worker(1), allocations=(SHARD,)),
        machine("ada-06", worker(1), load=2, allocations=(SHARD,)),
        "",
    ),
}


@pytest.mark.parametrize("name", LAGS)
def test_a_machine_lags_only_where_that_is_known(name: str) -> None:
    first, second, lag = LAGS[name]
    job = job_of(first, second)
    assert lags(job) == {"ada-05": "", "ada-06": lag}
    assert ("1 of 2 machines lags" in job.sentence) is bool(lag)


def test_what_is_not_known_of_a_machine_has_no_value() -> None:
    (_, short) = job_of(BUSY, machine("ada-06", worker(), load=0, seconds=8)).nodes
    assert short.load is None
    (shared,) = job_of(machine("ada-05", worker(1), allocations=(SHARD,))).nodes
    assert shared.load is None
    (_, whose) = job_of(BUSY, machine("ada-06", replace(worker(), place=None))).nodes
    assert (whose.processes, whose.memory, whose.gpus) == (None, None, 2)


@pytest.mark.parametrize("status", [HostStatus.DOWN, HostStatus.SILENT])
def test_a_machine_without_answer_is_of_the_job_and_nothing_is_known_of_it(
    status: HostStatus,
) -> None:
    job = only(BUSY, machine("ada-06", worker(), status=status))
    assert [node.host.name for node in job.nodes] == ["ada-05", "ada-06"]
    assert (job.nodes[1].gpus, job.nodes[1].sm) == (None, None)
    assert "no current values of ada-06" in job.sentence


def test_of_gpus_that_are_gone_nothing_is_known() -> None:
    (node,) = only(machine("ada-05", worker(gpus=(0, 9)), allocations=None)).nodes
    assert (node.gpus, node.load, node.power) == (2, None, None)


def test_a_machine_is_found_by_the_name_that_it_has_for_itself() -> None:
    hosts = [
        machine(f"10.0.0.{number}", worker(), hostname=f"ada-0{number}.lab") for number in (5, 6)
    ]
    job = only(*hosts, machine("10.0.0.7", allocations=(), hostname="ada-07"))
    assert job.absent == ("ada-08",)
    assert job.total("gpus") == (4, True)
    assert lags(job)["10.0.0.7"] == "not seen there"


def test_a_task_whose_processes_are_known_by_either_number_is_on_a_machine_once() -> None:
    task = Allocation("slurm", "88_3", "ann", ("GPU-0", "GPU-1"), number="91")
    other = replace(worker(job="91"), id=ProcessId(8, None))
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
    forged = replace(JOB, nodes=nodes)
    job = only(machine("ada-05", worker(), allocations=(forged,)))
    assert "\x1b" not in job.sentence
    assert len(job.sentence) < 6000
