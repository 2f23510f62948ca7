"""Data that the checks of one run share: the machine, and the driver's answer."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.doctor.machine import exists
from gpumon.doctor.pci import pci_gpus
from gpumon.doctor.result import why_failed
from gpumon.host.kernel_log import slot_of
from gpumon.model.makers import Maker, gpus_of
from gpumon.model.snapshot import Snapshot, Trouble
from gpumon.sources.source import SourceError
from gpumon.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.doctor.machine import Machine
    from gpumon.doctor.pci import PciGpu
    from gpumon.model.snapshot import Gpu


class DriverAnswer(Struct, frozen=True):
    """The result of querying the drivers.

    Attributes:
        library: Whether the dynamic linker finds the library of NVIDIA's driver.
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

    @property
    def slots(self) -> tuple[str, ...]:
        """NVIDIA GPUs on the PCI bus by kernel name, whatever driver they have."""
        return tuple(card.slot for card in self.cards_of(Maker.NVIDIA))

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
            self.slots
            or self.module_version is not None
            or self.in_wsl
            or self.gpus_of(Maker.NVIDIA)
            or not self.cards
        )

    @cached_property
    def module_version(self) -> str | None:
        """Version of the loaded kernel module."""
        from gpumon.sources.nvml.driver_errors import loaded_version

        return loaded_version(str(self.machine.path("/proc")))

    @property
    def in_wsl(self) -> bool:
        """Whether this is a guest of Windows, which drives the GPUs itself."""
        return exists(self.machine.path("/dev/dxg"))

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
    """Query the drivers of this machine.

    Args:
        take: Takes one sample.
    """
    from gpumon.sources.nvml.driver_errors import library_version
    from gpumon.sources.nvml.library import Library, load_library

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
