"""What counts as having happened between two snapshots, and that what is unknown never does."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.model.accidents import Accident, AccidentKind
from gpumon.model.metrics import CLOCK_EVENT_REASONS, HARMFUL_CLOCK_EVENTS
from gpumon.model.processes import GpuProcess, ProcessId
from gpumon.model.snapshot import Gpu, GpuStatus, Snapshot, Trouble, Unknown
from gpumon.recording.accidents import recorded_accidents, recorded_report
from gpumon.recording.memory.event_finder import HYSTERESIS, EventFinder, events_between
from gpumon.recording.recording import Event, EventKind
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.recording.deck import recorded

SHARE = 0.05


def python(
    pid: int = 41233, *, user: str | None = "chen", gpus: tuple[int, ...] = (0,)
) -> GpuProcess:
    return replace(process(pid, user=user, gpus=gpus), name="python")


def with_accidents(second: float, *accidents: Accident) -> Snapshot:
    return replace(snapshot(NOON + second), accidents=accidents)


def moments(before: Snapshot, after: Snapshot) -> list[Event]:
    return events_between(before, after, SHARE)


def of_gpu(before: Gpu, after: Gpu) -> list[tuple[EventKind, str]]:
    # A GPU that is the same object did not change.
    marks = moments(snapshot(NOON, before), snapshot(NOON + 1, replace(after)))
    assert all(mark.subject == after.uuid and mark.time == NOON + 1 for mark in marks)
    return [(mark.kind, mark.sentence) for mark in marks]


def test_who_is_listed_first_came_and_who_is_listed_no_more_went() -> None:
    cards = [gpu(index=index) for index in (0, 5, 6)]
    before = snapshot(NOON, *cards, processes=(python(100), python(101, user=None)))
    after = snapshot(NOON + 1, *cards, processes=(python(100), python(gpus=(5, 6))))

    assert moments(before, after) == [
        Event(NOON + 1, EventKind.WENT, ProcessId(101, 1), "101 python left GPU 0", ("GPU-0",)),
        Event(
            NOON + 1,
            EventKind.CAME,
            ProcessId(41233, 1),
            "41233 python of chen came to GPU 5, 6",
            ("GPU-5", "GPU-6"),
        ),
    ]


def test_a_number_that_was_reused_is_another_process() -> None:
    before = snapshot(NOON, processes=(process(100, start_time=1),))
    after = snapshot(NOON + 1, processes=(process(100, start_time=2),))

    assert [mark.kind for mark in moments(before, after)] == [EventKind.WENT, EventKind.CAME]


LISTED = snapshot(NOON, processes=(python(),))
NEVER_LISTED = snapshot(NOON + 1, processes_at=None)
UNREACHABLE = replace(snapshot(NOON + 1), gpus=(), trouble=Trouble("No.", "Wait."))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            snapshot(NOON, processes=(process(start_time=7),)),
            snapshot(NOON + 1, processes=(process(start_time=None),)),
            id="there is one of unknown start",
        ),
        pytest.param(LISTED, snapshot(NOON + 1, processes_at=NOON), id="the list is the same"),
        pytest.param(LISTED, NEVER_LISTED, id="one list was never read"),
        pytest.param(snapshot(NOON), NEVER_LISTED, id="one list was never read, nobody is there"),
        pytest.param(LISTED, UNREACHABLE, id="the driver cannot be reached"),
    ],
)
def test_nobody_came_or_went_if_that_is_unknown(one: Snapshot, other: Snapshot) -> None:
    assert moments(one, other) == moments(other, one) == []


@pytest.mark.parametrize(
    "card",
    [
        gpu(unknown={"processes": Unknown.NOT_READ}),
        gpu(status=GpuStatus.LOST),
        gpu(status=GpuStatus.NO_ANSWER),
        gpu(status=GpuStatus.ASLEEP),
        gpu(index=1),
    ],
)
def test_nobody_came_to_or_went_from_a_card_whose_list_is_unknown(card: Gpu) -> None:
    known = snapshot(NOON, gpu(), gpu(index=2), processes=(python(gpus=(0, 2)),))
    unknown = snapshot(NOON + 1, card, gpu(index=2))

    for one, other in ((known, unknown), (unknown, known)):
        assert not [mark for mark in moments(one, other) if isinstance(mark.subject, ProcessId)]


XID_79 = gpu(xid=79, xid_at=NOON)
LOST = gpu(status=GpuStatus.LOST)
WAITING = gpu(status=GpuStatus.RESET_REQUIRED)
NO_ACTION, TO_RESET = gpu(recovery_action="None"), gpu(recovery_action="Reset")
ASKS_FOR_RESET = "requests the recovery action: Reset"
ROOMY, FULL = gpu(memory_free=4 * GIB), gpu(memory_free=4 * GIB - 1)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        pytest.param(gpu(), XID_79, "reported XID 79", id="an XID"),
        pytest.param(gpu(xid=31, xid_at=NOON), XID_79, "reported XID 79", id="another XID"),
        pytest.param(XID_79, replace(XID_79, xid_at=NOON + 1), "reported XID 79", id="it again"),
        pytest.param(XID_79, XID_79, None, id="the same XID"),
        pytest.param(XID_79, gpu(), None, id="no XID any more"),
        pytest.param(gpu(), gpu(status=GpuStatus.NO_ANSWER), None, id="no answer"),
        pytest.param(gpu(), LOST, "is lost", id="lost"),
        pytest.param(LOST, LOST, None, id="still lost"),
        pytest.param(LOST, gpu(), None, id="back after it was lost"),
        pytest.param(LOST, WAITING, "requires reset", id="requires reset"),
        pytest.param(WAITING, gpu(), None, id="back after a reset"),
        pytest.param(gpu(), TO_RESET, ASKS_FOR_RESET, id="to be reset"),
        pytest.param(NO_ACTION, TO_RESET, ASKS_FOR_RESET, id="to be reset, after none"),
        pytest.param(TO_RESET, TO_RESET, None, id="still to be reset"),
        pytest.param(TO_RESET, NO_ACTION, None, id="no more to be reset"),
    ],
)
def test_what_breaks_on_a_gpu_is_one_error(before: Gpu, after: Gpu, says: str | None) -> None:
    expected = [] if says is None else [(EventKind.ERROR, f"GPU 0 {says}")]
    assert of_gpu(before, after) == expected


def test_memory_becomes_full_below_its_share_of_free_memory() -> None:
    told = [(EventKind.FULL, "GPU 0 memory full: 4.0 of 80.0 GiB free")]

    assert of_gpu(ROOMY, FULL) == told
    assert of_gpu(FULL, FULL) == of_gpu(FULL, ROOMY) == []
    of_machine = [replace(each, memory_unified=True) for each in (ROOMY, FULL)]
    assert of_gpu(*of_machine) == []


def test_throttling_begins_with_a_harmful_reason_alone() -> None:
    for bit, name in CLOCK_EVENT_REASONS.items():
        harmful = bool(bit & HARMFUL_CLOCK_EVENTS)
        told = [(EventKind.THROTTLED, f"GPU 0 throttled: {name}")] if harmful else []
        assert of_gpu(gpu(), gpu(clock_event_reasons=bit)) == told
        assert of_gpu(gpu(clock_event_reasons=bit), gpu()) == []
    assert of_gpu(gpu(clock_event_reasons=0x40), gpu(clock_event_reasons=0x48)) == []
    assert {name for bit, name in CLOCK_EVENT_REASONS.items() if bit & HARMFUL_CLOCK_EVENTS} == {
        "HW slowdown",
        "SW thermal",
        "HW thermal",
        "HW power brake",
    }


@pytest.mark.parametrize(
    ("name", "began"),
    [
        ("clock_event_reasons", EventKind.FULL),
        ("memory_free", EventKind.THROTTLED),
        ("memory_total", EventKind.THROTTLED),
    ],
)
def test_what_was_unknown_did_not_begin(name: str, began: EventKind) -> None:
    bad = gpu(clock_event_reasons=0x40, memory_free=0)
    for before, after in ((gpu(**{name: None}), bad), (gpu(), replace(bad, **{name: None}))):
        assert [kind for kind, _ in of_gpu(before, after)] == [began]


def test_a_card_that_was_not_there_before_began_nothing() -> None:
    worst = gpu(index=1, xid=79, status=GpuStatus.LOST, clock_event_reasons=0x40, memory_free=0)

    assert moments(snapshot(NOON, gpu()), snapshot(NOON + 1, gpu(), worst)) == []


def test_what_comes_and_goes_within_seconds_is_told_once() -> None:
    finder = EventFinder(SHARE)
    bad = gpu(clock_event_reasons=0x40, memory_free=0)
    told = []
    for number in range(40):
        told += finder.see(snapshot(NOON + number / 10, bad if number % 2 else gpu()))
    assert [mark.time for mark in told] == [NOON + 0.1, NOON + 0.1]

    held = NOON + 3.9
    finder.see(snapshot(held + 1, gpu()))
    assert finder.see(snapshot(held + HYSTERESIS - 0.1, bad)) == []
    held += HYSTERESIS - 0.1
    finder.see(snapshot(held + 1, gpu()))
    assert {mark.kind for mark in finder.see(snapshot(held + HYSTERESIS, bad))} == {
        EventKind.THROTTLED,
        EventKind.FULL,
    }


def test_errors_are_told_however_often_they_come() -> None:
    finder = EventFinder(SHARE)
    told = []
    for number in range(5):
        told += finder.see(snapshot(NOON + number, gpu(xid=31, xid_at=NOON + number)))
    assert len(told) == 4


def test_the_first_snapshot_tells_nothing() -> None:
    assert EventFinder(SHARE).see(snapshot(NOON, gpu(xid=79), processes=(python(),))) == []


# Accidents


XID_31 = Accident(NOON + 1.5, AccidentKind.ERROR_CODE, "GPU-0", 31, 41233, "python")


def found_in(*snapshots: Snapshot) -> list[Event]:
    finder = EventFinder(SHARE)
    return [
        event
        for seen in snapshots
        for event in finder.see(seen)
        if event.kind in (EventKind.ACCIDENT, EventKind.ERROR)
    ]


def test_an_accident_is_one_event_with_whose_it_was() -> None:
    with_it = with_accidents(3, XID_31)
    with_it = replace(with_it, gpus=(gpu(xid=31, xid_at=NOON + 1),))
    # The kernel log is read after the list that no longer has the process.
    (event,) = found_in(
        LISTED,
        snapshot(NOON + 2),
        with_it,
        replace(with_it, time=NOON + 4, accidents=(replace(XID_31, time=NOON + 1.501),)),
    )

    assert event == Event(NOON + 3, EventKind.ACCIDENT, "GPU-0", event.sentence, ("GPU-0",), XID_31)
    assert event.sentence.startswith("GPU 0: XID 31, ")
    assert event.sentence.endswith("41233 python of chen")


def test_a_machine_that_reads_its_kernel_log_again_reports_nothing_twice() -> None:
    again = replace(XID_31, time=XID_31.time + 0.003)
    logs = ((), (XID_31,), (), (), (again,))
    events = found_in(*(with_accidents(second, *log) for second, log in enumerate(logs)))
    assert [event.accident for event in events] == [XID_31]


def test_an_xid_that_follows_in_a_later_sample_is_an_event_and_no_further_accident() -> None:
    further = replace(XID_31, number=45, time=NOON + 2.5)
    same = replace(XID_31, time=NOON + 2.6, text="again")
    first, second = found_in(
        snapshot(NOON),
        with_accidents(2, XID_31),
        with_accidents(3, XID_31, further, same),
        with_accidents(4, XID_31, further, same),
    )
    assert (first.kind, first.accident) == (EventKind.ACCIDENT, XID_31)
    assert (second.kind, second.accident) == (EventKind.ACCIDENT, None)
    assert second.sentence.startswith("GPU 0: XID 45, ")


def test_accidents_from_before_the_recording_are_no_events() -> None:
    assert not found_in(snapshot(NOON), with_accidents(2, replace(XID_31, time=NOON - 60)))
    assert not found_in(with_accidents(2, XID_31))


def test_a_line_that_came_after_the_event_of_the_driver_says_whose_it_was() -> None:
    event = replace(XID_31, pid=None, process_name=None)
    line = replace(XID_31, time=NOON + 1, text="Ch 8")
    broken, listed = (gpu(xid=31, xid_at=event.time),), LISTED.processes
    taken = [with_accidents(2, event), with_accidents(3, line)]
    recording = recorded([LISTED, *(replace(it, gpus=broken, processes=listed) for it in taken)])

    assert len(recording.events(NOON, NOON + 3)) == 1
    (found,) = recorded_accidents(recording, 10)
    assert recorded_report(recording, found).process == LISTED.processes[0]
