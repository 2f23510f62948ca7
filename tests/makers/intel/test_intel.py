"""What Intel's GPUs tell, with both drivers, and what they do not."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.makers.drm import holders
from gpumon.makers.intel import drivers
from gpumon.makers.intel.gpu import IntelBackend
from gpumon.makers.intel.names import model_of
from gpumon.makers.sampler import Sampler
from gpumon.makers.source import SourceError
from gpumon.model.snapshot import GpuStatus, Unknown
from gpumon.system.system import System
from tests.known import known
from tests.makers.drm.trees import (
    KERNEL,
    Faults,
    SampledTree,
    Tree,
    fields,
    see_all_processes,
    write,
)
from tests.makers.intel import captures
from tests.makers.intel.captures import CARD, I915_CLIENT, PROCESSOR, XE_CLIENT
from tests.makers.intel.test_memory import A750_BYTES, A750_USED, LOCAL, xe_answer, xe_driver

Capture = Callable[[Tree], Path]

RENDER = "/dev/dri/renderD128"
MIB = 2**20


@pytest.fixture
def tree(tmp_path: Path) -> SampledTree:
    return SampledTree(tmp_path, IntelBackend)


# Models

EXPECTED: dict[Capture, dict[str, object]] = {
    captures.a770_i915: {
        "name": "Intel Arc A770",
        "architecture": "Xe-HPG",
        "uuid": f"PCI-{CARD}",
        "pci_bus_id": CARD,
        "minor_number": 128,
        "memory_unified": False,
        **fields("clock", sm=600, sm_max=2400, video=None, event_reasons=0),
        **fields("temperature", gpu=46, memory=None),
        "energy": 5000.0,
        "power_limit": 190.0,
        **fields("pcie", generation=4, width=16, generation_max=4, width_max=16),
    },
    captures.a750_xe: {
        "name": "Intel Arc A750",
        "power_limit": 190.0,  # A disabled limit of the card is none.
        **fields("clock", sm=0, sm_max=2400),
    },
    captures.b580_xe: {
        "name": "Intel Arc B580",
        "architecture": "Xe2",
        "power_limit": None,
        **fields("clock", video=0, video_max=1500, event_reasons=0x004 | 0x040),
        **fields("temperature", gpu=51, memory=58, slowdown=100, shutdown=105),
    },
    captures.b60_xe: {
        "name": "Intel Arc Pro B60",
        **fields("power", limit=200.0, draw=None),  # In effect, and not the critical one.
        **fields("clock", sm=None, sm_max=None),
        "temperature_gpu": None,
        "energy": None,
    },
    captures.b70_xe: {
        "name": "Intel GPU 0xe223",  # A model without a name is named by its number.
        "architecture": None,
        "memory_unified": False,
        "power_limit": 275.0,
    },
    captures.max_1550_xe: {
        "name": "Intel Data Center GPU Max 1550",
        "architecture": "Xe-HPC",
        **fields("pcie", generation=5, width=16),
        # Tile 1 is no media engine.
        **fields("clock", sm=1600, memory=None, memory_max=3200, video=None),
    },
    # Before Linux 5.18.
    captures.uhd_i915: {
        "name": "Intel UHD Graphics 630",
        "memory_unified": True,
        **fields("clock", sm=350, sm_max=1150, event_reasons=None),
        "power_draw": None,
        "temperature_gpu": None,
        "pcie_generation": None,
    },
    # Held down by a power limit.
    captures.b390_xe: {
        "name": "Intel Arc B390",
        "memory_unified": True,
        **fields("clock", sm=1900, sm_max=2500, event_reasons=0x004),
    },
}
"""What is known of each capture; ``None`` is a value that the driver does not have."""

ALWAYS_UNKNOWN = {
    *("serial", "vbios_version", "utilization_memory", "utilization_encoder"),
    *("fan_speed", "fan_speeds", "power_limit_min", "power_limit_max", "clock_memory"),
    *("clock_graphics", "bar1_total", "ecc_mode", "compute_mode", "mig_mode", "xid"),
}


@pytest.mark.parametrize("capture", EXPECTED)
def test_what_each_model_tells(tree: SampledTree, capture: Capture) -> None:
    capture(tree)
    gpu, expected = tree.gpu(), EXPECTED[capture]
    assert {name: getattr(gpu, name) for name in expected} == expected
    unknown = {name for name, value in expected.items() if value is None}
    assert {gpu.unknown[name] for name in unknown | ALWAYS_UNKNOWN} == {Unknown.NOT_SUPPORTED}


@pytest.mark.parametrize("capture", EXPECTED)
def test_each_value_is_known_or_has_a_reason(tree: SampledTree, capture: Capture) -> None:
    capture(tree)
    tree.gpu()
    gpu = tree.gpu()
    later = {"xid_at"}
    for field in gpu.__struct_fields__[gpu.__struct_fields__.index("mig") + 1 :]:
        known = getattr(gpu, field) is not None
        assert known != (field in gpu.unknown) or field in later, field


def test_a_monitor_at_processor_graphics(tree: SampledTree) -> None:
    write(captures.uhd_i915(tree) / "drm/card0/card0-DP-1/status", "connected\n")
    gpu = tree.gpu()
    assert (gpu.display_mode, gpu.display_active) == (True, False)


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


def test_a_card_in_the_place_of_processor_graphics_is_a_card(tree: SampledTree) -> None:
    # As in a virtual machine.
    tree.card(PROCESSOR, "xe", {"vendor": "0x8086\n", "device": "0xe20b\n"}, parents=())
    assert tree.gpu().memory_unified is False


def test_cards_and_processor_graphics_of_one_machine(tree: SampledTree) -> None:
    captures.uhd_i915(tree)
    tree.card(CARD, "xe", {"device": "0x56a1\n"}, number=1, render=129)
    reading = tree.read()
    assert [gpu.name for gpu in reading.gpus] == ["Intel Arc A750", "Intel UHD Graphics 630"]
    assert reading.driver.version == f"i915 {KERNEL}, xe {KERNEL}"


def test_without_a_gpu_it_is_said_where_to_look(tree: SampledTree) -> None:
    with pytest.raises(SourceError, match=r"No GPU of Intel was found\..*lspci"):
        tree.read()


# Power


@pytest.mark.parametrize(
    ("capture", "file", "microjoules", "seconds", "watts"),
    [
        (captures.a750_xe, "hwmon/hwmon5/energy2_input", 46_000_000, 1.0, 45.0),
        # Of the card, not of the package.
        (captures.b70_xe, "hwmon/hwmon7/energy1_input", 81_414_000_000, 2.01, 206.0),
    ],
)
def test_power_follows_from_the_energy(
    tree: SampledTree, capture: Capture, file: str, microjoules: int, seconds: float, watts: float
) -> None:
    energy = capture(tree) / file
    assert tree.gpu().unknown["power_draw"] is Unknown.NOT_READ
    write(energy, f"{microjoules}\n")
    assert tree.gpu(seconds).power_draw == pytest.approx(watts, abs=0.5)


@pytest.fixture
def energy(tree: SampledTree) -> Path:
    """The counter of the only card: 5,000 J in µJ."""
    return captures.a770_i915(tree) / "hwmon/hwmon4/energy1_input"


def test_power_is_the_mean_of_about_a_second(tree: SampledTree, energy: Path) -> None:
    joules = 100.0
    for watts in [50.0] * 10 + [150.0] * 20:
        joules += watts * 0.1
        write(energy, f"{round(joules * 1e6)}\n")
        gpu = tree.gpu(0.1)
    assert gpu.power_draw == pytest.approx(150.0)
    write(energy, f"{round((joules + 5.0) * 1e6)}\n")
    assert tree.gpu(0.1).power_draw == pytest.approx((150.0 * 0.9 + 5.0) / 1.0, rel=0.02)


def test_an_energy_counter_that_began_anew_is_no_power(tree: SampledTree, energy: Path) -> None:
    tree.gpu()
    # The last value stays.
    for microjoules, watts in ((5_040_000_000, 40.0), (1_000_000, 40.0), (31_000_000, 30.0)):
        write(energy, f"{microjoules}\n")
        assert tree.gpu().power_draw == pytest.approx(watts)


def test_impossible_power_is_not_shown(tree: SampledTree, energy: Path) -> None:
    tree.gpu()
    write(energy, f"{10**17}\n")
    assert tree.gpu().power_draw is None


def test_a_hwmon_folder_that_comes_later_is_found(tree: SampledTree) -> None:
    folder = tree.card(CARD, "xe", {"device": "0xe20b\n"})
    assert tree.gpu().temperature_gpu is None
    write(folder / "hwmon/hwmon6/name", "xe\n")
    write(folder / "hwmon/hwmon6/temp2_input", "51000\n")
    tree.gpu(31.0)
    tree.gpu(3.0)
    assert tree.gpu(3.0).temperature_gpu == 51


def test_only_set_reasons_are_told(tree: SampledTree, monkeypatch: pytest.MonkeyPatch) -> None:
    throttle = captures.b580_xe(tree) / "tile0/gt0/freq0/throttle"
    tree.gpu()
    for changes, reasons in (
        ({"reason_pl1": 0}, 0x040),
        ({"reason_ratl": 1, "reason_prochot": 1}, 0x040 | 0x020 | 0x008),
        ({"status": 0}, 0),
    ):
        for name, value in changes.items():
            write(throttle / name, f"{value}\n")
        assert tree.gpu().clock_event_reasons == reasons
    faults = Faults(monkeypatch)
    faults.errors = dict.fromkeys(("throttle/status", "reason_thermal"), errno.EACCES)
    assert tree.gpu().unknown["clock_event_reasons"] is Unknown.NO_PERMISSION


def test_the_link_of_a_slot_with_fewer_lanes(tree: SampledTree) -> None:
    captures.a770_i915(tree)
    ports = tree.sys / "bus/pci/devices"
    for port in (captures.ROOT_PORT, captures.UPPER_PORT):
        write(ports / port / "current_link_speed", "8.0 GT/s PCIe\n")
        write(ports / port / "current_link_width", "8\n")
    write(ports / captures.ROOT_PORT / "max_link_speed", "8.0 GT/s PCIe\n")
    gpu = tree.gpu()
    assert (gpu.pcie_generation, gpu.pcie_width) == (3, 8)
    assert (gpu.pcie_generation_max, gpu.pcie_width_max) == (3, 16)


def test_the_link_of_a_card_whose_bridges_are_not_shown_is_unknown(tree: SampledTree) -> None:
    # As in a virtual machine.
    tree.card(CARD, "xe", captures.sysfs_files("0x56a0", {}), parents=("0000:00:01.0",))
    gpu = tree.gpu()
    assert (gpu.pcie_generation, gpu.pcie_width) == (None, None)
    assert gpu.unknown["pcie_generation_max"] is Unknown.NOT_SUPPORTED


# Memory


def with_memory(monkeypatch: pytest.MonkeyPatch, used: int) -> None:
    answer = xe_answer((LOCAL, A750_BYTES, used))
    monkeypatch.setattr(drivers, "ioctl", xe_driver(answer))


@pytest.fixture
def a750(tree: SampledTree) -> SampledTree:
    captures.a750_xe(tree)
    return tree


def test_memory_that_the_driver_tells(a750: SampledTree, monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, A750_USED)
    gpu = a750.gpu()
    assert (gpu.memory_total, gpu.memory_used) == (A750_BYTES, A750_USED)
    assert gpu.memory_free == A750_BYTES - A750_USED
    with_memory(monkeypatch, 5 * MIB)
    assert a750.gpu().memory_used == 5 * MIB


def test_what_is_used_of_the_memory_is_for_the_privileged(
    a750: SampledTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_all_processes(monkeypatch, all_of_them=False)
    with_memory(monkeypatch, 0)
    a750.process(100, {5: (RENDER, XE_CLIENT)})
    gpu = a750.gpu()
    assert (gpu.memory_total, gpu.memory_used, gpu.memory_free) == (A750_BYTES, None, None)
    for field in ("memory_used", "utilization_gpu"):
        assert gpu.unknown[field] is Unknown.NO_PERMISSION


def test_memory_of_all_clients_where_all_can_be_read(
    a750: SampledTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_all_processes(monkeypatch)
    with_memory(monkeypatch, 0)
    other = XE_CLIENT.replace("client-id:  3", "client-id:  4").replace("23992", "1000")
    a750.process(100, {5: (RENDER, XE_CLIENT), 6: (RENDER, XE_CLIENT)})
    a750.process(101, {5: (RENDER, other)})
    assert a750.gpu().memory_used == (23992 + 1000) * 1024


@pytest.mark.parametrize("hidden", ["fd", "process"])
def test_clients_that_may_be_hidden_are_not_taken_for_none(
    a750: SampledTree, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    see_all_processes(monkeypatch)
    if hidden == "process":  # /proc is mounted with hidepid=2.
        a750.end(1)
    else:  # With hidepid=1.
        first = str(a750.proc / "1/fd")
        whole = holders.status_of

        def forbidden(folder: str) -> os.stat_result:
            if folder == first:
                raise PermissionError(errno.EPERM, "Operation not permitted")
            return whole(folder)

        monkeypatch.setattr(holders, "status_of", forbidden)
    gpu = a750.gpu()
    for field in ("memory_used", "utilization_gpu"):
        assert gpu.unknown[field] is Unknown.NO_PERMISSION


def test_a_device_file_that_may_not_be_opened(
    a750: SampledTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    see_all_processes(monkeypatch, all_of_them=False)
    monkeypatch.setattr(drivers, "ioctl", forbidden)
    gpu = a750.gpu()
    assert gpu.unknown["memory_total"] is Unknown.NO_PERMISSION
    assert gpu.status is GpuStatus.OK


def test_a_container_without_the_device_file(a750: SampledTree) -> None:
    (a750.dev / "dri/renderD128").unlink()
    assert a750.gpu().unknown["memory_total"] is Unknown.NO_PERMISSION


def test_processor_graphics_have_the_memory_of_the_host(tree: SampledTree) -> None:
    captures.uhd_i915(tree)
    tree.process(100, {5: (RENDER, I915_CLIENT.format(bus=PROCESSOR))})
    sampler = Sampler(tree.backend(IntelBackend, clock=tree.clock), System(clock=tree.clock))
    sampler.open()
    (gpu,) = sampler.sample().gpus
    assert known(gpu.memory_total) > 0
    assert gpu.memory_used == 6 * MIB


# Processes


def test_processes_of_xe(tree: SampledTree) -> None:
    captures.b580_xe(tree)
    tree.process(100, {5: (RENDER, XE_CLIENT)})
    tree.read()
    # 250 of 1000 cycles of the render engine, 2000 of 4 x 1000 of the compute engines.
    later = XE_CLIENT.replace("28257900", "28258150").replace("7655183225", "7655184225")
    later = later.replace("drm-cycles-ccs: 0", "drm-cycles-ccs: 2000")
    tree.open_file(100, 5, RENDER, later)
    process = tree.lists()[100]
    (use,) = process.uses
    assert (use.gpu_uuid, use.gpu_index) == (f"PCI-{CARD}", 0)
    assert (process.type, use.memory_used, use.sm) == ("C+G", 23992 * 1024, 50)
    assert (use.encoder, use.decoder) == (None, None), "its video engines do both"


def test_processes_of_i915(tree: SampledTree) -> None:
    captures.a770_i915(tree)
    text = I915_CLIENT.format(bus=CARD)
    tree.process(100, {5: (RENDER, text)})
    tree.read()
    tree.open_file(100, 5, RENDER, text.replace("9288864723", "9688864723"))
    process = tree.lists()[100]
    (use,) = process.uses
    assert (process.type, use.memory_used, use.sm) == ("G", 48 * MIB, 40)


def test_how_busy_a_gpu_is_follows_from_all_of_its_clients(
    tree: SampledTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_all_processes(monkeypatch)
    captures.a770_i915(tree)
    texts = {100: I915_CLIENT.format(bus=CARD)}
    texts[101] = texts[100].replace("client-id:\t7", "client-id:\t8")
    assert tree.gpu().utilization_gpu == 0
    for pid, text in texts.items():
        tree.process(pid, {5: (RENDER, text)})
    assert tree.gpu().unknown["utilization_gpu"] is Unknown.NOT_READ
    for (pid, text), more in zip(texts.items(), (300_000_000, 250_000_000), strict=True):
        tree.open_file(pid, 5, RENDER, text.replace("9288864723", str(9288864723 + more)))
    assert tree.gpu().utilization_gpu == 55


@pytest.mark.parametrize(
    ("file", "capture"),
    [
        ("tile0/gt0/gtidle/idle_residency_ms", captures.b580_xe),
        ("drm/card0/gt/gt0/rc6_residency_ms", captures.a770_i915),
        ("drm/card0/power/rc6_residency_ms", captures.uhd_i915),
    ],
)
def test_everybody_may_know_that_a_gpu_did_nothing(
    tree: SampledTree, monkeypatch: pytest.MonkeyPatch, file: str, capture: Capture
) -> None:
    see_all_processes(monkeypatch, all_of_them=False)
    idle = capture(tree) / file
    for residency, seconds, utilization in (
        (5000, 1.0, None),
        (5996, 1.0, 0),
        (6046, 0.1, 0),  # Too early to judge.
        (6900, 1.0, None),
        (20, 1.0, None),
    ):
        write(idle, f"{residency}\n")
        gpu = tree.gpu(seconds)
        reason = None if utilization == 0 else Unknown.NO_PERMISSION
        assert (gpu.utilization_gpu, gpu.unknown.get("utilization_gpu")) == (utilization, reason)


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
    tree: SampledTree, fans: dict[int, int], fastest: int
) -> None:
    folder = captures.a770_i915(tree) / "hwmon/hwmon4"
    (folder / "fan1_input").unlink()
    for number, speed in fans.items():
        write(folder / f"fan{number}_input", f"{speed}\n")
    assert tree.gpu().fan_rpm == fastest
