"""A fleet that shows the GPUs of a job only: which these are, and what is said where unknown."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from gpumon.findings.finding import FindingKind, Severity
from gpumon.fleet.answers import is_settled
from gpumon.fleet.demo import DemoFleet, job_hosts
from gpumon.fleet.fleet import (
    Fleet,
    FleetError,
    FleetSnapshot,
    HostMachine,
    HostOrigin,
    HostState,
    HostStatus,
)
from gpumon.fleet.host_names import HostList, read_host_list
from gpumon.fleet.narrowed import NarrowedFleet
from gpumon.fleet.summary import HostJudge
from gpumon.model.allocations import Allocation
from gpumon.model.processes import (
    GpuProcess,
    HolderScan,
    HoldReason,
    ProcessId,
    UnlistedHolder,
    Workload,
)
from gpumon.model.snapshot import MigInstance, Reserved
from gpumon.stream import GpuState
from tests.build import GIB, NOON, gpu, process
from tests.clock import HandClock
from tests.hosts import host_state, with_snapshot
from tests.known import known

NAMES = frozenset({"7", "7_1"})
MINE = Allocation("slurm", "7_1", "ann", ("GPU-1",))
OTHERS = Allocation("slurm", "8", "bo", ("GPU-2",))
UNKNOWN = Allocation("slurm", unplaced=None)


def on(gpus: tuple[int, ...], job: str | None = None, pid: int = 100) -> GpuProcess:
    made = process(pid, memory_used=GIB, gpus=gpus)
    return replace(made, place=Workload(slurm_job=job))


class GivenFleet(Fleet):
    """A fleet of one host, whose states a test gives."""

    given: HostState

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    def latest(self) -> FleetSnapshot:
        return FleetSnapshot(NOON, (self.given,))

    def machine(self, name: str, *, readonly: bool = True) -> HostMachine:
        raise NotImplementedError(name, readonly)


class OneHost:
    """A host of job 7 in a narrowed fleet."""

    def __init__(self) -> None:
        self.inner = GivenFleet(1.0)
        self.fleet = NarrowedFleet(self.inner, HostList(("gpu-01",), ("7",), {"gpu-01": NAMES}))
        self.now = NOON

    def see(
        self,
        allocations: tuple[Allocation, ...] | None,
        *processes: GpuProcess,
        after: float = 1.0,
        **changes: object,
    ) -> HostState:
        """The host after a sample, so many seconds after the one before."""
        self.now += after
        gpus = [gpu(index=index) for index in range(4)]
        state = host_state("gpu-01", *gpus, processes=processes, time=self.now, **changes)
        self.inner.given = with_snapshot(state, allocations=allocations)
        return self.fleet.latest().hosts[0]


def late(state: HostState) -> HostState:
    """A state of a host that has had time to ask Slurm, narrowed."""
    host = OneHost()
    host.inner.given = replace(state, received_at=NOON - 60)
    host.fleet.latest()
    host.inner.given = state
    return host.fleet.latest().hosts[0]


def narrowed(
    allocations: Sequence[Allocation] | None, *processes: GpuProcess, **changes: object
) -> HostState:
    made = host_state("gpu-01", *(gpu(index=n) for n in range(4)), processes=processes)
    kept = None if allocations is None else tuple(allocations)
    return late(with_snapshot(made, allocations=kept, **changes))


def shown(state: HostState) -> list[int]:
    return [each.index for each in known(state.snapshot).gpus]


ALL = [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("allocations", "processes", "gpus", "note"),
    [
        ([MINE, OTHERS], (), [1], ""),
        ([MINE, OTHERS], (on((0,)),), [1], ""),
        ([MINE], (on((3,), "7"),), [1, 3], ""),
        ([OTHERS], (), [], "no GPU there belongs to slurm 7"),
        ([], (), [], "no GPU there belongs to slurm 7"),
        ([OTHERS], (on((3,), "7"),), [3], ""),
        (None, (on((3,), "7"), on((0,), "8")), [3], "only GPUs with a process of slurm 7"),
        (None, (on((0,), "8"),), ALL, "is not known: all are shown"),
        ([UNKNOWN], (), ALL, "is not known: all are shown"),
        ([Allocation("slurm", None, None, ("GPU-0",))], (), ALL, "all are shown"),
        ([replace(MINE, unplaced=1)], (), ALL, "all are shown"),
        ([replace(MINE, job="6_1", number="7")], (), [1], ""),
        # A task that has started since.
        ([replace(MINE, job="7_5", number="12"), OTHERS], (), [1], ""),
        ([OTHERS], (on((3,), "7+1"),), [3], ""),
        ([replace(MINE, job="71_5")], (), [], "no GPU there"),
        ([Allocation("kubernetes", "7", None, ("GPU-1",))], (), ALL, "all are shown"),
        ([OTHERS, Allocation("kubernetes", "7", None, ("GPU-1",))], (), [], "no GPU there"),
        ([replace(MINE, unplaced=None)], (on((1,), "7"),), ALL, "all are shown"),
    ],
)
def test_the_gpus_of_the_job_are_shown_or_all_and_it_is_said(
    allocations: Sequence[Allocation] | None,
    processes: tuple[GpuProcess, ...],
    gpus: list[int],
    note: str,
) -> None:
    state = narrowed(allocations, *processes)
    assert shown(state) == gpus
    assert note in state.note
    assert bool(note) is bool(state.note)


def test_nothing_of_the_other_gpus_is_left() -> None:
    holders = [
        UnlistedHolder(ProcessId(pid, 1), (f"GPU-{pid}", "GPU-3"), HoldReason.ORPHAN, "it is")
        for pid in (1, 2)
    ]
    state = narrowed(
        *([MINE], on((0, 1), "7"), on((2,), pid=101), on((0,), pid=102)),
        holders=HolderScan(NOON, tuple(holders), 3),
        reserved=(Reserved("GPU-0"), Reserved("GPU-1")),
    )
    snapshot = known(state.snapshot)
    assert [each.gpu_indices for each in snapshot.processes] == [(0, 1), (0,)]
    assert shown(state) == [0, 1]
    assert [each.gpu_uuid for each in snapshot.reserved] == ["GPU-0", "GPU-1"]
    suspects = known(snapshot.holders).suspects
    assert [(each.id.pid, each.gpu_uuids) for each in suspects] == [(1, ("GPU-1",))]
    assert snapshot.allocations == (MINE,)
    only = known(narrowed([MINE, OTHERS], on((1, 2), pid=101)).snapshot)
    assert [each.gpu_indices for each in only.processes] == [(1,)]
    assert only.allocations == (MINE,)
    unsure = known(narrowed([UNKNOWN], on((1,), "7")).snapshot)
    assert unsure.allocations == (UNKNOWN,)


def test_the_gpu_of_a_mig_device_is_shown() -> None:
    made = host_state("gpu-01", gpu(), gpu(index=1, mig=(MigInstance("MIG-a", 0, 1, 0),)))
    given = replace(MINE, devices=("MIG-a",))
    assert shown(late(with_snapshot(made, allocations=(given,)))) == [1]


def test_states_and_a_sentence_stay() -> None:
    made = host_state("gpu-01", gpu(), gpu(index=1), sentence="it is old", status=HostStatus.DOWN)
    states = tuple(GpuState(f"GPU-{n}", FindingKind.FREE, Severity.GOOD, NOON) for n in (0, 1))
    made = replace(made, states=states)
    state = late(with_snapshot(made, allocations=(MINE,)))
    assert [each.gpu_uuid for each in state.states] == ["GPU-1"]
    assert (state.sentence, state.status) == ("it is old", HostStatus.DOWN)
    assert late(made).remark.startswith("it is old; ")


def test_the_gpus_of_a_job_stay_after_its_end_and_the_note_says_so() -> None:
    host = OneHost()
    assert shown(host.see((MINE, OTHERS))) == [1]
    ended = host.see((OTHERS,))
    assert shown(ended) == [1]
    assert ended.note == "slurm 7 has ended there"
    # That it is not known any more what was given to jobs is no end.
    for given in (None, (UNKNOWN,), (replace(MINE, unplaced=1),)):
        state = host.see(given)
        assert shown(state) == [1]
        assert state.note == ""
    # It runs again, on another GPU.
    assert shown(host.see((replace(MINE, devices=("GPU-3",)),))) == [3]


def test_nothing_is_shown_before_the_host_had_time_to_ask_slurm() -> None:
    host = OneHost()
    for given in (None, (UNKNOWN,), (replace(MINE, unplaced=1),)):
        state = host.see(given, on((0,), "7"))
        assert state.snapshot is None
        assert state.status is HostStatus.CONNECTING
        assert not is_settled(state)
    assert shown(host.see((MINE,))) == [1]
    slow = OneHost()
    slow.see((UNKNOWN,))
    assert shown(slow.see((UNKNOWN,), after=5.0)) == ALL
    # What nvidia-smi shows will never be known, and what is down is not asked.
    for changes in ({"origin": HostOrigin.NVIDIA_SMI}, {"status": HostStatus.DOWN}):
        assert shown(OneHost().see(None, **changes)) == ALL


def test_a_host_without_gpus_is_shown_at_once_with_its_own_sentence() -> None:
    host = OneHost()
    host.inner.given = with_snapshot(host_state(sentence="it has no driver"), gpus=())
    state = host.fleet.latest().hosts[0]
    assert state is host.inner.given
    assert state.remark == "it has no driver"


def test_a_host_that_falls_silent_has_no_new_sample() -> None:
    host = OneHost()
    state = host.see((MINE,))
    host.inner.given = replace(
        host.inner.given, status=HostStatus.SILENT, sentence="nothing arrives"
    )
    silent = host.fleet.latest().hosts[0]
    assert silent.sentence == "nothing arrives"
    assert silent.snapshot is state.snapshot


def test_all_views_of_a_fleet_agree() -> None:
    listed = read_host_list("slurm:88123,box", None, job_hosts)
    inner = DemoFleet(listed.names, clock=(clock := HandClock()))
    fleet = NarrowedFleet(inner, listed)
    for name in listed.names:
        inner.sample(name)
    hosts = fleet.latest().hosts
    assert fleet.title == "slurm 88123"
    assert [shown(state) for state in hosts] == [[5], [5], [], [5], [0, 1, 2, 3]]
    assert hosts[2].note == "no GPU there belongs to slurm 88123"
    again = fleet.latest().hosts
    assert all(one is other for one, other in zip(hosts, again, strict=True))
    summary = HostJudge(0).judge(hosts[0])
    assert [use.user for use in summary.users] == ["chen"]
    machine = fleet.machine("ada-05")
    machine.source.open()
    assert [each.index for each in machine.source.sample().gpus] == [5]
    assert machine.processes.readonly
    heard = threading.Event()
    end = fleet.subscribe(heard.set)
    clock.now += 1
    inner.sample("ada-05")
    assert heard.is_set()
    assert fleet.latest().hosts[0] is not hosts[0]
    end()


@pytest.mark.parametrize(
    ("allocations", "reserved_at", "seconds", "is_ready"),
    [
        ([UNKNOWN], NOON, 0.5, False),
        ([UNKNOWN], NOON, 2.0, True),
        # What remains unknown of a job that is known is not looked up again.
        ([replace(MINE, unplaced=None)], NOON, 0.5, True),
        ([MINE], NOON, 0.5, True),
        (None, NOON, 0.5, True),
        ([MINE], None, 0.5, False),
        ([MINE], None, 2.0, True),
    ],
)
def test_a_sample_waits_for_allocations_and_reservations_but_not_long(
    allocations: Sequence[Allocation] | None,
    reserved_at: float | None,
    seconds: float,
    is_ready: bool,
) -> None:
    state = narrowed(allocations, on((1,), "7"), reserved_at=reserved_at)
    assert is_settled(replace(state, received_at=state.since + seconds)) is is_ready


def test_the_title_counts_further_jobs() -> None:
    listed = HostList(("a",), ("7", "8", "9"), {})
    assert NarrowedFleet(DemoFleet(["a"]), listed).title == "slurm 7 +2"


def test_the_demo_names_its_jobs() -> None:
    with pytest.raises(FleetError, match="write slurm:88117 or slurm:88123"):
        read_host_list("slurm:5", None, job_hosts)
