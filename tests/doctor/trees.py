"""Machines made of files: what a check sees of one."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from gpumon.doctor import CheckVerdict
from gpumon.doctor.context import DiagnosticContext, DriverAnswer, ExaminedMachine
from gpumon.model.snapshot import Host, Snapshot, Trouble
from tests.absent import ABSENT
from tests.build import NOON, gpu
from tests.known import known

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gpumon.doctor import Result
    from gpumon.model.snapshot import Gpu

PASS, WARN, FAIL = CheckVerdict.PASS, CheckVerdict.WARN, CheckVerdict.FAIL
UNKNOWN = CheckVerdict.UNKNOWN
VERSION = "570.124.06"
MODULE = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  "
    "(builder@host)  Fri Mar 7 21:22:01 UTC 2025\nGCC version:  gcc version 13.3.0\n"
)
SLOT = "0000:41:00.0"
PROCESSOR = "0000:00:02.0"
"""The place of the GPU of Intel's processors."""


class Tree:
    """Files of a machine; a healthy one with one card, unless something is taken away."""

    def __init__(self, root: Path, version: str = VERSION) -> None:
        self.root = root
        self.write("/proc/driver/nvidia/version", MODULE.format(version=version))
        self.write("/proc/self/mounts", "proc /proc proc rw,nosuid,relatime 0 0\n")
        self.write("/proc/self/cgroup", "0::/user.slice\n")
        self.card(SLOT)
        for name in ("nvidiactl", "nvidia0", "nvidia-uvm", "nvidia-modeset"):
            self.write(f"/dev/{name}")
        self.write("/dev/kmsg", "6,1,1000,-;Linux version 6.8.0\n")
        self.library(version)

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def write(self, name: str, text: str = "") -> Path:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def link(self, name: str, to: str) -> None:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(to)

    def remove(self, name: str) -> None:
        self.path(name).unlink()

    def card(self, slot: str, driver: str | None = "nvidia") -> None:
        """A card on the bus."""
        folder = f"/sys/bus/pci/devices/{slot}"
        self.write(f"{folder}/vendor", "0x10de\n")
        self.write(f"{folder}/class", "0x030200\n")
        if driver is not None:
            self.link(f"{folder}/driver", f"../../../bus/pci/drivers/{driver}")

    def drm_card(
        self, slot: str, driver: str | None, node: int | None = None, *, integrated: bool = False
    ) -> None:
        """An AMD GPU (amdgpu, radeon) or an Intel GPU (i915, xe) on the bus.

        The files are those of the kernel's ``drivers/gpu/drm/drm_sysfs.c``; ``in1_label`` is that
        of ``amdgpu_pm.c``.
        """
        self.card(slot, driver)
        folder = f"/sys/bus/pci/devices/{slot}"
        intel = slot == PROCESSOR or driver in {"i915", "xe"}
        self.write(f"{folder}/vendor", "0x8086\n" if intel else "0x1002\n")
        self.write(f"{folder}/class", "0x030000\n")
        if node is not None:
            self.write(f"{folder}/drm/renderD{node}/dev", f"226:{node}\n")
            self.write(f"/dev/dri/renderD{node}")
        if integrated and not intel:
            self.write(f"{folder}/hwmon/hwmon3/in1_label", "vddnb\n")

    def without_nvidia(self) -> None:
        """Take away NVIDIA's GPU, its driver and its library."""
        shutil.rmtree(self.path("/sys/bus/pci/devices") / SLOT)
        shutil.rmtree(self.path("/usr/lib"))
        self.unload()
        for name in ("nvidiactl", "nvidia0", "nvidia-uvm", "nvidia-modeset"):
            self.remove(f"/dev/{name}")

    def library(self, version: str) -> None:
        folder = "/usr/lib/x86_64-linux-gnu"
        self.write(f"{folder}/libcuda.so.{version}")
        self.path(f"{folder}/libcuda.so.1").unlink(missing_ok=True)
        self.link(f"{folder}/libcuda.so.1", f"libcuda.so.{version}")

    def unload(self) -> None:
        """Take the module away."""
        self.remove("/proc/driver/nvidia/version")

    def case(
        self,
        *gpus: Gpu,
        environ: Mapping[str, str] | None = None,
        answer: DriverAnswer | None = None,
        try_open: Callable[[Path], None] = lambda _: None,
        root_user: bool = False,
        cuda: str | None = "12.8",
        in_container: bool = False,
        library: bool = True,
    ) -> DiagnosticContext:
        """An examination of it, whose driver answers for these cards."""
        host = Host(
            name="ada-07", driver_version=VERSION, cuda_version=cuda, in_container=in_container
        )
        snapshot = Snapshot(time=NOON, host=host, gpus=gpus or (gpu(),))
        machine = ExaminedMachine(
            root=self.root,
            environ=environ or {},
            prefix=ABSENT,
            root_user=root_user,
            try_open=try_open,
            uptime=lambda: 7200.0,
        )
        told = answer or DriverAnswer({"NVIDIA": VERSION} if library else {}, snapshot, None, 0.2)
        return DiagnosticContext(machine, lambda: told)


SILENT = DriverAnswer({"NVIDIA": VERSION}, None, Trouble("It is not loaded.", "Load it."), 0.1)
MISSING = DriverAnswer()


def verdict(result: Result | None) -> CheckVerdict:
    """The verdict of a check that has something to say."""
    return known(result).verdict


def words(result: Result | None) -> str:
    """All that a check says."""
    result = known(result)
    return " ".join((result.found, result.todo or "", *result.details))


def details(result: Result | None) -> tuple[str, ...]:
    """The lines below what a check found."""
    return known(result).details


def expect(result: Result | None, expected: CheckVerdict, *told: str) -> None:
    """A check comes to this verdict, and says all of this."""
    assert verdict(result) is expected, words(result)
    assert [text for text in told if text not in words(result)] == [], words(result)
