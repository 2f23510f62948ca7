"""The driver: loaded, of one version, answering."""

from __future__ import annotations

import msgspec
import pytest

from gpumon.doctor import CheckVerdict, gpus
from gpumon.doctor.context import DriverAnswer, ask_driver
from gpumon.makers.nvidia import checks as nvidia_checks
from gpumon.makers.source import SourceError
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


def test_a_healthy_driver_passes(tree: Tree) -> None:
    case = tree.case()
    for check in (
        *(gpus.gpus_on_the_bus, nvidia_checks.kernel_module, nvidia_checks.library),
        *(nvidia_checks.cuda_library, gpus.answer),
    ):
        assert verdict(check(case)) is PASS, words(check(case))
    assert "open" in words(nvidia_checks.kernel_module(case))


def test_a_machine_without_a_card_is_told_so_and_nothing_that_follows_from_it(tree: Tree) -> None:
    tree.unload()
    tree.path(f"/sys/bus/pci/devices/{SLOT}/vendor").write_text("0x1a03\n")
    case = tree.case(answer=MISSING)
    assert verdict(gpus.gpus_on_the_bus(case)) is FAIL
    assert nvidia_checks.kernel_module(case) is None
    assert gpus.answer(case) is None


def test_a_card_that_is_on_no_bus_but_answers_is_no_fault(tree: Tree) -> None:
    tree.unload()
    tree.path(f"/sys/bus/pci/devices/{SLOT}/vendor").write_text("0x1a03\n")
    assert gpus.gpus_on_the_bus(tree.case()) is None


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


def test_a_library_of_another_version_than_the_module_is_a_fault_that_names_both(
    tree: Tree,
) -> None:
    answer = msgspec.structs.replace(SILENT, libraries={"NVIDIA": "575.51.03"})
    expect(nvidia_checks.library(tree.case(answer=answer)), FAIL, "575.51.03", VERSION, "Reboot")


def test_a_driver_that_was_upgraded_under_us_is_told_by_both_versions(tree: Tree) -> None:
    """The simulated driver refuses as a real one does then, and still tells its own version."""
    with Driver([h100()], nvml_version="12.575.51.03") as simulated:
        simulated.attach()
        simulated.fail_init(18)

        def refuse() -> object:
            raise SourceError("Upgraded while it was running.", "Reboot.")

        answer = ask_driver(refuse)  # type: ignore[arg-type] # it never comes to the snapshot
    assert answer.libraries == {"NVIDIA": "575.51.03"}
    assert verdict(nvidia_checks.library(tree.case(answer=answer))) is FAIL
    assert verdict(gpus.answer(tree.case(answer=answer))) is FAIL


def test_libraries_to_link_with_are_not_taken_for_the_driver(tree: Tree) -> None:
    environ = {"LD_LIBRARY_PATH": "/opt/lib:/usr/local/cuda/lib64/stubs"}
    expect(nvidia_checks.library(tree.case(environ=environ)), FAIL, "LD_LIBRARY_PATH")


def test_no_library_at_all_is_a_fault(tree: Tree) -> None:
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


def test_a_driver_that_misses_a_card_of_the_bus_is_a_fault(tree: Tree) -> None:
    tree.card("0000:42:00.0")
    expect(gpus.answer(tree.case()), FAIL, "1 GPU,")


def test_a_container_that_was_given_some_cards_misses_none(tree: Tree) -> None:
    tree.card("0000:42:00.0")
    assert verdict(gpus.answer(tree.case(in_container=True))) is PASS


def test_a_driver_that_does_not_answer_says_what_to_do(tree: Tree) -> None:
    result = gpus.answer(tree.case(answer=SILENT))
    assert verdict(result) is FAIL
    assert words(result) == "It is not loaded. Load it."


@pytest.mark.parametrize(("seconds", "expected"), [(0.3, PASS), (8.0, WARN)])
def test_a_slow_answer_is_worth_a_word(tree: Tree, seconds: float, expected: CheckVerdict) -> None:
    snapshot = tree.case(gpu()).driver.snapshot
    answer = DriverAnswer({"NVIDIA": VERSION}, snapshot, None, seconds)
    assert verdict(gpus.answer(tree.case(answer=answer))) is expected
