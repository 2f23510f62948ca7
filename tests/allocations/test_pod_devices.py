"""Which GPU a pod's device is, by the names of each plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpumon.allocations.pod_devices import DeviceFinder, FoundDevice
from gpumon.allocations.pod_resources import PodDevice
from gpumon.model.snapshot import MigInstance
from tests.build import gpu

if TYPE_CHECKING:
    from pathlib import Path

A, B = "GPU-10000000-0000-0000-0000-00000000000a", "GPU-10000000-0000-0000-0000-00000000000b"
OTHER = "GPU-10000000-0000-0000-0000-00000000000f"
PART = "MIG-20000000-0000-0000-0000-000000000001"
OLD_PART = f"MIG-{B}/2/0"
GPUS = (
    gpu(index=0, uuid=A, minor_number=1, pci_bus_id="00000000:41:00.0"),
    gpu(
        index=1,
        uuid=B,
        minor_number=0,
        pci_bus_id="00000000:C1:00.0",
        mig=(MigInstance(PART, 0, gpu_instance=7), MigInstance(OLD_PART, 1, gpu_instance=8)),
    ),
    gpu(index=2, uuid="GPU-0123456789abcdef", minor_number=129, pci_bus_id="0000:03:00.0"),
)
AMD = GPUS[2].uuid
UNKNOWN = FoundDevice(None)


@pytest.mark.parametrize(
    ("resource", "name", "found"),
    [
        ("nvidia.com/gpu", A, FoundDevice((A,))),
        ("nvidia.com/gpu", f"{A}::3", FoundDevice((A,), is_share=True)),
        ("nvidia.com/gpu.shared", f"{A}::0", FoundDevice((A,), is_share=True)),
        # The administrator chooses the name of a shared resource.
        ("nvidia.com/little", f"{A}::0", FoundDevice((A,), is_share=True)),
        ("nvidia.com/mig-1g.10gb", PART, FoundDevice((PART,))),
        ("nvidia.com/mig-1g.10gb", f"{PART}::1", FoundDevice((PART,), is_share=True)),
        ("nvidia.com/mig-1g.10gb", OLD_PART, FoundDevice((OLD_PART,))),
        # It is not shown, so that it is none of the others.
        ("nvidia.com/gpu", OTHER, FoundDevice(())),
        # Its scheduler takes another GPU than the kubelet thinks: HAMi.
        ("nvidia.com/gpu", f"{A}-0", UNKNOWN),
        ("nvidia.com/gpu", "", UNKNOWN),
        ("nvidia.com/gpu", "\x1b[31m", UNKNOWN),
        ("nvidia.com/gpu", "nvidia1", FoundDevice((A,))),
        ("nvidia.com/gpu", "nvidia1/vgpu0", FoundDevice((A,), is_share=True)),
        ("nvidia.com/gpu", "nvidia0/gi7", FoundDevice((PART,))),
        ("nvidia.com/gpu", "nvidia0/gi7/vgpu2", FoundDevice((PART,), is_share=True)),
        ("nvidia.com/gpu", "nvidia0/gi9", FoundDevice((B,), is_share=True)),
        ("nvidia.com/gpu", "nvidia5", FoundDevice(())),
        # A network card, and a GPU for virtual machines.
        ("nvidia.com/hostdev", "0000:41:00.0", None),
        ("nvidia.com/GA102GL_A10", "0000:41:00.0", None),
        ("nvidia.com/gpu_memory", "GPU-0", None),
        ("amd.com/gpu", "0000:03:00.0", FoundDevice((AMD,))),
        ("amd.com/gpu", "0000:04:00.0", FoundDevice(())),
        ("amd.com/gpu", "card0", UNKNOWN),
        ("amd.com/gpu", "amdgpu_xcp_3", FoundDevice(None, is_share=True)),
        ("amd.com/cpx_nps4", "amdgpu_xcp_3", FoundDevice(None, is_share=True)),
        ("amd.com/cpx_nps4", "?", UNKNOWN),
        ("gpu.intel.com/i915", "card1-0", FoundDevice((AMD,))),
        ("gpu.intel.com/xe", "card1-2", FoundDevice((AMD,), is_share=True)),
        ("gpu.intel.com/i915", "card9-0", UNKNOWN),
        ("gpu.intel.com/i915_monitoring", "all", None),
        ("github.com/fuse", "fuse0", None),
        ("", A, None),
    ],
)
def test_a_device_of_a_plugin(
    tmp_path: Path, resource: str, name: str, found: FoundDevice | None
) -> None:
    (tmp_path / "class/drm/card1").mkdir(parents=True)
    (tmp_path / "class/drm/card1/device").symlink_to("../../../0000:03:00.0")
    finder = DeviceFinder(GPUS, str(tmp_path))
    assert finder.find(PodDevice(resource, name)) == found


@pytest.mark.parametrize(
    ("driver", "name", "found"),
    [
        ("gpu.nvidia.com", "gpu-1", FoundDevice((A,))),
        ("gpu.nvidia.com", "gpu-0-mig-19-4-1", FoundDevice((B,), is_share=True)),
        ("gpu.nvidia.com", "gpu-vfio-0", None),
        ("gpu.nvidia.com", "gpu-9", FoundDevice(())),
        ("gpu.nvidia.com", A, UNKNOWN),
        ("gpu.amd.com", "gpu-1-129", FoundDevice((AMD,))),
        ("gpu.amd.com", "gpu-9-137", FoundDevice(None, is_share=True)),
        ("gpu.intel.com", "0000-03-00-0-0x56a0", FoundDevice((AMD,))),
        ("gpu.intel.com", "0000-03-00-0-0x56a0-vf", UNKNOWN),
        ("compute-domain.nvidia.com", "channel-0", None),
        ("dra.net", "eth0", None),
    ],
)
def test_a_claimed_device(driver: str, name: str, found: FoundDevice | None) -> None:
    assert DeviceFinder(GPUS).find(PodDevice(driver, name, is_claimed=True)) == found


def test_a_gpu_without_its_number_may_be_any() -> None:
    finder = DeviceFinder((*GPUS, gpu(index=3, uuid=OTHER)))
    for resource, name in (("nvidia.com/gpu", "nvidia5"), ("amd.com/gpu", "0000:04:00.0")):
        assert finder.find(PodDevice(resource, name)) == UNKNOWN
    assert finder.find(PodDevice("nvidia.com/gpu", "nvidia1")) == FoundDevice((A,))
