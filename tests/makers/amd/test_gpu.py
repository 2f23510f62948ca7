"""AMD GPUs that sleep, fail, lack files or answer nonsense."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from gpumon.makers.amd.backend import AmdBackend
from gpumon.makers.source import SourceError
from gpumon.model.snapshot import Gpu, GpuStatus, Unknown
from tests.makers.amd.machines import add, add_kfd_node, capture, machine
from tests.makers.amd.test_gpu_metrics import table
from tests.makers.drm.trees import Faults, Tree, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clock import HandClock

RAS = {
    # Forms of amdgpu_ras_sysfs_read() and amdgpu_ras_sysfs_features_read().
    "ras/umc_err_count": "ue: 1\nce: 40\n",
    "ras/gfx_err_count": "ue: 0\nce: 2\nde: 7\n",
    "ras/features": "feature mask: 0x5fb\n",
}


def opened(tree: Tree, clock: HandClock) -> AmdBackend:
    backend = tree.backend(AmdBackend, clock=clock)
    backend.open()
    return backend


def only(tree: Tree, clock: HandClock) -> Gpu:
    (gpu,) = opened(tree, clock).read().gpus
    return gpu


# Which GPUs


def test_gpus_of_other_drivers_are_left_out(tmp_path: Path, clock: HandClock) -> None:
    tree = Tree(tmp_path)
    for number, driver in enumerate(("radeon", "vfio-pci", "nvidia")):
        tree.card(f"0000:0{number}:00.0", driver, {}, number=number, render=128 + number)
    with pytest.raises(SourceError, match=r"No GPU of AMD was found\. `lspci"):
        opened(tree, clock)


def test_discrete_gpus_come_before_the_processor_graphics(tmp_path: Path, clock: HandClock) -> None:
    tree = Tree(tmp_path)
    add(tree, "phoenix", bus_id="0000:02:00.0", number=0)
    add(tree, "rx_7800_xt", bus_id="0000:64:00.0", number=1)
    gpus = opened(tree, clock).read().gpus
    assert [(gpu.index, gpu.pci_bus_id, gpu.minor_number) for gpu in gpus] == [
        (0, "0000:64:00.0", 129),
        (1, "0000:02:00.0", 128),
    ]


def test_the_memory_of_an_mi300a_counts_once(tmp_path: Path, clock: HandClock) -> None:
    # Its device ID is in the kernel's pciidlist; 128 GiB are VRAM and GTT at the same time.
    gib = 2**30
    tree = Tree(tmp_path)
    files = {"vendor": "0x1002\n", "device": "0x74a0\n", "hwmon/hwmon4/name": "amdgpu\n"}
    sizes = {"vram_total": 128 * gib, "vram_used": 0, "gtt_total": 128 * gib, "gtt_used": 9 * gib}
    files |= {f"mem_info_{name}": f"{size}\n" for name, size in sizes.items()}
    tree.card("0000:01:00.0", "amdgpu", files)
    gpu = only(tree, clock)
    assert (gpu.memory_total, gpu.memory_used) == (128 * gib, 9 * gib)
    assert (gpu.name, gpu.memory_unified) == ("AMD Instinct MI300A", True)


def test_the_uuid_is_the_one_that_rocm_takes(tmp_path: Path, clock: HandClock) -> None:
    assert only(machine(tmp_path, "rx_6900_xt"), clock).uuid == "GPU-946d7e1ef9b172dd"


@pytest.mark.parametrize("unique", [None, "0000000000000000\n", "garbage\n"])
def test_without_a_unique_id_the_uuid_is_the_bus_id(
    tmp_path: Path, clock: HandClock, unique: str | None
) -> None:
    gpu = only(machine(tmp_path, "rx_6900_xt", {"unique_id": unique}), clock)
    assert gpu.uuid == "PCI-0000:0c:00.0"


def test_two_gpus_never_have_the_same_uuid(tmp_path: Path, clock: HandClock) -> None:
    tree = Tree(tmp_path)
    add(tree, "mi250")
    add(tree, "mi250", bus_id="0000:32:00.0", number=1)
    uuids = [gpu.uuid for gpu in opened(tree, clock).read().gpus]
    assert uuids == ["GPU-719d230578348e8c", "PCI-0000:32:00.0"]


def test_the_architecture_is_that_of_kfd(tmp_path: Path, clock: HandClock) -> None:
    tree = machine(tmp_path, "rx_7900_xt")
    add_kfd_node(tree, 1, 4711, "0000:03:00.0", 110000)
    assert only(tree, clock).architecture == "gfx1100"


# Sleep and errors


def test_a_sleeping_gpu_is_not_woken(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep = {"power/control": "auto\n", "power/runtime_status": "suspended\n"}
    backend_of = machine(tmp_path, "rx_6900_xt", asleep)
    add_kfd_node(backend_of, 1, 4711, "0000:0c:00.0", 100300)
    paths: list[str] = []
    real = os.open

    def recording(path: Any, *args: Any, **more: Any) -> int:
        paths.append(str(path))
        return real(path, *args, **more)

    monkeypatch.setattr(os, "open", recording)
    backend = opened(backend_of, clock)
    for _ in range(5):
        (gpu,) = backend.read().gpus
        clock.now += 3.0
    assert (gpu.status, gpu.name) == (GpuStatus.ASLEEP, "AMD Radeon RX 6900 XT")
    assert gpu.unknown["temperature_gpu"] is Unknown.ASLEEP
    device = "/0000:0c:00.0/"
    read = {path.partition(device)[2] for path in paths if device in path}
    # The kernel has all of these in memory; every other file resumes the GPU.
    assert read <= {
        *("vendor", "device", "revision"),
        *("unique_id", "product_name", "ip_discovery/die/0/12/0/major"),
        *("power/control", "power/runtime_status"),
    }


def test_a_gpu_that_wakes_is_read(tmp_path: Path, clock: HandClock) -> None:
    asleep = {"power/control": "auto\n", "power/runtime_status": "suspended\n"}
    tree = machine(tmp_path, "rx_6900_xt", asleep)
    backend = opened(tree, clock)
    backend.read()
    write(tree.sys / "bus/pci/devices/0000:0c:00.0/power/runtime_status", "active\n")
    clock.now += 1.0
    (gpu,) = backend.read().gpus
    assert (gpu.status, gpu.temperature_gpu, gpu.temperature_slowdown) == (GpuStatus.OK, 56, 100)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EINVAL, Unknown.NOT_SUPPORTED),
        (errno.EOPNOTSUPP, Unknown.NOT_SUPPORTED),
        (errno.EACCES, Unknown.NO_PERMISSION),
        (errno.EBUSY, Unknown.NO_ANSWER),
        (errno.EPERM, Unknown.NO_ANSWER),
    ],
)
def test_a_file_that_fails_gives_its_reason_and_no_zero(
    tmp_path: Path,
    clock: HandClock,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    reason: Unknown,
) -> None:
    tree = machine(tmp_path, "rx_6900_xt")
    faults = Faults(monkeypatch)
    faults.errors = dict.fromkeys(("gpu_busy_percent", "temp1_input", "power1_average"), number)
    gpu = only(tree, clock)
    assert (gpu.utilization_gpu, gpu.temperature_gpu, gpu.power_draw) == (None, None, None)
    failed = ("utilization_gpu", "temperature_gpu", "power_average")
    assert {gpu.unknown[name] for name in failed} == {reason}
    assert gpu.temperature_memory == 54


@pytest.mark.parametrize("error", [errno.ENOENT, errno.EINVAL, errno.EBUSY])
def test_without_the_table_the_other_values_are_shown(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    tree = machine(tmp_path, "rx_6900_xt")
    Faults(monkeypatch).errors["gpu_metrics"] = error
    gpu = only(tree, clock)
    assert (gpu.temperature_gpu, gpu.clock_memory, gpu.pcie_width) == (56, 1000, 16)
    assert (gpu.clock_event_reasons, gpu.clock_video) == (None, None)


def test_impossible_numbers_are_not_shown(tmp_path: Path, clock: HandClock) -> None:
    _, files = capture("rx_6900_xt")
    folder = next(path.rpartition("/")[0] for path in files if path.endswith("temp1_input"))
    tree = machine(
        tmp_path,
        "rx_6900_xt",
        {
            "gpu_busy_percent": "65535\n",
            "mem_busy_percent": "9" * 4000,
            "mem_info_vram_used": "not a number\n",
            f"{folder}/temp1_input": "511000000\n",
            f"{folder}/power1_average": "4294967295000000\n",
            f"{folder}/power1_cap": "0\n",
            f"{folder}/freq1_input": "18446744073709551615\n",
            f"{folder}/pwm1": "-7\n",
            "pp_dpm_sclk": "OD_SCLK:\n",
        },
    )
    gpu = only(tree, clock)
    for name in (
        *("utilization_gpu", "utilization_memory", "memory_used", "memory_free", "power_limit"),
        *("temperature_gpu", "power_average", "clock_sm", "fan_speed", "clock_sm_max"),
    ):
        if name != "utilization_memory":
            assert getattr(gpu, name) is None, name
            assert gpu.unknown[name] is Unknown.NOT_SUPPORTED, name
    # The table of the firmware tells it too.
    assert gpu.utilization_memory == 0


def test_the_second_die_of_an_mi250_has_no_power_of_its_own(
    tmp_path: Path, clock: HandClock
) -> None:
    # github.com/wandb/wandb/pull/5449: "N/A" and a limit of "0.0W" for every second GPU.
    none = {"hwmon/hwmon4/power1_average": "0\n", "hwmon/hwmon4/power1_cap": "0\n"}
    gpu = only(machine(tmp_path, "mi250", none), clock)
    assert (gpu.power_draw, gpu.power_limit, gpu.temperature_gpu) == (None, None, 32)


# Single values


def test_energy_of_an_mi250_is_in_joules(tmp_path: Path, clock: HandClock) -> None:
    # The capture's rocm-smi told a counter of 62929744071539 and 962825096297442.9 µJ: it rounds
    # the unit of 15.259 µJ up to 15.3.
    energy = table((1, 3), energy=62929744071539)
    tree = machine(tmp_path, "mi250", {"gpu_metrics": energy})
    add_kfd_node(tree, 1, 4711, "0000:2f:00.0", 90010)
    assert only(tree, clock).energy == pytest.approx(962825096.3, rel=0.003)


def test_the_accumulator_of_a_radeon_is_not_taken_for_energy(
    tmp_path: Path, clock: HandClock
) -> None:
    gpu = only(machine(tmp_path, "rx_6900_xt"), clock)
    assert (gpu.energy, gpu.unknown["energy"]) == (None, Unknown.NOT_SUPPORTED)


def test_the_link_is_that_of_the_slot_not_the_one_to_the_switch_on_the_card(
    tmp_path: Path, clock: HandClock
) -> None:
    # The switch of Navi: ports 1002:1478 and 1002:1479 (pci-ids.ucw.cz), below a port of the host.
    tree = Tree(tmp_path)
    above = ("0000:00:03.1", "0000:0a:00.0", "0000:0b:00.0")
    folder = add(tree, "rx_6900_xt", parents=above)
    slot = {"vendor": "0x1002\n", "current_link_speed": "8.0 GT/s PCIe\n"}
    slot |= {"current_link_width": "4\n", "max_link_speed": "16.0 GT/s PCIe\n"}
    for name, content in (slot | {"max_link_width": "16\n"}).items():
        write(folder.parent.parent / name, content)
    write(folder.parent / "vendor", "0x1002\n")
    write(folder.parent.parent.parent / "vendor", "0x1022\n")
    gpu = only(tree, clock)
    assert (gpu.pcie_generation, gpu.pcie_width) == (3, 4)
    assert (gpu.pcie_generation_max, gpu.pcie_width_max) == (4, 16)


def test_a_virtual_machine_without_link_files_shows_the_link_of_the_table(
    tmp_path: Path, clock: HandClock
) -> None:
    none = dict.fromkeys(
        ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
    )
    gpu = only(machine(tmp_path, "rx_6900_xt", none), clock)
    assert (gpu.pcie_generation, gpu.pcie_width, gpu.pcie_generation_max) == (4, 16, None)


def test_the_busiest_video_engine_of_an_mi300_is_its_decoder(
    tmp_path: Path, clock: HandClock
) -> None:
    busy = table((1, 5), vcn=(3, 97, 0, 12), jpeg=(0, 8), energy=65536 * 7)
    gpu = only(machine(tmp_path, "mi300x", {"gpu_metrics": busy}), clock)
    assert (gpu.utilization_decoder, gpu.utilization_jpeg, gpu.energy) == (97, 8, 7.0)


def test_the_errors_of_all_blocks_are_added(tmp_path: Path, clock: HandClock) -> None:
    gpu = only(machine(tmp_path, "mi300x", RAS), clock)
    assert (gpu.ecc_corrected_volatile, gpu.ecc_uncorrected_volatile) == (42, 1)
    assert gpu.ecc_mode is True
    assert gpu.retired_pages_double_bit is None


def test_a_block_without_a_counter_does_not_hide_the_others(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = machine(tmp_path, "mi300x", RAS)
    faults = Faults(monkeypatch)
    faults.errors["ras/gfx_err_count"] = errno.EINVAL
    assert only(tree, clock).ecc_corrected_volatile == 40
    faults.errors["ras/gfx_err_count"] = errno.EACCES
    assert only(tree, clock).unknown["ecc_corrected_volatile"] is Unknown.NO_PERMISSION


def test_retired_pages_are_counted(tmp_path: Path, clock: HandClock) -> None:
    # The form of amdgpu_ras_sysfs_badpages_read().
    pages = "0x00000001 : 0x00001000 : R \n0x00000002 : 0x00001000 : P \n"
    gpu = only(machine(tmp_path, "mi300x", {**RAS, "ras/gpu_vram_bad_pages": pages}), clock)
    assert (gpu.retired_pages_double_bit, gpu.retired_pages_pending) == (2, True)
    gpu = only(machine(tmp_path / "b", "mi300x", {**RAS, "ras/gpu_vram_bad_pages": ""}), clock)
    assert (gpu.retired_pages_double_bit, gpu.retired_pages_pending) == (0, False)


def test_the_file_that_blocks_for_a_second_is_never_read(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = machine(tmp_path, "vega_56", {"pcie_bw": "85 0 256\n"})
    faults = Faults(monkeypatch)
    only(tree, clock)
    assert faults.reads
    assert not [path for path in faults.reads if path.endswith("pcie_bw")]
