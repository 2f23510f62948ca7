"""XIDs from the driver's events and from the kernel log, each told once and in order."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from gpumon.findings import Finding, FindingKind, conditions, gpu_findings, is_of_the_past
from gpumon.makers.nvidia.xid_table import XIDS
from gpumon.makers.nvidia.xids import XidOrigin, XidReports
from gpumon.model.error_codes import ErrorSeverity, error_code, error_details
from gpumon.model.snapshot import Snapshot
from gpumon.recording.history import History
from gpumon.recording.memory.event_finder import EventFinder
from gpumon.recording.recording import Event, EventKind
from tests.driver import Model, h100
from tests.known import known
from tests.makers.hanging import wait_until
from tests.makers.nvml_room import Furnish, Room, count_events, join_watchers, kernel_thread

Registered = Callable[..., "Watched"]


def line(
    bus: int | None, number: int, at: float, rest: str = "pid=1234, name=python, Ch 00000008"
) -> str:
    """A line of the kernel log, ``at`` seconds after the machine was started."""
    assert bus is not None
    return f"3,900,{round(at * 1e6)},-;NVRM: Xid (PCI:0000:{bus:02x}:00): {number}, {rest}\n"


class Watched:
    """A source that is sampled into a history, as the dashboard does."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.events_received = count_events(room)
        self.source = room.open()
        self.history = History(conditions())
        self.finder = EventFinder(0.05)
        self.events: list[Event] = []
        self.told: list[tuple[int, int]] = []
        """Index of a GPU and its XID, in the order in which samples told them."""
        self._last: dict[int, tuple[int | None, float | None]] = {}
        self.sample()

    def sample(self) -> Snapshot:
        snapshot = self.source.sample()
        self.history.add(snapshot)
        self.events += self.finder.see(snapshot)
        for gpu in snapshot.gpus:
            if gpu.xid is not None and self._last.get(gpu.index) != (gpu.xid, gpu.xid_at):
                self._last[gpu.index] = gpu.xid, gpu.xid_at
                self.told.append((gpu.index, gpu.xid))
        return snapshot

    def until(self, true: Callable[[], object]) -> None:
        """Sample until something is so."""
        wait_until(lambda: true() or (self.sample() and true()))

    def receive(self, *numbers: int, index: int = 0) -> None:
        """Let a GPU report XIDs, and wait for their events, without a sample."""
        wanted = self.events_received() + len(numbers)
        for number in numbers:
            self.room.driver.cards[index].xid(number)
            self.room.clock.now += 0.01
        wait_until(lambda: self.events_received() == wanted)

    def xids(self, index: int = 0) -> dict[int, float | None]:
        return self.history.xids(self.room.driver.cards[index].uuid)

    def finding(self, kind: FindingKind) -> Finding | None:
        """What is found of the first GPU now."""
        found = gpu_findings(self.history, self.sample().gpus[0])
        return next((finding for finding in found if finding.kind is kind), None)


@pytest.fixture
def registered(furnish: Furnish) -> Callable[..., Watched]:
    """Makes a room as `furnish` does, whose cards are waited for."""

    def make(*models: Model) -> Watched:
        watched = Watched(furnish(*models))
        watched.room.until_registered(len(models))
        return watched

    return make


def test_errors_from_before_are_told_with_their_times_and_are_no_events(furnish: Furnish) -> None:
    room = furnish(h100(), h100())
    first, second = (card.pci_bus for card in room.driver.cards)
    room.write_log(
        line(first, 31, 300),
        line(first, 48, 400),
        line(first, 45, 401),
        line(second, 79, 500, "GPU has fallen off the bus."),
        line(first, 31, 700),
        line(0xEE, 62, 600),
    )
    watched = Watched(room)
    watched.until(lambda: len(watched.told) == 4)
    now = room.clock.time() - 1000  # The hand clock says that it began 1,000 s ago.
    assert watched.xids(0) == {48: now + 400, 45: now + 401, 31: now + 700}
    assert watched.xids(1) == {79: now + 500}
    assert [number for index, number in watched.told if index == 0] == [48, 45, 31]
    assert watched.sample().gpus[0].xid == 31, "the newest"
    assert watched.events == []
    assert all(is_of_the_past(watched.history, at) for at in watched.xids(0).values())
    xid = known(watched.finding(FindingKind.XID))
    assert (xid.brief, xid.since) == ("XID 48", now + 400)


def test_a_hardware_error_of_days_ago_is_no_finding_any_more(furnish: Furnish) -> None:
    room = furnish(h100())
    room.clock.now = 90_000.0
    room.write_log(line(room.card.pci_bus, 48, 400))
    watched = Watched(room)
    watched.until(lambda: watched.xids() == {48: room.clock.time() - 89_600})
    assert watched.finding(FindingKind.XID) is None


def test_a_machine_that_slept_has_no_times_for_old_lines(furnish: Furnish) -> None:
    room = furnish(h100())
    room.slept = 3600.0
    bus = room.card.pci_bus
    room.write_log(line(bus, 48, 400))
    watched = Watched(room)
    room.until_registered(1)
    # No event is told before the lines of the time before were read.
    watched.receive(43)
    room.clock.now += 1
    watched.until(lambda: watched.told)
    room.write_log(line(bus, 79, 1001))
    watched.until(lambda: (0, 79) in watched.told)
    assert watched.told == [(0, 43), (0, 79)]


def test_only_the_newest_of_each_number_and_few_numbers_are_told(furnish: Furnish) -> None:
    room = furnish(h100())
    numbers = [62, 95, *range(126, 136), *(31, 43) * 100]
    room.write_log(*(line(room.card.pci_bus, n, 100 + at) for at, n in enumerate(numbers)))
    watched = Watched(room)
    watched.until(lambda: (0, 43) in watched.told)
    assert [number for _, number in watched.told] == [62, 95, 132, 133, 134, 135, 31, 43]


def test_a_new_line_that_no_event_told_is_an_error_of_now(furnish: Furnish) -> None:
    room = furnish(h100(event_types=None))
    bus = room.card.pci_bus
    room.write_log(line(bus, 31, 100))
    watched = Watched(room)
    watched.until(lambda: watched.told == [(0, 31)])
    room.clock.now += 50
    room.write_log(line(bus, 79, 1049.9))
    watched.until(lambda: watched.told == [(0, 31), (0, 79)])
    assert watched.xids()[79] == pytest.approx(room.clock.time(), abs=1)
    assert [event.kind for event in watched.events] == [EventKind.ACCIDENT]


def test_what_both_tell_is_told_once(furnish: Furnish) -> None:
    room = furnish(h100())
    os.mkfifo(room.kernel_log)
    writer = os.open(room.kernel_log, os.O_RDWR)
    try:
        watched = Watched(room)
        room.until_registered(1)
        # 154 comes last in the log, and as an event that nothing else tells.
        for number in (48, 45, 79, 154):
            os.write(writer, line(room.card.pci_bus, number, 1000).encode())
        watched.receive(48, 45, 79)
        watched.until(lambda: (0, 154) in watched.told)
        room.clock.now += 60
        watched.receive(43)
        room.clock.now += 1
        watched.until(lambda: (0, 43) in watched.told)
    finally:
        os.close(writer)
    assert sorted(watched.told) == [(0, 43), (0, 45), (0, 48), (0, 79), (0, 154)]
    # The lines of one moment are one accident; 43 came as an event of the driver only.
    assert [event.kind for event in watched.events] == [EventKind.ACCIDENT] * 2
    assert watched.events[1].sentence.startswith("GPU 0: XID 43, ")


@pytest.mark.slow
@pytest.mark.parametrize("late", [0.0, 1.5], ids=["in time", "late"])
@pytest.mark.parametrize("event_first", [True, False])
def test_an_error_is_one_event_whichever_origin_comes_first(
    furnish: Furnish, *, event_first: bool, late: float
) -> None:
    room = furnish(h100(), h100())
    other, card = room.driver.cards
    room.write_log(line(other.pci_bus, 31, 100))  # Its accident is too old to be shown.
    watched = Watched(room)
    watched.until(lambda: room.calls("nvmlDeviceRegisterEvents") == 2 and watched.told)

    def event(number: int) -> None:
        watched.receive(number, index=1)
        for _ in range(3):
            watched.sample()

    def write(number: int, at: float) -> None:
        room.write_log(line(card.pci_bus, number, at, f"pid=7, name=at{at}, Ch 8"))
        watched.until(lambda: f"at{at}" in str(watched.sample().accidents))

    # Again minutes later, then another number: three errors.
    for minutes, number in enumerate((79, 79, 48)):
        room.clock.now = 1000.0 + 60 * minutes
        for is_event in (event_first, not event_first):
            if is_event:
                event(number)
            else:
                write(number, 1000.0 + 60 * minutes)
            room.clock.now += late
            watched.sample()
    assert [event.kind for event in watched.events] == [EventKind.ACCIDENT] * 3
    accidents = watched.sample().accidents
    assert [accident.process_name for accident in accidents] == ["at1000.0", "at1060.0", "at1120.0"]
    assert watched.told == [(0, 31), (1, 79), (1, 79), (1, 48)]
    in_events = [event.accident.pid for event in watched.events if event.accident]
    assert in_events == [None if event_first and late else 7] * 3


def test_errors_between_two_samples_are_told_one_after_the_other(registered: Registered) -> None:
    watched = registered(h100())
    watched.sample()
    # There is no log, so nothing is to come from it.
    wait_until(lambda: kernel_thread() is None)
    watched.sample()
    watched.receive(48, 63, 45)
    watched.sample()
    assert watched.told == [(0, 48)]
    watched.until(lambda: len(watched.told) == 3)
    assert watched.told == [(0, 48), (0, 63), (0, 45)]
    assert sorted(watched.xids()) == [45, 48, 63]


def test_the_first_sample_does_not_wait_for_the_log(furnish: Furnish) -> None:
    room = furnish(h100())
    os.mkfifo(room.kernel_log)
    join_watchers()
    source = room.open()
    source.sample()
    assert kernel_thread() is None
    source.sample()
    assert kernel_thread() is not None
    source.close()
    join_watchers()
    assert kernel_thread() is None


def test_events_are_told_where_the_log_may_not_be_read(furnish: Furnish) -> None:
    room = furnish(h100())
    room.kernel_log.symlink_to("/dev/zero")
    watched = Watched(room)
    room.until_registered(1)
    room.card.xid(94)
    watched.until(lambda: watched.told == [(0, 94)])


def taken(reports: XidReports, uuid: str = "GPU-0", slot: str = "0000:3b:00") -> list[int]:
    numbers = []
    while (told := reports.next_of(uuid, slot)) is not None:
        numbers.append(told[0])
    return numbers


@pytest.mark.parametrize("event_first", [True, False])
@pytest.mark.parametrize(
    ("apart", "told"), [(0.0, [79]), (1.9, [79]), (2.1, [79, 79]), (60.0, [79, 79])]
)
def test_the_same_in_two_seconds_is_one(apart: float, told: list[int], event_first: bool) -> None:
    reports = XidReports()
    times = (100.0, 100.0 + apart) if event_first else (100.0 + apart, 100.0)
    reports.add("GPU-0", 79, times[0], XidOrigin.EVENT)
    reports.add("0000:3b:00", 79, times[1], XidOrigin.KERNEL_LOG)
    assert taken(reports) == told


def test_two_events_of_a_number_are_two(registered: Registered) -> None:
    watched = registered(h100())
    for count in (1, 2):
        watched.room.card.xid(31)
        watched.until(lambda count=count: len(watched.told) == count)  # type: ignore[misc] # a default
        watched.room.clock.now += 0.5


def test_an_event_waits_a_second_for_its_line() -> None:
    reports = XidReports()
    reports.add("GPU-0", 79, 100.0, XidOrigin.EVENT)
    # A sample may begin just before the event.
    for now in (99.9, 100.0, 100.9):
        reports.release(now)
        assert taken(reports) == []
    reports.release(101.0)
    assert taken(reports) == [79]


@pytest.mark.parametrize("now", [None, 40.0], ids=["no log", "clock set back"])
def test_an_event_waits_for_no_line_that_cannot_be_awaited(now: float | None) -> None:
    reports = XidReports()
    reports.add("GPU-0", 79, 100.0, XidOrigin.EVENT)
    reports.release(now)
    assert taken(reports) == [79]


def test_of_both_origins_the_older_is_told_first() -> None:
    reports = XidReports()
    reports.add("GPU-0", 45, 101.0, XidOrigin.EVENT)
    reports.add("0000:3b:00", 48, 100.0, XidOrigin.KERNEL_LOG)
    assert taken(reports) == [48, 45]


def test_nothing_is_told_while_older_reports_are_to_come() -> None:
    reports = XidReports()
    reports.hold()
    reports.add("GPU-0", 45, 101.0, XidOrigin.EVENT)
    assert reports.nothing_to_report
    assert taken(reports) == []
    reports.release()
    assert not reports.nothing_to_report
    assert taken(reports) == [45]
    assert reports.nothing_to_report


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [1, 500])
def test_a_flood_is_bounded(gpus: int) -> None:
    reports = XidReports()
    slots = [f"{gpu:04x}:3b:00" for gpu in range(gpus)]
    for count in range(50_000):
        reports.add(slots[count % gpus], count // gpus, float(count), XidOrigin.KERNEL_LOG)
        if count % 1000 == 0:
            assert reports.next_of("GPU-0", None) is None
    assert reports.next_of("GPU-0", None) is None
    kept = [len(taken(reports, f"GPU of {slot}", slot)) for slot in slots]
    assert len([count for count in kept if count]) == min(gpus, 256)
    assert max(kept) <= 32


def test_each_xid_that_deserves_an_alert_is_of_its_severity() -> None:
    """The same lists as in docs/fleet/alerts.yml."""
    severities = {number: error_code(number).severity for number in range(1000)}
    critical = {n for n, severity in severities.items() if severity is ErrorSeverity.CRITICAL}
    assert critical == {48, 62, 64, 74, 79, 95, 119, 120}
    assert severities[94] is ErrorSeverity.WARNING
    assert [n for n in (13, 31, 43, 63, 92) if not error_code(n).passing] == []


@pytest.mark.parametrize("number", sorted(XIDS))
def test_each_xid_has_plain_words_and_says_what_to_do(number: int) -> None:
    error = error_code(number)
    assert error.label == f"XID {number}"
    for text in (error.meaning, error.advice):
        assert text
        assert text.isprintable()
        assert not text.endswith(".")


RECOVERY = "GPU recovery action changed from"


@pytest.mark.parametrize(
    ("number", "text", "details"),
    [
        # kmsg_extended_test.go of leptonai/gpud.
        (149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x1 0x0)", "not fatal, link 3, unit NETIR"),
        (145, "RLW_RXPIPE Fatal XC0 i0 Link 08 (0x1", "fatal, link 8, unit RLW"),
        (146, "TLW_RX_PIPE1 Nonfatal XC0 i0 Link 00 (0x1", "not fatal, link 0, unit TLW"),
        # A newer driver aligns its words.
        (149, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6", "fatal, link 1, unit NETIR"),
        (149, "NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x0)", "fatal, unit NETIR"),
        (149, "NETIR Fatal XC0 i0 Link -2 (0x000fe406 0x0)", None),
        (74, "NVLink: non-fatal error detected on link 6(0x10000)", None),
        (74, "NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0)", "fatal, link 6"),
        (154, f"{RECOVERY} 0x0 (None) to 0x1 (GPU Reset Required)", "the GPU needs a reset"),
        # The same number in driver 610.
        (154, f"{RECOVERY} 0x0 (None) to 0x2 (OS Reboot)", "the machine needs a reboot"),
        (
            *(154, f"{RECOVERY} 0x0 (None) to 0x5 (Recover IMEX Domain)"),
            "the IMEX domain must be recovered",
        ),
        (154, f"{RECOVERY} 0x1 (None) to 0x63 (New)", None),
        (154, f"{RECOVERY} 0x0 (\x1b[2J", None),
        (149, "NETIR_BER_EVENT Strange XC0 i0 Link 03", None),
        (149, "", None),
        (79, "GPU has fallen off the bus.", None),
    ],
)
def test_the_text_of_an_xid_is_explained_where_it_is_documented(
    number: int, text: str, details: str | None
) -> None:
    assert error_details(number, text) == details
    assert error_details(number, text, "AMD Instinct MI300X") is None


def test_nothing_is_made_up_of_a_number_that_is_in_no_table() -> None:
    error = error_code(999)
    assert (error.label, error.meaning, error.severity, error.advice) == ("XID 999", *3 * (None,))
    assert "docs.nvidia.com/deploy/xid-errors" in error.explanation
    assert not error.by_program
