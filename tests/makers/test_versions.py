"""The versions of a bug report, on machines with and without a driver."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from gpumon.makers.machine import driver_versions
from gpumon.makers.nvidia import library
from gpumon.system.system import System
from tests.driver import Driver, h100
from tests.makers.drm.trees import KERNEL, Tree, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OURS = "570.124.06"


@pytest.fixture
def driver() -> Iterator[Driver]:
    with Driver([h100()], driver_version=OURS) as made:
        made.attach()
        yield made


def module(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    """The kernel module of this machine, as far as /proc tells."""
    monkeypatch.setattr(library, "loaded_version", lambda: version)


@pytest.mark.usefixtures("driver")
def test_library_and_kernel_module_of_one_version_are_one_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module(monkeypatch, OURS)
    assert library.driver_version() == f"NVIDIA driver {OURS}"


@pytest.mark.usefixtures("driver")
def test_a_kernel_module_of_another_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    module(monkeypatch, "565.57.01")
    assert library.driver_version() == (
        f"NVIDIA driver {OURS}, but the loaded kernel module is 565.57.01"
    )


def test_a_machine_without_the_library_has_no_driver_and_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing() -> None:
        raise OSError

    monkeypatch.setattr(library, "load_library", missing)
    module(monkeypatch, None)
    assert library.driver_version() == (
        "no NVIDIA driver: its library libnvidia-ml.so.1 was not found"
    )
    module(monkeypatch, OURS)
    assert library.driver_version().endswith(f"not found; the loaded kernel module is {OURS}")


def test_a_library_that_does_not_answer_is_not_waited_for(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    module(monkeypatch, OURS)
    driver.system.hang("nvmlSystemGetNVMLVersion")
    began = time.monotonic()
    assert library.driver_version(patience=0.2) == (
        "NVIDIA driver: its library has not answered for 0 s"
    )
    assert time.monotonic() - began < 60


def test_the_drivers_of_other_makers_are_told_with_their_kernel(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.card("0000:03:00.0", "amdgpu", {})
    tree.card("0000:00:02.0", "i915", {}, number=1, render=129)
    write(tree.sys / "module/amdgpu/version", "6.10.5\n")
    _, *others = driver_versions(System(str(tree.proc), str(tree.sys)))
    assert tuple(others) == ("amdgpu 6.10.5", f"i915 {KERNEL}")
