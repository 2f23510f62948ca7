"""The demo: a believable machine, the same for the same seed and moment, with a past to tell."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.makers.demo import DemoSource
from gpumon.makers.demo.curves import (
    Area,
    dimmed,
    mean,
    ripples,
    scaled,
    steady,
    switch,
    together,
    wave,
)
from gpumon.makers.source import Source
from gpumon.model.metrics import Unit, clock_event_names
from gpumon.model.processes import GpuProcess, HoldReason
from gpumon.model.selection import parse_selection
from gpumon.model.snapshot import GPU_METRICS, Gpu, GpuStatus, Snapshot
from gpumon.system.system import Clock
from tests.clock import HandClock
from tests.known import known

START = 1_763_700_000.0
GIB = 2**30
HOUR = 3600.0
DAY = 86400.0


class Demo:
    """A demo that can be asked for any moment, in seconds after its start."""

    def __init__(self, seed: int = 1, start: float = START) -> None:
        self.start = start
        self.clock = HandClock(start, epoch=0.0)
        self.source = DemoSource(seed, self.clock)

    def at(self, seconds: float) -> Snapshot:
        self.clock.now = self.start + seconds
        return self.source.sample()


@pytest.fixture
def demo() -> Demo:
    return Demo()


times = st.floats(min_value=-DAY, max_value=30 * DAY)


def held(snapshot: Snapshot) -> dict[int, int]:
    """Bytes that processes hold of each card."""
    found: dict[int, int] = defaultdict(int)
    for process in snapshot.processes:
        for use in process.uses:
            found[use.gpu_index] += known(use.memory_used)
    return found


def working(snapshot: Snapshot) -> list[Gpu]:
    """The cards that are not lost."""
    return [gpu for gpu in snapshot.gpus if gpu.status is not GpuStatus.LOST]


def test_it_is_a_source_that_says_it_is_a_demo(demo: Demo) -> None:
    clock: Clock = demo.clock
    source: Source = DemoSource(1, clock)
    source.open()
    assert source.sample().source == "demo"
    assert source.current_call is None
    assert source.driver_seconds == 0.0
    source.close()
    source.close()


def test_the_same_seed_and_moment_give_the_same_snapshot_whatever_was_asked_before() -> None:
    restless, calm = Demo(7), Demo(7)
    for seconds in (0.0, 4000.5, 12.3, 12.4, -600.0):
        restless.at(seconds)
    list(restless.source.past())
    assert restless.at(90.25) == calm.at(90.25)


def test_another_seed_is_another_machine() -> None:
    one, other = Demo(1).at(60), Demo(2).at(60)
    assert not {gpu.uuid for gpu in one.gpus} & {gpu.uuid for gpu in other.gpus}
    assert [gpu.power_draw for gpu in one.gpus] != [gpu.power_draw for gpu in other.gpus]


def test_every_figure_of_the_story_is_there_at_the_start(demo: Demo) -> None:
    snapshot = demo.at(0)
    shared, partner, hot, notebook, free, stuck, lost, orphaned = snapshot.gpus
    by_gpu = defaultdict(list)
    for process in snapshot.processes:
        by_gpu[process.gpu_indices].append(process)

    (spanning,) = by_gpu[0, 1]
    assert spanning.command[1].endswith("/train.py")
    assert known(shared.utilization_gpu) > 0
    assert known(partner.utilization_gpu) > 90, "busy"
    assert known(partner.sm_active) < 15, "but empty"
    assert known(hot.sm_active) > 80

    assert hot.temperature_gpu == 86
    assert "SW thermal" in clock_event_names(hot.clock_event_reasons or 0)

    assert notebook.utilization_gpu == 0
    assert known(notebook.memory_used) / GIB == pytest.approx(52.0, abs=0.1)
    assert {process.user for process in by_gpu[3,]} == {"bo"}

    assert not by_gpu[4,]
    assert known(free.memory_used) < GIB // 10

    assert stuck.utilization_gpu == 100
    assert known(stuck.power_draw) / known(stuck.power_limit) == pytest.approx(0.17, abs=0.01)

    assert lost.status is GpuStatus.LOST
    assert lost.xid == 79
    assert START - known(lost.status_since) == pytest.approx(330)
    assert not by_gpu[6,]

    unattributed = known(orphaned.memory_used) - held(snapshot)[7]
    assert unattributed / GIB == pytest.approx(31.0, abs=0.1)
    servers = [p.place.server.engine for p in by_gpu[7,] if p.place and p.place.server]
    assert servers == ["vllm"]

    assert 16 <= len(snapshot.processes) <= 24
    assert len({process.user for process in snapshot.processes}) >= 5


@given(times)
def test_memory_adds_up_at_any_time(seconds: float) -> None:
    snapshot = Demo().at(seconds)
    on_gpu = held(snapshot)
    assert set(on_gpu) <= {gpu.index for gpu in working(snapshot)}
    for gpu in working(snapshot):
        used, free = known(gpu.memory_used), known(gpu.memory_free)
        assert free >= 0
        assert used + free + known(gpu.memory_reserved) == gpu.memory_total
        assert (used - on_gpu[gpu.index] > GIB) == (gpu.index == 7)


@given(times, st.integers(0, 50))
def test_values_stay_within_what_such_a_card_can_do(seconds: float, seed: int) -> None:
    for gpu in working(Demo(seed).at(seconds)):
        for metric in GPU_METRICS:
            value = getattr(gpu, metric.field)
            if metric.unit in {Unit.PERCENT, Unit.SHARE} and value is not None:
                assert 0 <= value <= 100, metric.field
        assert 25 <= known(gpu.temperature_gpu) <= 89
        assert 60 <= known(gpu.power_draw) <= 720
        assert 60 <= known(gpu.power_instant) <= 800
        assert 345 <= known(gpu.clock_sm) <= known(gpu.clock_sm_max)
        assert known(gpu.clock_sm) % 15 == 0


@given(st.integers(-4 * 3600, 3600))
def test_a_gpu_does_the_work_of_its_processes(second: int) -> None:
    demo = Demo()
    earlier, snapshot = demo.at(second - 2), demo.at(second)
    for gpu in working(snapshot):
        before = earlier.gpus[gpu.index]
        uses = [use for p in snapshot.processes for use in p.uses if use.gpu_uuid == gpu.uuid]
        work = sum(known(use.sm) for use in uses)
        assert abs(work - known(gpu.utilization_gpu)) <= len(uses) / 2
        assert (known(gpu.clock_sm) == 345) == (gpu.utilization_gpu == 0)
        if gpu.utilization_gpu == before.utilization_gpu == 0:
            assert known(gpu.power_draw) < 100
        if known(gpu.power_draw) > 150:
            assert known(gpu.utilization_gpu) + known(before.utilization_gpu) > 0
        if known(gpu.utilization_gpu) > 10:
            assert sum(known(use.memory_used) for use in uses) > GIB


@given(st.floats(-4 * HOUR, 0.0), st.floats(0, 0.999))
def test_a_gpu_without_processes_is_idle_cool_and_empty(seconds: float, fraction: float) -> None:
    demo = Demo(start=START + fraction)
    recent = [demo.at(seconds - ago) for ago in (240, 180, 120, 60, 2, 1, 0)]
    occupied = {index for snapshot in recent for index in held(snapshot)}
    for gpu in working(recent[-1]):
        if gpu.index not in occupied:
            assert gpu.utilization_gpu == 0
            assert known(gpu.power_draw) < 80
            assert known(gpu.temperature_gpu) <= 36
            assert known(gpu.memory_used) < GIB // 100


@given(st.floats(-331, -329), st.floats(0, 0.999))
def test_a_lost_gpu_has_no_process_however_the_clock_stood(seconds: float, part: float) -> None:
    snapshot = Demo(start=START + part).at(seconds)
    assert set(held(snapshot)) <= {gpu.index for gpu in working(snapshot)}


@given(times)
def test_energy_agrees_with_the_power_and_temperature_has_inertia(seconds: float) -> None:
    demo = Demo()
    before = demo.at(seconds - 1)
    for new in working(demo.at(seconds)):
        old = before.gpus[new.index]
        energy, heat = known(old.energy), known(old.temperature_gpu)
        assert known(new.energy) - energy == pytest.approx(known(new.power_draw), abs=0.02)
        assert abs(known(new.temperature_gpu) - heat) <= 3


@pytest.mark.parametrize("seconds", [-3 * HOUR, 0, 100])
def test_every_metric_is_known_or_says_why_not(demo: Demo, seconds: float) -> None:
    # No error has happened is no reason why one is unknown.
    fields = {metric.field for metric in GPU_METRICS} - {"xid", "xid_at"}
    for gpu in demo.at(seconds).gpus:
        assert {field for field in fields if getattr(gpu, field) is None} == fields & set(
            gpu.unknown
        )


def test_busy_cards_move_and_the_stuck_one_does_not(demo: Demo) -> None:
    seen: list[list[Gpu]] = [list(demo.at(second).gpus) for second in range(60)]
    moving = {
        index
        for index in range(8)
        if len({gpus[index].utilization_gpu for gpus in seen}) > 5
        and len({gpus[index].power_draw for gpus in seen}) > 30
    }
    assert moving >= {0, 7}
    assert {(gpus[5].utilization_gpu, gpus[5].power_draw) for gpus in seen} == {(100, 121.0)}


def test_power_follows_utilisation(demo: Demo) -> None:
    gpus = [demo.at(second).gpus[0] for second in range(600)]
    gpus.sort(key=lambda gpu: known(gpu.utilization_gpu))
    calmest = [known(gpu.power_draw) for gpu in gpus[:60]]
    busiest = [known(gpu.power_draw) for gpu in gpus[-60:]]
    assert min(busiest) > max(calmest)


def test_jobs_come_and_go_under_new_numbers(demo: Demo) -> None:
    visits = [
        {p.id for p in demo.at(minute * 60).processes if p.gpu_indices == (4,)}
        for minute in range(60)
    ]
    assert set() in visits
    visitors = set().union(*visits)
    assert len(visitors) >= 4
    assert len({visitor.pid for visitor in visitors}) == len(visitors)


def test_a_job_is_the_same_process_with_the_same_start_as_long_as_it_runs(demo: Demo) -> None:
    first = {p.id: p.started_at for p in demo.at(0).processes}
    later = {p.id: p.started_at for p in demo.at(30).processes}
    assert len(first.keys() & later.keys()) >= 16
    assert all(later[id_] == first[id_] for id_ in first.keys() & later.keys())


@given(times)
def test_no_two_processes_share_a_number(seconds: float) -> None:
    pids = [process.id.pid for process in Demo().at(seconds).processes]
    assert len(set(pids)) == len(pids)


def test_the_leaking_job_grows(demo: Demo) -> None:
    leaks = [
        known(process.memory_used)
        for hours in (0, 0.5, 1)
        for process in demo.at(hours * HOUR).processes
        if "collect_rollouts.py" in process.command
    ]
    assert len(set(leaks)) == 3
    assert leaks == sorted(leaks)


def test_process_facts_are_complete(demo: Demo) -> None:
    for process in demo.at(100).processes:
        assert process.visible
        assert None not in (process.user, process.uid, process.name, process.rss)
        assert None not in (process.cpu_percent, process.started_at, process.id.start_time)
        assert known(process.place).session is not None
        assert process.state in ("R", "S")
        assert process.command
        for use in process.uses:
            assert None not in (use.memory_used, use.sm, use.memory_activity)


def test_every_kind_of_place_is_there(demo: Demo) -> None:
    places = [process.place for process in demo.at(100).processes if process.place is not None]
    labels = {label for place in places for label in place.labels}
    assert {label.partition(" ")[0] for label in labels} == {
        *("slurm", "docker", "pod", "jupyter", "tmux", "env", "vllm", "llama.cpp")
    }
    assert {"slurm 88117.0", "jupyter attention-maps.ipynb"} <= labels
    launchers = [place.launcher_name for place in places if place.launcher is not None]
    assert launchers.count("torchrun") == 2
    assert any(not place.labels for place in places), "a plain session over ssh"


def test_ranks_of_one_launcher_are_in_one_session(demo: Demo) -> None:
    ranks = [p.place for p in demo.at(0).processes if p.place and p.place.launcher_name]
    assert len(ranks) == 5
    assert len({place.launcher for place in ranks}) == 2
    assert len({(place.launcher, place.session) for place in ranks}) == 2


def test_the_stray_memory_has_its_suspect(demo: Demo) -> None:
    snapshot = demo.at(0)
    holders = known(snapshot.holders)
    first, *others = holders.suspects
    assert (first.reason, first.gpu_uuids) == (HoldReason.ORPHAN, (snapshot.gpus[7].uuid,))
    assert known(first.parent).pid == 1
    assert "init took it over" in first.sentence
    assert [s.reason for s in others if s.gpu_uuids == first.gpu_uuids] == [HoldReason.OBSERVER]
    assert holders.unseen > 0
    listed = {process.id for process in snapshot.processes}
    assert not listed & {suspect.id for suspect in holders.suspects}


def test_nobody_looked_for_holders_before_the_demo_began(demo: Demo) -> None:
    assert all(snapshot.holders is None for snapshot in demo.source.past())
    demo.clock.now = START + 0.4
    late = DemoSource(1, demo.clock)
    assert late.sample().holders is not None


def test_a_selection_shows_these_cards_and_what_is_on_them() -> None:
    every, clock = Demo().at(0), HandClock(START, epoch=0.0)
    some = DemoSource(1, clock, parse_selection("1-2,6")).sample()
    assert some.gpus == tuple(every.gpus[index] for index in (1, 2, 6))
    assert {use.gpu_index for process in some.processes for use in process.uses} == {1, 2}
    assert held(some)[1] == held(every)[1]
    suspects = known(some.holders).suspects
    assert {suspect.reason for suspect in suspects} == {HoldReason.CHILD}, "not of other cards"


@pytest.mark.slow
def test_the_past_is_told_while_the_present_is_sampled(demo: Demo) -> None:
    undisturbed = list(Demo().source.past())
    told = []
    for snapshot in demo.source.past():
        told.append(snapshot)
        assert demo.source.sample().time == START
    assert told == undisturbed


def test_the_past_is_told_in_order_and_ends_where_the_present_begins(demo: Demo) -> None:
    times = [snapshot.time for snapshot in demo.source.past()]
    assert times == sorted(set(times))
    assert (times[0], times[-1]) == (START - 4 * HOUR, START - 1)
    assert sum(time >= START - 120 for time in times) == 120
    assert len(times) < 500
    assert max(later - earlier for earlier, later in pairwise(times)) <= 60


def seconds_since(past: Sequence[Snapshot], holds: Callable[[Snapshot], bool]) -> float:
    """For how long before the start something has held, as far as the past tells."""
    since = START
    for snapshot in reversed(past):
        if not holds(snapshot):
            break
        since = snapshot.time
    return START - since


def test_the_past_holds_what_findings_will_claim(demo: Demo) -> None:
    past = list(demo.source.past())
    for card, seconds, tolerance, holds in (
        (3, (3 * 60 + 12) * 60, 300, lambda gpu: gpu.utilization_gpu == 0),
        (5, 22 * 60, 61, lambda gpu: gpu.utilization_gpu >= 95 and gpu.power_draw < 210),
        (2, 4 * 60, 16, lambda gpu: "SW thermal" in clock_event_names(gpu.clock_event_reasons)),
    ):
        since = seconds_since(past, lambda snapshot: holds(snapshot.gpus[card]))  # noqa: B023 - at once
        assert since == pytest.approx(seconds, abs=tolerance), card
    statuses = [snapshot.gpus[6].status for snapshot in past]
    assert statuses[0] is GpuStatus.OK
    assert statuses == sorted(statuses, key=lambda status: status is GpuStatus.LOST)
    assert past[0].gpus[6].uuid == past[-1].gpus[6].uuid


def test_the_past_holds_since_when_a_process_is_idle(demo: Demo) -> None:
    past = list(demo.source.past())
    now = demo.at(0)

    def idle(pid: int) -> float:
        """Seconds since which a process was seen without work."""
        return seconds_since(
            past, lambda snapshot: [p.sm for p in snapshot.processes if p.id.pid == pid] == [0]
        )

    (hog,) = [p for p in now.processes if known(p.memory_used) > 40 * GIB and p.sm == 0]
    (mine,) = [p for p in now.processes if p.user == "ann" and p.sm == 0]
    assert hog.user == "bo"
    assert idle(hog.id.pid) == pytest.approx((3 * 60 + 12) * 60, abs=300)
    assert idle(mine.id.pid) == pytest.approx(47 * 60, abs=61)
    busy = {p.id.pid for p in now.processes if p.cpu_percent and p.cpu_percent > 1}
    assert max(idle(pid) for pid in busy) < 300, "who has work to do shows it now and then"


def served(snapshot: Snapshot, engine: str) -> GpuProcess:
    """The process of the server of this kind."""
    (process,) = (
        p
        for p in snapshot.processes
        if p.place and p.place.server and p.load
        if p.place.server.engine == engine
    )
    return process


def test_the_server_of_models_works_and_requests_wait_now_and_then(demo: Demo) -> None:
    loads = [known(served(demo.at(second), "vllm").load) for second in range(0, 1200, 5)]
    assert {load.is_idle for load in loads} == {False}
    assert {load.waiting == 0 for load in loads} == {True, False}
    assert max(known(load.running) for load in loads) >= 10
    tokens = [known(load.tokens) for load in loads]
    assert 200 < min(tokens) <= max(tokens) < 1000
    fullest = max(loads, key=lambda load: known(load.kv_cache))
    assert fullest.kv_cache == 98
    assert known(fullest.waiting) > 0, "there is no memory for them"


def test_the_engine_of_vllm_belongs_to_the_server_that_started_it(demo: Demo) -> None:
    engine = served(demo.at(0), "vllm")
    assert engine.command == ("VLLM::EngineCore",)
    assert engine.server_id == known(engine.place).parent
    above = demo.source.host().relatives([engine.id])
    (server,) = [relative for relative in above if relative.id == engine.server_id]
    assert "--gpu-memory-utilization" in server.command


def test_a_server_has_served_nobody_for_hours(demo: Demo) -> None:
    resting = [(s.time, served(s, "llama.cpp").resting) for s in demo.source.past()]
    since = min(time for time, is_idle in resting if is_idle)
    assert START - since == pytest.approx((3 * 60 + 8) * 60, abs=61)
    assert {is_idle for time, is_idle in resting if time < since} == {False}
    assert served(demo.at(0), "llama.cpp").user == "bo"


def test_a_sample_costs_as_little_after_a_day_as_at_first(demo: Demo) -> None:
    def calls(second: float) -> int:
        """Functions called for a sample: a count, as no time is the same on a busy machine."""
        called = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal called
            called += event == "call"

        sys.setprofile(count)
        try:
            demo.at(second)
        finally:
            sys.setprofile(None)
        return called

    calls(0)
    assert all(calls(second) < 1500 for second in (1, HOUR, DAY))


COURSES = {
    "steady": steady(3.0),
    "ripples": ripples((2.0, 7.0, 0.3), (0.5, 1.1, 0.9)),
    "wave": wave([(0, 1), (2, 5), (3, 0), (10, 1)], phase=0.4),
    "together": together(steady(1.0), wave([(0, 0), (4, 2), (8, 0)])),
    "scaled": scaled(ripples((2.0, 7.0, 0.3)), 3.0),
    "dimmed": dimmed(ripples((2.0, 7.0, 0.3)), [(-9.0, 0.5), (4.0, 0.0), (30.0, 1.0)]),
    "switch before the start": switch(-5.0, steady(1.0), wave([(0, 0), (4, 2), (8, 0)])),
    "switch after the start": switch(5.0, ripples((1.0, 3.0, 0.0)), steady(2.0)),
}


@pytest.mark.parametrize("name", COURSES)
@given(end=st.floats(-1e4, 1e4), seconds=st.floats(0.5, 1e3))
def test_a_mean_over_a_window_is_that_of_its_halves(name: str, end: float, seconds: float) -> None:
    area = COURSES[name]
    halves = mean(area, end, seconds / 2) + mean(area, end - seconds / 2, seconds / 2)
    assert mean(area, end, seconds) == pytest.approx(halves / 2, abs=1e-6)
    assert area(0.0) == pytest.approx(0.0, abs=1e-12)


def test_a_wave_passes_through_its_points_again_and_again() -> None:
    area = wave([(0, 1), (2, 5), (3, 0), (10, 1)])
    for begin in (-20, 0, 50):
        for time, level in ((0, 1), (1, 3), (2, 5), (2.5, 2.5), (3, 0)):
            assert mean(area, begin + time + 5e-5, 1e-4) == pytest.approx(level, abs=1e-3)
    assert mean(area, 40, 10) == pytest.approx((6 + 2.5 + 3.5) / 10)


@pytest.mark.parametrize(
    ("area", "means"),
    [
        pytest.param(
            switch(-5.0, steady(1.0), steady(4.0)),
            {(-5, 1): 1, (-4, 1): 4, (-4.5, 1): 2.5},
            id="a switch changes course at its moment",
        ),
        pytest.param(
            dimmed(steady(4.0), [(10.0, 0.5), (20.0, 0.0), (30.0, 1.0)]),
            {(10, 30): 4, (20, 10): 2, (30, 10): 0, (31, 1): 4, (25, 10): 1},
            id="a dimmed course has the share that is left of it",
        ),
    ],
)
def test_a_course_that_changes(area: Area, means: dict[tuple[float, float], float]) -> None:
    found = {window: mean(area, *window) for window in means}
    assert found == pytest.approx(means)


def test_the_kernel_log_names_the_process_of_the_gpu_that_fell_off_the_bus(demo: Demo) -> None:
    accidents = {snapshot.accidents for snapshot in demo.source.past()} - {()}
    assert accidents == {demo.at(0.0).accidents}
    ((accident,),) = accidents
    before, after = demo.at(accident.time - START - 1), demo.at(accident.time - START + 1)
    (process,) = (one for one in before.processes if one.id.pid == accident.pid)
    assert {use.gpu_uuid for use in process.uses} == {accident.gpu_uuid}
    assert process.id not in {one.id for one in after.processes}
    (gpu,) = (one for one in after.gpus if one.uuid == accident.gpu_uuid)
    assert (gpu.xid, gpu.xid_at) == (accident.number, accident.time)
    assert demo.at(300.0).accidents == ()
