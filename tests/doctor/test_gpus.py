"""The cards: answering, kept ready, in good health."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from gpumon.doctor import CheckVerdict, gpus
from gpumon.doctor.context import DiagnosticContext, ExaminedMachine, ask_driver
from gpumon.makers.nvidia import checks as nvidia_checks
from gpumon.model.error_codes import error_code
from gpumon.model.snapshot import GpuStatus
from gpumon.sampling.gpu_sampler import take_one
from tests.build import gpu
from tests.doctor.trees import (
    FAIL,
    PASS,
    SILENT,
    UNKNOWN,
    WARN,
    Tree,
    details,
    expect,
    verdict,
    words,
)
from tests.driver import Driver, Model, h100, rtx4090
from tests.known import known
from tests.nvml_source import NvmlSource

BUS = "00000000:41:00.0"
NO_PERMISSION, MEMORY = 4, 20


def ask(driver: Driver) -> DiagnosticContext:
    """An examination of the simulated driver, with this machine's files."""
    driver.attach()
    return DiagnosticContext(
        ExaminedMachine(environ={}),
        partial(ask_driver, partial(take_one, NvmlSource(profiled=True))),
    )


def test_cards_that_answer_are_listed_by_model() -> None:
    with Driver([h100(), h100(), rtx4090()]) as driver:
        result = gpus.answering(ask(driver))
    expect(result, PASS, "0-1: NVIDIA H100 80GB HBM3", "2: NVIDIA GeForce RTX 4090")


def test_a_lost_card_is_a_fault_that_names_it() -> None:
    with Driver([h100(), h100()]) as driver:
        driver.cards[1].lost = True
        result = gpus.answering(ask(driver))
    expect(result, FAIL, "GPU 1 fell off the bus")


def test_a_card_of_somebody_else_is_no_fault(tree: Tree) -> None:
    case = tree.case(gpu(), gpu(index=1, status=GpuStatus.NO_PERMISSION))
    expect(gpus.answering(case), WARN, "You may not use GPU 1")


@pytest.mark.parametrize(("on", "expected"), [(1, PASS), (0, WARN)])
def test_persistence_mode_off_costs_whoever_comes_first(on: int, expected: CheckVerdict) -> None:
    with Driver([h100(), h100()]) as driver:
        driver.cards[1].persistence_mode = on
        result = nvidia_checks.persistence(ask(driver))
    assert verdict(result) is expected
    assert ("nvidia-persistenced" in words(result)) == (not on)
    assert ("GPU 1" in words(result)) == (not on)


def test_a_driver_that_does_not_tell_of_persistence_is_not_praised() -> None:
    with Driver([h100()]) as driver:
        driver.cards[0].persistence_mode = None
        assert verdict(nvidia_checks.persistence(ask(driver))) is UNKNOWN


def test_a_card_that_may_power_down_needs_no_persistence(tree: Tree) -> None:
    tree.write("/sys/bus/pci/devices/0000:41:00.0/power/control", "auto\n")
    case = tree.case(gpu(pci_bus_id=BUS, persistence_mode=False))
    assert verdict(nvidia_checks.persistence(case)) is PASS


@pytest.mark.parametrize(
    ("count", "expected", "told"),
    [
        ("ecc_uncorrected_volatile", WARN, "GPU 1: 3 uncorrected ECC errors"),
        ("remapped_pending", WARN, "GPU 1: a bad memory row is replaced at the next reset"),
        ("remapped_failed", FAIL, "Return GPU 1"),
    ],
)
def test_bad_memory_is_told_with_what_to_do(count: str, expected: CheckVerdict, told: str) -> None:
    with Driver([h100(), h100()]) as driver:
        setattr(driver.cards[1], count, 3)
        result = gpus.memory_health(ask(driver))
    expect(result, expected, told)


@pytest.mark.parametrize(("model", "expected"), [(h100, PASS), (rtx4090, UNKNOWN)])
def test_a_card_that_counts_no_errors_is_not_said_to_have_none(
    model: Callable[[], Model], expected: CheckVerdict
) -> None:
    with Driver([model()]) as driver:
        if expected is UNKNOWN:
            for name in ("ecc_uncorrected_volatile", "remapped_pending"):
                setattr(driver.cards[0], name, None)
        assert verdict(gpus.memory_health(ask(driver))) is expected


@pytest.mark.parametrize(
    ("models", "refusal", "expected", "told"),
    [
        ((h100, h100), 0, PASS, "Available (GPM): the page"),
        ((h100, rtx4090), 0, PASS, "Available (GPM) on GPU 0;"),
        ((rtx4090, rtx4090), 0, UNKNOWN, "Not supported"),
        ((h100, h100), NO_PERMISSION, WARN, "denies it to you on GPU 0."),
        ((h100, h100), MEMORY, UNKNOWN, "did not answer for GPU 0."),
    ],
)
def test_whether_the_work_of_the_sms_can_be_read_is_told_with_what_to_do(
    models: tuple[Callable[[], Model], ...], refusal: int, expected: CheckVerdict, told: str
) -> None:
    with Driver([model() for model in models]) as driver:
        driver.cards[0].fail("nvmlGpmSampleGet", refusal)
        result = nvidia_checks.profiling(ask(driver))
    expect(result, expected, told)


def test_a_sleeping_card_is_told_and_left_asleep(tree: Tree) -> None:
    case = tree.case(gpu(), gpu(index=1, status=GpuStatus.ASLEEP))
    expect(gpus.asleep(case), PASS, "GPU 1")
    assert gpus.asleep(tree.case()) is None


def test_nothing_is_said_of_cards_that_nobody_can_see(tree: Tree) -> None:
    case = tree.case(answer=SILENT)
    for check in (
        *(gpus.answering, nvidia_checks.persistence, gpus.memory_health, nvidia_checks.profiling),
        gpus.asleep,
    ):
        assert check(case) is None


LOG = """\
6,1,1000000,-;Linux version 6.8.0
 SUBSYSTEM=pci
3,900,3600000000,-;NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', GPU has fallen off the bus.
3,901,5400000000,c;NVRM: Xid (PCI:0000:42:00): 31, pid=4711, name=python, Ch 00000008
3,902,5400000001,-;usb 1-1: NVRM: Xid of nobody
3,903,6600000000,-;NVRM: Xid (PCI:0000:42:00): 31, pid=4712, name=python, Ch 00000008
"""


def test_errors_of_a_card_are_told_before_those_of_programs(tree: Tree) -> None:
    tree.write("/dev/kmsg", LOG)
    result = known(nvidia_checks.reported_errors(tree.case(gpu(pci_bus_id=BUS))))
    assert result.verdict is WARN
    assert result.found == "The GPUs themselves caused 1 XID."
    assert result.details == (
        "GPU 0: XID 79 1h00m ago: the GPU fell off the bus",
        "0000:42:00: XID 31 10m ago, 2 times: a program touched memory that it does not own",
        f"what to do about XID 79: {error_code(79).advice}",
        f"what to do about XID 31: {error_code(31).advice}",
    )


def test_errors_that_programs_cause_are_no_fault_of_the_card(tree: Tree) -> None:
    tree.write("/dev/kmsg", "\n".join(line for line in LOG.splitlines() if ": 79," not in line))
    assert verdict(nvidia_checks.reported_errors(tree.case())) is PASS


def test_a_log_that_may_not_be_read_is_not_taken_for_an_empty_one(tree: Tree) -> None:
    assert verdict(nvidia_checks.reported_errors(tree.case())) is PASS
    tree.remove("/dev/kmsg")
    expect(nvidia_checks.reported_errors(tree.case()), UNKNOWN, "no kernel log (/dev/kmsg) here")
    tree.link("/dev/kmsg", "/dev/zero")
    assert "another device" in words(nvidia_checks.reported_errors(tree.case()))


def test_a_repair_is_no_fault_of_the_card(tree: Tree) -> None:
    tree.write(
        "/dev/kmsg",
        "3,1,1000000,-;NVRM: Xid (PCI:0000:41:00): 63, pid=1896, Row Remapper: New row marked "
        "for remapping, reset gpu to activate.\n",
    )
    result = nvidia_checks.reported_errors(tree.case(gpu(pci_bus_id=BUS)))
    expect(result, PASS, "that the driver dealt with")


def test_a_bus_with_a_longer_number_is_another_bus(tree: Tree) -> None:
    tree.write("/dev/kmsg", LOG)
    result = nvidia_checks.reported_errors(tree.case(gpu(pci_bus_id="00010000:41:00.0")))
    assert details(result)[0].startswith("0000:41:00: XID 79")
