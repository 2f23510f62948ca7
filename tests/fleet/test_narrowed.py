"""A fleet that shows the GPUs of a job only: which these are, and what is said where unknown."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec
import pytest

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
from gpumon.model.processes import HolderScan, HoldReason, ProcessId, UnlistedHolder, Workload
from gpumon.model.snapshot import MigInstance, Reserved
from gpumon.stream import GpuState
from tests.build import GIB, NOON, gpu, process
from tests.clock import HandClock
from tests.hosts import host_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.processes import GpuProcess

NAMES = frozenset({"7", "7_1"})
MINE = Allocation("slurm", "7_1", "ann", ("GPU-1",))
OTHERS = Allocation("slurm", "8", "bo", ("GPU-2",))
UNKNOWN = Allocation("slurm", unplaced=None)


def on(gpus: tuple[int, ...], job: str | None = None, pid: int = 100) -> GpuProcess:
    made = process(pid, memory_used=GIB, gpus=gpus)
    return msgspec.structs.replace(made, place=Workload(slurm_job=job))


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
        assert state.snapshot is not None
        snapshot = msgspec.structs.replace(state.snapshot, allocations=allocations)
        self.inner.given = msgspec.structs.replace(state, snapshot=snapshot)
        return self.fleet.latest().hosts[0]


def late(state: HostState) -> HostState:
    """A state of a host that has had time to ask Slurm, narrowed."""
    host = OneHost()
    host.inner.given = msgspec.structs.replace(state, received_at=NOON - 60)
    host.fleet.latest()
    host.inner.given = state
    return host.fleet.latest().hosts[0]


def narrowed(
    allocations: Sequence[Allocation] | None, *processes: GpuProcess, **changes: object
) -> HostState:
    made = host_state("gpu-01", *(gpu(index=n) for n in range(4)), processes=processes)
    assert made.snapshot is not None
    kept = None if allocations is None else tuple(allocations)
    snapshot = msgspec.structs.replace(made.snapshot, allocations=kept, **changes)
    return late(msgspec.structs.replace(made, snapshot=snapshot))


def shown(state: HostState) -> list[int]:
    assert state.snapshot is not None
    return [each.index for each in state.snapshot.gpus]


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
        ([msgspec.structs.replace(MINE, unplaced=1)], (), ALL, "all are shown"),
        ([msgspec.structs.replace(MINE, job="6_1", number="7")], (), [1], ""),
        # A task that has started since.
        ([msgspec.structs.replace(MINE, job="7_5", number="12"), OTHERS], (), [1], ""),
        ([OTHERS], (on((3,), "7+1"),), [3], ""),
        ([msgspec.structs.replace(MINE, job="71_5")], (), [], "no GPU there"),
        ([Allocation("kubernetes", "7", None, ("GPU-1",))], (), ALL, "all are shown"),
        ([OTHERS, Allocation("kubernetes", "7", None, ("GPU-1",))], (), [], "no GPU there"),
        ([msgspec.structs.replace(MINE, unplaced=None)], (on((1,), "7"),), ALL, "all are shown"),
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
    snapshot = state.snapshot
    assert snapshot is not None
    assert [each.gpu_indices for each in snapshot.processes] == [(0, 1), (0,)]
    assert shown(state) == [0, 1]
    assert [each.gpu_uuid for each in snapshot.reserved] == ["GPU-0", "GPU-1"]
    assert snapshot.holders is not None
    assert [each.id.pid for each in snapshot.holders.suspects] == [1]
    assert snapshot.holders.suspects[0].gpu_uuids == ("GPU-1",)
    assert snapshot.allocations == (MINE,)
    only = narrowed([MINE, OTHERS], on((1, 2), pid=101))
    assert only.snapshot is not None
    assert [each.gpu_indices for each in only.snapshot.processes] == [(1,)]
    assert only.snapshot.allocations == (MINE,)
    unsure = narrowed([UNKNOWN], on((1,), "7")).snapshot
    assert unsure is not None
    assert unsure.allocations == (UNKNOWN,)


def test_the_gpu_of_a_mig_device_is_shown() -> None:
    made = host_state("gpu-01", gpu(), gpu(index=1, mig=(MigInstance("MIG-a", 0, 1, 0),)))
    given = msgspec.structs.replace(MINE, devices=("MIG-a",))
    assert made.snapshot is not None
    snapshot = msgspec.structs.replace(made.snapshot, allocations=(given,))
    assert shown(late(msgspec.structs.replace(made, snapshot=snapshot))) == [1]


def test_states_and_a_sentence_stay() -> None:
    made = host_state("gpu-01", gpu(), gpu(index=1), sentence="it is old", status=HostStatus.DOWN)
    states = tuple(GpuState(f"GPU-{n}", FindingKind.FREE, Severity.GOOD, NOON) for n in (0, 1))
    made = msgspec.structs.replace(made, states=states)
    assert made.snapshot is not None
    snapshot = msgspec.structs.replace(made.snapshot, allocations=(MINE,))
    state = late(msgspec.structs.replace(made, snapshot=snapshot))
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
    for given in (None, (UNKNOWN,), (msgspec.structs.replace(MINE, unplaced=1),)):
        state = host.see(given)
        assert shown(state) == [1]
        assert state.note == ""
    # It runs again, on another GPU.
    assert shown(host.see((msgspec.structs.replace(MINE, devices=("GPU-3",)),))) == [3]


def test_nothing_is_shown_before_the_host_had_time_to_ask_slurm() -> None:
    host = OneHost()
    for given in (None, (UNKNOWN,), (msgspec.structs.replace(MINE, unplaced=1),)):
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
    made = host_state("gpu-01", sentence="it has no driver")
    assert made.snapshot is not None
    snapshot = msgspec.structs.replace(made.snapshot, gpus=())
    host.inner.given = msgspec.structs.replace(made, snapshot=snapshot)
    state = host.fleet.latest().hosts[0]
    assert state is host.inner.given
    assert state.remark == "it has no driver"


def test_a_host_that_falls_silent_has_no_new_sample() -> None:
    host = OneHost()
    state = host.see((MINE,))
    host.inner.given = msgspec.structs.replace(
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


def test_a_sample_waits_for_what_slurm_has_given_but_not_long() -> None:
    def is_ready(allocations: Sequence[Allocation] | None, seconds: float) -> bool:
        state = narrowed(allocations, on((1,), "7"), reserved_at=NOON)
        assert state.snapshot is not None
        return is_settled(msgspec.structs.replace(state, received_at=state.since + seconds))

    assert not is_ready([UNKNOWN], 0.5)
    assert is_ready([UNKNOWN], 2.0)
    # What remains unknown of a job that is known is not looked up again.
    assert is_ready([msgspec.structs.replace(MINE, unplaced=None)], 0.5)
    assert is_ready([MINE], 0.5)
    assert is_ready(None, 0.5)


def test_a_sample_waits_for_the_reservations_but_not_long() -> None:
    unread = narrowed([MINE], on((1,), "7"))

    def is_ready(seconds: float) -> bool:
        return is_settled(msgspec.structs.replace(unread, received_at=unread.since + seconds))

    assert not is_ready(0.5)
    assert is_ready(2.0)


def test_the_title_counts_further_jobs() -> None:
    listed = HostList(("a",), ("7", "8", "9"), {})
    assert NarrowedFleet(DemoFleet(["a"]), listed).title == "slurm 7 +2"


def test_the_demo_names_its_jobs() -> None:
    with pytest.raises(FleetError, match="write slurm:88117 or slurm:88123"):
        read_host_list("slurm:5", None, job_hosts)
