"""Data that the checks of one run share: the machine, and the driver's answer."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.snapshot import Snapshot, Trouble
from gpumon.sources import SourceError
from gpumon.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.doctor.machine import Machine
    from gpumon.model.snapshot import Gpu


class DriverAnswer(Struct, frozen=True):
    """The result of querying the driver.

    Attributes:
        library: Whether the dynamic linker finds the driver's library.
        library_version: The driver's version that the library belongs to.
        snapshot: One sample; ``None`` where there is none.
        trouble: Why there is none.
        seconds: How long it took.
    """

    library: bool
    library_version: str | None = None
    snapshot: Snapshot | None = None
    trouble: Trouble | None = None
    seconds: float = 0.0


class DiagnosticContext:
    """The context of one run.

    Args:
        machine: The machine to examine.
        ask: Queries the driver once, when the first check needs it.
    """

    def __init__(self, machine: Machine, ask: Callable[[], DriverAnswer]) -> None:
        self.machine = machine
        self._ask = ask

    @cached_property
    def driver(self) -> DriverAnswer:
        """The driver's answer."""
        return self._ask()

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that the driver knows."""
        return () if self.driver.snapshot is None else self.driver.snapshot.gpus

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """NVIDIA GPUs on the PCI bus by kernel name, whatever driver they have."""
        from gpumon.host.power import graphics_devices
        from gpumon.sources.nvml.sleep import PCI_VENDOR

        return tuple(graphics_devices(PCI_VENDOR, str(self.machine.path("/sys"))))

    @cached_property
    def module_version(self) -> str | None:
        """Version of the loaded kernel module."""
        from gpumon.sources.nvml.driver_errors import loaded_version

        return loaded_version(str(self.machine.path("/proc")))

    @property
    def in_wsl(self) -> bool:
        """Whether this is a guest of Windows, which drives the GPUs itself."""
        return self.machine.path("/dev/dxg").exists()

    @property
    def cuda_version(self) -> tuple[int, int] | None:
        """The newest CUDA that the driver supports."""
        snapshot = self.driver.snapshot
        text = None if snapshot is None else snapshot.host.cuda_version
        if text is None:
            return None
        major, _, minor = text.partition(".")
        return int(major), int(minor)


def ask_driver(take: Callable[[], Snapshot]) -> DriverAnswer:
    """Query the driver of this machine.

    Args:
        take: Takes one sample.
    """
    from gpumon.sources.nvml.driver_errors import library_version
    from gpumon.sources.nvml.library import load_library

    try:
        library = load_library(SystemClock())
    except OSError:
        return DriverAnswer(library=False)
    version = library_version(library)
    before = time.monotonic()
    try:
        snapshot = take()
    except SourceError as error:
        trouble: Trouble | None = Trouble(error.sentence, error.advice)
        return DriverAnswer(True, version, None, trouble, time.monotonic() - before)
    trouble = snapshot.trouble
    return DriverAnswer(
        True,
        version,
        snapshot if trouble is None else None,
        trouble,
        time.monotonic() - before,
    )
