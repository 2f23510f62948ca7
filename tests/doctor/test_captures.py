"""What is said of machines with real cards of AMD and Intel, as they were captured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gpumon.doctor import Result, gpus
from gpumon.doctor.context import DiagnosticContext, ExaminedMachine, ask_driver
from gpumon.makers.amd import checks as amd_checks
from gpumon.makers.drm import checks as drm_checks
from gpumon.makers.intel import checks as intel_checks
from gpumon.makers.machine import this_machine
from gpumon.makers.nvidia import checks as nvidia_checks
from gpumon.makers.nvidia import library, source
from gpumon.sampling.gpu_sampler import take_one
from gpumon.system.system import System
from tests.doctor.trees import PASS, verdict, words
from tests.makers.amd import machines
from tests.makers.drm.trees import Tree, write
from tests.makers.intel import captures


@pytest.fixture(autouse=True)
def _no_nvidia(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulated driver of other tests stays loaded in this process."""

    def missing() -> None:
        raise OSError

    monkeypatch.setattr(library, "load_library", missing)
    monkeypatch.setattr(source, "load_library", missing)


def _examined(root: Path) -> DiagnosticContext:
    system = System(str(root / "proc"), str(root / "sys"), str(root / "dev"))
    return DiagnosticContext(
        ExaminedMachine(root=root, environ={}),
        partial(ask_driver, partial(take_one, this_machine(system=system))),
    )


def _passes(
    case: DiagnosticContext, maker: str, driver: Callable[[DiagnosticContext], Result | None]
) -> None:
    assert words(gpus.gpus_on_the_bus(case)).startswith(f"1 {maker} GPU.")
    for check in (driver, drm_checks.render_nodes, gpus.answer):
        assert verdict(check(case)) is PASS, words(check(case))
    assert nvidia_checks.library(case) is None
    (card,) = case.cards
    assert card.integrated == case.gpus[0].memory_unified


@pytest.mark.slow
@pytest.mark.parametrize("model", machines.NAMES)
def test_every_model_of_amd_passes(tmp_path: Path, model: str) -> None:
    machines.machine(tmp_path, model)
    _passes(_examined(tmp_path), "AMD", amd_checks.amd_driver)


CAPTURES = (
    *(captures.a770_i915, captures.a750_xe, captures.b580_xe, captures.b60_xe, captures.b70_xe),
    *(captures.max_1550_xe, captures.uhd_i915, captures.b390_xe),
)


@pytest.mark.parametrize("add", CAPTURES)
def test_every_model_of_intel_passes(tmp_path: Path, add: Callable[[Tree], Path]) -> None:
    add(Tree(tmp_path))
    _passes(_examined(tmp_path), "Intel", intel_checks.intel_driver)


def test_the_gpu_of_a_processor_is_left_out_beside_a_card(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    captures.uhd_i915(tree)
    machines.add(tree, "rx_6900_xt", number=1)
    case = _examined(tmp_path)
    assert [gpu.name for gpu in case.gpus] == ["AMD Radeon RX 6900 XT"]
    assert "Intel's at 0000:00:02.0" in words(gpus.processor_gpus(case))
    assert verdict(gpus.answer(case)) is PASS


@pytest.mark.parametrize(
    ("vendor", "counts"), [("0x1002\n", True), ("0x8086\n", False), ("0x10de\n", False)]
)
def test_accelerators_of_amd_are_gpus_and_those_of_intel_are_not(
    tmp_path: Path, vendor: str, counts: bool
) -> None:
    """The class of an Instinct MI325X (apache/cloudstack#11701), and of the NPUs of Intel."""
    folder = Tree(tmp_path).pci("0000:05:00.0", {"vendor": vendor, "class": "0x120000\n"})
    write(folder / "device", "0x74a5\n")
    assert bool(_examined(tmp_path).cards) == counts
