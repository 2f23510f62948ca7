"""Builds trees of ``/sys``, ``/proc`` and ``/dev`` with GPUs of the kernel's DRM subsystem.

A test gives the content of the files; the links between them are made here as the kernel makes
them. ``fail`` and ``hang`` make reads of attributes behave as those of a GPU that is ill.
"""

from __future__ import annotations

import os
import shutil
import threading
from typing import TYPE_CHECKING, TypeVar

from gpumon.makers.drm import clients
from gpumon.makers.drm.attributes import Attributes
from gpumon.makers.drm.backend import DrmBackend
from gpumon.model.selection import ALL
from gpumon.system.system import System, SystemClock
from tests.clock import HandClock
from tests.known import known

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pytest

    from gpumon.makers.backend import ListedProcess, Reading
    from gpumon.model.processes import GpuUse
    from gpumon.model.selection import GpuSelection
    from gpumon.model.snapshot import Gpu
    from gpumon.system.system import Clock

Backend = TypeVar("Backend", bound=DrmBackend)

KERNEL = "6.8.0-49-generic"

PID_FLAGS = 0x00400000


class Tree:
    """The file systems of a machine, below one folder."""

    def __init__(self, root: Path) -> None:
        self.sys, self.proc, self.dev = root / "sys", root / "proc", root / "dev"
        (self.sys / "class/drm").mkdir(parents=True)
        (self.sys / "bus/pci/devices").mkdir(parents=True)
        (self.dev / "dri").mkdir(parents=True)
        write(self.sys / "class/drm/version", "drm 1.1.0 20060810\n")
        write(self.proc / "sys/kernel/osrelease", KERNEL + "\n")
        self.process(1, name="systemd")

    def backend(
        self, kind: type[Backend], selection: GpuSelection = ALL, clock: Clock | None = None
    ) -> Backend:
        """A backend of this machine."""
        system = System(str(self.proc), str(self.sys), str(self.dev), clock or SystemClock())
        return kind(selection, system)

    # GPUs

    def card(
        self,
        bus_id: str,
        driver: str,
        files: Mapping[str, str | bytes],
        *,
        number: int = 0,
        render: int | None = 128,
        parents: tuple[str, ...] = ("0000:00:01.0",),
        connectors: tuple[str, ...] = ("DP-1", "HDMI-A-1"),
    ) -> Path:
        """Add a GPU, and return its folder.

        ``files`` are content by path below that; ``number`` and ``render`` are those of its nodes,
        and ``parents`` the bridges above it, the uppermost first. Its connectors have no monitor
        unless ``files`` has their ``status``.
        """
        folder = self.pci(bus_id, files, parents)
        drivers = self.sys / "bus/pci/drivers" / driver
        drivers.mkdir(parents=True, exist_ok=True)
        link(folder / "driver", drivers)
        nodes = [f"card{number}"] + ([] if render is None else [f"renderD{render}"])
        for name in nodes:
            node = folder / "drm" / name
            node.mkdir(parents=True, exist_ok=True)
            link(node / "device", folder)
            link(self.sys / "class/drm" / name, node)
            write(self.dev / "dri" / name, "")
        for connector in connectors:
            node = folder / f"drm/card{number}" / f"card{number}-{connector}"
            for name, content in (("status", "disconnected\n"), ("enabled", "disabled\n")):
                if not (node / name).exists():
                    write(node / name, content)
            link(node / "device", node.parent)
            link(self.sys / "class/drm" / node.name, node)
        return folder

    def pci(
        self, bus_id: str, files: Mapping[str, str | bytes], parents: tuple[str, ...] = ()
    ) -> Path:
        """Add a PCI device without a driver; the bridges above it get their folders."""
        folder = self.sys / "devices/pci0000:00"
        for parent in parents:
            folder /= parent
        folder /= bus_id
        for path, content in files.items():
            write(folder / path, content)
        folder.mkdir(parents=True, exist_ok=True)
        link(self.sys / "bus/pci/devices" / bus_id, folder)
        return folder

    def partition(self, number: int, render: int) -> None:
        """Add a partition of an AMD GPU, as ``amdgpu_xcp_drv.c`` of the kernel does."""
        folder = self.sys / f"devices/platform/amdgpu_xcp_{number}"
        name = f"renderD{render}"
        node = folder / "drm" / name
        node.mkdir(parents=True)
        link(node / "device", folder)
        link(self.sys / "class/drm" / name, node)

    def unplug(self, bus_id: str) -> None:
        """Remove a PCI device, as a removal of the hardware does."""
        folder = (self.sys / "bus/pci/devices" / bus_id).resolve()
        for node in (self.sys / "class/drm").iterdir():
            if node.is_symlink() and folder in node.resolve().parents:
                node.unlink()
        (self.sys / "bus/pci/devices" / bus_id).unlink()
        shutil.rmtree(folder)

    # Processes

    def process(
        self,
        pid: int,
        files: Mapping[int, tuple[str, str]] | None = None,
        *,
        name: str = "python3",
        start: int = 1000,
        flags: int = PID_FLAGS,
        uid: int = 0,
    ) -> Path:
        """Add a process, or replace it.

        ``files`` are, by descriptor, the path of an open file and what ``fdinfo`` tells of it;
        ``start`` is in ticks, and ``flags`` are those in ``stat``.
        """
        folder = self.proc / str(pid)
        if folder.exists():
            shutil.rmtree(folder)
        # Fields 3 to 28 of proc_pid_stat(5): state, parent, ..., flags, ..., start time, ...
        fields = ["S", "1", str(pid), str(pid), "0", "-1", str(flags), *["0"] * 10, "1", "0"]
        fields += [str(start), "1000000", "500", "0", "0", "0", "140720000000000"]
        write(folder / "stat", f"{pid} ({name}) {' '.join(fields)}\n")
        ids = "\t".join([str(uid)] * 4)
        write(folder / "status", f"Name:\t{name}\nPid:\t{pid}\nUid:\t{ids}\n")
        write(folder / "comm", f"{name}\n")
        write(folder / "cmdline", f"{name}\0")
        (folder / "fd").mkdir()
        for descriptor, (target, info) in (files or {}).items():
            self.open_file(pid, descriptor, target, info)
        return folder

    def open_file(self, pid: int, descriptor: int, target: str, info: str = "") -> None:
        """Open a file in a process, or change what ``fdinfo`` tells of it."""
        folder = self.proc / str(pid)
        path = folder / "fd" / str(descriptor)
        if path.is_symlink():
            if str(path.readlink()) != target:
                path.unlink()
                path.symlink_to(target)
        else:
            path.symlink_to(target)
        write(folder / "fdinfo" / str(descriptor), f"pos:\t0\nflags:\t02100002\n{info}")

    def end(self, pid: int) -> None:
        """Remove a process."""
        shutil.rmtree(self.proc / str(pid))


class SampledTree(Tree):
    """A tree whose GPUs a backend of this kind reads when a test says so."""

    def __init__(self, root: Path, kind: type[DrmBackend]) -> None:
        super().__init__(root)
        self.clock = HandClock()
        self.kind = kind
        self._backend: DrmBackend | None = None

    def opened(self, selection: GpuSelection = ALL) -> DrmBackend:
        """The backend, which the first call opens."""
        if self._backend is None:
            self._backend = self.backend(self.kind, selection, self.clock)
            self._backend.open()
        return self._backend

    def read(self, seconds: float = 1.0) -> Reading:
        """One more reading, so many seconds later."""
        self.clock.now += seconds
        return self.opened().read()

    def gpu(self, seconds: float = 1.0) -> Gpu:
        """The only GPU in one more reading."""
        (gpu,) = self.read(seconds).gpus
        return gpu

    def lists(self, seconds: float = 1.0) -> Mapping[int, ListedProcess]:
        """The processes in one more reading, by PID."""
        return known(self.read(seconds).listed)

    def use(self, pid: int, seconds: float = 1.0) -> GpuUse:
        """What a process uses of its only GPU in one more reading."""
        (use,) = self.lists(seconds)[pid].uses
        return use


def fields(prefix: str, **values: object) -> dict[str, object]:
    """Fields of a GPU whose names begin alike."""
    return {f"{prefix}_{name}": value for name, value in values.items()}


def write(path: Path, content: str | bytes) -> None:
    """Write a file in place, as a value of the kernel changes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def link(path: Path, target: Path) -> None:
    """Make a relative symbolic link, as those of ``/sys`` are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


def see_all_processes(monkeypatch: pytest.MonkeyPatch, *, all_of_them: bool = True) -> None:
    """Let backends that are made from now on believe to be outside of containers, or inside."""
    monkeypatch.setattr(clients, "in_initial_pid_namespace", lambda _: all_of_them)


def record(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, refused: str = "?"
) -> list[str]:
    """Record the paths that a function is called with; the processes of some have ended."""
    paths: list[str] = []
    whole: Callable[[str], object] = getattr(module, name)

    def recorded(path: str) -> object:
        paths.append(path)
        if refused in path:
            raise ProcessLookupError
        return whole(path)

    monkeypatch.setattr(module, name, recorded)
    return paths


class Faults:
    """Makes reads of attributes fail or hang. Names are the ends of paths below ``/sys``.

    Attributes:
        errors: Error numbers by name.
        hung: Names of files whose reads hang until ``released`` is set.
        released: Ends all hung reads.
        reads: The paths that were read.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.errors: dict[str, int] = {}
        self.hung: set[str] = set()
        self.released = threading.Event()
        self.reads: list[str] = []
        read = Attributes.read
        faults = self

        def fault(attributes: Attributes, name: str, limit: int) -> bytes:
            path = f"{attributes.folder}/{name}"
            faults.reads.append(path)
            for end, number in faults.errors.items():
                if path.endswith(end):
                    raise OSError(number, os.strerror(number), path)
            if any(path.endswith(end) for end in faults.hung):
                faults.released.wait(10)
            return read(attributes, name, limit)

        monkeypatch.setattr(Attributes, "read", fault)
