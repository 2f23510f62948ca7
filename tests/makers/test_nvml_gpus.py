"""Cards that come and go, sleep, are cut into instances, or have no memory of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpumon.model.selection import parse_selection
from gpumon.model.snapshot import GpuStatus, MigInstance, Unknown
from tests.driver import GIB, MIB, Mig, Owner, a100, gb10, h100, h100_mig, rtx4090
from tests.makers.nvml_room import (
    IN_USE,
    LOST,
    MEMORY,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_LOADED,
    NOT_READY,
    NOT_SUPPORTED,
    RESOURCES,
    UNKNOWN,
    Room,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpumon.model.snapshot import Gpu
    from tests.driver import Card

    Furnish = Callable[..., Room]


# Come and gone


def test_a_card_that_comes_is_seen_within_seconds(opened: Furnish) -> None:
    room = opened(h100())
    assert len(room.samples(3).gpus) == 1
    new = room.driver.add_card(rtx4090(), index=0)
    snapshot = room.sample(2.1)
    assert [gpu.uuid for gpu in snapshot.gpus] == [card.uuid for card in room.driver.cards]
    assert snapshot.gpus[0].uuid == new.uuid
    assert snapshot.gpus[0].power_draw is not None
    assert [gpu.index for gpu in snapshot.gpus] == [0, 1]


def test_the_last_card_that_goes_leaves_a_word(opened: Furnish) -> None:
    room = opened(h100())
    room.sample()
    room.driver.remove_card(0)
    snapshot = room.sample(2.1)
    assert snapshot.gpus == ()
    assert snapshot.trouble is not None
    assert "no GPUs" in snapshot.trouble.sentence
    room.driver.add_card(h100())
    snapshot = room.sample(2.1)
    assert snapshot.trouble is None
    assert len(snapshot.gpus) == 1


def test_a_chosen_card_that_goes_leaves_a_word(furnish: Furnish) -> None:
    room = furnish(h100(), h100())
    room.open(parse_selection("1"))
    room.sample()
    room.driver.remove_card(1)
    trouble = room.sample(2.1).trouble
    assert trouble is not None
    assert "none of the selected GPUs" in trouble.sentence


def test_what_is_known_of_a_card_stays_with_it_when_its_index_changes(opened: Furnish) -> None:
    room = opened(h100(), a100(power_limit_enforced=333_000))
    room.sample()
    uuid = room.driver.cards[1].uuid
    room.driver.remove_card(0)
    room.sample()
    gpu = room.gpu()
    assert (gpu.uuid, gpu.index, gpu.power_limit) == (uuid, 0, 333.0)


def test_a_card_that_fails_in_the_place_of_one_that_went_is_not_that_one(
    opened: Furnish,
) -> None:
    room = opened(h100(), h100(), h100())
    room.sample()
    room.driver.remove_card(0)
    room.driver.cards[0].fail("nvmlDeviceGetHandleByIndex_v2", UNKNOWN)
    failing, sound = room.sample(2.1).gpus
    assert (failing.uuid, failing.status) == ("index-0", GpuStatus.FAILING)
    assert (sound.uuid, sound.status) == (room.driver.cards[1].uuid, GpuStatus.OK)
    room.driver.cards[0].heal()
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
    source = room.open(proc=str(room.proc))
    first = source.sample()
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
    """The part of ``/sys`` that says which cards sleep."""

    def __init__(self, room: Room) -> None:
        self._devices = room.sys / "bus/pci/devices"

    def add(self, card: Card, status: str, control: str = "auto") -> None:
        folder = self._folder(card)
        (folder / "power").mkdir(parents=True)
        (folder / "vendor").write_text("0x10de\n")
        (folder / "class").write_text("0x030200\n")
        (folder / "power/control").write_text(f"{control}\n")
        self.set(card, status)

    def set(self, card: Card, status: str) -> None:
        (self._folder(card) / "power/runtime_status").write_text(f"{status}\n")

    def _folder(self, card: Card) -> Path:
        return self._devices / card.bus_id[4:].lower()


def calls_of(card: Card) -> int:
    return sum(spent.calls for spent in card.calls().values())


def test_a_sleeping_card_is_not_woken_to_be_opened(furnish: Furnish) -> None:
    room = furnish(h100(), h100())
    bus = Bus(room)
    asleep, awake = room.driver.cards
    bus.add(asleep, "suspended")
    bus.add(awake, "active")
    room.open()
    for snapshot in (room.sample(), room.samples(50)):
        first, second = snapshot.gpus
        assert first.status is GpuStatus.ASLEEP
        assert first.pci_bus_id == asleep.bus_id
        assert first.unknown["memory_used"] is Unknown.ASLEEP
        assert second.status is GpuStatus.OK
    assert calls_of(asleep) == 0


def test_a_machine_whose_only_card_sleeps_can_be_opened(furnish: Furnish) -> None:
    room = furnish(rtx4090())
    Bus(room).add(room.driver.cards[0], "suspended")
    room.open()
    assert room.sample().trouble is None
    assert calls_of(room.driver.cards[0]) == 0


def test_a_card_that_wakes_is_read(furnish: Furnish) -> None:
    room = furnish(rtx4090(memory_used=GIB))
    bus, card = Bus(room), room.driver.cards[0]
    bus.add(card, "suspended")
    room.open()
    room.sample()
    bus.set(card, "active")
    gpu = room.gpu()
    assert (gpu.status, gpu.uuid, gpu.memory_used) == (GpuStatus.OK, card.uuid, GIB)


def test_who_uses_a_card_that_wakes_is_read_at_once(furnish: Furnish) -> None:
    room = furnish(rtx4090(), h100())
    bus, card = Bus(room), room.driver.cards[0]
    bus.add(card, "suspended")
    bus.add(room.driver.cards[1], "active", control="on")
    card.processes = [Owner(4_000_001, memory=GIB)]
    room.open()
    assert room.gpu().unknown["processes"] is Unknown.ASLEEP
    bus.set(card, "active")
    snapshot = room.sample()
    assert "processes" not in snapshot.gpus[0].unknown
    assert [process.id.pid for process in snapshot.processes] == [4_000_001]


def test_a_card_that_falls_asleep_is_left_alone_and_remembered(furnish: Furnish) -> None:
    room = furnish(rtx4090(memory_used=GIB), h100())
    bus, card = Bus(room), room.driver.cards[0]
    bus.add(card, "active")
    bus.add(room.driver.cards[1], "active", control="on")
    card.processes = [Owner(4_000_001, memory=GIB)]
    room.open()
    room.samples(30)
    bus.set(card, "suspended")
    card.reset_counters()
    fell_at = room.clock.time()
    gpu = room.samples(40).gpus[0]
    assert calls_of(card) == 0
    assert gpu.status is GpuStatus.ASLEEP
    assert gpu.status_since == pytest.approx(fell_at, abs=0.2)
    assert (gpu.uuid, gpu.name) == (card.uuid, "NVIDIA GeForce RTX 4090")
    assert gpu.memory_used is None
    assert gpu.unknown["power_draw"] is Unknown.ASLEEP
    assert room.sample().processes == ()
    bus.set(card, "active")
    gpu = room.gpu()
    assert (gpu.status, gpu.memory_used) == (GpuStatus.OK, GIB)
    assert "power_draw" not in gpu.unknown


def test_a_sleeping_card_that_was_seen_awake_keeps_its_uuid_over_a_reload(
    furnish: Furnish,
) -> None:
    room = furnish(rtx4090())
    bus, card = Bus(room), room.driver.cards[0]
    bus.add(card, "active")
    room.open()
    room.samples(30)
    bus.set(card, "suspended")
    room.driver.reload()
    gpu = room.gpu()
    assert (gpu.status, gpu.uuid) == (GpuStatus.ASLEEP, card.uuid)


def test_cards_that_cannot_be_told_apart_are_not_taken_for_sleeping(furnish: Furnish) -> None:
    room = furnish(h100())
    bus = Bus(room)
    bus.add(room.driver.cards[0], "suspended")
    hidden = room.driver.add_card(h100())
    bus.add(hidden, "suspended")
    room.driver.remove_card(hidden)
    room.open()
    assert room.gpu().status is GpuStatus.OK


# MIG


def test_the_instances_of_a_card_are_its_children(furnish: Furnish) -> None:
    room = furnish(h100_mig())
    card = room.driver.cards[0]
    card.mig[1].memory_used = 3 * GIB
    room.open()
    gpu = room.gpu()
    assert gpu.mig_mode is True
    assert [instance.index for instance in gpu.mig] == [0, 1, 3], "a gap is no end"
    assert gpu.mig[1] == MigInstance(
        uuid=gpu.mig[1].uuid,
        index=1,
        gpu_instance=5,
        compute_instance=0,
        profile="2g.20gb",
        multiprocessors=32,
        memory_total=20_096 * MIB,
        memory_used=3 * GIB,
        memory_free=20_096 * MIB - 25 * MIB - 3 * GIB,
    )
    assert gpu.mig[1].uuid == card.mig[1].uuid.decode()


def test_a_card_cut_into_instances_has_no_utilisation_of_its_own(opened: Furnish) -> None:
    room = opened(h100_mig(utilization_gpu=50))
    gpu = room.gpu()
    for field in ("utilization_gpu", "utilization_memory", "utilization_encoder"):
        assert getattr(gpu, field) is None
        assert gpu.unknown[field] is Unknown.NOT_SUPPORTED
    assert gpu.power_draw is not None


def test_instances_that_change_are_followed(furnish: Furnish) -> None:
    room = furnish(h100_mig())
    card = room.driver.cards[0]
    room.open()
    assert len(room.gpu().mig) == 3
    card.set_mig([Mig("7g.80gb", 0, 0, 80_000 * MIB, GIB)])
    (instance,) = room.gpu(2.1).mig
    assert (instance.profile, instance.memory_used) == ("7g.80gb", GIB)
    card.mig[0].memory_used = 2 * GIB
    assert room.gpu(2.1).mig[0].memory_used == 2 * GIB


def test_an_instance_without_details_is_still_there(furnish: Furnish) -> None:
    room = furnish(h100_mig())
    card = room.driver.cards[0]
    for function in ("nvmlDeviceGetAttributes_v2", "nvmlDeviceGetGpuInstanceId"):
        card.fail(function, NOT_SUPPORTED)
    room.open()
    (instance, *_) = room.gpu().mig
    assert instance.multiprocessors is None
    assert instance.gpu_instance is None
    assert instance.profile == "3g.40gb"


@pytest.mark.parametrize("code", [999, 19])
def test_details_of_an_instance_that_fail_for_a_moment_are_asked_again(
    furnish: Furnish, code: int
) -> None:
    room = furnish(h100_mig())
    card = room.driver.cards[0]
    card.fail("nvmlDeviceGetGpuInstanceId", code)
    room.open()
    assert [one.gpu_instance for one in room.gpu().mig] == [None] * 3
    card.heal()
    room.sample(3)
    assert [one.gpu_instance for one in room.gpu().mig] == [2, 5, 9]


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION])
def test_details_of_an_instance_that_were_refused_are_asked_again_seldom(
    furnish: Furnish, code: int
) -> None:
    room = furnish(h100_mig())
    card = room.driver.cards[0]
    card.fail("nvmlDeviceGetGpuInstanceId", code)
    room.open()
    room.samples(4, seconds=2.1)
    assert room.calls("nvmlDeviceGetGpuInstanceId") == 3, "once for each"
    card.heal()
    room.samples(3, seconds=2.1)
    assert [one.gpu_instance for one in room.gpu().mig] == [2, 5, 9]


@pytest.mark.parametrize("code", [NOT_SUPPORTED, UNKNOWN])
def test_used_memory_of_an_instance_never_contains_the_reserve(furnish: Furnish, code: int) -> None:
    room = furnish(h100_mig())
    card = room.driver.cards[0]
    card.mig[1].memory_used = 3 * GIB
    room.open()
    room.sample()
    card.fail("nvmlDeviceGetMemoryInfo_v2", code)
    assert room.gpu(2.1).mig[1].memory_used is None
    card.heal()
    assert room.gpu(2.1).mig[1].memory_used == 3 * GIB


def test_a_card_without_instances_yet_has_none(furnish: Furnish) -> None:
    room = furnish(h100_mig())
    room.driver.cards[0].fail("nvmlDeviceGetMigDeviceHandleByIndex", NOT_FOUND)
    room.open()
    gpu = room.gpu()
    assert (gpu.mig, gpu.mig_mode, gpu.status) == ((), True, GpuStatus.OK)


@pytest.mark.parametrize("code", [UNKNOWN, IN_USE, MEMORY, RESOURCES, NOT_READY])
@pytest.mark.parametrize("function", ["nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetUUID"])
def test_an_instance_that_fails_for_a_moment_stays(
    opened: Furnish, function: str, code: int
) -> None:
    room = opened(h100_mig())
    before = room.gpu().mig
    room.driver.cards[0].fail(function, code)
    gpu = room.gpu(2.1)
    assert gpu.mig == before
    assert gpu.status is GpuStatus.OK


def test_a_card_that_is_lost_while_its_instances_are_listed_is_lost(opened: Furnish) -> None:
    room = opened(h100_mig(), h100())
    room.sample()
    room.driver.cards[0].fail("nvmlDeviceGetMigDeviceHandleByIndex", LOST)
    assert room.gpu(2.1).status is GpuStatus.LOST


def test_a_driver_that_goes_while_instances_are_listed_is_trouble(opened: Furnish) -> None:
    room = opened(h100_mig())
    room.sample()
    room.driver.cards[0].fail("nvmlDeviceGetMigDeviceHandleByIndex", NOT_LOADED)
    assert room.sample(2.1).trouble is not None


def test_switching_mig_voids_what_was_learned(opened: Furnish) -> None:
    room = opened(h100_mig(utilization_gpu=50))
    assert room.gpu().utilization_gpu is None
    room.driver.cards[0].mig_mode = 0
    gpu = room.samples(3, seconds=2.1).gpus[0]
    assert gpu.mig == ()
    assert gpu.utilization_gpu == 50
    assert "utilization_gpu" not in gpu.unknown


# Unified memory


def unified(room: Room) -> Gpu:
    """After a pass over the processes."""
    return room.samples(2, seconds=1.0).gpus[0]


def test_a_chip_without_memory_of_its_own_shows_the_hosts_as_unified(furnish: Furnish) -> None:
    room = furnish(gb10())
    room.driver.cards[0].processes = [Owner(4_000_001, memory=GIB), Owner(4_000_002, memory=GIB)]
    room.open()
    gpu = unified(room)
    host = room.sample().host
    assert gpu.memory_unified is True
    assert gpu.memory_used == 2 * GIB, "what the chip uses, not what the host does"
    assert gpu.memory_total == host.memory_total
    assert host.memory_total is not None
    assert host.memory_used is not None
    assert gpu.memory_free is not None
    assert gpu.memory_free + host.memory_used == host.memory_total
    assert gpu.memory_reserved is None
    assert gpu.unknown["memory_reserved"] is Unknown.NOT_SUPPORTED
    assert "memory_used" not in gpu.unknown


def test_a_chip_that_tells_a_total_of_zero_has_no_memory_of_its_own(opened: Furnish) -> None:
    room = opened(gb10(memory_total=0, memory_used=0, memory_reserved=0))
    gpu = unified(room)
    assert gpu.memory_unified is True
    assert gpu.memory_used == 0


def test_memory_of_a_process_that_is_unknown_makes_the_sum_unknown(furnish: Furnish) -> None:
    room = furnish(gb10())
    room.driver.cards[0].processes = [Owner(4_000_001, memory=GIB), Owner(4_000_002, memory=None)]
    room.open()
    gpu = unified(room)
    assert gpu.memory_used is None
    assert gpu.memory_total is not None


@pytest.mark.parametrize(
    ("code", "reason"),
    [(NOT_SUPPORTED, Unknown.NOT_SUPPORTED), (NO_PERMISSION, Unknown.NO_PERMISSION)],
)
def test_memory_of_processes_nobody_lists_is_unknown(
    furnish: Furnish, code: int, reason: Unknown
) -> None:
    room = furnish(gb10())
    for version in ("_v3", "_v2", ""):
        room.driver.cards[0].fail(f"nvmlDeviceGetComputeRunningProcesses{version}", code)
    room.open()
    gpu = unified(room)
    assert gpu.memory_used is None
    assert gpu.unknown["memory_used"] is reason
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


def test_a_chip_that_tells_what_it_is_later_is_unified_then(furnish: Furnish) -> None:
    room = furnish(gb10())
    room.driver.cards[0].fail("nvmlDeviceGetCudaComputeCapability", NOT_SUPPORTED)
    room.open()
    assert unified(room).memory_total is None
    room.driver.cards[0].heal()
    assert room.samples(15, seconds=1.0).gpus[0].memory_unified is True


def test_the_memory_of_a_unified_chip_stays_while_the_driver_refuses_it_again(
    furnish: Furnish,
) -> None:
    room = furnish(gb10())
    room.driver.cards[0].processes = [Owner(4_000_001, memory=GIB)]
    room.open()
    unified(room)
    before = room.calls("nvmlDeviceGetMemoryInfo_v2")
    assert {room.gpu().memory_used for _ in range(800)} == {GIB}
    assert room.calls("nvmlDeviceGetMemoryInfo_v2") > before


def test_memory_that_is_refused_at_first_is_not_unified(furnish: Furnish) -> None:
    room = furnish(h100(memory_used=GIB, compute_capability_major=8, compute_capability_minor=7))
    for version in ("_v2", ""):
        room.driver.cards[0].fail(f"nvmlDeviceGetMemoryInfo{version}", NOT_SUPPORTED)
    room.open()
    assert unified(room).memory_unified is True
    room.driver.cards[0].heal()
    gpu = room.samples(20, seconds=1.0).gpus[0]
    assert (gpu.memory_unified, gpu.memory_used) == (False, GIB)


def test_memory_that_fails_to_be_told_is_not_unified(furnish: Furnish) -> None:
    room = furnish(gb10())
    for version in ("_v2", ""):
        room.driver.cards[0].fail(f"nvmlDeviceGetMemoryInfo{version}", UNKNOWN)
    room.open()
    gpu = unified(room)
    assert gpu.memory_unified is None
    assert gpu.memory_total is None


def test_of_a_unified_chip_that_is_lost_the_used_memory_is_unknown(opened: Furnish) -> None:
    room = opened(gb10())
    assert unified(room).memory_used is not None
    for call in ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"):
        room.driver.cards[0].fail(call, LOST)
    gpu = room.samples(3, seconds=1.0).gpus[0]
    assert gpu.status is GpuStatus.LOST
    assert (gpu.memory_used, gpu.memory_free) == (None, None)
    assert gpu.unknown["memory_used"] is Unknown.GPU_LOST
    assert gpu.memory_total is not None
    assert "memory_total" not in gpu.unknown
