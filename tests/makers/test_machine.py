"""Which drivers are asked on which machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.makers.combined import CombinedBackend
from gpumon.makers.machine import this_machine
from gpumon.makers.nvidia.source import NvmlBackend
from gpumon.makers.sampler import Sampler
from gpumon.makers.source import SourceError
from gpumon.system.system import System
from tests.makers.amd.machines import add
from tests.makers.drm.trees import Tree, link
from tests.makers.intel.captures import uhd_i915


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def sampler(tree: Tree, backend: str = "auto") -> Sampler:
    return this_machine(
        backend=backend, system=System(str(tree.proc), str(tree.sys), str(tree.dev))
    )


def nvidia(tree: Tree, driver: str | None) -> None:
    """Add an NVIDIA card that a driver has."""
    folder = tree.pci("0000:41:00.0", {"vendor": "0x10de\n", "class": "0x030200\n"})
    if driver is not None:
        link(folder / "driver", tree.sys / "bus/pci/drivers" / driver)


def test_a_machine_without_other_gpus_asks_nvidias_driver_alone(tree: Tree) -> None:
    assert type(sampler(tree).backend) is NvmlBackend
    assert type(sampler(tree, "all").backend) is NvmlBackend
    add(tree, "rx_580")
    assert type(sampler(tree, "nvml").backend) is NvmlBackend


def test_other_gpus_are_found_by_their_drivers(tree: Tree) -> None:
    add(tree, "rx_580")
    assert type(sampler(tree).backend) is CombinedBackend
    assert sampler(tree, "amdgpu").backend.name == "amdgpu"
    assert sampler(tree, "intel").backend.name == "intel"
    taken = sampler(tree)
    taken.open()
    (gpu,) = taken.sample().gpus
    assert gpu.name is not None
    assert gpu.name.startswith("AMD ")


@pytest.mark.parametrize(
    ("driver", "needed"), [("nvidia", True), (None, True), ("vfio-pci", False), ("nouveau", False)]
)
def test_nvidias_driver_is_missed_only_where_its_gpu_is_left_to_it(
    tree: Tree, driver: str | None, needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise OSError

    monkeypatch.setattr("gpumon.makers.nvidia.source.load_library", missing)
    nvidia(tree, driver)
    uhd_i915(tree)
    taken = sampler(tree)
    if needed:
        with pytest.raises(SourceError, match="NVIDIA driver's library"):
            taken.open()
    else:
        taken.open()
        assert [gpu.memory_unified for gpu in taken.sample().gpus] == [True]


def test_a_driver_that_is_asked_for_and_has_no_gpu_says_so(tree: Tree) -> None:
    with pytest.raises(SourceError, match="No GPU of AMD was found"):
        sampler(tree, "amdgpu").open()
