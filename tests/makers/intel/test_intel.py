"""What Intel's GPUs tell, with both drivers, and what they do not."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from gpumon.makers.drm import holders
from gpumon.makers.intel import drivers
from gpumon.makers.intel.gpu import IntelBackend
from gpumon.makers.intel.names import model_of
from gpumon.makers.sampler import Sampler
from gpumon.makers.source import SourceError
from gpumon.model.snapshot import GpuStatus, Unknown
from gpumon.system.system import System
from tests.clock import HandClock
from tests.makers.drm.trees import Faults, Tree, see_all_processes, write
from tests.makers.intel import captures
from tests.makers.intel.captures import CARD, I915_CLIENT, PROCESSOR, XE_CLIENT
from tests.makers.intel.test_memory import A750_BYTES, A750_USED, LOCAL, xe_answer, xe_driver

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

    from gpumon.makers.backend import Reading
    from gpumon.model.snapshot import Gpu

    Capture = Callable[[Tree], Path]

RENDER = "/dev/dri/renderD128"
MIB = 2**20


class Room:
    """A machine with Intel GPUs."""

    def __init__(self, root: Path) -> None:
        self.tree = Tree(root)
        self.clock = HandClock()
        self.backend: IntelBackend | None = None

    def read(self, seconds: float = 1.0) -> Reading:
        self.clock.now += seconds
        if self.backend is None:
            self.backend = self.tree.backend(IntelBackend, clock=self.clock)
            self.backend.open()
        return self.backend.read()

    def gpu(self, seconds: float = 1.0) -> Gpu:
        (gpu,) = self.read(seconds).gpus
        return gpu


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


ALWAYS_UNKNOWN = {
    *("serial", "vbios_version", "utilization_memory", "utilization_encoder"),
    *("fan_speed", "fan_speeds", "power_limit_min", "power_limit_max", "clock_memory"),
    *("clock_graphics", "bar1_total", "ecc_mode", "compute_mode", "mig_mode", "xid"),
}


# Models


def test_an_arc_card_with_i915(room: Room) -> None:
    captures.a770_i915(room.tree)
    gpu = room.gpu()
    assert (gpu.name, gpu.architecture, gpu.uuid) == ("Intel Arc A770", "Xe-HPG", f"PCI-{CARD}")
    assert (gpu.pci_bus_id, gpu.minor_number, gpu.memory_unified) == (CARD, 128, False)
    assert (gpu.clock_sm, gpu.clock_sm_max, gpu.clock_event_reasons) == (600, 2400, 0)
    assert (gpu.temperature_gpu, gpu.energy, gpu.power_limit) == (46, 5000.0, 190.0)
    assert (gpu.pcie_generation, gpu.pcie_width) == (4, 16)
    assert (gpu.pcie_generation_max, gpu.pcie_width_max) == (4, 16)
    assert gpu.unknown["clock_video"] is Unknown.NOT_SUPPORTED
    assert gpu.unknown["temperature_memory"] is Unknown.NOT_SUPPORTED
    assert gpu.unknown["power_draw"] is Unknown.NOT_READ


def test_an_arc_card_with_xe(room: Room) -> None:
    folder = captures.a750_xe(room.tree)
    gpu = room.gpu()
    assert (gpu.name, gpu.clock_sm, gpu.clock_sm_max) == ("Intel Arc A750", 0, 2400)
    assert gpu.power_limit == 190.0, "a disabled limit of the card is none"
    write(folder / "hwmon/hwmon5/energy2_input", "46000000\n")
    assert room.gpu().power_draw == pytest.approx(45.0)


def test_a_battlemage_card(room: Room) -> None:
    captures.b580_xe(room.tree)
    gpu = room.gpu()
    assert (gpu.name, gpu.architecture) == ("Intel Arc B580", "Xe2")
    assert (gpu.clock_video, gpu.clock_video_max) == (0, 1500)
    assert (gpu.temperature_gpu, gpu.temperature_memory) == (51, 58)
    assert (gpu.temperature_slowdown, gpu.temperature_shutdown) == (100, 105)
    assert gpu.clock_event_reasons == 0x004 | 0x040
    assert gpu.unknown["power_limit"] is Unknown.NOT_SUPPORTED


def test_the_power_limit_is_that_in_effect_and_not_the_critical_one(room: Room) -> None:
    captures.b60_xe(room.tree)
    gpu = room.gpu()
    assert (gpu.name, gpu.power_limit) == ("Intel Arc Pro B60", 200.0)
    for field in ("clock_sm", "clock_sm_max", "power_draw", "energy", "temperature_gpu"):
        assert gpu.unknown[field] is Unknown.NOT_SUPPORTED


def test_a_model_without_a_name_is_named_by_its_number(room: Room) -> None:
    folder = captures.b70_xe(room.tree)
    gpu = room.gpu()
    assert (gpu.name, gpu.memory_unified) == ("Intel GPU 0xe223", False)
    assert gpu.unknown["architecture"] is Unknown.NOT_SUPPORTED
    write(folder / "hwmon/hwmon7/energy1_input", "81414000000\n")
    gpu = room.gpu(2.01)
    assert gpu.power_draw == pytest.approx(206, abs=0.5), "of the card, not of the package"
    assert gpu.power_limit == 275.0


def test_a_data_center_card_tells_its_own_link(room: Room) -> None:
    captures.max_1550_xe(room.tree)
    gpu = room.gpu()
    assert (gpu.name, gpu.architecture) == ("Intel Data Center GPU Max 1550", "Xe-HPC")
    assert (gpu.pcie_generation, gpu.pcie_width, gpu.clock_sm) == (5, 16, 1600)
    assert (gpu.clock_memory, gpu.clock_memory_max) == (None, 3200)
    assert gpu.unknown["clock_video"] is Unknown.NOT_SUPPORTED, "tile 1 is no media engine"


def test_processor_graphics_before_linux_5_18(room: Room) -> None:
    folder = captures.uhd_i915(room.tree)
    write(folder / "drm/card0/card0-DP-1/status", "connected\n")
    gpu = room.gpu()
    assert (gpu.name, gpu.memory_unified) == ("Intel UHD Graphics 630", True)
    assert (gpu.display_mode, gpu.display_active) == (True, False)
    assert (gpu.clock_sm, gpu.clock_sm_max) == (350, 1150)
    unknown = {"power_draw", "temperature_gpu", "pcie_generation", "clock_event_reasons"}
    assert {gpu.unknown[name] for name in unknown} == {Unknown.NOT_SUPPORTED}


def test_processor_graphics_held_down_by_a_power_limit(room: Room) -> None:
    captures.b390_xe(room.tree)
    gpu = room.gpu()
    assert (gpu.name, gpu.memory_unified) == ("Intel Arc B390", True)
    assert (gpu.clock_sm, gpu.clock_sm_max, gpu.clock_event_reasons) == (1900, 2500, 0x004)


@pytest.mark.parametrize(
    "capture",
    [
        captures.a770_i915,
        captures.a750_xe,
        captures.b580_xe,
        captures.b60_xe,
        captures.b70_xe,
        captures.max_1550_xe,
        captures.uhd_i915,
        captures.b390_xe,
    ],
)
def test_each_value_is_known_or_has_a_reason_and_nothing_is_invented(
    room: Room, capture: Capture
) -> None:
    capture(room.tree)
    room.gpu()
    gpu = room.gpu()
    later = {"xid_at"}
    for field in gpu.__struct_fields__[gpu.__struct_fields__.index("mig") + 1 :]:
        known = getattr(gpu, field) is not None
        assert known != (field in gpu.unknown) or field in later, field
    assert {gpu.unknown[name] for name in ALWAYS_UNKNOWN} == {Unknown.NOT_SUPPORTED}


@pytest.mark.parametrize(
    ("device", "name", "discrete"),
    [
        (0x56A0, "Intel Arc A770", True),
        (0x56A6, "Intel Arc A310", True),
        (0xE20C, "Intel Arc B570", True),
        (0x56C1, "Intel Data Center GPU Flex 140", True),
        (0x0BDA, "Intel Data Center GPU Max 1100", True),
        (0x4905, "Intel Iris Xe MAX", True),
        (0x9A49, "Intel Iris Xe Graphics", False),
        (0x4680, "Intel UHD Graphics 770", False),
        (0x64A0, "Intel Arc Graphics", False),
        (0x1234, "Intel GPU 0x1234", None),
        (None, "Intel GPU", None),
    ],
)
def test_names(device: int | None, name: str, discrete: bool | None) -> None:
    model = model_of(device)
    assert (model.name, model.discrete) == (name, discrete)


def test_a_card_in_the_place_of_processor_graphics_is_a_card(room: Room) -> None:
    # As in a virtual machine.
    room.tree.card(PROCESSOR, "xe", {"vendor": "0x8086\n", "device": "0xe20b\n"}, parents=())
    assert room.gpu().memory_unified is False


def test_cards_and_processor_graphics_of_one_machine(room: Room) -> None:
    captures.uhd_i915(room.tree)
    room.tree.card(CARD, "xe", {"device": "0x56a1\n"}, number=1, render=129)
    reading = room.read()
    assert [gpu.name for gpu in reading.gpus] == ["Intel Arc A750", "Intel UHD Graphics 630"]
    assert reading.driver.version == "i915 6.8.0-49-generic, xe 6.8.0-49-generic"


def test_without_a_gpu_it_is_said_where_to_look(room: Room) -> None:
    with pytest.raises(SourceError) as caught:
        room.read()
    assert caught.value.sentence == "No GPU of Intel was found."
    assert "lspci" in caught.value.advice


# Power


def test_power_is_the_mean_of_about_a_second(room: Room) -> None:
    energy = captures.a770_i915(room.tree) / "hwmon/hwmon4/energy1_input"
    joules = 100.0
    for watts in [50.0] * 10 + [150.0] * 20:
        joules += watts * 0.1
        write(energy, f"{round(joules * 1e6)}\n")
        gpu = room.gpu(0.1)
    assert gpu.power_draw == pytest.approx(150.0)
    write(energy, f"{round((joules + 5.0) * 1e6)}\n")
    assert room.gpu(0.1).power_draw == pytest.approx((150.0 * 0.9 + 5.0) / 1.0, rel=0.02)


def test_an_energy_counter_that_began_anew_is_no_power(room: Room) -> None:
    energy = captures.a770_i915(room.tree) / "hwmon/hwmon4/energy1_input"
    room.gpu()
    write(energy, "5040000000\n")
    assert room.gpu().power_draw == pytest.approx(40.0)
    write(energy, "1000000\n")
    assert room.gpu().power_draw == pytest.approx(40.0), "the last value"
    write(energy, "31000000\n")
    assert room.gpu().power_draw == pytest.approx(30.0)


def test_impossible_power_is_not_shown(room: Room) -> None:
    energy = captures.a770_i915(room.tree) / "hwmon/hwmon4/energy1_input"
    room.gpu()
    write(energy, f"{10**17}\n")
    assert room.gpu().power_draw is None


def test_a_hwmon_folder_that_comes_later_is_found(room: Room) -> None:
    folder = room.tree.card(CARD, "xe", {"device": "0xe20b\n"})
    assert room.gpu().temperature_gpu is None
    write(folder / "hwmon/hwmon6/name", "xe\n")
    write(folder / "hwmon/hwmon6/temp2_input", "51000\n")
    room.gpu(31.0)
    room.gpu(3.0)
    assert room.gpu(3.0).temperature_gpu == 51


def test_only_set_reasons_are_told(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    throttle = captures.b580_xe(room.tree) / "tile0/gt0/freq0/throttle"
    room.gpu()
    write(throttle / "reason_pl1", "0\n")
    assert room.gpu().clock_event_reasons == 0x040
    write(throttle / "reason_ratl", "1\n")
    write(throttle / "reason_prochot", "1\n")
    assert room.gpu().clock_event_reasons == 0x040 | 0x020 | 0x008
    write(throttle / "status", "0\n")
    assert room.gpu().clock_event_reasons == 0
    faults = Faults(monkeypatch)
    faults.errors["throttle/status"] = errno.EACCES
    faults.errors["reason_thermal"] = errno.EACCES
    assert room.gpu().unknown["clock_event_reasons"] is Unknown.NO_PERMISSION


# Link


def test_the_link_of_a_slot_with_fewer_lanes(room: Room) -> None:
    captures.a770_i915(room.tree)
    ports = room.tree.sys / "bus/pci/devices"
    for port in (captures.ROOT_PORT, captures.UPPER_PORT):
        write(ports / port / "current_link_speed", "8.0 GT/s PCIe\n")
        write(ports / port / "current_link_width", "8\n")
    write(ports / captures.ROOT_PORT / "max_link_speed", "8.0 GT/s PCIe\n")
    gpu = room.gpu()
    assert (gpu.pcie_generation, gpu.pcie_width) == (3, 8)
    assert (gpu.pcie_generation_max, gpu.pcie_width_max) == (3, 16)


def test_the_link_of_a_card_whose_bridges_are_not_shown_is_unknown(room: Room) -> None:
    # As in a virtual machine.
    room.tree.card(CARD, "xe", captures.sysfs_files("0x56a0", {}), parents=("0000:00:01.0",))
    gpu = room.gpu()
    assert (gpu.pcie_generation, gpu.pcie_width) == (None, None)
    assert gpu.unknown["pcie_generation_max"] is Unknown.NOT_SUPPORTED


# Memory


def with_memory(monkeypatch: pytest.MonkeyPatch, used: int) -> None:
    answer = xe_answer((LOCAL, A750_BYTES, used))
    monkeypatch.setattr(drivers, "ioctl", xe_driver(answer))


def test_memory_that_the_driver_tells(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, A750_USED)
    captures.a750_xe(room.tree)
    gpu = room.gpu()
    assert (gpu.memory_total, gpu.memory_used) == (A750_BYTES, A750_USED)
    assert gpu.memory_free == A750_BYTES - A750_USED
    with_memory(monkeypatch, 5 * MIB)
    assert room.gpu().memory_used == 5 * MIB


def test_what_is_used_of_the_memory_is_for_the_privileged(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_all_processes(monkeypatch, all_of_them=False)
    with_memory(monkeypatch, 0)
    captures.a750_xe(room.tree)
    room.tree.process(100, {5: (RENDER, XE_CLIENT)})
    gpu = room.gpu()
    assert (gpu.memory_total, gpu.memory_used, gpu.memory_free) == (A750_BYTES, None, None)
    assert gpu.unknown["memory_used"] is Unknown.NO_PERMISSION
    assert gpu.unknown["utilization_gpu"] is Unknown.NO_PERMISSION


def test_memory_of_all_clients_where_all_can_be_read(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_all_processes(monkeypatch)
    with_memory(monkeypatch, 0)
    captures.a750_xe(room.tree)
    other = XE_CLIENT.replace("client-id:  3", "client-id:  4").replace("23992", "1000")
    room.tree.process(100, {5: (RENDER, XE_CLIENT), 6: (RENDER, XE_CLIENT)})
    room.tree.process(101, {5: (RENDER, other)})
    gpu = room.gpu()
    assert gpu.memory_used == (23992 + 1000) * 1024


@pytest.mark.parametrize("hidden", ["fd", "process"])
def test_clients_that_may_be_hidden_are_not_taken_for_none(
    room: Room, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    see_all_processes(monkeypatch)
    captures.a750_xe(room.tree)
    if hidden == "process":  # /proc is mounted with hidepid=2.
        room.tree.end(1)
    else:  # With hidepid=1.
        first = str(room.tree.proc / "1/fd")
        whole = holders.status_of

        def forbidden(folder: str) -> os.stat_result:
            if folder == first:
                raise PermissionError(errno.EPERM, "Operation not permitted")
            return whole(folder)

        monkeypatch.setattr(holders, "status_of", forbidden)
    gpu = room.gpu()
    assert gpu.unknown["utilization_gpu"] is Unknown.NO_PERMISSION
    assert gpu.unknown["memory_used"] is Unknown.NO_PERMISSION


def test_a_device_file_that_may_not_be_opened(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    see_all_processes(monkeypatch, all_of_them=False)
    monkeypatch.setattr(drivers, "ioctl", forbidden)
    captures.a750_xe(room.tree)
    gpu = room.gpu()
    assert gpu.unknown["memory_total"] is Unknown.NO_PERMISSION
    assert gpu.status is GpuStatus.OK


def test_a_container_without_the_device_file(room: Room) -> None:
    captures.a750_xe(room.tree)
    (room.tree.dev / "dri/renderD128").unlink()
    assert room.gpu().unknown["memory_total"] is Unknown.NO_PERMISSION


def test_processor_graphics_have_the_memory_of_the_host(room: Room) -> None:
    captures.uhd_i915(room.tree)
    room.tree.process(100, {5: (RENDER, I915_CLIENT.format(bus=PROCESSOR))})
    room.backend = room.tree.backend(IntelBackend, clock=room.clock)
    sampler = Sampler(room.backend, System(clock=room.clock))
    sampler.open()
    (gpu,) = sampler.sample().gpus
    assert gpu.memory_total is not None
    assert gpu.memory_total > 0
    assert gpu.memory_used == 6 * MIB


# Processes


def test_processes_of_xe(room: Room) -> None:
    captures.b580_xe(room.tree)
    room.tree.process(100, {5: (RENDER, XE_CLIENT)})
    room.read()
    # 250 of 1000 cycles of the render engine, 2000 of 4 x 1000 of the compute engines.
    later = XE_CLIENT.replace("28257900", "28258150").replace("7655183225", "7655184225")
    later = later.replace("drm-cycles-ccs: 0", "drm-cycles-ccs: 2000")
    room.tree.open_file(100, 5, RENDER, later)
    listed = room.read().listed
    assert listed is not None
    (use,) = listed[100].uses
    assert (use.gpu_uuid, use.gpu_index) == (f"PCI-{CARD}", 0)
    assert (listed[100].type, use.memory_used, use.sm) == ("C+G", 23992 * 1024, 50)
    assert (use.encoder, use.decoder) == (None, None), "its video engines do both"


def test_processes_of_i915(room: Room) -> None:
    captures.a770_i915(room.tree)
    text = I915_CLIENT.format(bus=CARD)
    room.tree.process(100, {5: (RENDER, text)})
    room.read()
    room.tree.open_file(100, 5, RENDER, text.replace("9288864723", "9688864723"))
    listed = room.read().listed
    assert listed is not None
    (use,) = listed[100].uses
    assert (listed[100].type, use.memory_used, use.sm) == ("G", 48 * MIB, 40)


def test_how_busy_a_gpu_is_follows_from_all_of_its_clients(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_all_processes(monkeypatch)
    captures.a770_i915(room.tree)
    texts = {100: I915_CLIENT.format(bus=CARD)}
    texts[101] = texts[100].replace("client-id:\t7", "client-id:\t8")
    assert room.gpu().utilization_gpu == 0
    for pid, text in texts.items():
        room.tree.process(pid, {5: (RENDER, text)})
    assert room.gpu().unknown["utilization_gpu"] is Unknown.NOT_READ
    for (pid, text), more in zip(texts.items(), (300_000_000, 250_000_000), strict=True):
        room.tree.open_file(pid, 5, RENDER, text.replace("9288864723", str(9288864723 + more)))
    assert room.gpu().utilization_gpu == 55


@pytest.mark.parametrize(
    ("file", "capture"),
    [
        ("tile0/gt0/gtidle/idle_residency_ms", captures.b580_xe),
        ("drm/card0/gt/gt0/rc6_residency_ms", captures.a770_i915),
        ("drm/card0/power/rc6_residency_ms", captures.uhd_i915),
    ],
)
def test_everybody_may_know_that_a_gpu_did_nothing(
    room: Room, monkeypatch: pytest.MonkeyPatch, file: str, capture: Capture
) -> None:
    see_all_processes(monkeypatch, all_of_them=False)
    idle = capture(room.tree) / file
    write(idle, "5000\n")
    assert room.gpu().unknown["utilization_gpu"] is Unknown.NO_PERMISSION
    write(idle, "5996\n")
    assert room.gpu().utilization_gpu == 0
    write(idle, "6046\n")
    assert room.gpu(0.1).utilization_gpu == 0, "too early to judge"
    write(idle, "6900\n")
    assert room.gpu(1.0).unknown["utilization_gpu"] is Unknown.NO_PERMISSION
    write(idle, "20\n")
    assert room.gpu(1.0).utilization_gpu is None


@pytest.mark.parametrize(
    ("fans", "fastest"),
    [
        ({1: 1200, 2: 1500}, 1500),
        ({1: 1200, 3: 1500}, 1500),
        ({1: 1200, 2: 1100, 3: 0}, 1200),
        ({2: 700}, 700),
    ],
)
def test_the_fastest_of_up_to_three_fans_counts(
    room: Room, fans: dict[int, int], fastest: int
) -> None:
    folder = captures.a770_i915(room.tree) / "hwmon/hwmon4"
    (folder / "fan1_input").unlink()
    for number, speed in fans.items():
        write(folder / f"fan{number}_input", f"{speed}\n")
    assert room.gpu().fan_rpm == fastest
