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

from gpumon.doctor import checks_of, why_failed
from gpumon.host.pci import read_word, slot_of
from gpumon.makers.drm.cards import read_hex
from gpumon.makers.source import SourceError
from gpumon.model.makers import Maker, gpus_of, load, makers
from gpumon.model.snapshot import Snapshot, Trouble
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


class ExaminedMachine(Struct, frozen=True):
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


def unreadable(machine: ExaminedMachine, variables: Iterable[str]) -> list[str]:
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


class PciGpu(Struct, frozen=True):
    """A GPU on the PCI bus."""

    slot: str  # Kernel name: ``0000:03:00.0``.
    maker: Maker
    driver: str | None  # Of the kernel; ``None`` without one.
    render_nodes: tuple[str, ...] = ()  # Names: ``renderD128``.
    integrated: bool = False  # Part of a processor; for some makers known only with a driver.

    @property
    def shown_by_gpumon(self) -> bool:
        """Whether its driver is one of those that gpumon reads."""
        return self.driver in self.maker.kernel_drivers

    @property
    def line(self) -> str:
        """A line for a person."""
        return f"{self.slot}  {self.maker.name}  {self.driver or 'no driver'}"


def pci_gpus(machine: ExaminedMachine) -> tuple[PciGpu, ...]:
    """The GPUs of all makers, by maker and place. No GPU wakes."""
    folders = machine.folder("/sys/bus/pci/devices", "*")
    vendors = {folder: read_word(f"{folder}/vendor") for folder in folders}
    return tuple(
        gpu
        for maker in makers()
        for folder in folders
        if vendors[folder] == maker.pci_vendor and (gpu := _gpu(folder, maker)) is not None
    )


def _gpu(folder: Path, maker: Maker) -> PciGpu | None:
    """The GPU of a PCI device; ``None`` if it is something else."""
    try:
        driver: str | None = (folder / "driver").readlink().name
    except OSError:
        driver = None
    is_gpu = (read_word(f"{folder}/class") or "").startswith(maker.pci_classes)
    if not is_gpu and not (maker.is_drm and driver in maker.kernel_drivers):
        return None
    nodes = tuple(path.name for path in found(folder, "drm/renderD*"))
    integrated = maker.integrated is not None and load(maker.integrated)(
        str(folder), read_hex(f"{folder}/device")
    )
    return PciGpu(folder.name, maker, driver, nodes, integrated)


class DriverAnswer(Struct, frozen=True):
    """The result of querying the drivers."""

    # The driver versions of libraries that the dynamic linker finds, by the name of the maker.
    libraries: Mapping[str, str | None] = {}
    snapshot: Snapshot | None = None  # ``None`` without a sample; then ``trouble`` has the reason.
    trouble: Trouble | None = None
    seconds: float = 0.0  # How long it took.


class DiagnosticContext:
    """The context of one run."""

    def __init__(self, machine: ExaminedMachine, ask: Callable[[], DriverAnswer]) -> None:
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
    def in_wsl(self) -> bool:
        """Whether this is a guest of Windows, which drives the GPUs itself."""
        return exists(self.machine.path("/dev/dxg"))


def ask_driver(take: Callable[[], Snapshot]) -> DriverAnswer:
    """Query the drivers of this machine."""
    libraries = {}
    for maker in makers():
        find = checks_of(maker).find_library
        there, version = (False, None) if find is None else find()
        if there:
            libraries[maker.name] = version
    before = time.monotonic()
    snapshot, trouble = None, None
    try:
        snapshot = take()
    except SourceError as error:
        trouble = Trouble(error.sentence, error.advice)
    except Exception as error:  # noqa: BLE001 - every check of the driver would fail with it
        trouble = Trouble(f"The GPUs cannot be read: {why_failed(error)}", "")
    seconds = time.monotonic() - before
    return DriverAnswer(libraries, snapshot, trouble, seconds)
