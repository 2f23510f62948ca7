"""What counts as having happened between two snapshots, and that what is unknown never does."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.model.accidents import Accident, AccidentKind
from gpumon.model.metrics import CLOCK_EVENT_REASONS, HARMFUL_CLOCK_EVENTS
from gpumon.model.processes import GpuProcess, ProcessId
from gpumon.model.snapshot import Gpu, GpuStatus, Snapshot, Trouble, Unknown
from gpumon.recording.memory.event_finder import HYSTERESIS, EventFinder, events_between
from gpumon.recording.recording import Event, EventKind
from tests.build import GIB, NOON, gpu, process, snapshot

SHARE = 0.05


def python(
    pid: int = 41233, *, user: str | None = "chen", gpus: tuple[int, ...] = (0,)
) -> GpuProcess:
    return replace(process(pid, user=user, gpus=gpus), name="python")


def moments(before: Snapshot, after: Snapshot) -> list[Event]:
    return events_between(before, after, SHARE)


def of_gpu(before: Gpu, after: Gpu) -> list[tuple[EventKind, str]]:
    marks = moments(snapshot(NOON, before), snapshot(NOON + 1, after))
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


@pytest.mark.parametrize(("first", "then"), [(None, 7), (7, None)])
def test_a_process_that_comes_into_sight_was_there_before(
    first: int | None, then: int | None
) -> None:
    before = snapshot(NOON, processes=(process(100, start_time=first),))
    after = snapshot(NOON + 1, processes=(process(100, start_time=then),))

    assert moments(before, after) == []


def test_without_a_new_list_nobody_came_or_went() -> None:
    before = snapshot(NOON, processes=(python(),))
    after = snapshot(NOON + 1, processes_at=NOON)

    assert moments(before, after) == []


@pytest.mark.parametrize("never", [0, 1])
def test_a_list_that_was_never_read_tells_nothing(never: int) -> None:
    both = [snapshot(NOON, processes=(python(),)), snapshot(NOON + 1)]
    both[never] = replace(both[never], processes=(), processes_at=None)

    assert moments(*both) == []
    assert moments(*reversed(both)) == []


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


def test_when_the_driver_cannot_be_reached_nobody_went() -> None:
    before = snapshot(NOON, processes=(python(),))
    after = Snapshot(NOON + 1, before.host, processes_at=NOON + 1, trouble=Trouble("No.", "Wait."))

    assert moments(before, after) == moments(after, before) == []


def test_an_xid_is_an_error_each_time_it_comes() -> None:
    told = [(EventKind.ERROR, "GPU 0 reported XID 79")]

    assert of_gpu(gpu(), gpu(xid=79, xid_at=NOON)) == told
    assert of_gpu(gpu(xid=31, xid_at=NOON), gpu(xid=79, xid_at=NOON)) == told
    assert of_gpu(gpu(xid=79, xid_at=NOON), gpu(xid=79, xid_at=NOON + 1)) == told
    assert of_gpu(gpu(xid=79, xid_at=NOON), gpu(xid=79, xid_at=NOON)) == []
    assert of_gpu(gpu(xid=79, xid_at=NOON), gpu()) == []


def test_a_card_that_breaks_is_an_error_and_its_return_is_none() -> None:
    lost, waiting = gpu(status=GpuStatus.LOST), gpu(status=GpuStatus.RESET_REQUIRED)

    assert of_gpu(gpu(), lost) == [(EventKind.ERROR, "GPU 0 is lost")]
    assert of_gpu(lost, waiting) == [(EventKind.ERROR, "GPU 0 requires reset")]
    assert of_gpu(gpu(), gpu(status=GpuStatus.NO_ANSWER)) == []
    assert of_gpu(lost, lost) == of_gpu(lost, gpu()) == of_gpu(waiting, gpu()) == []


def test_a_recovery_that_the_driver_asks_for_is_an_error_once() -> None:
    asked, told = (
        gpu(recovery_action="Reset"),
        (EventKind.ERROR, "GPU 0 requests the recovery action: Reset"),
    )

    assert of_gpu(gpu(recovery_action="None"), asked) == [told]
    assert of_gpu(gpu(), asked) == [told]
    assert of_gpu(asked, asked) == of_gpu(asked, gpu(recovery_action="None")) == []


def test_throttling_begins_with_a_harmful_reason_alone() -> None:
    for bit, name in CLOCK_EVENT_REASONS.items():
        harmful = bool(bit & HARMFUL_CLOCK_EVENTS)
        told = [(EventKind.THROTTLED, f"GPU 0 throttled: {name}")] if harmful else []
        assert of_gpu(gpu(), gpu(clock_event_reasons=bit)) == told
        assert of_gpu(gpu(clock_event_reasons=bit), gpu()) == []
    assert {name for bit, name in CLOCK_EVENT_REASONS.items() if bit & HARMFUL_CLOCK_EVENTS} == {
        "HW slowdown",
        "SW thermal",
        "HW thermal",
        "HW power brake",
    }


def test_a_second_reason_to_be_throttled_is_not_a_second_beginning() -> None:
    assert of_gpu(gpu(clock_event_reasons=0x40), gpu(clock_event_reasons=0x48)) == []


def test_memory_becomes_full_below_its_share_of_free_memory() -> None:
    roomy, full = gpu(memory_free=4 * GIB), gpu(memory_free=4 * GIB - 1)

    assert of_gpu(roomy, full) == [
        (EventKind.FULL, "GPU 0 memory full: 4.0 of 80.0 GiB free"),
    ]
    assert of_gpu(full, full) == of_gpu(full, roomy) == []
    unified = {"memory_unified": True}
    assert of_gpu(replace(roomy, **unified), replace(full, **unified)) == []


@pytest.mark.parametrize("name", ["clock_event_reasons", "memory_free", "memory_total"])
def test_what_was_unknown_did_not_begin(name: str) -> None:
    bad = gpu(clock_event_reasons=0x40, memory_free=0)
    told = {kind for kind, _ in of_gpu(replace(gpu(), **{name: None}), bad)}

    assert (EventKind.THROTTLED in told) == (name != "clock_event_reasons")
    assert (EventKind.FULL in told) == (name == "clock_event_reasons")
    told = {kind for kind, _ in of_gpu(gpu(), replace(bad, **{name: None}))}
    assert (EventKind.THROTTLED in told) == (name != "clock_event_reasons")
    assert (EventKind.FULL in told) == (name == "clock_event_reasons")


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
    card = gpu()
    broken = replace(card, xid=31, xid_at=NOON + 1)
    with_it = replace(snapshot(NOON + 3, broken), accidents=(XID_31,))
    # The kernel log is read after the list that no longer has the process.
    events = found_in(
        snapshot(NOON, card, processes=(python(),)),
        snapshot(NOON + 2, card),
        with_it,
        replace(with_it, time=NOON + 4, accidents=(replace(XID_31, time=NOON + 1.501),)),
    )

    assert [(event.kind, event.time, event.accident) for event in events] == [
        (EventKind.ACCIDENT, NOON + 3, XID_31)
    ]
    assert events[0].sentence.startswith("GPU 0: XID 31, ")
    assert events[0].sentence.endswith("41233 python of chen")
    assert (events[0].subject, events[0].gpus) == ("GPU-0", ("GPU-0",))


def test_a_machine_that_reads_its_kernel_log_again_reports_nothing_twice() -> None:
    again = replace(XID_31, time=XID_31.time + 0.003)
    events = found_in(
        snapshot(NOON),
        replace(snapshot(NOON + 2), accidents=(XID_31,)),
        snapshot(NOON + 3),
        snapshot(NOON + 4),
        replace(snapshot(NOON + 5), accidents=(again,)),
    )
    assert [event.accident for event in events] == [XID_31]


def test_an_xid_that_follows_in_a_later_sample_is_an_event_and_no_further_accident() -> None:
    further = replace(XID_31, number=45, time=NOON + 2.5)
    same = replace(XID_31, time=NOON + 2.6, text="again")
    events = found_in(
        snapshot(NOON),
        replace(snapshot(NOON + 2), accidents=(XID_31,)),
        replace(snapshot(NOON + 3), accidents=(XID_31, further, same)),
        replace(snapshot(NOON + 4), accidents=(XID_31, further, same)),
    )
    assert [(event.kind, event.accident) for event in events] == [
        (EventKind.ACCIDENT, XID_31),
        (EventKind.ACCIDENT, None),
    ]
    assert events[1].sentence.startswith("GPU 0: XID 45, ")


def test_accidents_from_before_the_recording_are_no_events() -> None:
    old = replace(XID_31, time=NOON - 60)
    assert not found_in(snapshot(NOON), replace(snapshot(NOON + 2), accidents=(old,)))
    assert not found_in(replace(snapshot(NOON + 2), accidents=(XID_31,)))
