"""The driver: loaded, of one version, answering."""

from __future__ import annotations

from functools import partial

import pytest

from gpumon.doctor import CheckVerdict, gpus
from gpumon.doctor.context import DriverAnswer, ask_driver
from gpumon.doctor.report import examine
from gpumon.makers.nvidia import checks as nvidia_checks
from gpumon.sampling.gpu_sampler import take_one
from tests.build import gpu
from tests.doctor.trees import (
    FAIL,
    MISSING,
    PASS,
    SILENT,
    SLOT,
    UNKNOWN,
    VERSION,
    WARN,
    Tree,
    expect,
    verdict,
    words,
)
from tests.driver import Driver, h100
from tests.known import known
from tests.nvml_source import NvmlSource


@pytest.mark.usefixtures("on_the_host")
def test_a_healthy_machine_passes_every_check(tree: Tree) -> None:
    case = tree.case(gpu(persistence_mode=True, ecc_uncorrected_volatile=0))
    found = [one for one in examine(case) if one.section not in {"Terminal", "gpumon"}]
    assert [(one.check, one.found) for one in found if one.verdict is not PASS] == []
    assert len(found) == 17
    assert "open" in words(nvidia_checks.kernel_module(case))


def test_a_machine_without_a_card_is_told_so_and_nothing_that_follows_from_it(tree: Tree) -> None:
    tree.unload()
    tree.write(f"/sys/bus/pci/devices/{SLOT}/vendor", "0x1a03\n")
    case = tree.case(answer=MISSING)
    assert verdict(gpus.gpus_on_the_bus(case)) is FAIL
    assert nvidia_checks.kernel_module(case) is None
    assert gpus.answer(case) is None
    assert gpus.gpus_on_the_bus(tree.case()) is None, "a GPU on no bus that answers is no fault"


def test_a_card_in_the_hands_of_the_kernels_own_driver_is_a_fault(tree: Tree) -> None:
    tree.unload()
    tree.card("0000:42:00.0", "nouveau")
    expect(gpus.gpus_on_the_bus(tree.case(answer=SILENT)), FAIL, "blacklist nouveau")


def test_a_card_given_to_a_virtual_machine_is_no_fault(tree: Tree) -> None:
    tree.card("0000:42:00.0", "vfio-pci")
    expect(gpus.gpus_on_the_bus(tree.case()), PASS, "virtual machines")
    assert verdict(gpus.answer(tree.case())) is PASS


def test_a_card_that_the_driver_refused_is_named(tree: Tree) -> None:
    tree.card("0000:42:00.0", None)
    expect(gpus.gpus_on_the_bus(tree.case()), WARN, "0000:42:00.0  NVIDIA  no driver")


def test_a_module_that_is_not_loaded_is_a_fault_where_there_is_a_card(tree: Tree) -> None:
    tree.unload()
    expect(nvidia_checks.kernel_module(tree.case(answer=SILENT)), FAIL, "modprobe nvidia")


@pytest.mark.parametrize(("code", "told"), [(9, "not loaded"), (18, "upgraded"), (4, "permission")])
def test_a_driver_that_refuses_is_told_in_its_words_and_by_its_version(
    tree: Tree, code: int, told: str
) -> None:
    with Driver([h100()], nvml_version="12.575.51.03") as simulated:
        simulated.attach()
        simulated.fail_init(code)
        answer = ask_driver(partial(take_one, NvmlSource()))
    case = tree.case(answer=answer)
    expect(nvidia_checks.library(case), FAIL, "575.51.03", VERSION, "Reboot")
    expect(gpus.answer(case), FAIL, told)
    trouble = known(answer.trouble)
    assert words(gpus.answer(case)) == f"{trouble.sentence} {trouble.advice}"


def test_a_library_that_is_not_the_drivers_is_a_fault(tree: Tree) -> None:
    linked = tree.case(environ={"LD_LIBRARY_PATH": "/opt/lib:/usr/local/cuda/lib64/stubs"})
    expect(nvidia_checks.library(linked), FAIL, "LD_LIBRARY_PATH")
    expect(nvidia_checks.library(tree.case(answer=MISSING)), FAIL, "--gpus all")


def test_a_cuda_library_left_behind_by_an_older_driver_is_a_fault(tree: Tree) -> None:
    tree.library("535.183.01")
    expect(nvidia_checks.cuda_library(tree.case()), FAIL, "535.183.01")


def test_the_forward_compatibility_package_is_no_mismatch(tree: Tree) -> None:
    folder = "/usr/local/cuda/compat"
    tree.write(f"{folder}/libcuda.so.575.51.03")
    tree.link(f"{folder}/libcuda.so.1", "libcuda.so.575.51.03")
    result = nvidia_checks.cuda_library(tree.case(environ={"LD_LIBRARY_PATH": folder}))
    expect(result, PASS, "forward compatibility")


def test_a_cuda_library_that_is_not_found_is_not_known_rather_than_missing(tree: Tree) -> None:
    tree.remove("/usr/lib/x86_64-linux-gnu/libcuda.so.1")
    assert verdict(nvidia_checks.cuda_library(tree.case())) is UNKNOWN


def test_a_driver_misses_a_card_of_the_bus_and_a_container_was_given_some(tree: Tree) -> None:
    tree.card("0000:42:00.0")
    expect(gpus.answer(tree.case()), FAIL, "1 GPU,")
    assert verdict(gpus.answer(tree.case(in_container=True))) is PASS


@pytest.mark.parametrize(("seconds", "expected"), [(0.3, PASS), (8.0, WARN)])
def test_a_slow_answer_is_worth_a_word(tree: Tree, seconds: float, expected: CheckVerdict) -> None:
    snapshot = tree.case(gpu()).driver.snapshot
    answer = DriverAnswer({"NVIDIA": VERSION}, snapshot, None, seconds)
    assert verdict(gpus.answer(tree.case(answer=answer))) is expected
