"""The variables that select GPUs of each maker."""

from __future__ import annotations

import pytest

from gpumon.makers import amd, intel, nvidia
from gpumon.makers.visible_devices import assignment_line, names_gpu, visible_devices_of
from gpumon.model.makers import Maker, maker_of, makers_of
from tests.build import gpu

CUDA, ROCM, LEVEL_ZERO = map(visible_devices_of, (nvidia.MAKER, amd.MAKER, intel.MAKER))

NVIDIA = [gpu(uuid=f"GPU-{n}", index=n, name="NVIDIA H100") for n in range(2)]
AMD = [
    gpu(
        uuid=f"GPU-c0ffee000000000{n}",
        index=2 + n,
        name="AMD Instinct MI210",
        pci_bus_id=f"0000:a{n}:00.0",
    )
    for n in range(3)
]
APU = gpu(uuid="PCI-0000:c4:00.0", index=5, name="AMD Radeon 780M", pci_bus_id="0000:c4:00.0")
INTEL = [
    gpu(
        uuid=f"PCI-0000:{bus}:00.0",
        index=6 + n,
        name="Intel Arc B580",
        pci_bus_id=f"0000:{bus}:00.0",
    )
    for n, bus in enumerate(("03", "83"))
]
ALL = [*NVIDIA, *AMD, APU, *INTEL]


def seen(maker: Maker, gpus: object = ALL, **environment: str) -> list[int]:
    meaning = visible_devices_of(maker).visible(environment, ALL if gpus is ALL else AMD)
    return [device.gpu_index for device in meaning.devices]


def test_the_maker_is_told_from_the_product_name() -> None:
    assert makers_of(ALL) == (nvidia.MAKER, amd.MAKER, intel.MAKER)
    assert maker_of("GeForce GTX 1080") is maker_of("Tesla V100") is nvidia.MAKER
    assert maker_of(None) is nvidia.MAKER


def test_a_cuda_program_gets_uuids() -> None:
    assert CUDA.assignments(["GPU-1", "GPU-0"], ALL) == {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-0"}


def test_a_rocm_program_gets_uuids_and_counts_what_is_left() -> None:
    # An inherited HIP_VISIBLE_DEVICES=2 would leave nothing of two GPUs.
    assert ROCM.assignments([AMD[2].uuid, AMD[0].uuid], ALL) == {
        "ROCR_VISIBLE_DEVICES": f"{AMD[2].uuid},{AMD[0].uuid}",
        "HIP_VISIBLE_DEVICES": "0,1",
        "GPU_DEVICE_ORDINAL": "0,1",
    }


def test_an_amd_gpu_without_uuid_is_counted() -> None:
    assert ROCM.assignments([APU.uuid], [APU])["ROCR_VISIBLE_DEVICES"] == "0"
    assert ROCM.assignments([APU.uuid], ALL)["ROCR_VISIBLE_DEVICES"] == "3"


def test_a_level_zero_program_gets_indices_in_the_order_of_the_bus() -> None:
    assert LEVEL_ZERO.assignments([INTEL[1].uuid], ALL) == {
        "ZE_AFFINITY_MASK": "1",
        "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1",
        "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE",
    }


def test_the_processors_gpu_counts_for_level_zero_though_it_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A card that a virtual machine has does not count.
    there = {
        "0000:00:02.0": "i915",
        "0000:01:00.0": "vfio-pci",
        "0000:03:00.0": "xe",
        "0000:83:00.0": "xe",
    }
    monkeypatch.setattr("gpumon.makers.visible_devices.graphics_devices", lambda _: list(there))
    monkeypatch.setattr("gpumon.makers.visible_devices.driver_of", there.get)
    assert LEVEL_ZERO.assignments([INTEL[0].uuid], ALL)["ZE_AFFINITY_MASK"] == "1"
    environment = {"ZE_AFFINITY_MASK": "0,2", "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1"}
    meaning = LEVEL_ZERO.visible(environment, ALL)
    assert [device.gpu_index for device in meaning.devices] == [7]


@pytest.mark.parametrize(
    ("environment", "indices"),
    [
        ({}, [2, 3, 4, 5]),
        ({"ROCR_VISIBLE_DEVICES": "1"}, [3]),
        ({"ROCR_VISIBLE_DEVICES": f"{AMD[2].uuid},0"}, [4, 2]),
        ({"ROCR_VISIBLE_DEVICES": AMD[2].uuid.replace("c0ffee", "C0FFEE")}, [4]),
        ({"ROCR_VISIBLE_DEVICES": "2,9,0"}, [4]),
        ({"ROCR_VISIBLE_DEVICES": "2,2,0"}, [4]),
        ({"ROCR_VISIBLE_DEVICES": ""}, []),
        ({"HIP_VISIBLE_DEVICES": "1,0"}, [3, 2]),
        ({"ROCR_VISIBLE_DEVICES": "2,1", "HIP_VISIBLE_DEVICES": "1"}, [3]),
        ({"ROCR_VISIBLE_DEVICES": "2,1", "CUDA_VISIBLE_DEVICES": "0"}, [4]),
        # Empty is as good as not set, but for the first one.
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "1"}, [3]),
        ({"CUDA_VISIBLE_DEVICES": ""}, [2, 3, 4, 5]),
        # HIP_VISIBLE_DEVICES has precedence over CUDA's variable.
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, [2]),
        # UUIDs of NVIDIA's GPUs are no indices.
        ({"CUDA_VISIBLE_DEVICES": "GPU-0"}, []),
        ({"HIP_VISIBLE_DEVICES": "9" * 30}, []),
    ],
)
def test_what_a_rocm_program_sees(environment: dict[str, str], indices: list[int]) -> None:
    assert seen(amd.MAKER, **environment) == indices


def test_the_order_of_different_amd_gpus_is_a_doubt_only_where_they_are_counted() -> None:
    by_index = ROCM.visible({"ROCR_VISIBLE_DEVICES": "1"}, ALL)
    assert not by_index.certain
    assert by_index.sentence.startswith("probably device 0 is GPU 3")
    assert ROCM.visible({"ROCR_VISIBLE_DEVICES": AMD[1].uuid}, ALL).certain
    assert ROCM.visible({"ROCR_VISIBLE_DEVICES": "1"}, AMD).certain


@pytest.mark.parametrize(
    ("mask", "indices"), [("1", [7]), ("0.1,1.0", [6, 7]), ("1,x", [7]), ("7", []), ("", [6, 7])]
)
def test_what_a_level_zero_program_sees(mask: str, indices: list[int]) -> None:
    order = {"ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1"}
    assert seen(intel.MAKER, ZE_AFFINITY_MASK=mask, **order) == indices
    assert LEVEL_ZERO.visible({"ZE_AFFINITY_MASK": "1", **order}, ALL).certain
    assert not LEVEL_ZERO.visible({"ZE_AFFINITY_MASK": "1"}, ALL).certain


def test_cuda_counts_nvidias_gpus_only() -> None:
    assert seen(nvidia.MAKER, CUDA_VISIBLE_DEVICES="1") == [1]
    assert seen(nvidia.MAKER, CUDA_VISIBLE_DEVICES="2") == []


def test_a_variable_of_one_maker_says_nothing_of_another() -> None:
    cuda, rocr = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
    assert LEVEL_ZERO.selecting_variable({cuda: "0"}, ALL) is None
    assert CUDA.selecting_variable({rocr: "0"}, ALL) is None
    assert ROCM.selecting_variable({rocr: ""}, ALL) == rocr
    # HIP reads CUDA's variable, which means NVIDIA's GPUs where there are some.
    assert ROCM.selecting_variable({cuda: "0"}, ALL) is None
    assert ROCM.selecting_variable({cuda: "0"}, AMD) == cuda
    assert ROCM.selecting_variable({cuda: ""}, AMD) is None
    # What has no UUID is named by an index, which may be that of any GPU.
    assert names_gpu({"ZE_AFFINITY_MASK": "1"}, INTEL[0].uuid)
    assert not names_gpu({}, INTEL[0].uuid)
    assert names_gpu({"ROCR_VISIBLE_DEVICES": f"0,{AMD[1].uuid}"}, AMD[1].uuid)
    assert not names_gpu({}, AMD[1].uuid)


def test_a_line_for_a_shell_fits_the_maker() -> None:
    assert assignment_line(["GPU-0"], ALL) == "CUDA_VISIBLE_DEVICES=GPU-0"
    assert assignment_line([AMD[0].uuid], ALL) == (
        f"ROCR_VISIBLE_DEVICES={AMD[0].uuid} HIP_VISIBLE_DEVICES=0 GPU_DEVICE_ORDINAL=0"
    )
    assert assignment_line([INTEL[0].uuid], ALL) == (
        "ZE_AFFINITY_MASK=0 ZE_ENABLE_PCI_ID_DEVICE_ORDER=1 ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE"
    )


def test_a_uuid_of_another_maker_leaves_no_doubt_about_amds_gpus() -> None:
    meaning = ROCM.visible({"CUDA_VISIBLE_DEVICES": "GPU-0"}, ALL)
    assert (meaning.devices, meaning.certain) == ((), True)


def test_counting_is_a_doubt_where_there_are_several_gpus_of_amd() -> None:
    assert "PCI-0000:c4:00.0: selected by index, for lack of a UUID" in ROCM.doubt([APU.uuid], ALL)
    assert ROCM.doubt([APU.uuid], [APU]) == ""
    assert ROCM.doubt([AMD[0].uuid], ALL) == ""
