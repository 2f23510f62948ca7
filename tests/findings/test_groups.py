"""Who has what, and what belongs together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.findings.groups import (
    AllocatedJob,
    JobGroup,
    UserUse,
    allocated_jobs,
    job_with_key,
    jobs,
    users,
)
from gpumon.model.allocations import Allocation
from gpumon.model.processes import Container, GpuProcess, ProcessId, Workload
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.model.snapshot import Gpu, MigInstance, Snapshot
from gpumon.model.thresholds import DEFAULTS, Thresholds
from gpumon.recording.history import History, Interval
from gpumon.recording.history.holdings import Holding
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.known import known


class Seen:
    def __init__(
        self,
        idle: Mapping[int, float] | None = None,
        spent: Mapping[str, float] | None = None,
        thresholds: Thresholds = DEFAULTS,
    ) -> None:
        self.idle = idle or {}
        self.spent = spent or {}
        self.thresholds = thresholds
        self.holdings: dict[str, Holding] = {}

    def process_idle(self, process: ProcessId) -> Interval | None:
        seconds = self.idle.get(process.pid)
        return None if seconds is None else Interval(NOON - seconds, NOON, True, 9)

    def holding(self, one: Gpu) -> Holding | None:
        return self.holdings.get(one.uuid)

    def gpu_seconds(self, user: str | None) -> float:
        return self.spent.get(user or "", 0.0)


def uses(*processes: GpuProcess, seen: Seen | None = None, cards: int = 2) -> list[UserUse]:
    machine = (gpu(index=index) for index in range(cards))
    now = snapshot(NOON, *machine, processes=processes)
    return users(now, cast("History", seen or Seen()))


def placed(one: GpuProcess, **place: Any) -> GpuProcess:
    return msgspec.structs.replace(one, place=Workload(**place))


def pids(job: JobGroup) -> list[int]:
    return [one.id.pid for one in job.processes]


def test_a_user_s_processes_are_added_up() -> None:
    ann, bo = uses(
        process(1, memory_used=10 * GIB, gpus=(0, 1), started_at=NOON - 60),
        msgspec.structs.replace(process(4, memory_used=0), uid=1004),
        process(2, memory_used=20 * GIB, gpus=(1,), started_at=NOON - 172800),
        process(3, memory_used=8 * GIB, user="bo", started_at=None),
        seen=Seen(spent={"ann": 900.0}),
    )
    assert (ann.user, ann.uid, ann.processes, ann.gpus) == ("ann", 1004, 3, (0, 1))
    assert (ann.memory, ann.share) == (40 * GIB, 0.25)
    assert (ann.gpu_seconds, ann.longest) == (900.0, 172800.0)
    assert (bo.user, bo.memory, bo.gpu_seconds, bo.longest) == ("bo", 8 * GIB, 0.0, None)


def test_the_most_memory_comes_first_and_the_unknown_last() -> None:
    found = uses(
        process(1, user="dan", memory_used=GIB),
        process(2, user="eve", memory_used=None),
        process(3, user="bo", memory_used=GIB),
        process(4, user=None, visible=False, memory_used=5 * GIB),
    )
    assert [use.user for use in found] == [None, "bo", "dan", "eve"]


def test_one_unknown_part_leaves_the_sum_unknown() -> None:
    (ann,) = uses(process(1, memory_used=GIB), process(2, memory_used=None))
    assert (ann.memory, ann.share) == (None, None)


def test_without_any_known_size_a_share_is_unknown() -> None:
    now = snapshot(NOON, gpu(memory_total=None), processes=(process(1, gpus=(), memory_used=GIB),))
    assert [use.share for use in users(now, cast("History", Seen()))] == [None]


def test_a_share_is_of_the_cards_that_tell_their_size() -> None:
    machine = (gpu(index=0), gpu(index=1, memory_total=None))
    here, there = process(1, memory_used=20 * GIB), process(2, user="bo", gpus=(1,))
    found = users(snapshot(NOON, *machine, processes=(here, there)), cast("History", Seen()))
    assert [use.share for use in found] == [0.25, None]


def test_idle_memory_is_what_was_seen_idle_for_long_enough() -> None:
    (ann,) = uses(
        process(1, memory_used=3 * GIB),
        process(2, memory_used=5 * GIB),
        process(3, memory_used=7 * GIB),
        seen=Seen(idle={1: 59.0, 2: 60.0, 3: 9000.0}),
    )
    assert (ann.idle_memory, ann.idle_unknown) == (12 * GIB, 0)


def test_how_long_is_long_enough_can_be_set() -> None:
    patient = Seen(idle={1: 60.0, 2: 3600.0}, thresholds=Thresholds(idle_after=3600.0))
    (ann,) = uses(process(1, memory_used=3 * GIB), process(2, memory_used=5 * GIB), seen=patient)
    assert ann.idle_memory == 5 * GIB


def test_of_whom_idleness_is_unknown_nothing_is_counted_but_their_number() -> None:
    (ann,) = uses(
        process(1, memory_used=3 * GIB, sm=None),
        process(5, memory_used=3 * GIB, sm=None),
        process(2, memory_used=None, sm=0),
        process(3, memory_used=4 * GIB, sm=50),
        process(4, memory_used=4 * GIB, sm=None, type_="G"),
        seen=Seen(idle={2: 600.0}),
    )
    assert (ann.idle_memory, ann.idle_unknown) == (0, 3)


def test_what_a_history_saw_is_told() -> None:
    history = History({})
    ann, bo = process(1, memory_used=3 * GIB), process(2, user="bo", sm=70)
    for second in range(91):
        now = snapshot(NOON + second, gpu(), processes=(ann, bo))
        history.add(now)
    first, second_ = users(now, history)
    assert (first.user, first.idle_memory, first.gpu_seconds) == ("ann", 3 * GIB, 90.0)
    assert (second_.user, second_.idle_memory, second_.gpu_seconds) == ("bo", 0, 90.0)


def test_nobody_uses_an_empty_machine() -> None:
    assert uses() == []


@pytest.mark.parametrize(
    ("place", "kind", "label"),
    [
        ({"slurm_job": "88123_4", "slurm_step": "0", "session": 7}, "slurm", "slurm 88123_4"),
        (
            {"container": Container("docker", id="ab" * 32, name="llama")},
            "container",
            "docker llama",
        ),
        ({"container": Container("cri-o", id="f", pod="web-0")}, "container", "pod web-0"),
        (
            {"launcher": ProcessId(90, 5), "launcher_name": "torchrun", "session": 7},
            "launcher",
            "torchrun 90",
        ),
        ({"session": 4711}, "session", "session 4711"),
    ],
)
def test_what_was_started_together_is_one_job(
    place: dict[str, object], kind: str, label: str
) -> None:
    one = placed(process(1, gpus=(2,), memory_used=GIB, started_at=NOON - 60), **place)
    other = placed(process(2, gpus=(0, 2), memory_used=GIB), **place)
    apart = process(3)
    job, rest = jobs([one, apart, other])
    assert (job.kind, job.label, pids(job)) == (kind, label, [1, 2])
    assert (job.users, job.gpus, job.memory) == (("ann",), (0, 2), 3 * GIB)
    assert job.started_at == NOON - 86400
    assert (rest.kind, pids(rest)) == ("process", [3])


def test_the_slurm_job_goes_before_the_container_and_that_before_the_launcher() -> None:
    launcher = ProcessId(90, 5)
    docker = Container("docker", id="ab")
    found = jobs(
        [
            placed(process(1), slurm_job="8", container=docker, launcher=launcher, session=7),
            placed(process(2), slurm_job="8", session=8),
            placed(process(3), container=docker, launcher=launcher, session=7),
            placed(process(4), container=docker, session=9),
            placed(process(5), launcher=launcher, session=7),
            placed(process(6), launcher=launcher, session=9),
            placed(process(7), session=7),
        ]
    )
    assert [pids(job) for job in found] == [[1, 2], [3, 4], [5, 6], [7]]


def test_containers_are_told_apart_by_id_or_by_name() -> None:
    found = jobs(
        [
            placed(process(1), container=Container("docker", id="ab")),
            placed(process(2), container=Container("docker", id="cd")),
            placed(process(3), container=Container("lxc", name="web")),
            placed(process(4), container=Container("lxc", name="web")),
        ]
    )
    assert [pids(job) for job in found] == [[1], [2], [3, 4]]


def test_the_containers_of_one_pod_are_one_job() -> None:
    first = Container("containerd", id="aa", pod="train-0")
    second = Container("containerd", id="bb", pod="train-0")
    both = [
        msgspec.structs.replace(process(pid), place=Workload(container=container))
        for pid, container in ((1, first), (2, second))
    ]
    assert [pids(job) for job in jobs(both)] == [[1, 2]]


def test_pods_with_one_name_in_two_namespaces_are_two_jobs() -> None:
    pods = [Container("containerd", pod="test-0", namespace=name) for name in ("ann", "bo")]
    found = jobs([placed(process(pid), container=pod) for pid, pod in enumerate(pods, 1)])
    assert [pids(job) for job in found] == [[1], [2]]


def test_a_launcher_that_holds_a_card_itself_is_part_of_its_job() -> None:
    child = placed(process(2), launcher=ProcessId(90, 5), launcher_name="mpirun", session=1)
    launcher = placed(process(90, start_time=5), session=1)
    reused = placed(process(90, start_time=6), session=1)
    job, other = jobs([launcher, child, reused])
    assert (job.label, pids(job)) == ("mpirun 90", [90, 2])
    assert pids(other) == [90]


def test_a_job_names_its_launcher_unless_that_serves_others_too() -> None:
    launcher = ProcessId(90, 5)
    for name, own in (("torchrun", True), ("ray", False), ("slurmstepd", False)):
        (job,) = jobs([placed(process(1), launcher=launcher, launcher_name=name)])
        assert (job.launcher is not None) is own
    (slurm,) = jobs([placed(process(1), slurm_job="8", launcher=launcher, launcher_name="mpirun")])
    assert slurm.launcher is None, "Slurm started it"


def engine(pid: int, load: ServerLoad | None = None, server: int | None = 90) -> GpuProcess:
    """An engine of the server with this PID."""
    whole = InferenceServer("vllm", "Qwen/Qwen2.5-14B", pid=server, start_time=5)
    place = Workload(session=pid, server=whole)
    return msgspec.structs.replace(process(pid), place=place, load=load)


def test_the_engines_of_one_server_are_one_job_whoever_started_it() -> None:
    ray = {"launcher": ProcessId(7, 1), "launcher_name": "ray"}
    started = [
        msgspec.structs.replace(one, place=msgspec.structs.replace(one.place, **ray))
        for one in (engine(1), engine(2), engine(3, server=91))
        if one.place is not None
    ]
    both, other = jobs(started)
    assert (both.kind, both.label, pids(both)) == ("server", "vllm Qwen2.5-14B", [1, 2])
    assert (both.launcher, pids(other)) == (ProcessId(90, 5), [3])
    in_slurm = [placed(one, server=one.place.server, slurm_job="8") for one in started if one.place]
    (job,) = jobs(in_slurm)
    assert (job.kind, job.launcher) == ("slurm", None)


def test_a_server_whose_outermost_process_is_unknown_is_the_job_that_started_it() -> None:
    assert [job.kind for job in jobs([engine(1, server=None)])] == ["session"]


def test_the_sums_of_a_job_count_a_server_once_and_unknown_is_not_0() -> None:
    load = ServerLoad(running=3, waiting=1, requests=0.5, tokens=400.0, kv_cache=60.0)
    other = ServerLoad(running=1, waiting=None, requests=0.5, tokens=100.0, kv_cache=80.0)
    servers = [engine(1, load), engine(2, load), engine(3, other, server=91)]
    in_slurm = [
        msgspec.structs.replace(one, place=msgspec.structs.replace(one.place, slurm_job="8"))
        for one in servers
        if one.place is not None
    ]
    (job,) = jobs([*in_slurm, placed(process(4), slurm_job="8")])
    assert job.load == ServerLoad(4, None, 1.0, 500.0, None, 80.0)
    silent = msgspec.structs.replace(in_slurm[2], load=ServerLoad(problem="it needs a key"))
    (job,) = jobs([*in_slurm[:2], silent])
    assert job.load == ServerLoad()
    (job,) = jobs([placed(process(4), slurm_job="8")])
    assert job.load is None


def test_a_session_shared_by_two_users_is_two_jobs() -> None:
    found = jobs([placed(process(1), session=5), placed(process(2, user="root"), session=5)])
    assert [job.users for job in found] == [("ann",), ("root",)]
    assert len({job.key for job in found}) == 2


def test_a_session_of_another_name_space_joins_nobody() -> None:
    assert len(jobs([placed(process(1), session=0), placed(process(2), session=0)])) == 2


def test_jobs_stand_in_the_order_of_their_first_process() -> None:
    found = jobs(
        [placed(process(5), session=2), process(9), process(1), placed(process(3), session=2)]
    )
    assert [pids(job) for job in found] == [[5, 3], [9], [1]]


def test_the_work_of_a_job_is_added_up_on_each_card() -> None:
    together = [
        placed(process(1, sm=30, gpus=(0,)), session=5),
        placed(process(2, sm=40, gpus=(0, 1)), session=5),
        placed(process(3, sm=None, gpus=(2,)), session=5),
    ]
    (job,) = jobs(together)
    assert job.sm == (30 + 40 + 40) / 2
    (silent,) = jobs([process(1, sm=None, memory_used=None, started_at=None)])
    assert (silent.sm, silent.memory, silent.started_at) == (None, None, None)


def test_a_label_is_safe_to_print() -> None:
    named = msgspec.structs.replace(process(7), name="a\x1b[31m")
    assert jobs([named])[0].label == "a\ufffd[31m 7"
    assert jobs([process(7)])[0].label == "process 7"


places = st.builds(
    Workload,
    container=st.none() | st.builds(Container, st.just("docker"), id=st.sampled_from(["a", "b"])),
    slurm_job=st.none() | st.sampled_from(["1", "2"]),
    session=st.none() | st.integers(0, 3),
    launcher=st.none() | st.builds(ProcessId, st.integers(1, 4), st.just(1)),
)


@given(st.lists(st.none() | places, max_size=12))
def test_every_process_is_in_one_job_and_the_order_among_others_changes_nothing(
    where: list[Workload | None],
) -> None:
    given_ = [
        msgspec.structs.replace(process(pid), place=place) for pid, place in enumerate(where, 1)
    ]
    found = jobs(given_)
    assert sorted(pid for job in found for pid in pids(job)) == list(range(1, len(where) + 1))
    assert len({job.key for job in found}) == len(found)
    backwards = {(job.key, frozenset(pids(job))) for job in jobs(given_[::-1])}
    assert backwards == {(job.key, frozenset(pids(job))) for job in found}


ARRAY = Allocation("slurm", "88_3", "ann", ("GPU-0", "GPU-1"), number="91")
UNUSED = Allocation("slurm", "77", "bo", ("GPU-2",), unplaced=1)
"""That of a job that runs nothing here."""


def allocated_machine(*allocations: Allocation) -> tuple[Snapshot, History]:
    """Three GPUs, with a process of the array's job on GPU 0."""
    seen = Seen()
    seen.holdings = {"GPU-0": Holding(computing=1), "GPU-1": Holding(), "GPU-2": Holding()}
    now = snapshot(
        NOON,
        *(gpu(index=index) for index in range(3)),
        processes=(placed(process(1, memory_used=GIB), slurm_job="91"),),
    )
    return msgspec.structs.replace(now, allocations=allocations), cast("History", seen)


def test_a_user_who_only_has_an_allocation_is_a_user() -> None:
    now, history = allocated_machine(ARRAY, UNUSED)
    ann, bo = users(now, history, allocated_jobs(now, history))
    assert (bo.user, bo.processes, bo.gpus, bo.memory, bo.longest) == ("bo", 0, (), 0, None)
    assert [(job.gpus, job.unused) for job in ann.allocated] == [((0, 1), 1)]
    assert [(job.gpus, job.unused) for job in bo.allocated] == [((2,), 1)]


def test_a_job_has_its_allocation_by_either_number_and_one_without_a_process_comes_last() -> None:
    now, history = allocated_machine(UNUSED, ARRAY)
    array, unused = jobs(now.processes, allocated_jobs(now, history))
    assert (array.label, pids(array)) == ("slurm 88_3", [1])
    assert known(array.allocated).allocation == ARRAY
    assert (unused.label, unused.kind, unused.users, pids(unused)) == (
        "slurm 77",
        "slurm",
        ("bo",),
        [],
    )
    # It has one more GPU, whose processes may be its.
    assert (unused.memory, unused.sm, unused.started_at) == (None, None, None)


def test_the_page_of_a_job_stays_when_it_gets_a_process_and_when_that_ends() -> None:
    now, history = allocated_machine(ARRAY)
    allocated = allocated_jobs(now, history)
    (with_process,) = jobs(now.processes, allocated)
    without = known(job_with_key((), with_process.key, allocated))
    assert (without.key, without.processes) == (with_process.key, ())


def test_processes_that_are_known_by_either_number_of_a_task_are_one_job() -> None:
    now, history = allocated_machine(ARRAY)
    named = placed(process(2, gpus=(1,)), slurm_job="88_3")
    (job,) = jobs((*now.processes, named), allocated_jobs(now, history))
    assert (job.label, pids(job), job.gpus) == ("slurm 88_3", [1, 2], (0, 1))
    assert jobs((named,), allocated_jobs(now, history))[0].key == job.key


def test_slurm_jobs_in_a_pod_stay_apart_and_have_what_slurm_gave_them() -> None:
    pod = Allocation("kubernetes", "ml/slurm-0", devices=("GPU-0", "GPU-1"))
    now, history = allocated_machine(ARRAY, pod)
    node = Container("containerd", pod="slurm-0", namespace="ml")
    members = [
        placed(process(number), slurm_job=job, container=node)
        for number, job in enumerate(("91", "92"), 1)
    ]
    found = jobs(members, allocated_jobs(now, history))
    given = [job.allocated and job.allocated.allocation for job in found]
    assert (given, len({job.key for job in found})) == ([ARRAY, pod], 2)


@pytest.mark.parametrize(
    ("allocation", "is_known"),
    [
        (Allocation("lsf", "321", "ann", ("GPU-0", "GPU-1")), False),
        (Allocation("lsf", "321", "ann", unplaced=1), False),
        (Allocation("lsf", "321", "ann", ("GPU-1",)), True),
    ],
)
def test_a_job_has_no_process_only_if_none_on_its_gpus_can_be_its(
    allocation: Allocation, is_known: bool
) -> None:
    now, history = allocated_machine(allocation)
    (waiting,) = jobs((), allocated_jobs(now, history))
    assert (waiting.has_all_processes, waiting.memory) == (is_known, 0 if is_known else None)


def test_a_pod_has_its_allocation_by_its_namespace_and_name() -> None:
    pod = Allocation("kubernetes", "ml/train-0", devices=("GPU-1",))
    now, history = allocated_machine(pod)
    allocated = allocated_jobs(now, history)
    (waiting,) = jobs((), allocated)
    assert waiting.label == "kubernetes ml/train-0"
    container = Container("containerd", pod="train-0", namespace="ml")
    (group,) = jobs([placed(process(2, gpus=(1,)), container=container)], allocated)
    assert (group.allocated, group.key) == (allocated[0], waiting.key)
    other = msgspec.structs.replace(container, namespace="lab")
    assert len(jobs([placed(process(2), container=other)], allocated)) == 2


def test_whether_an_allocated_gpu_is_used_is_unknown_without_a_list_of_its_processes() -> None:
    now, history = allocated_machine(ARRAY)
    cast("Seen", history).holdings.pop("GPU-1")
    (job,) = allocated_jobs(now, history)
    assert (job.gpus, job.unused) == ((0, 1), None)


def test_that_nothing_is_known_of_a_scheduler_is_no_job() -> None:
    now, history = allocated_machine(Allocation("slurm", unplaced=None))
    assert allocated_jobs(now, history) == []


def test_jobs_of_which_only_the_gpus_are_known_stay_apart() -> None:
    now, history = allocated_machine(
        Allocation("slurm", devices=("GPU-1",)), Allocation("slurm", devices=("GPU-2",))
    )
    first, second = jobs((), allocated_jobs(now, history))
    assert first.label == second.label == "a slurm job"
    assert first.key != second.key


@pytest.mark.parametrize(
    ("allocation", "place"),
    [
        (Allocation("slurm", "88"), Workload(slurm_job="88")),
        (Allocation("lsf", "88"), Workload(slurm_job="88")),
        (Allocation("kubernetes"), Workload()),
        (
            Allocation("kubernetes", "ml/train-0"),
            Workload(Container("kubernetes", pod="train-0", namespace="ml")),
        ),
        (Allocation("kubernetes", "train-0"), Workload(Container("kubernetes", pod="train-0"))),
    ],
)
def test_filters_find_what_a_scheduler_gave_where_the_processes_of_the_job_would_be(
    allocation: Allocation, place: Workload
) -> None:
    assert AllocatedJob(allocation, (), None).stand_in(()).place == place


@pytest.mark.parametrize(
    ("devices", "indices"),
    [(("GPU-1",), [1]), (("MIG-a", "GPU-1"), [0, 1]), (("MIG-b",), []), ((), [])],
)
def test_what_a_job_was_given_is_on_the_gpus_of_its_devices(
    devices: tuple[str, ...], indices: list[int]
) -> None:
    gpus = [gpu(index=0, mig=(MigInstance("MIG-a", 0),)), gpu(index=1)]
    job = AllocatedJob(Allocation("slurm", "88", devices=devices), (), None)
    assert [use.gpu_index for use in job.stand_in(gpus).uses] == indices
