"""What the lookup promises: nobody waits for it, and nothing it finds out is lost or stale."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

import pytest
from msgspec.structs import replace

from gpumon.allocations import Allocations
from gpumon.host.process_host import Details, ProcessHandle, RelatedProcess, Target
from gpumon.model.allocations import Allocation
from gpumon.model.processes import (
    GpuProcess,
    HolderScan,
    HoldReason,
    ProcessId,
    UnlistedHolder,
    Workload,
)
from gpumon.model.snapshot import MigInstance, ReservationHolder, Reserved, Snapshot
from gpumon.sampling.enrichment import Lookup
from gpumon.system.system import THIS_SYSTEM, Clock
from tests.build import GIB, gpu, process, snapshot
from tests.clock import EPOCH, ThreadedClock
from tests.known import known
from tests.screen import PATIENCE

SUSPECT = UnlistedHolder(ProcessId(9, 1), ("GPU-0",), HoldReason.ORPHAN, "its parent ended")


class FakeHost:
    """A host that says of every process that it is in the tmux session of its own number."""

    uid: int | None = 1000
    user: str | None = "ann"
    readonly = False

    def __init__(self) -> None:
        self.places_asked: list[list[int]] = []
        self.scans = 0
        self.roots: list[list[int]] = []
        self.before_workloads: Callable[[], object] = lambda: None
        self.before_scan: Callable[[], object] = lambda: None
        self.before_relatives: Callable[[], object] = lambda: None
        self.suffix = ""
        self.silent_about: set[int] = set()

    def workloads(self, processes: Sequence[GpuProcess]) -> Mapping[ProcessId, Workload]:
        self.places_asked.append([one.id.pid for one in processes])
        self.before_workloads()
        return {
            one.id: Workload(tmux=f"{one.id.pid}{self.suffix}")
            for one in processes
            if one.id.pid not in self.silent_about
        }

    def scan(self, snapshot: Snapshot) -> HolderScan | None:
        self.scans += 1
        self.before_scan()
        return HolderScan(snapshot.time, (SUSPECT,))

    def relatives(self, roots: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:
        known = list(roots)
        self.roots.append([root.pid for root in known])
        self.before_relatives()
        return tuple(RelatedProcess(root, 1, 1, 1, "python") for root in known)

    def details(self, process: ProcessId) -> Details | None:
        raise NotImplementedError

    def open_handle(self, target: Target) -> ProcessHandle:
        raise NotImplementedError

    def wait(self, grips: Sequence[ProcessHandle], seconds: float) -> None:
        raise NotImplementedError


class Bench:
    """A lookup whose threads go on when the test lets time pass."""

    def __init__(
        self, reservations: FakeLocks | None = None, allocations: Allocations | None = None
    ) -> None:
        self.clock = ThreadedClock(0.0)
        self.host = FakeHost()
        self.lookup = Lookup(self.host, self.clock, reservations, allocations)
        self.annotate = self.lookup.annotate
        self.pass_time = self.clock.pass_time

    def start(self) -> Bench:
        self.clock.start(self.lookup)
        return self

    def sees(self, *processes: GpuProcess, seconds: float = 0.0) -> Snapshot:
        """Annotate a snapshot of these processes, and let time pass; returns the snapshot."""
        given = snapshot(processes=processes)
        self.annotate(given)
        self.pass_time(seconds)
        return given

    def hang(self, kind: str) -> Hang:
        """Let lookups of a kind hang."""
        hang = Hang(self.clock)
        setattr(self.host, f"before_{kind}", hang)
        return hang

    def end(self) -> None:
        """Stop; all threads end."""
        with suppress(ZeroDivisionError):
            self.lookup.stop()
        self.clock.pass_time(1.0)
        for thread in self.clock.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


class Hang:
    """A look that does not come back until it is let go."""

    def __init__(self, clock: Clock = THIS_SYSTEM.clock) -> None:
        self.clock = clock
        self.has_begun = False
        self.may_end = threading.Event()

    def __call__(self) -> None:
        self.has_begun = True
        assert self.clock.wait(self.may_end, PATIENCE)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench().start()
    yield bench
    bench.end()


def tmux(given: Snapshot) -> list[str | None]:
    """The tmux session of each process, as far as known."""
    return [one.place.tmux if one.place else None for one in given.processes]


ANN, BO = process(100), process(200, user="bo")


# What is added


def test_what_is_known_by_now_is_added_and_nothing_is_waited_for(bench: Bench) -> None:
    given = snapshot(processes=(ANN,))
    assert bench.annotate(given) is given, "nothing is known yet"
    bench.pass_time(2.0)
    known = bench.annotate(given)
    assert tmux(known) == ["100"]
    assert known.holders == HolderScan(given.time, (SUSPECT,))
    assert replace(known, processes=given.processes, holders=None) == given


def test_what_the_source_tells_stays_and_is_not_looked_up(bench: Bench) -> None:
    told = replace(process(300), place=Workload(tmux="told"))
    given = replace(snapshot(processes=(told,)), holders=HolderScan(5.0))
    bench.annotate(given)
    bench.pass_time(30.0)
    assert bench.annotate(given) is given
    assert (bench.host.places_asked, bench.host.scans) == ([], 0)


def test_what_the_source_tells_stands_above_what_was_looked_up(bench: Bench) -> None:
    bench.sees(ANN)
    told = snapshot(processes=(replace(ANN, place=Workload(tmux="told")),))
    assert bench.annotate(told).processes is told.processes


def test_a_process_that_is_not_visible_is_not_asked_about(bench: Bench) -> None:
    """Its number may be a stranger's here."""
    hidden = process(300, start_time=None, visible=False)
    bench.lookup.want_relatives(True)
    bench.sees(ANN, hidden, seconds=20.0)
    assert {pid for asked in bench.host.places_asked for pid in asked} == {100}
    assert bench.host.roots[-1] == [100]


def test_without_cards_nobody_scans_for_who_holds_them(bench: Bench) -> None:
    bench.annotate(replace(snapshot(), gpus=()))
    bench.pass_time(30.0)
    assert bench.host.scans == 0


# Identity


def test_the_same_processes_stay_the_same_tuple_as_long_as_nothing_new_is_known(
    bench: Bench,
) -> None:
    given = bench.sees(ANN, BO, seconds=20.0)
    first = bench.annotate(given)
    bench.pass_time(20.0)
    later = bench.annotate(replace(given, time=given.time + 20))
    assert len(bench.host.places_asked) > 4, "it was looked up again meanwhile"
    assert later.processes is first.processes


def test_a_process_of_whom_nothing_new_is_known_stays_the_same_object(bench: Bench) -> None:
    bench.host.silent_about = {200}
    given = bench.sees(ANN, BO)
    before = bench.annotate(given)
    assert tmux(before) == ["100", None]
    bench.host.silent_about = set()
    bench.pass_time(10.0)
    after = bench.annotate(given)
    assert tmux(after) == ["100", "200"]
    assert after.processes[0] is before.processes[0]
    assert before.processes[1] is BO


def test_a_place_that_changes_is_told(bench: Bench) -> None:
    given = bench.sees(ANN)
    assert tmux(bench.annotate(given)) == ["100"]
    bench.host.suffix = " renamed"
    bench.pass_time(10.0)
    assert tmux(bench.annotate(given)) == ["100 renamed"]


def test_who_has_ended_keeps_the_place_as_long_as_it_is_listed(bench: Bench) -> None:
    given = bench.sees(ANN, BO)
    bench.host.silent_about = {100}
    bench.pass_time(12.0)
    assert tmux(bench.annotate(given)) == ["100", "200"]
    bench.sees(BO, seconds=10.0)
    assert tmux(bench.annotate(given)) == [None, "200"], "and is forgotten then"


# The pace


def test_new_processes_are_looked_up_at_once_and_all_every_ten_seconds(bench: Bench) -> None:
    bench.sees(ANN)
    assert bench.host.places_asked == [[100]]
    bench.pass_time(3.0)
    bench.sees(ANN, BO)
    assert bench.host.places_asked == [[100], [200]]
    bench.pass_time(6.9)
    assert len(bench.host.places_asked) == 2
    bench.pass_time(0.1)
    assert bench.host.places_asked[2:] == [[100, 200]]


def test_a_scan_comes_every_ten_seconds_and_the_first_lets_the_screen_come_up(bench: Bench) -> None:
    bench.sees(ANN)
    for seconds, scans in ((1.9, 0), (0.1, 1), (9.9, 1), (0.1, 2)):
        bench.pass_time(seconds)
        assert bench.host.scans == scans


def test_who_leaves_the_list_brings_a_scan_but_never_two_in_two_seconds(bench: Bench) -> None:
    for processes, seconds, scans in (
        *(((ANN, BO), 5.0, 1), ((ANN,), 0.0, 2), ((), 1.9, 2), ((), 0.1, 3)),
        ((ANN,), 9.9, 3),  # who comes brings none
    ):
        bench.sees(*processes, seconds=seconds)
        assert bench.host.scans == scans


@pytest.mark.parametrize(
    ("card", "scans"),
    [
        (gpu(memory_used=12 * GIB), 2),
        (gpu(memory_used=GIB), 1),
        (gpu(memory_used=None), 1),
        (gpu(memory_used=12 * GIB, memory_unified=True), 1),
    ],
    ids=["much", "as held", "unknown", "the host's"],
)
def test_memory_that_begins_to_have_no_owner_brings_a_scan(
    bench: Bench, card: object, scans: int
) -> None:
    bench.sees(ANN, seconds=5.0)
    for _ in range(4):
        bench.annotate(replace(snapshot(processes=(replace(ANN, rss=1),)), gpus=(card,)))
        bench.pass_time(1.0)
    assert bench.host.scans == scans, "one for the news, none for as long as it stays"


def test_memory_is_not_without_an_owner_while_that_of_one_is_unknown(bench: Bench) -> None:
    bench.sees(ANN, seconds=5.0)
    unknown = process(100, memory_used=None)
    bench.annotate(replace(snapshot(processes=(unknown,)), gpus=(gpu(memory_used=60 * GIB),)))
    bench.pass_time(4.0)
    assert bench.host.scans == 1


def test_a_look_that_takes_long_rests_twenty_times_as_long(bench: Bench) -> None:
    bench.host.before_scan = lambda: bench.clock.sleep(1.0)
    bench.sees(ANN, seconds=3.0)
    assert bench.host.scans == 1
    bench.sees(seconds=19.9)
    assert bench.host.scans == 1, "not even for who left"
    bench.pass_time(0.1)
    assert bench.host.scans == 2


def test_a_scan_is_as_old_as_it_says(bench: Bench) -> None:
    given = bench.sees(ANN, seconds=2.0)
    assert known(bench.annotate(replace(given, time=given.time + 5)).holders).at == given.time


def test_families_are_read_once_a_second_while_wanted_and_else_not_at_all(bench: Bench) -> None:
    bench.sees(ANN, BO, seconds=10.0)
    assert (bench.host.roots, bench.lookup.relatives) == ([], ())
    bench.lookup.want_relatives(True)
    bench.pass_time()
    assert [relatives.id for relatives in bench.lookup.relatives] == [ANN.id, BO.id]
    for _ in range(4):
        bench.lookup.want_relatives(True)
        bench.pass_time(0.5)
    assert bench.host.roots == [[100, 200]] * 3
    bench.lookup.want_relatives(False)
    assert bench.lookup.relatives == ()
    bench.pass_time(10.0)
    assert len(bench.host.roots) == 3
    bench.lookup.want_relatives(True)
    assert bench.lookup.relatives == (), "what was read long ago is not shown again"


def test_families_that_come_when_they_are_no_longer_wanted_are_not_shown(bench: Bench) -> None:
    bench.annotate(snapshot(processes=(ANN,)))
    bench.host.before_relatives = lambda: bench.lookup.want_relatives(False)
    bench.lookup.want_relatives(True)
    bench.pass_time()
    assert (bench.host.roots, bench.lookup.relatives) == ([[100]], ())


# What goes wrong


NOT_YOURS = PermissionError("not yours")


def refuse(trouble: Exception = NOT_YOURS) -> None:
    raise trouble


@pytest.mark.parametrize(
    "trouble",
    [
        NOT_YOURS,
        # Of a module that a look imports.
        OSError(errno.EMFILE, "Too many open files"),
        ImportError("fcntl.so: cannot open shared object file: Too many open files"),
    ],
    ids=str,
)
def test_an_os_error_is_no_answer_and_what_was_known_stays(
    bench: Bench, trouble: Exception
) -> None:
    bench.lookup.want_relatives(True)
    given = bench.sees(ANN, seconds=2.0)
    known, relatives = bench.annotate(given), bench.lookup.relatives
    bench.host.before_workloads = bench.host.before_scan = bench.host.before_relatives = partial(
        refuse, trouble
    )
    bench.pass_time(20.0)
    assert bench.annotate(given) == known
    assert bench.lookup.relatives is relatives
    bench.host.before_workloads = bench.host.before_scan = lambda: None
    bench.host.suffix = " again"
    bench.pass_time(10.0)
    assert tmux(bench.annotate(given)) == ["100 again"], "and it is asked again"
    assert bench.lookup.failure is None


@pytest.mark.parametrize("kind", ["workloads", "scan", "relatives"])
def test_a_look_that_hangs_keeps_away_its_own_answers_only(bench: Bench, kind: str) -> None:
    hang = bench.hang(kind)
    bench.lookup.want_relatives(True)
    given = bench.sees(ANN, seconds=2.0)
    assert hang.has_begun
    now = bench.annotate(given)
    told = {
        "workloads": tmux(now) == ["100"],
        "scan": now.holders,
        "relatives": bench.lookup.relatives,
    }
    assert {kind for kind, answer in told.items() if not answer} == {kind}
    begun = time.monotonic()
    bench.lookup.stop()
    assert time.monotonic() - begun < PATIENCE / 4
    hang.may_end.set()
    bench.end()


def test_a_look_that_comes_back_late_is_an_answer_all_the_same(bench: Bench) -> None:
    hang = bench.hang("workloads")
    given = snapshot(processes=(ANN,))
    assert bench.annotate(given) is given
    bench.pass_time(1.0)
    assert hang.has_begun
    hang.may_end.set()
    bench.pass_time()
    assert tmux(bench.annotate(given)) == ["100"]


@pytest.mark.parametrize("kind", ["workloads", "scan", "relatives"])
def test_a_bug_in_a_look_reaches_whoever_samples_and_whoever_stops(bench: Bench, kind: str) -> None:
    bug = ZeroDivisionError("a bug in a look")

    def break_down() -> None:
        raise bug

    setattr(bench.host, f"before_{kind}", break_down)
    bench.lookup.want_relatives(True)
    bench.sees(ANN, seconds=2.0)
    assert bench.lookup.failure is bug
    with pytest.raises(ZeroDivisionError):
        bench.annotate(snapshot())
    with pytest.raises(ZeroDivisionError):
        bench.lookup.stop()


def test_its_threads_end_when_it_is_stopped_and_are_named(bench: Bench) -> None:
    kinds = ("workloads", "holders", "relatives")
    assert {thread.name for thread in bench.clock.threads} == {
        f"gpumon-lookup-{kind}" for kind in kinds
    }
    bench.end()
    bench.lookup.stop()


def test_a_lookup_that_never_started_can_be_stopped() -> None:
    Lookup(FakeHost()).stop()


# Once


def test_one_look_knows_everything_when_it_returns() -> None:
    host = FakeHost()
    host.before_workloads = host.before_scan = lambda: threading.Event().wait(0.02)
    given = snapshot(processes=(ANN, BO))
    known = Lookup(host).look_once(given, PATIENCE)
    assert tmux(known) == ["100", "200"]
    assert known.holders == HolderScan(given.time, (SUSPECT,))
    assert (host.places_asked, host.scans, host.roots) == ([[100, 200]], 1, [])


@pytest.mark.parametrize("kind", ["workloads", "scan"])
def test_one_look_leaves_out_what_is_late(kind: str) -> None:
    host, hang = FakeHost(), Hang()
    setattr(host, f"before_{kind}", hang)
    begun = time.monotonic()
    known = Lookup(host).look_once(snapshot(processes=(ANN,)), 0.05)
    assert time.monotonic() - begun < PATIENCE / 4
    assert known.holders is None
    if kind == "workloads":
        assert tmux(known) == [None]
    hang.may_end.set()


def test_a_bug_in_one_look_is_raised() -> None:
    def break_down() -> None:
        raise ZeroDivisionError

    host = FakeHost()
    host.before_scan = break_down
    with pytest.raises(ZeroDivisionError):
        Lookup(host).look_once(snapshot(), PATIENCE)


class FakeLocks:
    """Says who has reserved what, when it is told to."""

    def __init__(self) -> None:
        self.held: dict[str, ReservationHolder] = {}
        self.asked: list[list[str]] = []
        self.before: Callable[[], object] = lambda: None

    def __call__(self, uuids: Iterable[str]) -> Mapping[str, ReservationHolder]:
        self.asked.append(list(uuids))
        self.before()
        return dict(self.held)


MIG = replace(gpu(index=1), mig=(MigInstance("MIG-5", 0),))


@pytest.fixture
def locks() -> FakeLocks:
    return FakeLocks()


@pytest.fixture
def with_locks(locks: FakeLocks) -> Iterator[Bench]:
    bench = Bench(locks).start()
    yield bench
    bench.end()


def test_who_has_reserved_a_card_is_told_with_every_snapshot(
    with_locks: Bench, locks: FakeLocks
) -> None:
    given = snapshot(10.0, gpu(), MIG)
    locks.held = {"GPU-0": ReservationHolder("ann", 7, 3.0, "train"), "MIG-5": ReservationHolder()}
    before = with_locks.annotate(given)
    assert (before.reserved, before.reserved_at) == ((), None), "they have not been read"
    with_locks.pass_time()
    assert locks.asked == [["GPU-0", "GPU-1", "MIG-5"]], "the first look waits for no other"
    told = with_locks.annotate(given)
    assert told.reserved == (
        Reserved("GPU-0", None, "ann", 7, 3.0, "train"),
        Reserved("GPU-1", "MIG-5"),
    )
    with_locks.pass_time(1.9)
    assert len(locks.asked) == 1
    with_locks.pass_time(0.1)
    assert len(locks.asked) == 2
    again = with_locks.annotate(given)
    assert again.reserved is told.reserved, "nothing has changed"
    assert (told.reserved_at, again.reserved_at) == (EPOCH, EPOCH + 2.0)
    locks.held = {}
    with_locks.pass_time(2.0)
    assert with_locks.annotate(given).reserved == ()


def test_locks_that_cannot_be_read_leave_what_was_known(
    with_locks: Bench, locks: FakeLocks
) -> None:
    locks.held = {"GPU-0": ReservationHolder("ann")}
    with_locks.annotate(snapshot(10.0, gpu()))
    with_locks.pass_time()
    locks.before = refuse
    with_locks.pass_time(2.0)
    assert len(locks.asked) == 2
    known = with_locks.annotate(snapshot(11.0, gpu()))
    assert known.reserved == (Reserved("GPU-0", user="ann"),)
    assert with_locks.lookup.failure is None


def test_locks_that_take_long_are_looked_at_less_often(with_locks: Bench, locks: FakeLocks) -> None:
    locks.before = lambda: with_locks.clock.sleep(1.0)
    with_locks.annotate(snapshot(10.0, gpu()))
    with_locks.pass_time(1.0 + 19.9)
    assert len(locks.asked) == 1
    with_locks.pass_time(0.1)
    assert len(locks.asked) == 2


class FakeScheduler:
    """Says in two parts what it has given away, and then that it has given away nothing more."""

    def __init__(self) -> None:
        self.before: Callable[[], object] = lambda: None
        self.parts = [((OF_ANN,), 0.0), ((OF_ANN, OF_BO), 5.0), ((), 5.0)]

    def find(self, snapshot: Snapshot, patience: float) -> tuple[tuple[Allocation, ...], float]:
        assert patience > 0
        assert snapshot.gpus
        self.before()
        return self.parts.pop(0)


OF_ANN = Allocation("slurm", "7", "ann", ("GPU-0",))
OF_BO = Allocation("slurm", "8", "bo", ("GPU-1",))


def test_what_a_scheduler_has_given_away_is_unknown_before_it_is_known() -> None:
    scheduler, given = FakeScheduler(), snapshot(10.0, gpu(), MIG)
    allocations = Allocations({"slurm": lambda: scheduler})
    bench = Bench(allocations=allocations)
    scheduler.before = lambda: bench.clock.sleep(1.0)
    bench.start()
    assert bench.annotate(given).allocations == allocations.unknown
    bench.pass_time(1.0)
    assert bench.annotate(given).allocations == (OF_ANN,)
    bench.pass_time(1.0)
    assert bench.annotate(given).allocations == (OF_ANN, OF_BO)
    bench.pass_time(5.0)
    assert bench.annotate(given).allocations == (OF_ANN, OF_BO)
    bench.pass_time(1.0)
    assert bench.annotate(given).allocations == ()
    # Another machine's snapshots have their own.
    assert bench.annotate(replace(given, allocations=(OF_BO,))).allocations == (OF_BO,)
    assert Lookup(FakeHost()).annotate(given).allocations is None
    bench.end()


def test_one_sample_has_all_that_a_scheduler_has_given_away() -> None:
    lookup = Lookup(FakeHost(), allocations=Allocations({"slurm": FakeScheduler}))
    assert lookup.look_once(snapshot(10.0, gpu(), MIG)).allocations == (OF_ANN, OF_BO)


def test_locks_that_hang_keep_no_place_away(with_locks: Bench, locks: FakeLocks) -> None:
    locks.before = hang = Hang(with_locks.clock)
    given = snapshot(10.0, gpu(), processes=(process(5),))
    with_locks.annotate(given)
    with_locks.pass_time()
    assert hang.has_begun
    assert with_locks.annotate(given).processes[0].place is not None
    hang.may_end.set()
