"""AMD GPUs that sleep, fail, lack files or answer nonsense."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from gpumon.makers.source import SourceError
from gpumon.model.snapshot import Gpu, GpuStatus, Unknown
from tests.makers.amd.machines import add, add_kfd_node, capture
from tests.makers.amd.test_gpu_metrics import table
from tests.makers.drm.trees import Faults, SampledTree, fields, write

Changes = Mapping[str, str | bytes | None]

RAS = {
    # Forms of amdgpu_ras_sysfs_read() and amdgpu_ras_sysfs_features_read().
    "ras/umc_err_count": "ue: 1\nce: 40\n",
    "ras/gfx_err_count": "ue: 0\nce: 2\nde: 7\n",
    "ras/features": "feature mask: 0x5fb\n",
}


def only(tree: SampledTree, model: str, changes: Changes = MappingProxyType({})) -> Gpu:
    """The GPU of a machine with one card, whose files differ from the capture's."""
    add(tree, model, changes)
    return tree.gpu()


def test_gpus_of_other_drivers_are_left_out(tree: SampledTree) -> None:
    for number, driver in enumerate(("radeon", "vfio-pci", "nvidia")):
        tree.card(f"0000:0{number}:00.0", driver, {}, number=number, render=128 + number)
    with pytest.raises(SourceError, match=r"No GPU of AMD was found\. `lspci"):
        tree.opened()


def test_the_memory_of_an_mi300a_counts_once(tree: SampledTree) -> None:
    # Its device ID is in the kernel's pciidlist; 128 GiB are VRAM and GTT at the same time.
    gib = 2**30
    files = {"vendor": "0x1002\n", "device": "0x74a0\n", "hwmon/hwmon4/name": "amdgpu\n"}
    sizes = {"vram_total": 128 * gib, "vram_used": 0, "gtt_total": 128 * gib, "gtt_used": 9 * gib}
    files |= {f"mem_info_{name}": f"{size}\n" for name, size in sizes.items()}
    tree.card("0000:01:00.0", "amdgpu", files)
    gpu = tree.gpu()
    assert (gpu.memory_total, gpu.memory_used) == (128 * gib, 9 * gib)
    assert (gpu.name, gpu.memory_unified) == ("AMD Instinct MI300A", True)


@pytest.mark.parametrize(
    ("changes", "uuid"),
    [
        pytest.param({}, "GPU-946d7e1ef9b172dd", id="the one that ROCm takes"),
        *(
            pytest.param({"unique_id": unique}, "PCI-0000:0c:00.0", id=f"the bus ID for {unique!r}")
            for unique in (None, "0000000000000000\n", "garbage\n")
        ),
    ],
)
def test_the_uuid(tree: SampledTree, changes: Changes, uuid: str) -> None:
    assert only(tree, "rx_6900_xt", changes).uuid == uuid


def test_two_gpus_never_have_the_same_uuid(tree: SampledTree) -> None:
    add(tree, "mi250")
    add(tree, "mi250", bus_id="0000:32:00.0", number=1)
    uuids = [gpu.uuid for gpu in tree.read().gpus]
    assert uuids == ["GPU-719d230578348e8c", "PCI-0000:32:00.0"]


def test_the_architecture_is_that_of_kfd(tree: SampledTree) -> None:
    add_kfd_node(tree, 1, 4711, "0000:03:00.0", 110000)
    assert only(tree, "rx_7900_xt").architecture == "gfx1100"


def test_a_sleeping_gpu_is_not_woken_and_read_when_it_wakes(
    tree: SampledTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep = {"power/control": "auto\n", "power/runtime_status": "suspended\n"}
    folder = add(tree, "rx_6900_xt", asleep)
    add_kfd_node(tree, 1, 4711, "0000:0c:00.0", 100300)
    paths: list[str] = []
    real = os.open

    def recording(path: Any, *args: Any, **more: Any) -> int:
        paths.append(str(path))
        return real(path, *args, **more)

    monkeypatch.setattr(os, "open", recording)
    for _ in range(5):
        gpu = tree.gpu(3.0)
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
    write(folder / "power/runtime_status", "active\n")
    gpu = tree.gpu()
    assert (gpu.status, gpu.temperature_gpu, gpu.temperature_slowdown) == (GpuStatus.OK, 56, 100)


def test_a_file_that_fails_gives_its_reason_and_no_zero(
    tree: SampledTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = ("gpu_busy_percent", "temp1_input", "power1_average")
    Faults(monkeypatch).errors = dict.fromkeys(failing, errno.EACCES)
    gpu = only(tree, "rx_6900_xt")
    assert (gpu.utilization_gpu, gpu.temperature_gpu, gpu.power_draw) == (None, None, None)
    failed = ("utilization_gpu", "temperature_gpu", "power_average")
    assert {gpu.unknown[name] for name in failed} == {Unknown.NO_PERMISSION}
    assert gpu.temperature_memory == 54


@pytest.mark.parametrize("error", [errno.ENOENT, errno.EINVAL, errno.EBUSY])
def test_without_the_table_the_other_values_are_shown(
    tree: SampledTree, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    Faults(monkeypatch).errors["gpu_metrics"] = error
    gpu = only(tree, "rx_6900_xt")
    assert (gpu.temperature_gpu, gpu.clock_memory, gpu.pcie_width) == (56, 1000, 16)
    assert (gpu.clock_event_reasons, gpu.clock_video) == (None, None)


def test_impossible_numbers_are_not_shown(tree: SampledTree) -> None:
    sensors = {
        "temp1_input": "511000000\n",
        "power1_average": "4294967295000000\n",
        "power1_cap": "0\n",
        "freq1_input": "18446744073709551615\n",
        "pwm1": "-7\n",
    }
    _, files = capture("rx_6900_xt")
    folder = next(path.rpartition("/")[0] for path in files if path.endswith("temp1_input"))
    changes = {
        "gpu_busy_percent": "65535\n",
        "mem_busy_percent": "9" * 4000,
        "mem_info_vram_used": "not a number\n",
        "pp_dpm_sclk": "OD_SCLK:\n",
        **{f"{folder}/{name}": text for name, text in sensors.items()},
    }
    gpu = only(tree, "rx_6900_xt", changes)
    for name in (
        *("utilization_gpu", "memory_used", "memory_free", "power_limit", "temperature_gpu"),
        *("power_average", "clock_sm", "fan_speed", "clock_sm_max"),
    ):
        assert getattr(gpu, name) is None, name
        assert gpu.unknown[name] is Unknown.NOT_SUPPORTED, name
    # The table of the firmware tells it too.
    assert gpu.utilization_memory == 0


FOUND: dict[str, tuple[str, Changes, dict[str, object]]] = {
    # github.com/wandb/wandb/pull/5449: "N/A" and a limit of "0.0W" for every second GPU.
    "the second die of an MI250 has no power of its own": (
        "mi250",
        {"hwmon/hwmon4/power1_average": "0\n", "hwmon/hwmon4/power1_cap": "0\n"},
        {"power_draw": None, "power_limit": None, "temperature_gpu": 32},
    ),
    "the accumulator of a Radeon is not taken for energy": ("rx_6900_xt", {}, {"energy": None}),
    "a virtual machine without link files shows the link of the table": (
        "rx_6900_xt",
        dict.fromkeys(f"{a}_link_{b}" for a in ("current", "max") for b in ("speed", "width")),
        {"pcie_generation": 4, "pcie_width": 16, "pcie_generation_max": None},
    ),
    "the busiest video engine of an MI300 is its decoder": (
        "mi300x",
        {"gpu_metrics": table((1, 5), vcn=(3, 97, 0, 12), jpeg=(0, 8), energy=65536 * 7)},
        {"utilization_decoder": 97, "utilization_jpeg": 8, "energy": 7.0},
    ),
    "the errors of all blocks are added": (
        "mi300x",
        RAS,
        fields("ecc", corrected_volatile=42, uncorrected_volatile=1, mode=True)
        | {"retired_pages_double_bit": None},
    ),
    **{
        f"{count} retired pages": (
            "mi300x",
            {**RAS, "ras/gpu_vram_bad_pages": pages},
            {"retired_pages_double_bit": count, "retired_pages_pending": pending},
        )
        # The form of amdgpu_ras_sysfs_badpages_read().
        for pages, count, pending in (
            ("0x00000001 : 0x00001000 : R \n0x00000002 : 0x00001000 : P \n", 2, True),
            ("", 0, False),
        )
    },
}


@pytest.mark.parametrize(("model", "changes", "expected"), FOUND.values(), ids=FOUND)
def test_what_the_files_tell_is_shown(
    tree: SampledTree, model: str, changes: Changes, expected: dict[str, object]
) -> None:
    gpu = only(tree, model, changes)
    assert {name: getattr(gpu, name) for name in expected} == expected
    unknown = {name for name, value in expected.items() if value is None}
    assert {gpu.unknown[name] for name in unknown} <= {Unknown.NOT_SUPPORTED}


def test_energy_of_an_mi250_is_in_joules(tree: SampledTree) -> None:
    # The capture's rocm-smi told a counter of 62929744071539 and 962825096297442.9 µJ: it rounds
    # the unit of 15.259 µJ up to 15.3.
    add_kfd_node(tree, 1, 4711, "0000:2f:00.0", 90010)
    gpu = only(tree, "mi250", {"gpu_metrics": table((1, 3), energy=62929744071539)})
    assert gpu.energy == pytest.approx(962825096.3, rel=0.003)


def test_the_link_is_that_of_the_slot_not_of_the_switch_on_the_card(tree: SampledTree) -> None:
    # The switch of Navi: ports 1002:1478 and 1002:1479 (pci-ids.ucw.cz), below a port of the host.
    above = ("0000:00:03.1", "0000:0a:00.0", "0000:0b:00.0")
    folder = add(tree, "rx_6900_xt", parents=above)
    slot = {"vendor": "0x1002\n", "current_link_speed": "8.0 GT/s PCIe\n"}
    slot |= {"current_link_width": "4\n", "max_link_speed": "16.0 GT/s PCIe\n"}
    for name, content in (slot | {"max_link_width": "16\n"}).items():
        write(folder.parent.parent / name, content)
    write(folder.parent / "vendor", "0x1002\n")
    write(folder.parent.parent.parent / "vendor", "0x1022\n")
    gpu = tree.gpu()
    assert (gpu.pcie_generation, gpu.pcie_width) == (3, 4)
    assert (gpu.pcie_generation_max, gpu.pcie_width_max) == (4, 16)


@pytest.mark.parametrize(
    ("error", "corrected", "reason"),
    [(errno.EINVAL, 40, None), (errno.EACCES, None, Unknown.NO_PERMISSION)],
    ids=["without a counter", "that may not be read"],
)
def test_a_block_that_cannot_be_counted_hides_no_other(
    tree: SampledTree,
    monkeypatch: pytest.MonkeyPatch,
    error: int,
    corrected: int | None,
    reason: Unknown | None,
) -> None:
    Faults(monkeypatch).errors["ras/gfx_err_count"] = error
    gpu = only(tree, "mi300x", RAS)
    assert gpu.ecc_corrected_volatile == corrected
    assert gpu.unknown.get("ecc_corrected_volatile") is reason


def test_the_file_that_blocks_for_a_second_is_never_read(
    tree: SampledTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch)
    only(tree, "vega_56", {"pcie_bw": "85 0 256\n"})
    assert faults.reads
    assert not [path for path in faults.reads if path.endswith("pcie_bw")]
