"""Device files, cgroups, name spaces: what this user may reach."""

from __future__ import annotations

import errno
import grp
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpumon.doctor import access
from gpumon.doctor.context import DiagnosticContext
from gpumon.host.procfs import in_initial_pid_namespace
from gpumon.makers.nvidia import checks as nvidia_checks
from tests.doctor.trees import FAIL, PASS, SILENT, WARN, Tree, expect, verdict, words


@pytest.mark.parametrize("missing", ["/dev/nvidiactl", "/dev/nvidia0"])
@pytest.mark.usefixtures("on_the_host")
def test_a_loaded_driver_without_device_files_is_a_fault(tree: Tree, missing: str) -> None:
    tree.remove(missing)
    expect(nvidia_checks.device_files(tree.case(answer=SILENT)), FAIL, missing, "nvidia-modprobe")


def test_a_container_without_device_files_is_to_be_started_with_its_cards(tree: Tree) -> None:
    tree.remove("/dev/nvidiactl")
    assert not in_initial_pid_namespace(str(tree.path("/proc")))
    assert "--gpus all" in words(nvidia_checks.device_files(tree.case(answer=SILENT)))


def test_files_that_are_closed_to_this_user_name_the_group_to_ask_for(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = tree.path("/dev/nvidia0")
    card.chmod(0o660)
    # Root may open everything: what the kernel says to others is put in its mouth.
    monkeypatch.setattr(os, "access", lambda path, _: path != card)
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name="video"))
    result = nvidia_checks.device_files(tree.case())
    expect(
        result,
        FAIL,
        "no permission to open /dev/nvidia0",
        "usermod -aG video",
        "-rw-rw---- group video",
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")
def test_the_kernel_itself_says_that_a_file_is_closed(tree: Tree) -> None:
    tree.path("/dev/nvidiactl").chmod(0)
    expect(nvidia_checks.device_files(tree.case()), FAIL, "NVreg_DeviceFileMode")


@pytest.mark.usefixtures("on_the_host")
def test_without_unified_memory_no_cuda_program_starts(tree: Tree) -> None:
    tree.remove("/dev/nvidia-uvm")
    expect(nvidia_checks.unified_memory(tree.case()), FAIL, "nvidia-modprobe -u")


@pytest.mark.parametrize("device", ["nvidiactl", "nvidia-uvm"])
def test_a_cgroup_of_version_2_shows_by_the_kernels_refusal(tree: Tree, device: str) -> None:
    def refuse(path: Path) -> None:
        if path.name == device:
            raise PermissionError(errno.EPERM, "Operation not permitted")

    result = nvidia_checks.device_limits(tree.case(try_open=refuse))
    expect(result, FAIL, f"/dev/{device}", "daemon-reload")


def test_a_mode_that_refuses_is_not_blamed_on_a_cgroup(tree: Tree) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    assert verdict(nvidia_checks.device_limits(tree.case(try_open=refuse))) is PASS


def _limits(tree: Tree, rules: str) -> DiagnosticContext:
    tree.write("/proc/self/cgroup", "5:devices:/slurm/job_7\n0::/x\n")
    tree.write("/sys/fs/cgroup/devices/slurm/job_7/devices.list", rules)
    for minor in range(1, 4):
        tree.write(f"/dev/nvidia{minor}")
    return tree.case()


ALL, SOME, NONE = (PASS, "No cgroup denies"), (PASS, "2-3"), (FAIL, "--gres=gpu")
RULES = {
    **dict.fromkeys(("a *:* rwm\n", "c 1:3 rwm\nc 195:* rw\n", "c *:* rwm\n"), ALL),
    "c 195:255 rwm\nc 195:2 rwm\nc 195:3 rw\nc 195:0 m\n": SOME,
    **dict.fromkeys(("c 1:3 rwm\n", "", "c 195:0 rwm\n", "c 195:255 rwm\n"), NONE),
}


@pytest.mark.parametrize("rules", RULES)
def test_a_cgroup_of_version_1_needs_the_control_file_and_a_card(tree: Tree, rules: str) -> None:
    expect(nvidia_checks.device_limits(_limits(tree, rules)), *RULES[rules])


def test_the_group_of_a_container_is_the_root_of_what_it_sees(tree: Tree) -> None:
    tree.write("/proc/self/cgroup", "5:devices:/docker/0123\n")
    tree.write("/sys/fs/cgroup/devices/devices.list", "c 1:3 rwm\n")
    assert verdict(nvidia_checks.device_limits(tree.case())) is FAIL


def test_a_machine_without_a_driver_is_asked_for_no_device_files(tree: Tree) -> None:
    tree.unload()
    case = tree.case(answer=SILENT)
    assert nvidia_checks.device_files(case) is None
    assert nvidia_checks.unified_memory(case) is None
    assert nvidia_checks.device_limits(case) is None


def test_a_container_sees_only_its_own_processes(tree: Tree) -> None:
    result = access.pid_namespace(tree.case())
    expect(result, WARN, "--pid=host")
    assert "upgrade" not in words(result)


def test_an_old_driver_in_a_container_speaks_of_others(tree: Tree) -> None:
    version = "NVRM version: NVIDIA Kernel Module  525.60.13  Thu\n"
    tree.write("/proc/driver/nvidia/version", version)
    expect(access.pid_namespace(tree.case()), WARN, "upgrade the driver")


def _mounted(tree: Tree, options: str) -> Tree:
    other = "proc /mnt/proc proc rw,hidepid=2 0 0\n"
    tree.write("/proc/self/mounts", f"proc /proc proc {options} 0 0\n{other}")
    return tree


@pytest.mark.parametrize("hiding", ["2", "1", "invisible", "4"])
def test_hidden_processes_are_told(tree: Tree, hiding: str) -> None:
    _mounted(tree, f"rw,relatime,gid=4242,hidepid={hiding}")
    expect(access.hidden_processes(tree.case()), WARN, "4242")


def test_nothing_is_hidden_from_root_nor_from_the_group_it_is_shown_to(tree: Tree) -> None:
    hidden = _mounted(tree, "rw,hidepid=2").case(root_user=True)
    assert verdict(access.hidden_processes(hidden)) is PASS
    for group in os.getgroups()[:1]:
        shown = _mounted(tree, f"rw,gid={group},hidepid=2").case()
        assert verdict(access.hidden_processes(shown)) is PASS


@pytest.mark.parametrize("options", ["rw", "rw,hidepid=0", "rw,hidepid=off"])
def test_an_open_proc_passes(tree: Tree, options: str) -> None:
    assert verdict(access.hidden_processes(_mounted(tree, options).case())) is PASS
