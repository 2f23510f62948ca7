"""The contract of every state: it begins, lasts and ends; a value that is unknown does neither.

Each value of the GPU and of its processes is unknown once, whatever the rule of the state needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from gpumon.alerts.when import STATES
from gpumon.findings import FindingKind as Kind
from gpumon.findings import growth
from gpumon.findings.faults import StatusRule
from gpumon.findings.registry import GPU_RULES
from gpumon.findings.rule import LastingRule
from gpumon.findings.speed import NvlinkErrors
from gpumon.makers.backend import DRIVER_FIELDS
from gpumon.model.allocations import Allocation
from gpumon.model.process_states import UNINTERRUPTIBLE
from gpumon.model.processes import GpuProcess, GpuUse, Workload
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.model.snapshot import Gpu, Reserved, Snapshot, Unknown
from gpumon.model.thresholds import Thresholds
from tests.alerts.machine import Machine, alert
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.known import known

STEP = 10.0
LONG = 80.0
"""Seconds after which a state that is absent has ended: ``GONE_FOR``, and some more."""

SOON = 20.0
"""Seconds after which a state that must last has begun."""


@pytest.fixture(autouse=True)
def begin_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for rule in GPU_RULES.values():
        if isinstance(rule, LastingRule) and hasattr(rule, "after"):
            monkeypatch.setattr(type(rule), "after", min(rule.after, SOON))
    monkeypatch.setattr(LastingRule, "least_samples", 3)
    monkeypatch.setattr(NvlinkErrors, "reported_for", 200.0)
    monkeypatch.setattr(growth, "GPU_SECONDS", 300.0)


WELL: dict[str, Any] = {
    "memory_used": GIB // 4,
    "memory_reserved": GIB // 4,
    "utilization_gpu": 70,
    "sm_active": 60.0,
    "tensor_active": 40.0,
    "dram_active": 40.0,
    "temperature_margin": 50,
    "temperature_slowdown": 92,
    "power_draw": 500.0,
    "pcie_generation": 4,
    "pcie_generation_max": 4,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "nvlink_errors": 0,
    "ecc_uncorrected_volatile": 0,
    "remapped_rows_pending": False,
    "remapped_rows_failure": False,
    "retired_pages_pending": False,
    "recovery_action": "None",
    "compute_mode": "Default",
    "display_active": False,
    "mig_mode": False,
}


def busy(pid: int = 100, session: int = 7, sm: int = 60, **changes: Any) -> GpuProcess:
    """A process whose job, CPU use and state are known."""
    known = {"place": Workload(session=session), "cpu_percent": 50.0, "state": "S", **changes}
    return replace(process(pid, sm=sm, memory_used=GIB // 4), **known)


WELL_SERVED = ServerLoad(2, 0, 1.0, 500.0, 900.0, 40.0)
FULL = ServerLoad(40, 3, 1.0, 500.0, 900.0, 98.0)
SLOW = ServerLoad(2, 0, 0.0, 2.0, 0.0, 40.0)
UNUSED = ServerLoad(0, 0, 0.0, 0.0, 0.0, 0.0)


def serving(load: ServerLoad, sm: int = 60) -> GpuProcess:
    """A server that reports its requests."""
    place = Workload(session=7, server=InferenceServer("vllm", "m", 100, 1))
    return busy(sm=sm, place=place, load=load)


def over_two_gpus(first: int, second: int) -> GpuProcess:
    uses = (
        GpuUse("GPU-0", 0, memory_used=GIB // 4, sm=first),
        GpuUse("GPU-1", 1, memory_used=GIB // 4, sm=second),
    )
    return busy(uses=uses)


class Course(NamedTuple):
    """How a state is seen: snapshots with and without it, and the seconds that each part takes."""

    kind: Kind
    there: Callable[[int], Snapshot]
    gone: Callable[[int], Snapshot]
    begins: float = 60.0
    ends: float = LONG
    before: float = 20.0
    blanks: tuple[str, ...] = ()  # Only these are made unknown of a course that takes long.


def seen(*processes: GpuProcess, **changes: Any) -> Callable[[int], Snapshot]:
    """The same at each sample; a function is called with the number of the sample."""

    def at(number: int) -> Snapshot:
        now = {key: value(number) if callable(value) else value for key, value in changes.items()}
        card, other = gpu(**{**WELL, **now}), gpu(index=1, **WELL)
        return snapshot(NOON, card, other, processes=processes or (busy(),))

    return at


def nobody(**changes: Any) -> Callable[[int], Snapshot]:
    at = seen(busy(), utilization_gpu=0, **changes) if not changes else seen(busy(), **changes)
    return lambda number: replace(at(number), processes=())


def reserved(number: int) -> Snapshot:
    return replace(seen()(number), reserved=(Reserved("GPU-0", user="ann"),))


def allocated(number: int) -> Snapshot:
    allocation = Allocation("slurm", "7", "ann", ("GPU-0",))
    return replace(nobody()(number), allocations=(allocation,))


def turns(process: GpuProcess) -> Callable[[int], Snapshot]:
    """A load that comes and goes."""
    return seen(process, utilization_gpu=lambda number: 90 if number % 2 else 10)


def growing(number: int) -> Snapshot:
    """Memory that will be full."""
    used = 66 * GIB + number * GIB // 20
    one = replace(busy(), uses=(GpuUse("GPU-0", 0, memory_used=used, sm=60),))
    return seen(one, memory_used=used, memory_free=80 * GIB - used)(number)


def steady(number: int) -> Snapshot:
    del number
    return growing(250)


SIZES = ("memory_used", "memory_free", "memory_total", "processes", "process.memory_used")

COURSES = [
    Course(Kind.MEMORY_ERRORS, seen(ecc_uncorrected_volatile=3), seen()),
    Course(Kind.MEMORY_ERRORS, seen(remapped_rows_pending=True), seen()),
    Course(Kind.MEMORY_ERRORS, seen(remapped_rows_failure=True), seen()),
    Course(Kind.MEMORY_ERRORS, seen(retired_pages_pending=True), seen()),
    Course(Kind.RECOVERY, seen(recovery_action="GPU Reset"), seen()),
    Course(Kind.HOT, seen(temperature_gpu=91), seen()),
    Course(Kind.HOT, seen(temperature_margin=1), seen()),
    Course(Kind.HOT, seen(temperature_gpu=70, temperature_slowdown=72), seen()),
    Course(Kind.HOT, seen(clock_event_reasons=0x40), seen()),
    Course(Kind.THROTTLED, seen(clock_event_reasons=0x80), seen()),
    Course(Kind.THROTTLED, seen(clock_event_reasons=0x08), seen()),
    Course(Kind.NVLINK_ERRORS, seen(nvlink_errors=lambda number: number), seen(), ends=400),
    Course(Kind.STUCK, seen(utilization_gpu=100, power_draw=90.0), seen()),
    Course(Kind.UNATTRIBUTED, seen(memory_used=20 * GIB), seen()),
    Course(Kind.BUSY_UNLISTED, nobody(utilization_gpu=60), nobody()),
    Course(Kind.BUSY_UNLISTED, nobody(utilization_gpu=60), nobody(display_active=True)),
    Course(
        Kind.IDLE_IN_JOB, seen(over_two_gpus(0, 60), utilization_gpu=0), seen(over_two_gpus(60, 60))
    ),
    Course(Kind.IDLE, seen(busy(sm=0), utilization_gpu=0), seen()),
    Course(Kind.SLOW_LINK, seen(pcie_generation=1), seen()),
    Course(Kind.SLOW_LINK, seen(pcie_width=8), seen()),
    Course(Kind.BUSY_EMPTY, seen(utilization_gpu=97, sm_active=5.0), seen()),
    Course(Kind.STARVED, turns(busy(cpu_percent=100.0)), seen(), ends=140),
    Course(Kind.STARVED, turns(busy(state=UNINTERRUPTIBLE)), seen(), ends=140),
    Course(Kind.SHARED, seen(busy(sm=40), busy(101, session=8, sm=40)), seen()),
    Course(Kind.FILLING, growing, steady, begins=500, ends=500, blanks=SIZES),
    Course(
        Kind.SLOWED_LATELY,
        seen(clock_event_reasons=0x80),
        seen(),
        ends=3800,
        before=3700,
        blanks=("clock_event_reasons", "temperature_gpu"),
    ),
    Course(Kind.ALLOCATED, allocated, seen()),
    Course(Kind.RESERVED, reserved, seen()),
    Course(Kind.FULL, seen(memory_used=79 * GIB, memory_free=GIB), seen()),
    Course(Kind.MEMORY_BOUND, seen(dram_active=90.0, tensor_active=5.0), seen()),
    Course(Kind.FREE, nobody(), seen()),
    Course(Kind.FREE, nobody(), nobody(utilization_gpu=0, remapped_rows_pending=True)),
    Course(Kind.FREE, nobody(), nobody(utilization_gpu=0, compute_mode="Prohibited")),
    Course(Kind.REQUESTS_WAIT, seen(serving(FULL)), seen(serving(WELL_SERVED))),
    Course(Kind.SLOW_SERVER, seen(serving(SLOW, sm=100)), seen(serving(WELL_SERVED)), begins=90),
    Course(Kind.IDLE_PROCESS, seen(busy(sm=0)), seen()),
    Course(Kind.IDLE_PROCESS, seen(serving(UNUSED)), seen(serving(WELL_SERVED))),
    Course(Kind.GROWING, growing, steady, begins=700, ends=1100, blanks=SIZES),
]

WHOLE_GPU = {kind for kind, rule in GPU_RULES.items() if isinstance(rule, StatusRule)} | {Kind.OLD}
"""The states that say whether the values of a GPU are known."""


def test_every_state_has_a_course() -> None:
    assert {course.kind for course in COURSES} == set(STATES) - WHOLE_GPU


Blank = tuple[str, Unknown | None]


def blank_gpu(card: Gpu, blank: Blank) -> Gpu:
    name, reason = blank
    known = card.unknown if reason is None else {**card.unknown, name: reason}
    return replace(card, unknown=known, **({} if name == "processes" else {name: None}))


def blank_process(one: GpuProcess, name: str) -> GpuProcess:
    if name == "load":
        return replace(one, load=ServerLoad(problem="no answer within 1s"))
    if name.startswith("load."):
        return replace(one, load=replace(known(one.load), **{name.removeprefix("load."): None}))
    if name in {"sm", "memory_used"}:
        return replace(one, uses=tuple(replace(use, **{name: None}) for use in one.uses))
    return replace(one, **{name: None})


def blanked(shown: Snapshot, blank: Blank) -> Snapshot:
    """The snapshot without one value."""
    name = blank[0].removeprefix("process.")
    if name != blank[0]:
        return replace(shown, processes=tuple(blank_process(one, name) for one in shown.processes))
    card, *others = shown.gpus
    gpus = (blank_gpu(card, blank), *others)
    if name != "processes":
        return replace(shown, gpus=gpus)
    listed = tuple(
        one for one in shown.processes if any(use.gpu_uuid != card.uuid for use in one.uses)
    )
    return replace(shown, gpus=gpus, processes=listed)


def blanks_of(course: Course) -> list[Blank]:
    """Every value of the GPU and of its processes, with a reason or without."""
    shown = course.there(1)
    names = [name for name in DRIVER_FIELDS if getattr(shown.gpus[0], name) is not None]
    reasons: list[Unknown | None] = [None, Unknown.NO_ANSWER]
    blanks: list[Blank] = [(name, reasons[place % 2]) for place, name in enumerate(names)]
    blanks.append(("processes", Unknown.NO_ANSWER))
    if shown.processes:
        blanks += [
            (f"process.{name}", None)
            for name in ("sm", "memory_used", "cpu_percent", "state", "place")
        ]
        if (load := shown.processes[0].load) is not None:
            # A server reports always or never what it works on; in place of it, its GPU decides.
            known = [name for name in load.__struct_fields__ if name not in {"models", "running"}]
            known = [name for name in known if getattr(load, name) is not None]
            blanks += [(f"process.load.{name}", None) for name in known]
            blanks.append(("process.load", None))
    return [blank for blank in blanks if not course.blanks or blank[0] in course.blanks]


class Followed:
    """A machine on which one state is followed."""

    def __init__(self, course: Course) -> None:
        followed = alert(course.kind.value, ended=True, cooldown=0.0)
        soon = Thresholds(idle_after=SOON, stuck_after=SOON)
        self.machine = Machine(followed, thresholds=soon)
        self.number = 0

    def see(self, seconds: float, shown: Callable[[int], Snapshot]) -> list[bool]:
        """What is told within so many seconds: whether each is an end."""
        told = []
        for _ in range(round(seconds / STEP)):
            self.number += 1
            told += [one.ended for one in self.machine.show(STEP, shown(self.number), STEP)]
        return told


@pytest.mark.slow
@pytest.mark.parametrize("course", COURSES, ids=lambda course: course.kind.value)
def test_an_unknown_value_begins_and_ends_nothing(course: Course) -> None:
    known = Followed(course)
    hint = "is a value that it needs missing in `gone`?"
    assert known.see(course.before, course.gone) == []
    assert known.see(course.begins, course.there) == [False], f"its course never begins: {hint}"
    assert known.see(course.ends, course.gone) == [True], f"its course never ends: {hint}"
    for blank in blanks_of(course):
        followed = Followed(course)

        def unknown_there(number: int, blank: Blank = blank) -> Snapshot:
            return blanked(course.there(number), blank)

        def unknown_gone(number: int, blank: Blank = blank) -> Snapshot:
            return blanked(course.gone(number), blank)

        assert followed.see(course.before, course.gone) == []
        assert followed.see(course.begins, unknown_gone) == [], f"{blank} begins it"
        assert followed.see(LONG, course.gone) == []
        assert followed.see(course.begins, course.there) == [False], f"{blank}: it begins"
        assert followed.see(LONG, unknown_there) == [], f"{blank} ends it"
        assert followed.see(course.begins, course.there) == [], f"{blank} ended it"
        assert followed.see(course.ends, course.gone) == [True], f"{blank}: it ends"
