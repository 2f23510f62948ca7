"""What is said of a GPU that a scheduler gave to a job, or that ``gpumon run`` keeps for one."""

from __future__ import annotations

import msgspec
import pytest

from gpumon.findings import FindingKind, Severity, conditions, gpu_findings, gpu_state
from gpumon.findings.finding import BRIEF_CELLS, SHORT_CELLS
from gpumon.findings.work import mig_state, not_free
from gpumon.model.allocations import Allocation
from gpumon.model.snapshot import MigInstance, Reserved, Snapshot
from gpumon.recording.history import History
from gpumon.text.formatting import cell_width, printable
from gpumon.ui.view.header_footer import gpu_counts
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.known import known

ANN = Allocation("slurm", "88123", "ann", ("GPU-0",), since=NOON - 4 * 3600, until=NOON + 7200)
BUSY = gpu(memory_used=GIB, utilization_gpu=90)


def history_of(*allocations: Allocation, seconds: int = 0, busy: bool = False) -> History:
    """The machine every half minute for so long; the first sample shows no duration."""
    history = History(conditions())
    first = BUSY if busy else gpu()
    for before in range(seconds, -1, -30):
        seen = snapshot(
            NOON - before,
            msgspec.structs.replace(first, sampled_at=NOON - before),
            *(gpu(index=index, sampled_at=NOON - before) for index in (1, 2, 3)),
            processes=(process(),) if busy else (),
        )
        history.add(msgspec.structs.replace(seen, allocations=allocations))
    return history


def test_a_gpu_whose_job_runs_nothing_says_so() -> None:
    history = history_of(ANN, seconds=630)
    state = gpu_state(history, gpu())
    assert (state.kind, state.severity) == (FindingKind.ALLOCATED, Severity.NOTE)
    assert state.short == "slurm 88123 ann, no process ≥10m"
    assert state.sentence == (
        "slurm 88123 of ann has had it for 4h00m, 2h00m left at most; no process has computed on "
        "it for at least 10 m"
    )
    assert state.brief == "unused"
    assert not_free(history, gpu()) is not None
    assert FindingKind.FREE not in {one.kind for one in gpu_findings(history, gpu())}
    assert gpu_state(history, gpu(index=1)).kind is FindingKind.FREE


def test_from_its_start_on_it_is_known_that_a_job_ran_nothing() -> None:
    young = msgspec.structs.replace(ANN, since=NOON - 240)
    state = gpu_state(history_of(young, seconds=600), gpu())
    assert (state.short, state.brief) == ("slurm 88123 ann, no process 4m", "unused 4m")
    assert state.since == NOON - 240


def test_after_an_hour_it_needs_attention() -> None:
    assert gpu_state(history_of(ANN, seconds=3630), gpu()).severity is Severity.WARNING
    assert gpu_state(history_of(ANN, seconds=3600), gpu()).severity is Severity.NOTE


def test_a_gpu_that_its_job_uses_is_no_news_and_says_when_it_is_free() -> None:
    state = gpu_state(history_of(ANN, seconds=600, busy=True), BUSY)
    assert (state.kind, state.severity) == (FindingKind.ALLOCATED, Severity.QUIET)
    assert (state.short, state.brief) == ("slurm 88123, free in ≤ 2h", "≤ 2h")


@pytest.mark.parametrize(
    ("allocation", "short"),
    [
        (msgspec.structs.replace(ANN, user="a" * 40), "slurm 88123 aaa…, no process ≥0s"),
        (msgspec.structs.replace(ANN, user=None), "slurm 88123, no process ≥0s"),
        (msgspec.structs.replace(ANN, job=None, user=None), "a slurm job, no process ≥0s"),
        (Allocation("kubernetes", "ml/train", None, ANN.devices), "ml/train, no process ≥0s"),
        (
            Allocation("kubernetes", "train/worker-0-5b7c9d", None, ANN.devices),
            "train/worker-0-…, no process ≥0s",
        ),
    ],
)
def test_a_long_name_is_cut(allocation: Allocation, short: str) -> None:
    assert gpu_state(history_of(allocation), gpu()).short == short


def test_of_gpus_that_may_be_a_jobs_none_is_called_free_and_the_rest_is_counted() -> None:
    somewhere = Allocation("slurm", "5", "bo", unplaced=3)
    history = history_of(somewhere)
    latest = known(history.latest)
    states = {one.uuid: gpu_state(history, one) for one in latest.gpus}
    assert {state.kind for state in states.values()} == {FindingKind.ALLOCATED}
    assert states["GPU-0"].short == "perhaps slurm 5's"
    counts = gpu_counts(history, latest.gpus, states)
    assert (counts.free, counts.unknown) == (1, 0)
    unsure = history_of(msgspec.structs.replace(somewhere, unplaced=None))
    counts = gpu_counts(unsure, known(unsure.latest).gpus, states)
    assert (counts.free, counts.unknown) == (0, 4)


def test_a_gpu_that_another_one_computes_on_is_not_perhaps_a_jobs() -> None:
    state = gpu_state(history_of(Allocation("slurm", "5", unplaced=1), busy=True), BUSY)
    assert state.kind is not FindingKind.ALLOCATED


@pytest.mark.parametrize(
    ("used", "short"),
    [(0, "perhaps allocated"), (2 * GIB, "2.0G, by nobody listed"), (None, "unknown")],
)
def test_that_it_may_be_a_jobs_hides_nothing_that_is_seen_of_a_mig_device(
    used: int | None, short: str
) -> None:
    mig = MigInstance("MIG-1", 0, 1, 0, memory_used=used)
    history = history_of(Allocation("slurm", unplaced=None))
    assert mig_state(history, gpu(mig=(mig,)), mig).short == short
    assert known(not_free(history, gpu(mig=(mig,)), mig)).is_unknown is (used != 2 * GIB)


def test_the_scheduler_that_is_not_sure_is_named() -> None:
    sure = Allocation("slurm", "5", devices=("GPU-1",))
    state = gpu_state(history_of(sure, Allocation("kubernetes", unplaced=None)), gpu())
    assert (state.short, state.brief) == ("perhaps a kubernetes job's", "allocated?")


def test_without_a_scheduler_nothing_changes() -> None:
    assert gpu_state(history_of(), gpu()).kind is FindingKind.FREE


HOSTILE = msgspec.structs.replace(ANN, job="\x1b[31m" + "8" * 40, user="bo\nb")


@pytest.mark.parametrize(
    ("allocation", "busy"),
    [
        (HOSTILE, False),
        (HOSTILE, True),
        (msgspec.structs.replace(HOSTILE, devices=(), unplaced=1), False),
    ],
)
def test_names_of_somebody_elses_choice_are_printable_and_short(
    allocation: Allocation, busy: bool
) -> None:
    state = gpu_state(history_of(allocation, busy=busy), BUSY if busy else gpu())
    assert state.kind is FindingKind.ALLOCATED
    for text in (state.short, state.brief, state.sentence, *state.evidence):
        assert printable(text) == text
    assert "\ufffd[31m8" in state.short
    assert cell_width(state.short) <= SHORT_CELLS
    assert cell_width(state.brief) <= BRIEF_CELLS


def test_jobs_that_share_a_gpu_are_counted_and_all_of_them_are_evidence() -> None:
    bo = Allocation("slurm", "88124", "bo", ("GPU-0",), is_share=True)
    unused = gpu_state(history_of(ANN, bo), gpu())
    assert unused.short == "slurm 88123 … +1, no process ≥0s"
    assert unused.evidence[1] == "slurm 88124 of bo has a part of it"
    busy = gpu_state(history_of(ANN, bo, busy=True), BUSY)
    assert busy.short == "slurm 88123 +1, free in ≤ 2h"


@pytest.mark.parametrize(
    ("until", "short", "brief"),
    [
        (None, "slurm 88123", "allocated"),
        (NOON - 300, "slurm 88123, past its limit", "allocated"),
        (NOON + 7201, "slurm 88123, free in ≤ 3h", "≤ 3h"),
        (NOON + 59.5, "slurm 88123, free in ≤ 1m", "≤ 1m"),
    ],
)
def test_a_job_without_an_end_or_past_it_is_no_time_that_counts_down(
    until: float | None, short: str, brief: str
) -> None:
    state = gpu_state(history_of(msgspec.structs.replace(ANN, until=until), busy=True), BUSY)
    assert (state.short, state.brief) == (short, brief)


def test_a_job_that_begins_in_the_future_of_this_clock_has_been_unused_for_no_time() -> None:
    state = gpu_state(history_of(msgspec.structs.replace(ANN, since=NOON + 50)), gpu())
    assert (state.short, state.since) == ("slurm 88123 ann, no process 0s", NOON)


def test_without_a_list_of_processes_a_gpu_may_be_a_jobs() -> None:
    history = History(conditions())
    unlisted = snapshot(NOON, gpu(sampled_at=NOON), processes_at=None)
    somewhere = (Allocation("slurm", "5", unplaced=1),)
    history.add(msgspec.structs.replace(unlisted, allocations=somewhere))
    assert gpu_state(history, gpu()).kind is FindingKind.ALLOCATED


@pytest.mark.parametrize(
    ("device", "allocated"), [("GPU-0", ["GPU-0", "MIG-1", "MIG-2"]), ("MIG-1", ["GPU-0", "MIG-1"])]
)
def test_a_mig_device_is_given_away_with_its_gpu_and_a_gpu_in_part(
    device: str, allocated: list[str]
) -> None:
    parts = tuple(MigInstance(f"MIG-{n}", n, n, 0, memory_used=0) for n in (1, 2))
    divided = gpu(mig=parts, mig_mode=True)
    history = history_of(msgspec.structs.replace(ANN, devices=(device,)))
    states = [gpu_state(history, divided), *(mig_state(history, divided, part) for part in parts)]
    given = [state.subject for state in states if state.kind is FindingKind.ALLOCATED]
    assert given == allocated


def test_a_job_that_started_with_the_first_idle_sample_has_run_nothing_since_its_start() -> None:
    job = msgspec.structs.replace(ANN, since=NOON - 570)
    assert gpu_state(history_of(job, seconds=600), gpu()).short == "slurm 88123 ann, no process 9m"


KEPT = Reserved("GPU-0", user="ann", pid=4711, since=NOON - 720, command="python train.py")
TWO_IDLE = snapshot(NOON, gpu(), gpu(index=1))


def reserving(*reserved: Reserved, seen: Snapshot = TWO_IDLE) -> History:
    history = History(conditions())
    history.add(msgspec.structs.replace(seen, reserved=reserved))
    return history


def test_a_reserved_card_is_not_free_and_says_who_keeps_it_since_when() -> None:
    history = reserving(KEPT)
    state = gpu_state(history, gpu())
    assert (state.kind, state.severity) == (FindingKind.RESERVED, Severity.NOTE)
    assert state.short == "reserved by ann 12m"
    assert state.sentence == "reserved by ann for 12m: gpumon run keeps it for a job"
    assert (state.evidence, state.since) == (("gpumon run 4711: python train.py",), NOON - 720)
    assert FindingKind.FREE not in {one.kind for one in gpu_findings(history, gpu())}
    assert gpu_state(history, gpu(index=1)).kind is FindingKind.FREE


def test_a_reserved_card_at_work_is_no_news() -> None:
    busy = gpu(memory_used=GIB, utilization_gpu=90)
    state = gpu_state(reserving(KEPT, seen=snapshot(NOON, busy, processes=(process(),))), busy)
    assert (state.kind, state.severity) == (FindingKind.RESERVED, Severity.QUIET)


def test_what_is_wrong_with_a_card_goes_before_who_keeps_it() -> None:
    hot = gpu(temperature_gpu=92)
    found = gpu_findings(reserving(KEPT, seen=snapshot(NOON, hot)), hot)
    assert found[0].kind is FindingKind.HOT
    assert FindingKind.RESERVED in {one.kind for one in found}


def test_a_reserved_mig_device_is_told_of_its_card() -> None:
    state = gpu_state(reserving(msgspec.structs.replace(KEPT, mig_uuid="MIG-1")), gpu())
    assert state.sentence.startswith("a MIG device of it is reserved by ann for 12m")


def test_who_it_is_may_not_be_known() -> None:
    state = gpu_state(reserving(Reserved("GPU-0")), gpu())
    assert (state.short, state.since) == ("reserved", None)
    assert "is not visible here" in state.evidence[0]


def test_further_reservations_are_counted() -> None:
    assert gpu_state(reserving(KEPT, KEPT, KEPT), gpu()).short == "reserved by ann 12m +2"
