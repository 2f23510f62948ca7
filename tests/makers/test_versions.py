"""The versions of a bug report, on machines with and without a driver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.makers.machine import driver_versions
from gpumon.makers.nvidia import library
from gpumon.system.system import System
from tests.driver import Driver, h100
from tests.makers.drm.trees import KERNEL, Tree, write

OURS = "570.124.06"


@pytest.fixture
def driver() -> Iterator[Driver]:
    with Driver([h100()], driver_version=OURS) as made:
        made.attach()
        yield made


def versions(monkeypatch: pytest.MonkeyPatch, module: str | None, patience: float = 60.0) -> str:
    """What is said where the kernel has loaded this module, as far as /proc tells."""
    monkeypatch.setattr(library, "loaded_version", lambda: module)
    return library.driver_version(patience=patience)


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("module", "more"), [(OURS, ""), ("565.57.01", ", but the loaded kernel module is 565.57.01")]
)
def test_a_kernel_module_of_another_version_is_told(
    monkeypatch: pytest.MonkeyPatch, module: str, more: str
) -> None:
    assert versions(monkeypatch, module) == f"NVIDIA driver {OURS}{more}"


@pytest.mark.parametrize(
    ("module", "more"), [(None, ""), (OURS, f"; the loaded kernel module is {OURS}")]
)
def test_a_machine_without_the_library_has_no_driver_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, module: str | None, more: str
) -> None:
    def missing() -> None:
        raise OSError

    monkeypatch.setattr(library, "load_library", missing)
    assert versions(monkeypatch, module) == (
        f"no NVIDIA driver: its library libnvidia-ml.so.1 was not found{more}"
    )


def test_a_library_that_does_not_answer_is_not_waited_for(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.system.hang("nvmlSystemGetNVMLVersion")
    began = time.monotonic()
    said = versions(monkeypatch, OURS, patience=0.2)
    assert said == "NVIDIA driver: its library has not answered for 0 s"
    assert time.monotonic() - began < 60


def test_the_drivers_of_other_makers_are_told_with_their_kernel(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.card("0000:03:00.0", "amdgpu", {})
    tree.card("0000:00:02.0", "i915", {}, number=1, render=129)
    write(tree.sys / "module/amdgpu/version", "6.10.5\n")
    _, *others = driver_versions(System(str(tree.proc), str(tree.sys)))
    assert tuple(others) == ("amdgpu 6.10.5", f"i915 {KERNEL}")
