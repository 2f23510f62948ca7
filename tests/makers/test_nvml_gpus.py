"""Cards that come and go, sleep, are cut into instances, or have no memory of their own."""

from __future__ import annotations

import pytest

from gpumon.model.selection import ALL, GpuSelection, parse_selection
from gpumon.model.snapshot import Gpu, GpuStatus, MigInstance, Unknown
from tests.driver import GIB, MIB, Mig, Owner, a100, gb10, h100, h100_mig, rtx4090
from tests.known import known
from tests.makers.nvml_room import Code, Furnish, Room

INSTANCE = "nvmlDeviceGetMigDeviceHandleByIndex"
INSTANCE_ID = "nvmlDeviceGetGpuInstanceId"
MEMORY_INFO = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo")


# Come and gone


def test_a_card_that_comes_is_seen_within_seconds(opened: Furnish) -> None:
    room = opened(h100())
    assert len(room.samples(3).gpus) == 1
    room.driver.add_card(rtx4090(), index=0)
    new, old = room.sample(2.1).gpus
    assert [new.uuid, old.uuid] == [card.uuid for card in room.driver.cards]
    assert (new.index, new.name, old.index) == (0, "NVIDIA GeForce RTX 4090", 1)
    assert new.power_draw is not None


@pytest.mark.parametrize(
    ("cards", "selection", "sentence"),
    [(1, ALL, "no GPUs"), (2, parse_selection("1"), "none of the selected GPUs")],
    ids=["of all", "of those that were chosen"],
)
def test_the_last_card_that_goes_leaves_a_word(
    furnish: Furnish, cards: int, selection: GpuSelection, sentence: str
) -> None:
    room = furnish(*[h100()] * cards)
    room.open(selection)
    room.sample()
    room.driver.remove_card(-1)
    snapshot = room.sample(2.1)
    assert snapshot.gpus == ()
    assert sentence in known(snapshot.trouble).sentence
    room.driver.add_card(h100())
    snapshot = room.sample(2.1)
    assert (snapshot.trouble, len(snapshot.gpus)) == (None, 1)


def test_what_is_known_of_a_card_stays_with_it_when_its_index_changes(sampled: Furnish) -> None:
    room = sampled(h100(), a100(power_limit_enforced=333_000))
    uuid = room.driver.cards[1].uuid
    room.driver.remove_card(0)
    room.sample()
    gpu = room.gpu()
    assert (gpu.uuid, gpu.index, gpu.power_limit) == (uuid, 0, 333.0)


def test_a_card_that_fails_in_the_place_of_one_that_went_is_not_that_one(sampled: Furnish) -> None:
    room = sampled(h100(), h100(), h100())
    room.driver.remove_card(0)
    room.card.fail("nvmlDeviceGetHandleByIndex_v2", Code.UNKNOWN)
    failing, sound = room.sample(2.1).gpus
    assert (failing.uuid, failing.status) == ("index-0", GpuStatus.FAILING)
    assert (sound.uuid, sound.status) == (room.driver.cards[1].uuid, GpuStatus.OK)
    room.card.heal()
    assert [gpu.uuid for gpu in room.sample(6).gpus] == [card.uuid for card in room.driver.cards]


def test_a_card_in_the_place_of_another_is_another(opened: Furnish) -> None:
    room = opened(h100())
    old = room.gpu()
    room.driver.remove_card(0)
    room.driver.add_card(rtx4090())
    room.sample()
    new = room.gpu()
    assert new.uuid != old.uuid
    assert new.name == "NVIDIA GeForce RTX 4090"
    assert new.ecc_mode is None


def test_nvml_is_initialised_anew_when_the_kernel_has_other_cards(furnish: Furnish) -> None:
    room = furnish(h100())
    slots = room.proc / "driver/nvidia/gpus"
    (slots / "0000:19:00.0").mkdir(parents=True)
    room.open(proc=str(room.proc))
    first = room.sample()
    before = room.calls("nvmlInit_v2")
    room.samples(30)
    assert room.calls("nvmlInit_v2") == before
    (slots / "0000:3b:00.0").mkdir()
    room.driver.add_card(h100())
    snapshot = room.sample(2.1)
    assert len(snapshot.gpus) == 2
    assert room.calls("nvmlInit_v2") > before
    assert snapshot.host.driver_since == first.host.driver_since


# Asleep


class Bus:
    """The part of ``/sys`` that says which cards sleep: a state for each card.

    ``on`` is an active card that the kernel does not let sleep.
    """

    def __init__(self, room: Room, *states: str) -> None:
        self._folders = [
            room.sys / "bus/pci/devices" / card.bus_id[4:].lower() for card in room.driver.cards
        ]
        for index, state in enumerate(states):
            folder = self._folders[index]
            (folder / "power").mkdir(parents=True)
            (folder / "vendor").write_text("0x10de\n")
            (folder / "class").write_text("0x030200\n")
            (folder / "power/control").write_text(f"{'on' if state == 'on' else 'auto'}\n")
            self.set("active" if state == "on" else state, index)

    def set(self, status: str, index: int = 0) -> None:
        (self._folders[index] / "power/runtime_status").write_text(f"{status}\n")


def test_a_sleeping_card_is_not_woken_to_be_opened(furnish: Furnish) -> None:
    room = furnish(h100(), h100())
    Bus(room, "suspended", "active")
    room.open()
    for snapshot in (room.sample(), room.samples(50)):
        first, second = snapshot.gpus
        assert (first.status, first.pci_bus_id) == (GpuStatus.ASLEEP, room.card.bus_id)
        assert first.unknown["memory_used"] is Unknown.ASLEEP
        assert second.status is GpuStatus.OK
    assert not room.card.calls()


def test_a_card_that_wakes_is_read(furnish: Furnish) -> None:
    room = furnish(rtx4090(memory_used=GIB))
    bus = Bus(room, "suspended")
    room.open()
    assert room.sample().trouble is None
    assert not room.card.calls()
    bus.set("active")
    gpu = room.gpu()
    assert (gpu.status, gpu.uuid, gpu.memory_used) == (GpuStatus.OK, room.card.uuid, GIB)


def test_who_uses_a_card_that_wakes_is_read_at_once(furnish: Furnish) -> None:
    room = furnish(rtx4090(), h100(), owners=[Owner(4_000_001, memory=GIB)])
    bus = Bus(room, "suspended", "on")
    room.open()
    assert room.gpu().unknown["processes"] is Unknown.ASLEEP
    bus.set("active")
    snapshot = room.sample()
    assert "processes" not in snapshot.gpus[0].unknown
    assert [process.id.pid for process in snapshot.processes] == [4_000_001]


def test_a_card_that_falls_asleep_is_left_alone_and_remembered(furnish: Furnish) -> None:
    room = furnish(rtx4090(memory_used=GIB), h100(), owners=[Owner(4_000_001, memory=GIB)])
    bus = Bus(room, "active", "on")
    room.open()
    room.samples(30)
    bus.set("suspended")
    room.card.reset_counters()
    fell_at = room.clock.time()
    snapshot = room.samples(40)
    gpu = snapshot.gpus[0]
    assert not room.card.calls()
    assert (gpu.status, gpu.memory_used) == (GpuStatus.ASLEEP, None)
    assert (gpu.uuid, gpu.name) == (room.card.uuid, "NVIDIA GeForce RTX 4090")
    assert gpu.status_since == pytest.approx(fell_at, abs=0.2)
    assert gpu.unknown["power_draw"] is Unknown.ASLEEP
    assert snapshot.processes == ()
    bus.set("active")
    gpu = room.gpu()
    assert (gpu.status, gpu.memory_used) == (GpuStatus.OK, GIB)
    assert "power_draw" not in gpu.unknown


def test_a_sleeping_card_that_was_seen_awake_keeps_its_uuid_over_a_reload(furnish: Furnish) -> None:
    room = furnish(rtx4090())
    bus = Bus(room, "active")
    room.open()
    room.samples(30)
    bus.set("suspended")
    room.driver.reload()
    gpu = room.gpu()
    assert (gpu.status, gpu.uuid) == (GpuStatus.ASLEEP, room.card.uuid)


def test_cards_that_cannot_be_told_apart_are_not_taken_for_sleeping(furnish: Furnish) -> None:
    room = furnish(h100(), h100())
    Bus(room, "suspended", "suspended")
    room.driver.remove_card(1)
    room.open()
    assert room.gpu().status is GpuStatus.OK


# MIG


def test_the_instances_of_a_card_are_its_children(opened: Furnish) -> None:
    room = opened(h100_mig())
    room.card.mig[1].memory_used = 3 * GIB
    gpu = room.gpu()
    assert gpu.mig_mode is True
    assert [instance.index for instance in gpu.mig] == [0, 1, 3], "a gap is no end"
    assert gpu.mig[1] == MigInstance(
        uuid=room.card.mig[1].uuid.decode(),
        index=1,
        gpu_instance=5,
        compute_instance=0,
        profile="2g.20gb",
        multiprocessors=32,
        memory_total=20_096 * MIB,
        memory_used=3 * GIB,
        memory_free=20_096 * MIB - 25 * MIB - 3 * GIB,
    )


def test_a_card_cut_into_instances_has_no_utilisation_of_its_own(opened: Furnish) -> None:
    room = opened(h100_mig(utilization_gpu=50))
    gpu = room.gpu()
    for field in ("utilization_gpu", "utilization_memory", "utilization_encoder"):
        assert getattr(gpu, field) is None
        assert gpu.unknown[field] is Unknown.NOT_SUPPORTED
    assert gpu.power_draw is not None


def test_instances_that_change_are_followed(opened: Furnish) -> None:
    room = opened(h100_mig())
    assert len(room.gpu().mig) == 3
    room.card.set_mig([Mig("7g.80gb", 0, 0, 80_000 * MIB, GIB)])
    (instance,) = room.gpu(2.1).mig
    assert (instance.profile, instance.memory_used) == ("7g.80gb", GIB)
    room.card.mig[0].memory_used = 2 * GIB
    assert room.gpu(2.1).mig[0].memory_used == 2 * GIB


def test_an_instance_without_details_is_still_there(opened: Furnish) -> None:
    details = ("nvmlDeviceGetAttributes_v2", INSTANCE_ID)
    (instance, *_) = (
        opened(h100_mig(), failing=dict.fromkeys(details, Code.NOT_SUPPORTED)).gpu().mig
    )
    assert (instance.multiprocessors, instance.gpu_instance) == (None, None)
    assert instance.profile == "3g.40gb"


@pytest.mark.parametrize(
    ("code", "calls"),
    [
        *((code, 4 * 3) for code in (Code.UNKNOWN, Code.IN_USE)),
        *((code, 3) for code in (Code.NOT_SUPPORTED, Code.NO_PERMISSION)),  # Once for each.
    ],
)
def test_details_that_fail_are_asked_again(opened: Furnish, code: int, calls: int) -> None:
    room = opened(h100_mig(), failing={INSTANCE_ID: code})
    gpu = room.samples(4, seconds=2.1).gpus[0]
    assert [instance.gpu_instance for instance in gpu.mig] == [None] * 3
    assert room.calls(INSTANCE_ID) == calls
    room.card.heal()
    gpu = room.samples(3, seconds=2.1).gpus[0]
    assert [instance.gpu_instance for instance in gpu.mig] == [2, 5, 9]


@pytest.mark.parametrize("code", [Code.NOT_SUPPORTED, Code.UNKNOWN])
def test_used_memory_of_an_instance_never_contains_the_reserve(opened: Furnish, code: int) -> None:
    room = opened(h100_mig())
    room.card.mig[1].memory_used = 3 * GIB
    room.sample()
    room.card.fail("nvmlDeviceGetMemoryInfo_v2", code)
    assert room.gpu(2.1).mig[1].memory_used is None
    room.card.heal()
    assert room.gpu(2.1).mig[1].memory_used == 3 * GIB


def test_a_card_without_instances_yet_has_none(opened: Furnish) -> None:
    gpu = opened(h100_mig(), failing={INSTANCE: Code.NOT_FOUND}).gpu()
    assert (gpu.mig, gpu.mig_mode, gpu.status) == ((), True, GpuStatus.OK)


@pytest.mark.parametrize(
    "code", [Code.UNKNOWN, Code.IN_USE, Code.MEMORY, Code.RESOURCES, Code.NOT_READY]
)
@pytest.mark.parametrize("function", [INSTANCE, "nvmlDeviceGetUUID"])
def test_instances_that_fail_for_a_moment_stay(opened: Furnish, function: str, code: int) -> None:
    room = opened(h100_mig())
    before = room.gpu().mig
    room.card.fail(function, code)
    gpu = room.gpu(2.1)
    assert (gpu.mig, gpu.status) == (before, GpuStatus.OK)


def test_a_card_that_is_lost_while_its_instances_are_listed_is_lost(sampled: Furnish) -> None:
    room = sampled(h100_mig(), h100())
    room.card.fail(INSTANCE, Code.LOST)
    assert room.gpu(2.1).status is GpuStatus.LOST


def test_a_driver_that_goes_while_instances_are_listed_is_trouble(sampled: Furnish) -> None:
    room = sampled(h100_mig())
    room.card.fail(INSTANCE, Code.NOT_LOADED)
    assert room.sample(2.1).trouble is not None


def test_switching_mig_voids_what_was_learned(opened: Furnish) -> None:
    room = opened(h100_mig(utilization_gpu=50))
    assert room.gpu().utilization_gpu is None
    room.card.mig_mode = 0
    gpu = room.samples(3, seconds=2.1).gpus[0]
    assert gpu.mig == ()
    assert gpu.utilization_gpu == 50
    assert "utilization_gpu" not in gpu.unknown


# Unified memory


def unified(room: Room) -> Gpu:
    """After a pass over the processes."""
    return room.samples(2, seconds=1.0).gpus[0]


def test_a_chip_without_memory_of_its_own_shows_the_hosts_as_unified(opened: Furnish) -> None:
    room = opened(gb10(), owners=[Owner(4_000_001, memory=GIB), Owner(4_000_002, memory=GIB)])
    gpu = unified(room)
    host = room.sample().host
    assert gpu.memory_unified is True
    assert gpu.memory_used == 2 * GIB, "what the chip uses, not what the host does"
    assert gpu.memory_total == known(host.memory_total)
    assert known(gpu.memory_free) + known(host.memory_used) == host.memory_total
    assert gpu.memory_reserved is None
    assert gpu.unknown["memory_reserved"] is Unknown.NOT_SUPPORTED
    assert "memory_used" not in gpu.unknown


def test_a_chip_that_tells_a_total_of_zero_has_no_memory_of_its_own(opened: Furnish) -> None:
    room = opened(gb10(memory_total=0, memory_used=0, memory_reserved=0))
    gpu = unified(room)
    assert gpu.memory_unified is True
    assert gpu.memory_used == 0


def test_memory_of_a_process_that_is_unknown_makes_the_sum_unknown(opened: Furnish) -> None:
    owners = [Owner(4_000_001, memory=GIB), Owner(4_000_002, memory=None)]
    gpu = unified(opened(gb10(), owners=owners))
    assert gpu.memory_used is None
    assert gpu.memory_total is not None


@pytest.mark.parametrize(
    ("code", "reason"),
    [(Code.NOT_SUPPORTED, Unknown.NOT_SUPPORTED), (Code.NO_PERMISSION, Unknown.NO_PERMISSION)],
)
def test_memory_that_nobody_lists_is_unknown(opened: Furnish, code: int, reason: Unknown) -> None:
    lists = [f"nvmlDeviceGetComputeRunningProcesses{version}" for version in ("_v3", "_v2", "")]
    gpu = unified(opened(gb10(), failing=dict.fromkeys(lists, code)))
    assert (gpu.memory_used, gpu.unknown["memory_used"]) == (None, reason)
    assert gpu.memory_total is not None
    assert "memory_total" not in gpu.unknown


def test_a_card_of_its_own_that_tells_no_memory_stays_unknown(opened: Furnish) -> None:
    room = opened(rtx4090(memory_total=None))
    gpu = unified(room)
    assert gpu.memory_unified is False
    assert gpu.memory_total is None
    assert gpu.unknown["memory_total"] is Unknown.NOT_SUPPORTED


def test_a_card_with_memory_of_its_own_beside_a_coherent_host_keeps_it(opened: Furnish) -> None:
    room = opened(h100(name="NVIDIA GH200 480GB", memory_used=GIB))
    gpu = unified(room)
    assert (gpu.memory_unified, gpu.memory_used) == (False, GIB)


def test_a_chip_that_tells_what_it_is_later_is_unified_then(opened: Furnish) -> None:
    room = opened(gb10(), failing={"nvmlDeviceGetCudaComputeCapability": Code.NOT_SUPPORTED})
    assert unified(room).memory_total is None
    room.card.heal()
    assert room.samples(15, seconds=1.0).gpus[0].memory_unified is True


def test_the_memory_of_a_unified_chip_stays_while_the_driver_refuses_again(opened: Furnish) -> None:
    room = opened(gb10(), owners=[Owner(4_000_001, memory=GIB)])
    unified(room)
    before = room.calls("nvmlDeviceGetMemoryInfo_v2")
    assert {room.gpu().memory_used for _ in range(800)} == {GIB}
    assert room.calls("nvmlDeviceGetMemoryInfo_v2") > before


def test_memory_that_is_refused_at_first_is_not_unified(opened: Furnish) -> None:
    model = h100(memory_used=GIB, compute_capability_major=8, compute_capability_minor=7)
    room = opened(model, failing=dict.fromkeys(MEMORY_INFO, Code.NOT_SUPPORTED))
    assert unified(room).memory_unified is True
    room.card.heal()
    gpu = room.samples(20, seconds=1.0).gpus[0]
    assert (gpu.memory_unified, gpu.memory_used) == (False, GIB)


def test_memory_that_fails_to_be_told_is_not_unified(opened: Furnish) -> None:
    gpu = unified(opened(gb10(), failing=dict.fromkeys(MEMORY_INFO, Code.UNKNOWN)))
    assert (gpu.memory_unified, gpu.memory_total) == (None, None)


def test_of_a_unified_chip_that_is_lost_the_used_memory_is_unknown(opened: Furnish) -> None:
    room = opened(gb10())
    assert unified(room).memory_used is not None
    for call in ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"):
        room.card.fail(call, Code.LOST)
    gpu = room.samples(3, seconds=1.0).gpus[0]
    assert gpu.status is GpuStatus.LOST
    assert (gpu.memory_used, gpu.memory_free) == (None, None)
    assert gpu.unknown["memory_used"] is Unknown.GPU_LOST
    assert gpu.memory_total is not None
    assert "memory_total" not in gpu.unknown
