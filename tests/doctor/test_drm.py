"""AMD's and Intel's GPUs: drivers, device files, groups, ROCm."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpumon.doctor import CheckVerdict, access, gpus
from gpumon.doctor.context import DriverAnswer, ask_driver
from gpumon.doctor.report import examine
from gpumon.makers.amd import checks as amd_checks
from gpumon.makers.drm import checks as drm_checks
from gpumon.makers.intel import checks as intel_checks
from gpumon.makers.nvidia import checks as nvidia_checks
from gpumon.makers.nvidia import cuda_checks
from gpumon.model.snapshot import Gpu, GpuStatus, Host, Snapshot, Trouble
from tests.build import NOON, gpu
from tests.doctor.trees import (
    FAIL,
    MISSING,
    PASS,
    PROCESSOR,
    UNKNOWN,
    WARN,
    Tree,
    details,
    expect,
    verdict,
    words,
)
from tests.known import known

AMD_SLOT, INTEL_SLOT, APU_SLOT = "0000:03:00.0", "0000:07:00.0", "0000:0c:00.0"
KFD = "/dev/kfd"
NODES = "/sys/class/kfd/kfd/topology/nodes"


def amd(**changes: object) -> Gpu:
    """A Radeon as the backend ``amdgpu`` tells it."""
    named = {"uuid": "GPU-1b2c3d4e5f607182", "name": "AMD Radeon RX 7900 XTX"}
    return gpu(**{**named, "pci_bus_id": AMD_SLOT, **changes})


def arc(**changes: object) -> Gpu:
    """An Arc as the backend ``intel`` tells it."""
    named = {"uuid": f"PCI-{INTEL_SLOT}", "name": "Intel Arc A770"}
    return gpu(**{**named, "pci_bus_id": INTEL_SLOT, **changes})


@pytest.fixture
def radeon(tree: Tree) -> Tree:
    """A machine with an AMD GPU, and nothing of NVIDIA."""
    tree.without_nvidia()
    tree.drm_card(AMD_SLOT, "amdgpu", 128)
    tree.write(KFD)
    tree.write(f"{NODES}/0/gpu_id", "0\n")
    tree.write(f"{NODES}/1/gpu_id", "51140\n")
    tree.write("/proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
    return tree


def close(monkeypatch: pytest.MonkeyPatch, file: Path, group: str = "render") -> None:
    """Deny a device file to this user, as its mode does to those who are not in its group.

    Root may open everything: what the kernel says to others is put in its mouth.
    """
    file.chmod(0o660)
    monkeypatch.setattr(os, "access", lambda path, _: path != file)
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name=group))


# A machine without NVIDIA


@pytest.mark.usefixtures("on_the_host")
def test_a_machine_with_only_an_amd_gpu_has_no_fault_for_lack_of_nvidias_driver(
    radeon: Tree,
) -> None:
    results = {
        result.check: result
        for result in examine(radeon.case(amd(), cuda=None, library=False))
        if result.section not in {"Terminal", "gpumon"}
    }
    assert {result.verdict for result in results.values()} <= {PASS, UNKNOWN}, results
    assert "NVIDIA" not in " ".join(words(result) for result in results.values())
    left_out = {
        *("kernel module", "driver library", "CUDA library", "device files", "nvidia-uvm"),
        *("persistence mode", "work of the SMs", "reported errors", "newest CUDA", "toolkits"),
    }
    assert left_out.isdisjoint(results)
    assert "1 AMD GPU." in words(results["GPUs on the bus"])
    assert "1 GPU," in words(results["answer"])


def test_only_an_intel_processor_is_a_machine_with_a_gpu(tree: Tree) -> None:
    tree.without_nvidia()
    tree.drm_card(PROCESSOR, "i915", 128)
    case = tree.case(arc(pci_bus_id=PROCESSOR), library=False)
    assert "1 Intel GPU." in words(gpus.gpus_on_the_bus(case))
    assert nvidia_checks.library(case) is None
    assert case.hidden == ()


def test_the_gpus_of_all_makers_are_counted(tree: Tree) -> None:
    tree.drm_card(AMD_SLOT, "amdgpu", 128)
    tree.drm_card(INTEL_SLOT, "xe", 129)
    result = known(gpus.gpus_on_the_bus(tree.case(gpu(), amd(index=1), arc(index=2))))
    assert result.found == "1 NVIDIA GPU, 1 AMD GPU, 1 Intel GPU."
    assert f"{INTEL_SLOT}  Intel  xe" in result.details


def test_gpus_are_read_although_nvidias_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise OSError

    monkeypatch.setattr("gpumon.makers.nvidia.library.load_library", missing)
    snapshot = Snapshot(time=NOON, host=Host(name="ada-07"), gpus=(amd(),))
    answer = ask_driver(lambda: snapshot)
    assert not answer.libraries
    assert answer.snapshot is snapshot


def test_without_a_driver_that_gpumon_reads_nobody_is_asked_for_an_answer(tree: Tree) -> None:
    tree.without_nvidia()
    tree.drm_card(AMD_SLOT, "radeon", 128)
    silent = DriverAnswer(trouble=Trouble("No driver.", "Install NVIDIA's."))
    assert gpus.answer(tree.case(answer=silent)) is None


@pytest.mark.parametrize("kernel_driver", ["amdgpu", "xe"])
def test_a_driver_that_runs_a_gpu_and_does_not_report_it_is_a_fault(
    tree: Tree, kernel_driver: str
) -> None:
    tree.drm_card(AMD_SLOT, kernel_driver, 128)
    expect(gpus.answer(tree.case(gpu())), FAIL, "amdgpu|i915|xe")


def test_nvidias_driver_may_fail_beside_one_that_answers(radeon: Tree) -> None:
    radeon.card("0000:41:00.0")
    expect(gpus.answer(radeon.case(amd())), FAIL, "0 GPUs of NVIDIA, but controls 1")


# Drivers


def test_a_driver_beside_the_kernel_tells_its_own_version(radeon: Tree) -> None:
    assert "amdgpu, part of Linux 6.8.0-45-generic." in words(
        amd_checks.amd_driver(radeon.case(amd()))
    )
    radeon.write("/sys/module/amdgpu/version", "6.8.5\n")
    expect(amd_checks.amd_driver(radeon.case(amd())), PASS, "amdgpu 6.8.5")


@pytest.mark.parametrize("kernel_driver", ["i915", "xe"])
def test_intels_driver_is_named(tree: Tree, kernel_driver: str) -> None:
    tree.drm_card(INTEL_SLOT, kernel_driver, 128)
    result = intel_checks.intel_driver(tree.case(arc()))
    assert verdict(result) is PASS
    assert words(result).startswith(f"{kernel_driver}, part of ")


@pytest.mark.parametrize(("answer", "expected"), [(MISSING, FAIL), (None, WARN)])
@pytest.mark.parametrize(
    ("kernel_driver", "told"),
    [
        ("radeon", ["amdgpu.si_support=1"]),
        (None, ["modprobe amdgpu", f"{AMD_SLOT}  no driver"]),
    ],
)
def test_a_gpu_with_the_old_driver_or_none_says_what_to_do(
    tree: Tree,
    kernel_driver: str | None,
    told: list[str],
    answer: DriverAnswer | None,
    expected: CheckVerdict,
) -> None:
    tree.drm_card(AMD_SLOT, kernel_driver, 128 if kernel_driver else None)
    expect(amd_checks.amd_driver(tree.case(answer=answer)), expected, *told)


def test_a_processors_gpu_without_a_driver_is_no_fault_beside_another_gpu(tree: Tree) -> None:
    tree.drm_card(PROCESSOR, None)
    assert verdict(intel_checks.intel_driver(tree.case())) is PASS
    assert verdict(intel_checks.intel_driver(tree.case(answer=MISSING))) is FAIL


def test_gpus_that_a_virtual_machine_has_are_no_fault(tree: Tree) -> None:
    tree.drm_card(AMD_SLOT, "vfio-pci")
    case = tree.case()
    assert verdict(amd_checks.amd_driver(case)) is PASS
    assert "virtual machines" in words(gpus.gpus_on_the_bus(case))
    assert drm_checks.render_nodes(case) is None
    assert verdict(gpus.answer(case)) is PASS


@pytest.mark.parametrize(("value", "told"), [("0\n", "on"), ("1\n", "off"), ("-1\n", None)])
def test_a_changed_parameter_of_xnack_is_told(radeon: Tree, value: str, told: str | None) -> None:
    """-1 is the default: the kernel's documentation of the module's parameters."""
    radeon.write("/sys/module/amdgpu/parameters/noretry", value)
    text = words(amd_checks.amd_driver(radeon.case(amd())))
    assert ("XNACK" in text) == (told is not None)
    assert told is None or f"(XNACK) are {told}" in text


def test_machines_with_nvidia_alone_are_told_nothing_of_the_others(tree: Tree) -> None:
    case = tree.case()
    checks = (
        *(amd_checks.amd_driver, intel_checks.intel_driver, drm_checks.render_nodes),
        *(amd_checks.compute_driver, drm_checks.process_lists, gpus.processor_gpus),
        *(amd_checks.visible_amd, intel_checks.visible_intel, amd_checks.rocm),
    )
    assert [check(case) for check in checks] == [None] * len(checks)


# Device files


def test_open_device_files_pass(radeon: Tree) -> None:
    expect(drm_checks.render_nodes(radeon.case(amd())), PASS, "/dev/dri/renderD128")
    expect(amd_checks.compute_driver(radeon.case(amd())), PASS)


@pytest.mark.parametrize("group", ["render", "video"])
@pytest.mark.usefixtures("on_the_host")
def test_a_closed_render_node_names_the_group_of_the_file(
    radeon: Tree, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    close(monkeypatch, radeon.path("/dev/dri/renderD128"), group)
    monkeypatch.setattr(grp, "getgrnam", lambda name: grp.struct_group((name, "x", 4242, [])))
    result = drm_checks.render_nodes(radeon.case(amd()))
    node, command = "/dev/dri/renderD128", f"sudo usermod -aG {group} $USER"
    told = f"no permission to open {node}", f"{node}  -rw-rw---- group {group}"
    expect(result, FAIL, command, *told)


@pytest.mark.usefixtures("on_the_host")
def test_kfd_has_rights_of_its_own(radeon: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """``crw-rw---- root render``: ROCm/ROCm-docker#90."""
    close(monkeypatch, radeon.path(KFD))
    case = radeon.case(amd())
    assert verdict(drm_checks.render_nodes(case)) is PASS
    expect(amd_checks.compute_driver(case), FAIL, "ROCm's programs do not start", "group render")


@pytest.mark.usefixtures("on_the_host")
def test_a_member_of_the_group_has_to_log_in_again(
    radeon: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    close(monkeypatch, radeon.path("/dev/dri/renderD128"))
    name = pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr(grp, "getgrnam", lambda group: grp.struct_group((group, "x", 1, [name])))
    text = words(drm_checks.render_nodes(radeon.case(amd())))
    assert "You are in the group render, but not in this session: log in again." in text


@pytest.mark.usefixtures("on_the_host")
def test_a_file_that_no_group_may_open_is_for_an_administrator(
    radeon: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    close(monkeypatch, radeon.path("/dev/dri/renderD128"), "root")
    text = words(drm_checks.render_nodes(radeon.case(amd())))
    assert "usermod" not in text
    assert "udevadm trigger" in text


def test_a_container_gets_its_files_and_groups_at_its_start(
    radeon: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = radeon.case(amd())
    close(monkeypatch, radeon.path("/dev/dri/renderD128"))
    group = radeon.path("/dev/dri/renderD128").stat().st_gid
    assert f"--group-add {group}" in words(drm_checks.render_nodes(case))
    radeon.remove("/dev/dri/renderD128")
    radeon.remove(KFD)
    assert "--device /dev/kfd --device /dev/dri" in words(drm_checks.render_nodes(case))
    assert "--device /dev/kfd --device /dev/dri" in words(amd_checks.compute_driver(case))


def test_a_missing_file_is_a_fault_on_the_host_alone(
    radeon: Tree, request: pytest.FixtureRequest
) -> None:
    radeon.drm_card("0000:83:00.0", "amdgpu", 129)
    radeon.remove("/dev/dri/renderD129")
    result = drm_checks.render_nodes(radeon.case(amd(), in_container=True))
    assert verdict(result) is PASS
    assert "renderD129" not in words(result), "a container was given some GPUs"
    request.getfixturevalue("on_the_host")
    expect(drm_checks.render_nodes(radeon.case(amd())), FAIL, "there is no /dev/dri/renderD129")


@pytest.mark.usefixtures("on_the_host")
def test_kfd_is_needed_where_there_is_rocm(radeon: Tree) -> None:
    radeon.remove(KFD)
    assert verdict(amd_checks.compute_driver(radeon.case(amd()))) is WARN
    radeon.write("/opt/rocm/.info/version", "6.2.0-66\n")
    assert verdict(amd_checks.compute_driver(radeon.case(amd()))) is FAIL


def test_kfd_may_support_none_of_the_gpus(radeon: Tree) -> None:
    radeon.write(f"{NODES}/1/gpu_id", "0\n")
    expect(amd_checks.compute_driver(radeon.case(amd())), WARN, "PCIe atomics")


def test_no_render_node_is_opened(radeon: Tree) -> None:
    def refuse(path: Path) -> None:
        pytest.fail(f"{path} was opened: that wakes a sleeping GPU")

    case = radeon.case(amd(), try_open=refuse)
    drm_checks.render_nodes(case)
    amd_checks.compute_driver(case)


# Processes


def test_whose_processes_are_seen_is_a_note_and_no_fault(tree: Tree) -> None:
    result = drm_checks.process_lists(tree.case(amd(), arc(index=1)))
    expect(result, PASS, "AMD's and Intel's GPUs you see your own processes", "ROCm")
    result = drm_checks.process_lists(tree.case(arc()))
    assert "ROCm" not in words(result)
    result = drm_checks.process_lists(tree.case(arc(), root_user=True))
    assert "Root sees the processes of all users on Intel's GPUs." in words(result)


def test_a_container_speaks_of_nvidias_driver_only_where_there_is_one(radeon: Tree) -> None:
    result = access.pid_namespace(radeon.case(amd(), library=False))
    assert verdict(result) is WARN
    assert "570" not in words(result)
    assert "--pid=host" in words(result)


# Processors


@pytest.mark.parametrize(
    ("slot", "kernel_driver"), [(PROCESSOR, "i915"), (PROCESSOR, "xe"), (APU_SLOT, "amdgpu")]
)
@pytest.mark.usefixtures("on_the_host")
def test_a_processors_gpu_that_is_not_shown_is_told_and_not_judged(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, slot: str, kernel_driver: str
) -> None:
    tree.drm_card(slot, kernel_driver, 128, integrated=True)
    close(monkeypatch, tree.path("/dev/dri/renderD128"))
    case = tree.case()
    expect(gpus.processor_gpus(case), PASS, slot, "--backend all")
    assert verdict(gpus.answer(case)) is PASS
    assert drm_checks.render_nodes(case) is None
    assert amd_checks.compute_driver(case) is None


# Health


def test_advice_is_that_of_the_maker(tree: Tree) -> None:
    lost = amd(status=GpuStatus.LOST)
    result = gpus.answering(tree.case(lost))
    assert verdict(result) is FAIL
    assert "nvidia-smi" not in words(result)
    assert "amdgpu|i915|xe" in words(result)
    result = gpus.answering(tree.case(gpu(index=1, status=GpuStatus.LOST), lost))
    assert "nvidia-smi" in words(result)
    assert "amdgpu|i915|xe" in words(result)
    result = gpus.memory_health(tree.case(amd(retired_pages_pending=True)))
    assert verdict(result) is WARN
    assert "nvidia-smi" not in words(result)


# Computing


def test_versions_of_rocm_are_found_each_once(radeon: Tree) -> None:
    assert "None in /opt" in words(amd_checks.rocm(radeon.case(amd())))
    radeon.write("/opt/rocm-7.1.1/.info/version", "7.1.1\n")
    radeon.link("/opt/rocm", "rocm-7.1.1")
    radeon.write("/opt/rocm-6.2.0/.info/version", "6.2.0-66\n")
    result = amd_checks.rocm(radeon.case(amd(), environ={"HSA_XNACK": "1"}))
    assert details(result) == ("7.1.1  /opt/rocm", "6.2.0-66  /opt/rocm-6.2.0", "HSA_XNACK=1")


def test_the_amd_gpus_that_programs_see_are_named(tree: Tree) -> None:
    cards = amd(), amd(index=1, uuid="GPU-00aa11bb22cc33dd")
    assert amd_checks.visible_amd(tree.case(*cards)) is None
    environ = {"ROCR_VISIBLE_DEVICES": "GPU-00aa11bb22cc33dd"}
    result = amd_checks.visible_amd(tree.case(*cards, environ=environ))
    expect(result, PASS, "ROCR_VISIBLE_DEVICES=GPU-00aa11bb22cc33dd: device 0 is GPU 1.")
    result = amd_checks.visible_amd(tree.case(*cards, environ={"HIP_VISIBLE_DEVICES": "9"}))
    expect(result, WARN, "unset HIP_VISIBLE_DEVICES")
    # ROCm takes an empty variable as not set, but for the first one.
    assert amd_checks.visible_amd(tree.case(*cards, environ={"HIP_VISIBLE_DEVICES": ""})) is None
    result = amd_checks.visible_amd(tree.case(*cards, environ={"ROCR_VISIBLE_DEVICES": ""}))
    assert verdict(result) is WARN


def test_cuda_visible_devices_counts_for_amd_where_there_is_no_nvidia(radeon: Tree) -> None:
    case = radeon.case(amd(), environ={"CUDA_VISIBLE_DEVICES": "0"}, library=False)
    assert cuda_checks.visible(case) is None
    assert "CUDA_VISIBLE_DEVICES=0: device 0 is GPU 0." in words(amd_checks.visible_amd(case))


def test_the_intel_gpus_that_programs_see_are_named(tree: Tree) -> None:
    cards = arc(), arc(index=1, uuid="PCI-0000:83:00.0", pci_bus_id="0000:83:00.0")
    environ = {"ZE_AFFINITY_MASK": "1"}
    result = intel_checks.visible_intel(tree.case(*cards, environ=environ))
    expect(result, WARN, "ZE_ENABLE_PCI_ID_DEVICE_ORDER=1")
    environ["ZE_ENABLE_PCI_ID_DEVICE_ORDER"] = "1"
    result = intel_checks.visible_intel(tree.case(*cards, environ=environ))
    expect(result, PASS, "device 0 is GPU 1")


def test_a_gpu_that_is_not_shown_may_count_for_programs(tree: Tree) -> None:
    tree.drm_card(AMD_SLOT, "amdgpu", 128)
    tree.drm_card(APU_SLOT, "amdgpu", 129, integrated=True)
    case = tree.case(amd(), environ={"ROCR_VISIBLE_DEVICES": "0"})
    assert f"processor's GPU at {APU_SLOT}" in words(amd_checks.visible_amd(case))
