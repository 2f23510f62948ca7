"""What the checks of one run share: the machine, its GPUs, and the driver's answer."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping  # noqa: TC003 - msgspec resolves annotations
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.doctor import why_failed
from gpumon.host.kernel_log import slot_of
from gpumon.host.power import read_word
from gpumon.makers.amd import gpu as amd
from gpumon.makers.drm.cards import read_hex
from gpumon.makers.intel import names as intel
from gpumon.makers.source import SourceError
from gpumon.model.makers import MAKERS, Maker, gpus_of
from gpumon.model.snapshot import Snapshot, Trouble
from gpumon.system.clock import SystemClock
from gpumon.system.files import beginning

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.snapshot import Gpu

_MOST_BYTES = 2**18
_LISTS_OF_FOLDERS = {"PATH", "LD_LIBRARY_PATH"}
"""Variables that name several folders, separated by colons. In others a colon is part of a name."""


def open_once(path: Path) -> None:
    """Open a device file for reading and writing, and close it.

    Raises:
        OSError: The kernel refuses.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))


def _is_root() -> bool:
    geteuid = getattr(os, "geteuid", None)  # not on Windows
    return geteuid is not None and geteuid() == 0


class Machine(Struct, frozen=True):
    """The machine to examine."""

    root: Path = Path("/")  # The folder used as ``/``.
    environ: Mapping[str, str] = os.environ
    prefix: str = sys.prefix  # Of the Python that runs gpumon.
    root_user: bool = _is_root()
    # Opens a device file and closes it, or raises ``OSError``.
    try_open: Callable[[Path], None] = open_once
    # Seconds since the start, by the clock of the kernel's log.
    uptime: Callable[[], float] = time.monotonic

    def path(self, name: str) -> Path:
        """Where a file of this machine is."""
        return self.root / name.lstrip("/")

    def name(self, path: Path) -> str:
        """The name by which a person finds a file of this machine."""
        try:
            return f"/{path.relative_to(self.root)}"
        except ValueError:
            return str(path)

    def text(self, name: str) -> str | None:
        """The text of a file, with invalid UTF-8 replaced; ``None`` if it cannot be read."""
        return read_text(self.path(name))

    def folders(self, variable: str) -> list[str]:
        """The names of the folders in a variable of the environment."""
        value = self.environ.get(variable, "")
        names = value.split(":") if variable in _LISTS_OF_FOLDERS else [value]
        return [name for name in names if name.startswith("/")]

    def folder(self, name: str, pattern: str) -> list[Path]:
        """The entries of a folder, sorted; empty if there is no such folder."""
        return found(self.path(name), pattern)


def exists(path: Path) -> bool:
    """Whether a file exists that this user can reach."""
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises without permission


def resolved(path: Path) -> Path:
    """The path without symbolic links, as far as it can be followed."""
    return Path(os.path.realpath(path))  # Path.resolve raises at a loop of links.


def unreadable(machine: Machine, variables: Iterable[str]) -> list[str]:
    """The folders in variables of the environment that cannot be read, each with the reason."""
    return [
        f"{folder} ({variable}) cannot be read: {why}"
        for variable in variables
        for folder in machine.folders(variable)
        if (why := _why_unreadable(machine.path(folder))) is not None
    ]


def _why_unreadable(path: Path) -> str | None:
    """Why the files of a folder cannot be reached; ``None`` if they can, or it does not exist."""
    try:
        # The folder itself can be examined without permission to search it.
        os.stat(f"{path}/.")  # noqa: PTH116 - pathlib drops the dot
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return error.strerror
    return None


def read_text(path: Path) -> str | None:
    """The beginning of a regular file; ``None`` if it cannot be read."""
    try:
        return beginning(path, _MOST_BYTES).decode(errors="replace")
    except OSError:
        return None


def found(folder: Path, pattern: str) -> list[Path]:
    """The matching entries of a folder, sorted; empty if it cannot be read."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


_VERSION = re.compile(r"(\d+)(?:\.(\d+))?")


def parse_version(text: str) -> tuple[int, int] | None:
    """Major and minor number of a version; ``None`` if the text contains none."""
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2] or 0)) if match else None


_DISPLAY, _ACCELERATOR = "0x03", "0x12"
"""PCI base classes. The Instinct MI300 and later are accelerators (apache/cloudstack#11701), but so
are the NPUs of Intel's processors."""


class PciGpu(Struct, frozen=True):
    """A GPU on the PCI bus."""

    slot: str  # Kernel name: ``0000:03:00.0``.
    maker: Maker
    driver: str | None  # Of the kernel; ``None`` without one.
    render_nodes: tuple[str, ...] = ()  # Names: ``renderD128``.
    integrated: bool = False  # Part of a processor; AMD's are known only with their driver.

    @property
    def shown_by_gpumon(self) -> bool:
        """Whether its driver is one of those that gpumon reads."""
        return self.driver in MAKERS[self.maker].kernel_drivers

    @property
    def line(self) -> str:
        """A line for a person."""
        return f"{self.slot}  {self.maker.value}  {self.driver or 'no driver'}"


def pci_gpus(machine: Machine) -> tuple[PciGpu, ...]:
    """The GPUs of the three makers, by maker and place. No GPU wakes."""
    folders = machine.folder("/sys/bus/pci/devices", "*")
    vendors = {folder: read_word(f"{folder}/vendor") for folder in folders}
    return tuple(
        gpu
        for maker, info in MAKERS.items()
        for folder in folders
        if vendors[folder] == info.pci_vendor and (gpu := _gpu(folder, maker)) is not None
    )


def _gpu(folder: Path, maker: Maker) -> PciGpu | None:
    """The GPU of a PCI device; ``None`` if it is something else."""
    try:
        driver: str | None = (folder / "driver").readlink().name
    except OSError:
        driver = None
    classes = (_DISPLAY, _ACCELERATOR) if maker is Maker.AMD else (_DISPLAY,)
    is_gpu = (read_word(f"{folder}/class") or "").startswith(classes)
    # The drivers amdgpu, i915 and xe have nothing but GPUs.
    if not is_gpu and (maker is Maker.NVIDIA or driver not in MAKERS[maker].kernel_drivers):
        return None
    nodes = tuple(path.name for path in found(folder, "drm/renderD*"))
    return PciGpu(folder.name, maker, driver, nodes, _is_integrated(folder, maker))


def _is_integrated(folder: Path, maker: Maker) -> bool:
    device = read_hex(f"{folder}/device")
    if maker is Maker.AMD:
        return amd.is_integrated(str(folder), device)
    return maker is Maker.INTEL and intel.is_integrated(folder.name, device)


class DriverAnswer(Struct, frozen=True):
    """The result of querying the drivers."""

    library: bool  # Whether the dynamic linker finds that of NVIDIA's driver.
    library_version: str | None = None  # Of the driver that the library belongs to.
    snapshot: Snapshot | None = None  # ``None`` without a sample; then ``trouble`` has the reason.
    trouble: Trouble | None = None
    seconds: float = 0.0  # How long it took.


class DiagnosticContext:
    """The context of one run."""

    def __init__(self, machine: Machine, ask: Callable[[], DriverAnswer]) -> None:
        self.machine = machine
        # Queries the driver once, when the first check needs it.
        self._ask = ask

    @cached_property
    def driver(self) -> DriverAnswer:
        """The driver's answer."""
        return self._ask()

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that the drivers know."""
        return () if self.driver.snapshot is None else self.driver.snapshot.gpus

    def gpus_of(self, maker: Maker) -> list[Gpu]:
        """Those of one maker."""
        return gpus_of(maker, self.gpus)

    @cached_property
    def cards(self) -> tuple[PciGpu, ...]:
        """GPUs on the PCI bus, whatever driver they have."""
        return pci_gpus(self.machine)

    def cards_of(self, maker: Maker) -> tuple[PciGpu, ...]:
        """Those of one maker."""
        return tuple(card for card in self.cards if card.maker is maker)

    @cached_property
    def hidden(self) -> tuple[PciGpu, ...]:
        """GPUs of processors that gpumon leaves out because the machine has another GPU."""
        shown = {slot_of(gpu.pci_bus_id) for gpu in self.gpus if gpu.pci_bus_id is not None}
        return tuple(
            card
            for card in self.cards
            if card.integrated and card.shown_by_gpumon and slot_of(card.slot) not in shown
            if self.gpus
        )

    @property
    def expects_nvidia(self) -> bool:
        """Whether NVIDIA's driver should be here.

        It should on a machine without any GPU too, because GPUs are not always on a PCI bus.
        """
        return bool(
            self.cards_of(Maker.NVIDIA)
            or self.module_version is not None
            or self.in_wsl
            or self.gpus_of(Maker.NVIDIA)
            or not self.cards
        )

    @cached_property
    def module_version(self) -> str | None:
        """Version of the loaded kernel module."""
        from gpumon.makers.nvidia.library import loaded_version

        return loaded_version(str(self.machine.path("/proc")))

    @property
    def in_wsl(self) -> bool:
        """Whether this is a guest of Windows, which drives the GPUs itself."""
        return exists(self.machine.path("/dev/dxg"))

    @property
    def cuda_version(self) -> tuple[int, int] | None:
        """The newest CUDA that the driver supports."""
        snapshot = self.driver.snapshot
        return None if snapshot is None else parse_version(snapshot.host.cuda_version or "")


def ask_driver(take: Callable[[], Snapshot]) -> DriverAnswer:
    """Query the drivers of this machine."""
    from gpumon.makers.nvidia.library import Library, library_version, load_library

    there, version = True, None
    try:
        load_library()
    except OSError:
        there = False
    else:
        version = library_version(Library(SystemClock()))
    before = time.monotonic()
    snapshot, trouble = None, None
    try:
        snapshot = take()
    except SourceError as error:
        trouble = Trouble(error.sentence, error.advice)
    except Exception as error:  # noqa: BLE001 - every check of the driver would fail with it
        trouble = Trouble(f"The GPUs cannot be read: {why_failed(error)}", "")
    seconds = time.monotonic() - before
    return DriverAnswer(there, version, snapshot, trouble, seconds)
