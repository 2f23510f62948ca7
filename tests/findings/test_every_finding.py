"""What holds for every finding, old or new: each kind is brought about and held to the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from gpumon.findings import (
    BRIEF_CELLS,
    SHORT_CELLS,
    Finding,
    FindingKind,
    Severity,
    conditions,
    explain,
    gpu_findings,
    gpu_state,
    process_findings,
)
from gpumon.findings.registry import GPU_RULES, PROCESS_RULES, gpu_answer
from gpumon.makers.demo.source import DemoSource
from gpumon.model.accidents import Accident, AccidentKind
from gpumon.model.allocations import Allocation
from gpumon.model.processes import (
    GpuProcess,
    HolderScan,
    HoldReason,
    ProcessId,
    UnlistedHolder,
    Workload,
)
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.model.snapshot import Gpu, GpuStatus, Reserved, Snapshot
from gpumon.recording.history import History
from gpumon.text.charset import SUBSTITUTES
from gpumon.text.formatting import cell_width, printable
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.clock import HandClock
from tests.known import known

pytestmark = pytest.mark.usefixtures("utc")

HOSTILE = "\x1b[2J\x1b]0;x\x07\u202e\n小林" * 9
"""A name of somebody else's choice: longer than any column, with what a terminal would obey."""


class Course(NamedTuple):
    """Samples from ``NOON`` on after which GPU 0, or its first process, has a finding."""

    at: Callable[[int], Snapshot]
    seconds: int
    step: int


def course(
    *gpus: Gpu,
    processes: tuple[GpuProcess, ...] = (),
    seconds: int = 2,
    step: int = 1,
    listed: bool = True,
    **seen: Any,
) -> Course:
    """The same in every sample."""

    def at(second: int) -> Snapshot:
        now = snapshot(NOON + second, *gpus, processes=processes)
        return replace(now, processes_at=now.time if listed else None, **seen)

    return Course(at, seconds, step)


def changing(at: Callable[[int], tuple[Gpu, GpuProcess]], seconds: int, step: int = 1) -> Course:
    """A GPU with a process, of which something changes."""

    def seen(second: int) -> Snapshot:
        card, holder = at(second)
        return snapshot(NOON + second, card, processes=(holder,))

    return Course(seen, seconds, step)


def job(pid: int, *, session: int = 7, sm: int = 90, **changes: Any) -> GpuProcess:
    place = Workload(session=session)
    return replace(process(pid, sm=sm, user=f"{session}{HOSTILE}"), place=place, **changes)


def server(load: ServerLoad) -> GpuProcess:
    place = Workload(server=InferenceServer("vllm", HOSTILE, 100, 1))
    return replace(process(sm=100), place=place, load=load)


HOLDER = process(user=HOSTILE, sm=50)
BUSY = {"utilization_gpu": 98, "power_draw": 400.0}
SUSPECT = UnlistedHolder(ProcessId(7, 1), ("GPU-0",), HoldReason.ORPHAN, HOSTILE, user=HOSTILE)
ERROR = Accident(NOON, AccidentKind.ERROR_CODE, "GPU-0", 31, 41, HOSTILE)
RESET = Accident(NOON, AccidentKind.RESET, "GPU-0", pid=41, process_name=HOSTILE, text=HOSTILE)

K = FindingKind
COURSES: dict[FindingKind, Course] = {
    **{
        kind: course(gpu(status=rule.status, status_since=NOON, xid=79))
        for kind, rule in GPU_RULES.items()
        if rule.status is not None
    },
    K.MEMORY_ERRORS: course(gpu(remapped_rows_failure=True, ecc_uncorrected_volatile=2)),
    K.RECOVERY: course(gpu(recovery_action=HOSTILE)),
    K.HOT: course(gpu(temperature_gpu=91, clock_event_reasons=0x20, **BUSY), processes=(HOLDER,)),
    K.THROTTLED: course(gpu(clock_event_reasons=0x80, **BUSY), processes=(HOLDER,), seconds=60),
    K.XID: course(gpu(xid=31, xid_at=NOON), accidents=(ERROR,)),
    K.ACCIDENT: course(gpu(), accidents=(RESET,)),
    K.NVLINK_ERRORS: changing(lambda n: (gpu(nvlink_errors=n, **BUSY), HOLDER), 10),
    K.STUCK: course(gpu(utilization_gpu=100), processes=(HOLDER,), seconds=660, step=5),
    K.UNATTRIBUTED: course(
        gpu(memory_used=181 * GIB), processes=(HOLDER,), holders=HolderScan(NOON, (SUSPECT,) * 3)
    ),
    K.BUSY_UNLISTED: course(gpu(**BUSY), seconds=30),
    K.IDLE_IN_JOB: course(
        *(gpu(index=index, utilization_gpu=90 * (index > 0)) for index in range(3)),
        processes=tuple(
            replace(job(i, sm=90 * (i > 0)), uses=process(gpus=(i,), sm=90 * (i > 0)).uses)
            for i in range(3)
        ),
        seconds=80,
    ),
    K.IDLE: course(gpu(), processes=(process(user=HOSTILE), process(2, user="bo")), seconds=90),
    K.SLOW_LINK: course(
        gpu(pcie_generation=3, pcie_generation_max=5, pcie_width=8, pcie_width_max=16, **BUSY),
        processes=(HOLDER,),
        seconds=150,
    ),
    K.BUSY_EMPTY: course(gpu(sm_active=12.0, **BUSY), processes=(HOLDER,), seconds=310),
    K.STARVED: changing(
        lambda n: (
            gpu(utilization_gpu=95 if n % 8 < 4 else 4, power_draw=300.0),
            job(1, sm=95 if n % 8 < 4 else 4, cpu_percent=100.0, state="R"),
        ),
        210,
    ),
    K.SHARED: course(gpu(**BUSY), processes=(job(1), job(2, session=8, sm=40)), seconds=130),
    K.FILLING: changing(
        lambda n: (
            gpu(memory_used=20 * GIB + n * GIB // 60, memory_free=60 * GIB - n * GIB // 60, **BUSY),
            process(memory_used=20 * GIB + n * GIB // 60, sm=50),
        ),
        1800,
        step=5,
    ),
    K.SLOWED_LATELY: course(
        gpu(clock_event_reasons=0x04, **BUSY), processes=(HOLDER,), seconds=700, step=5
    ),
    K.REQUESTS_WAIT: course(
        gpu(), processes=(server(ServerLoad(40, 100_000, 0.5, 900.0, 500.0, 100.0)),), seconds=60
    ),
    K.SLOW_SERVER: course(
        gpu(**BUSY), processes=(server(ServerLoad(2, 0, 0.0, 0.123456, 0.0, 12.0)),), seconds=90
    ),
    K.IDLE_PROCESS: course(gpu(), processes=(process(user=HOSTILE),), seconds=90),
    K.GROWING: changing(
        lambda n: (gpu(memory_free=700 * GIB), process(memory_used=n * GIB, sm=50)), 1200, step=5
    ),
    K.PREALLOCATED: course(
        gpu(),
        processes=(
            replace(process(memory_used=60 * GIB, sm=50), command=("jax", f"jax {HOSTILE}")),
        ),
    ),
    K.ALLOCATED: course(
        gpu(), allocations=(Allocation("slurm", HOSTILE, HOSTILE, ("GPU-0",)),) * 3
    ),
    K.RESERVED: course(
        gpu(), reserved=(Reserved("GPU-0", user=HOSTILE, pid=4, since=NOON, command=HOSTILE),) * 3
    ),
    K.FULL: course(
        gpu(memory_used=78 * GIB, memory_free=2 * GIB, **BUSY),
        processes=(process(memory_used=78 * GIB, sm=50),),
    ),
    K.MEMORY_BOUND: course(
        gpu(dram_active=86.0, tensor_active=9.0, **BUSY), processes=(HOLDER,), seconds=200
    ),
    K.OLD: course(gpu(sampled_at=NOON), seconds=20),
    K.FREE: course(gpu()),
    K.WORKING: course(gpu(**BUSY), processes=(HOLDER,)),
    K.UNKNOWN: course(Gpu(index=0, uuid="GPU-0"), listed=False, seconds=700, step=5),
}


@cache
def brought_about(kind: FindingKind) -> History:
    return after_course(kind)


def after_course(kind: FindingKind) -> History:
    history = History(conditions())
    given = COURSES[kind]
    for second in range(0, given.seconds + 1, given.step):
        history.add(given.at(second))
    return history


def newest(history: History) -> Snapshot:
    return known(history.latest)


def subject(history: History, kind: FindingKind) -> Gpu | GpuProcess:
    now = newest(history)
    return now.processes[0] if kind in PROCESS_RULES else now.gpus[0]


def all_of(history: History, kind: FindingKind) -> list[Finding]:
    about = subject(history, kind)
    if isinstance(about, Gpu):
        return gpu_findings(history, about)
    return process_findings(history, about)


def found_in(history: History, kind: FindingKind) -> Finding:
    (finding,) = [finding for finding in all_of(history, kind) if finding.kind is kind]
    return finding


def assert_fits(finding: Finding) -> None:
    assert cell_width(finding.short) <= SHORT_CELLS, finding.short
    assert cell_width(finding.brief) <= BRIEF_CELLS, finding.brief


def test_every_kind_has_a_course() -> None:
    assert COURSES.keys() == set(FindingKind)


@pytest.mark.parametrize("kind", FindingKind, ids=str)
def test_its_texts_fit_and_no_name_in_them_reaches_the_terminal_raw(kind: FindingKind) -> None:
    history = brought_about(kind)
    finding = found_in(history, kind)
    assert_fits(finding)
    for text in (finding.short, finding.brief, finding.sentence, *finding.evidence):
        assert text
        assert printable(text) == text
    # A lost GPU is one that does not answer; memory, time and work are never lost.
    assert ("lost" in f"{finding.short}{finding.brief}".lower()) is (kind is K.LOST)
    about = subject(history, kind)
    assert finding.subject == (about.uuid if isinstance(about, Gpu) else about.id)
    assert finding.since is None or finding.since <= history.now


@pytest.mark.slow
@pytest.mark.parametrize("kind", FindingKind, ids=str)
def test_its_texts_fit_however_long_it_lasts(kind: FindingKind) -> None:
    history = after_course(kind)
    last = COURSES[kind].seconds
    for second in range(last + 300, last + 130 * 3600, 300):
        history.add(COURSES[kind].at(second))
        for finding in all_of(history, kind):
            assert_fits(finding)


@pytest.mark.parametrize("kind", GPU_RULES, ids=str)
def test_it_stands_in_its_place_among_the_others(kind: FindingKind) -> None:
    history = brought_about(kind)
    found = all_of(history, kind)
    assert gpu_state(history, newest(history).gpus[0]) == found[0]
    severities = [finding.severity for finding in found]
    assert severities == sorted(severities, reverse=True)
    rules = [rule for kind, rule in GPU_RULES.items() if kind in {one.kind for one in found}]
    others = [rule for rule in rules if not rule.is_detail]
    assert len(others) == 1 or not any(rule.is_fallback for rule in others)


@pytest.mark.parametrize("kind", FindingKind, ids=str)
def test_it_is_known_as_of_the_past(kind: FindingKind) -> None:
    history = after_course(kind)
    then, was = newest(history), found_in(history, kind)
    for second in range(1, 30):
        history.add(snapshot(then.time + second, gpu(utilization_gpu=50), processes=(process(),)))
    assert found_in(history.as_of(then), kind) == was


def test_nvlink_errors_are_told_without_the_counter() -> None:
    history = after_course(K.NVLINK_ERRORS)
    history.add(snapshot(history.now + 1, blank := Gpu(index=0, uuid="GPU-0")))
    found = gpu_answer(history, blank, K.NVLINK_ERRORS)
    assert found
    assert not any("None" in fact for fact in found.evidence)


@pytest.mark.parametrize("kind", FindingKind, ids=str)
def test_it_is_explained_with_advice_and_a_source(kind: FindingKind) -> None:
    finding = found_in(brought_about(kind), kind)
    text = explain(brought_about(kind), finding)
    assert text.seen == (finding.evidence or (finding.sentence,))
    assert (text.since is None) is (finding.since is None)
    assert text.meaning.endswith(".")
    assert text.advice
    assert all(sentence.endswith(".") for sentence in text.advice)
    assert not any(cause.endswith(".") for cause in text.causes)
    assert text.source
    for part in (text.meaning, *text.causes, *text.advice, text.source):
        assert all(letter.isascii() or letter in SUBSTITUTES for letter in part)


@pytest.mark.parametrize("status", GpuStatus, ids=str)
def test_every_status_but_ok_is_said(status: GpuStatus) -> None:
    history = History(conditions())
    history.add(snapshot(NOON, gpu(status=status)))
    severity = gpu_state(history, gpu(status=status)).severity
    assert (severity > Severity.GOOD) is (status is not GpuStatus.OK)


# False alarms: half a simulated day of the demo's healthy GPUs has no verdict.

HEALTHY = (0, 4)
"""GPUs of the demo that have no other part to play than to work, and to be free."""
KEPT = {*HEALTHY, 1}
"""The job on GPU 0 runs on GPU 1 too."""
STEP = 10.0
HALF_A_DAY = 43_200.0
"""The longest period in the demo is five hours."""


def with_few_gpus(seen: Snapshot) -> Snapshot:
    """The snapshot with the healthy GPUs and the others of their jobs only."""
    gpus = tuple(card for card in seen.gpus if card.index in KEPT)
    processes = tuple(one for one in seen.processes if not KEPT.isdisjoint(one.gpu_indices))
    return replace(seen, gpus=gpus, processes=processes)


@pytest.mark.slow
def test_half_a_day_of_healthy_gpus_has_no_verdict() -> None:
    clock = HandClock()
    source = DemoSource(clock=clock)
    source.open()
    history = History(conditions())
    for past in source.past():
        history.add(with_few_gpus(past))
    counted: Counter[FindingKind] = Counter()
    for number in range(int(HALF_A_DAY / STEP)):
        clock.now += STEP
        seen = with_few_gpus(source.sample())
        history.add(seen)
        if number % 6 == 0:
            for card in seen.gpus:
                if card.index in HEALTHY:
                    counted.update(finding.kind for finding in gpu_findings(history, card))
    source.close()
    assert counted.keys() <= {K.WORKING, K.FREE, K.ALLOCATED, K.SLOWED_LATELY}
    assert sum(counted.values()) >= 2 * HALF_A_DAY / STEP / 6
