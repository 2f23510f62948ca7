"""Who owns what: process lists, utilisation samples and the host, joined."""

from __future__ import annotations

import ctypes
import os

import psutil
import pynvml
import pytest

from gpumon.availability import FRESH_SECONDS
from gpumon.host import machine
from gpumon.makers.backend import KEPT_SECONDS
from gpumon.makers.nvidia import queries, source
from gpumon.makers.nvidia.processes import PidTrust, pid_trust
from gpumon.model.process_states import ENDED
from gpumon.model.snapshot import Unknown
from tests.driver import GIB, Owner, h100, h100_mig, owners
from tests.known import known
from tests.makers.nvml_room import BlockingClock, Code, Furnish, Room, replace_function

COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses"
UTILIZATION = "nvmlDeviceGetProcessUtilization"

NOBODY = 4_194_000
"""A number near the kernel's largest, which no process here has."""

IDLE = (0, 0, 0, 0)


def test_a_field_value_has_the_size_of_the_bindings() -> None:
    assert queries.ENTRY.size == ctypes.sizeof(pynvml.c_nvmlFieldValue_t)


def test_an_owner_is_known_by_pid_and_start_time(furnish: Furnish) -> None:
    room = furnish(h100())
    with owners(1, ["python", "train.py", "--lr", "3e-5"]) as (process,):
        room.card.processes = [Owner(process.pid, memory=5 * GIB, sm=37)]
        room.open()
        owner = room.processes()[process.pid]
        facts = psutil.Process(process.pid)
        assert owner.visible
        assert owner.id.start_time is not None
        assert owner.user == facts.username()
        assert owner.command == ("python", "train.py", "--lr", "3e-5")
        assert owner.memory_used == 5 * GIB
        assert owner.sm == 37
        assert owner.type == "C"


def test_a_process_on_several_cards_is_one_process(opened: Furnish) -> None:
    room = opened(h100(), h100(), h100())
    first, _, third = room.driver.cards
    third.processes = [Owner(os.getpid(), memory=3 * GIB)]
    first.processes = [Owner(os.getpid(), memory=GIB)]
    (process,) = room.sample().processes
    assert [(use.gpu_index, use.gpu_uuid, use.memory_used) for use in process.uses] == [
        (0, first.uuid, GIB),
        (2, third.uuid, 3 * GIB),
    ]
    assert (process.gpu_indices, process.memory_used) == ((0, 2), 4 * GIB)


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        # A process in two lists has the memory once.
        *(
            pytest.param([Owner(NOBODY, memory=GIB, type=kind)], {NOBODY: (kind, GIB)}, id=kind)
            for kind in ("C", "G", "C+G", "M")
        ),
        pytest.param(
            [Owner(NOBODY, memory=GIB, type="M"), Owner(NOBODY, memory=2 * GIB, type="C")],
            {NOBODY: ("M+C", 2 * GIB)},
            id="the larger memory of a client of MPS that also draws",
        ),
        pytest.param([Owner(NOBODY, memory=None)], {NOBODY: ("C", None)}, id="unknown memory"),
        pytest.param(
            [Owner(NOBODY, memory=None, type="C"), Owner(NOBODY, memory=GIB, type="G")],
            {NOBODY: ("C+G", GIB)},
            id="memory known to the second list only",
        ),
        pytest.param(
            [Owner(NOBODY, memory=None, type="G"), Owner(NOBODY, memory=GIB, type="C")],
            {NOBODY: ("C+G", GIB)},
            id="memory known to the first list only",
        ),
        pytest.param(
            [
                Owner(NOBODY, memory=GIB),
                Owner(2**32 - 1, memory=2**63),
                Owner(NOBODY - 1, memory=GIB),
            ],
            {NOBODY: ("C", GIB), NOBODY - 1: ("C", GIB)},
            id="what cannot be a PID is dropped",
        ),
    ],
)
def test_the_lists_of_a_card_are_processes_with_type_and_memory(
    opened: Furnish, owners: list[Owner], expected: dict[int, tuple[str, int | None]]
) -> None:
    room = opened(h100())
    room.card.processes = owners
    listed = room.processes()
    assert {pid: (one.type, one.memory_used) for pid, one in listed.items()} == expected


def test_a_process_the_host_does_not_show_keeps_its_row(opened: Furnish) -> None:
    room = opened(h100(), owners=[Owner(NOBODY, memory=GIB, sm=5)])
    process = room.processes()[NOBODY]
    assert not process.visible
    assert process.id.start_time is None
    assert process.user is None
    assert (process.memory_used, process.sm) == (GIB, 5)


def test_an_ended_process_that_the_driver_still_lists_keeps_its_name(opened: Furnish) -> None:
    room = opened(h100())
    card = room.card
    with owners(1) as (process,):
        card.processes = [Owner(process.pid, memory=GIB)]
        first = room.processes()[process.pid]
    second = room.processes()[process.pid]
    assert first.visible
    assert second.visible
    assert (second.id, second.command, second.user) == (first.id, first.command, first.user)
    assert (second.state, second.memory_used, second.rss) == (ENDED, GIB, None)
    assert room.processes()[process.pid] is second

    card.processes = []
    assert not room.processes()
    card.processes = [Owner(process.pid, memory=GIB)]
    later = room.processes()[process.pid]
    assert not later.visible, "listed anew, the number is another process's"
    assert later.id != first.id


# Name spaces


@pytest.mark.parametrize(
    ("on_the_host", "version", "visible", "utilization"),
    [
        (True, "535.54.03", True, True),
        (False, "535.104.05", False, False),
        (False, "535.113.01", True, False),
        (False, "570.86.15", True, True),
    ],
)
def test_a_pid_is_looked_up_as_far_as_the_driver_is_trusted(
    opened: Furnish,
    monkeypatch: pytest.MonkeyPatch,
    on_the_host: bool,
    version: str,
    visible: bool,
    utilization: bool,
) -> None:
    monkeypatch.setattr(source, "in_initial_pid_namespace", lambda _proc: on_the_host)
    owner = Owner(os.getpid(), memory=GIB, sm=40)
    process = opened(h100(), owners=[owner], driver_version=version).processes()[os.getpid()]
    assert (process.visible, process.id.start_time is not None) == (visible, visible)
    assert (process.memory_used, process.sm) == (GIB, 40 if utilization else None)


@pytest.mark.parametrize("initial", [True, False])
def test_a_pid_name_space_of_its_own_is_told(
    opened: Furnish, monkeypatch: pytest.MonkeyPatch, initial: bool
) -> None:
    monkeypatch.setattr(machine, "in_initial_pid_namespace", lambda _proc: initial)
    assert opened(h100()).sample().host.in_container is (not initial)


@pytest.mark.parametrize("version", ["470.57.02", "570.86.10", "", "garbage", None])
def test_on_the_machine_itself_every_driver_is_trusted(version: str | None) -> None:
    assert pid_trust(version, True) == PidTrust(True, True)


NEITHER, PROCESSES, BOTH = (False, False), (True, False), (True, True)
TRUST = {
    NEITHER: ["470.256.02", "535.54.03", "535.104.05", "535.104.12"],
    PROCESSES: [
        *("535.113.01", "535.247.01", "545.23.08", "550.54.15", "560.35.03", "565.57.01"),
        "570.85.99",
    ],
    BOTH: ["570.86.10", "570.86", "570.124.06", "580.65.06", "1000.1"],
}
SAYS_NOTHING = [None, "", "570", "v570.86.10", "570.86-beta", "N/A", "570.x"]


@pytest.mark.parametrize(
    ("version", "trust"),
    [
        *((version, trust) for trust, versions in TRUST.items() for version in versions),
        *((version, NEITHER) for version in SAYS_NOTHING),
    ],
)
def test_in_a_container_trust_follows_the_driver(
    version: str | None, trust: tuple[bool, bool]
) -> None:
    assert pid_trust(version, False) == PidTrust(*trust)


# Lists


def test_more_processes_than_there_was_room_for_are_all_listed(sampled: Furnish) -> None:
    room = sampled(h100())
    room.card.processes = [Owner(NOBODY - i, memory=GIB) for i in range(900)]
    assert len(room.processes()) == 900
    before = room.calls(f"{COMPUTE}_v3")
    room.processes()
    assert room.calls(f"{COMPUTE}_v3") - before == 1, "the room is kept"


def test_a_list_that_grows_between_two_calls_is_caught_up_with(opened: Furnish) -> None:
    room = opened(h100(), owners=[Owner(NOBODY - i) for i in range(60)])
    room.card.grow_processes(50)
    assert len(room.processes()) == 60


def test_a_list_that_is_never_caught_up_with_keeps_the_last_for_a_while(sampled: Furnish) -> None:
    room = sampled(h100(), owners=[Owner(NOBODY, memory=GIB)])
    room.card.fail(f"{COMPUTE}_v3", Code.INSUFFICIENT_SIZE)
    room.card.processes = []
    before = room.calls(f"{COMPUTE}_v3")
    assert set(room.processes()) == {NOBODY}
    assert room.calls(f"{COMPUTE}_v3") - before == 5
    snapshot = room.sample(KEPT_SECONDS - 2)
    assert [process.id.pid for process in snapshot.processes] == [NOBODY]
    assert "processes" not in snapshot.gpus[0].unknown
    snapshot = room.samples(3, seconds=5)
    assert not snapshot.processes
    assert snapshot.gpus[0].unknown["processes"] is Unknown.NO_ANSWER
    room.card.heal()
    room.card.processes = [Owner(NOBODY, memory=GIB)]
    snapshot = room.sample(5)
    assert snapshot.processes
    assert "processes" not in snapshot.gpus[0].unknown


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (Code.INSUFFICIENT_SIZE, Unknown.NO_ANSWER),
        (Code.IN_USE, Unknown.NO_ANSWER),
        (Code.UNKNOWN, Unknown.NOT_READ),  # Not yet: it failed only once.
    ],
)
def test_a_list_that_never_came_is_not_empty(opened: Furnish, code: int, reason: Unknown) -> None:
    room = opened(h100(), owners=[Owner(NOBODY, memory=GIB)], failing={f"{COMPUTE}_v3": code})
    assert room.gpu().unknown["processes"] is reason
    room.card.heal()
    snapshot = room.sample(5)
    assert snapshot.processes
    assert "processes" not in snapshot.gpus[0].unknown


def test_a_size_that_cannot_be_true_is_not_made_room_for(sampled: Furnish) -> None:
    room = sampled(h100(), owners=[Owner(NOBODY, memory=GIB)])
    room.card.grow_processes(2**31)
    room.processes()
    assert set(room.processes()) == {NOBODY}
    assert room.calls(f"{COMPUTE}_v3") <= 4


@pytest.mark.parametrize("missing", [["_v3"], ["_v3", "_v2"]])
def test_older_lists_are_read_where_newer_are_missing(opened: Furnish, missing: list[str]) -> None:
    room = opened(
        h100(),
        owners=[Owner(NOBODY, memory=GIB, type="C+G"), Owner(NOBODY - 1, memory=None)],
        failing={
            function + version: Code.FUNCTION_NOT_FOUND
            for version in missing
            for function in (COMPUTE, GRAPHICS)
        },
    )
    for _ in range(2):
        processes = room.processes()
        assert (processes[NOBODY].memory_used, processes[NOBODY].type) == (GIB, "C+G")
        assert processes[NOBODY - 1].memory_used is None
    for version in missing:
        assert room.calls(COMPUTE + version) == 1


def test_the_longer_entries_of_early_535_drivers_are_read_as_they_are(opened: Furnish) -> None:
    room = opened(h100(), driver_version="535.54.03")
    room.driver.use_long_process_structs()
    memory = {NOBODY - i: (i + 1) * GIB for i in range(70)}
    room.card.processes = [Owner(pid, memory=size) for pid, size in memory.items()]
    for _ in range(2):
        found = room.processes()
        assert {pid: process.memory_used for pid, process in found.items()} == memory


def test_a_list_that_fails_for_a_moment_keeps_its_rows(sampled: Furnish) -> None:
    room = sampled(h100(), owners=[Owner(NOBODY, memory=GIB)])
    room.card.fail(f"{COMPUTE}_v3", Code.UNKNOWN)
    assert room.processes()
    assert room.processes()
    assert not room.processes(), "after the third time the rows are no longer believed"
    room.card.heal()
    assert room.processes(5)


def test_a_card_that_does_not_list_its_processes_says_so(sampled: Furnish) -> None:
    lists = [COMPUTE + version for version in ("_v3", "_v2", "")]
    room = sampled(h100(), h100(), failing=dict.fromkeys(lists, Code.NOT_SUPPORTED))
    assert room.gpu(index=0).unknown["processes"] is Unknown.NOT_SUPPORTED
    assert "processes" not in room.gpu(index=1).unknown
    room.driver.cards[1].lost = True
    room.sample()
    assert room.gpu(index=1).unknown["processes"] is Unknown.GPU_LOST


def test_when_the_lists_were_read_is_told(opened: Furnish) -> None:
    room = opened(h100())
    first = room.sample()
    assert first.processes_at == first.time
    second = room.sample(0.5)
    assert second.processes_at == first.time
    assert second.processes is first.processes
    assert room.sample(0.6).processes_at == room.clock.time()


def test_a_process_in_another_namespace_is_one_object_until_it_changes(opened: Furnish) -> None:
    room = opened(h100(), owners=[Owner(NOBODY, memory=GIB)])
    first = room.sample().processes
    second = room.sample(1.1).processes
    assert second is not first
    assert second[0] is first[0]
    room.card.processes = [Owner(NOBODY, memory=2 * GIB)]
    assert room.sample(1.1).processes[0].uses[0].memory_used == 2 * GIB


def test_lists_that_take_long_are_read_less_often(furnish: Furnish) -> None:
    room = furnish(h100())
    room.clock = BlockingClock(room.driver.cards, f"{GRAPHICS}_v3", 0.2)
    room.open()
    room.samples(100)
    lists = room.calls(f"{GRAPHICS}_v3")
    assert lists <= 4, "a fifth of a second each is read every four seconds"


def test_lists_that_take_very_long_are_read_before_they_are_stale(furnish: Furnish) -> None:
    room = furnish(h100())
    room.clock = BlockingClock(room.driver.cards, f"{GRAPHICS}_v3", 1.0)
    room.open()
    first = known(room.sample().processes_at)
    assert 0 < known(room.samples(45).processes_at) - first < FRESH_SECONDS


# Utilisation


def utilization(room: Room) -> dict[int, tuple[float | None, ...]]:
    return {
        pid: (process.sm, use.memory_activity, use.encoder, use.decoder)
        for pid, process in room.processes().items()
        for use in process.uses
    }


@pytest.mark.parametrize(
    ("owners", "expected", "calls"),
    [
        pytest.param(
            [
                Owner(NOBODY, sm=90, memory_util=1, sampled_us=1_000),
                Owner(NOBODY, sm=40, memory_util=20, encoder=3, decoder=4, sampled_us=2_000),
                Owner(NOBODY, sm=10, memory_util=2, sampled_us=1_500),
            ],
            {NOBODY: (40, 20, 3, 4)},
            1,
            id="the newest sample",
        ),
        pytest.param(
            [
                Owner(NOBODY, sm=90, sampled_us=5_000_000),
                Owner(NOBODY - 1, sm=80, sampled_us=6_500_000),
                Owner(NOBODY - 2, sm=70, sampled_us=7_000_000),
            ],
            {NOBODY: IDLE, NOBODY - 1: (80, 0, 0, 0), NOBODY - 2: (70, 0, 0, 0)},
            1,
            id="not what the driver remembers from before gpumon came",
        ),
        pytest.param([Owner(NOBODY, sm=None)], {NOBODY: IDLE}, 1, id="nobody active"),
        pytest.param(
            [Owner(NOBODY - i, sm=i % 100) for i in range(500)],
            {NOBODY - i: (i % 100, 0, 0, 0) for i in range(500)},
            2,
            id="more samples than there was room for",
        ),
    ],
)
def test_what_a_process_uses(
    opened: Furnish, owners: list[Owner], expected: dict[int, tuple[int, ...]], calls: int
) -> None:
    room = opened(h100(), owners=owners)
    assert utilization(room) == expected
    assert room.calls(UTILIZATION) == calls


def test_the_newest_timestamp_returned_is_where_the_next_call_begins(opened: Furnish) -> None:
    room = opened(h100(), owners=[Owner(NOBODY, sm=90, sampled_us=5_000_000)])
    assert room.processes()[NOBODY].sm == 90
    assert room.processes()[NOBODY].sm == 0, "it was not sampled again: it did nothing"
    room.card.processes = [Owner(NOBODY, sm=70, sampled_us=5_000_001)]
    assert room.processes()[NOBODY].sm == 70


def test_a_sample_from_before_the_last_call_is_dropped(opened: Furnish) -> None:
    room = opened(h100(), owners=[Owner(NOBODY, sm=90, sampled_us=5_000_000)])
    assert room.processes()[NOBODY].sm == 90

    def forgetful(*arguments: object) -> int:
        return answer(*arguments[:-1], ctypes.c_ulonglong(0))

    answer = replace_function(room, UTILIZATION, forgetful)
    assert room.processes()[NOBODY].sm == 0


def test_timestamps_are_those_of_each_card(opened: Furnish) -> None:
    room = opened(h100(), h100(), owners=[Owner(NOBODY, sm=11, sampled_us=9_000_000_000)])
    room.driver.cards[1].processes = [Owner(NOBODY - 1, sm=22, sampled_us=7)]
    processes = room.processes()
    assert (processes[NOBODY].sm, processes[NOBODY - 1].sm) == (11, 22)


def test_a_sample_of_more_than_everything_is_dropped_with_its_timestamp(opened: Furnish) -> None:
    wrong = Owner(NOBODY, sm=4_000_000, sampled_us=2**62)
    room = opened(h100(), owners=[wrong, Owner(NOBODY - 1, sm=30, sampled_us=10)])
    processes = room.processes()
    assert (processes[NOBODY].sm, processes[NOBODY - 1].sm) == (0, 30)
    room.card.processes = [Owner(NOBODY - 1, sm=31, sampled_us=11)]
    assert room.processes()[NOBODY - 1].sm == 31


def test_samples_of_others_are_not_shown(opened: Furnish) -> None:
    room = opened(h100(), owners=[Owner(NOBODY, sm=50), Owner(NOBODY - 1, sm=60)])
    room.driver.set_process_limit(1)
    assert set(room.processes()) == {NOBODY}


@pytest.mark.parametrize("code", [Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND, Code.NO_PERMISSION])
def test_utilisation_that_cannot_be_had_is_unknown(opened: Furnish, code: int) -> None:
    room = opened(h100(), owners=[Owner(NOBODY, sm=50)], failing={UTILIZATION: code})
    for _ in range(2):
        assert utilization(room) == {NOBODY: (None,) * 4}
    assert room.calls(UTILIZATION) == 1


# MIG


ON_INSTANCES = [
    Owner(NOBODY, memory=GIB, gpu_instance=9, compute_instance=0),
    Owner(NOBODY, memory=2 * GIB, gpu_instance=2, compute_instance=0),
]


def instances(room: Room, seconds: float = 1.0) -> list[tuple[object, ...]]:
    return [
        (pid, use.instance, use.memory_used, use.sm)
        for pid, process in room.processes(seconds).items()
        for use in process.uses
    ]


def test_under_mig_a_process_is_on_its_instance(opened: Furnish) -> None:
    room = opened(h100_mig(), owners=ON_INSTANCES)
    found = [(NOBODY, (2, 0), 2 * GIB, None), (NOBODY, (9, 0), GIB, None)]
    assert instances(room) == found
    refuse_whole_cards(room, f"{COMPUTE}_v3")
    assert instances(room) == found, "who may not list a whole card lists its instances"
    room.card.fail("nvmlDeviceGetMigMode", Code.UNKNOWN)
    room.card.set_mig([])
    assert not room.processes(0.96), "stale instances list nobody"
    assert room.calls(f"{COMPUTE}_v2") == 0, "and are no reason to ask another way"


def test_instances_that_come_after_the_whole_card_was_refused_are_listed(opened: Furnish) -> None:
    room = opened(h100_mig(), owners=ON_INSTANCES)
    room.card.set_mig([])
    refuse_whole_cards(room, f"{COMPUTE}_v3")
    assert room.gpu().unknown["processes"] is Unknown.NO_PERMISSION
    room.card.set_mig(h100_mig().migs)
    room.sample(2.1)
    assert [instance for _, instance, *_ in instances(room, 2.1)] == [(2, 0), (9, 0)]
    assert "processes" not in room.gpu().unknown


def refuse_whole_cards(room: Room, name: str) -> None:
    """As the driver treats a user without rights: only instances may be listed."""
    whole = ctypes.cast(pynvml.nvmlDeviceGetHandleByIndex(0), ctypes.c_void_p).value

    def refusing(handle: ctypes.c_void_p, *arguments: object) -> int:
        return (
            Code.NO_PERMISSION
            if ctypes.cast(handle, ctypes.c_void_p).value == whole
            else answer(handle, *arguments)
        )

    answer = replace_function(room, name, refusing)


def test_a_list_that_is_not_found_is_no_error_under_mig(opened: Furnish) -> None:
    room = opened(h100_mig(), failing={f"{COMPUTE}_v3": Code.NOT_FOUND})
    assert not room.processes()
