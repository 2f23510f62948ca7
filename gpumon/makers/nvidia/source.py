"""The backend for NVIDIA's driver.

One thread makes the calls (the driver serialises its callers anyway), each at its own rate:

- every sample: memory, utilization, power, temperature, clocks (``NvmlGpu.read_fast``);
- every second, or every sample if a listener keeps all values: values that only the page of a GPU
  shows;
- every second: process lists and their utilization (``processes``), and how much of the GPU works
  (``gpm``);
- every two seconds, within a time budget: most other values (``metric_readers``);
- every ten seconds: modes, links, BAR1, lifetime error counts and repairs.

A GPU that is lost, asleep or not permitted does not affect the others. While the driver is gone,
readings have ``trouble``.
"""

from __future__ import annotations

import math
import os
from functools import partial
from typing import TYPE_CHECKING

# Before pynvml, which it imports in 10 ms and not 34.
from gpumon.makers.nvidia.library import (
    NO_GPUS,
    NO_LIBRARY,
    NO_PERMISSION,
    NONE_CHOSEN,
    Library,
    load_library,
    trouble_of,
)

# isort: split
import pynvml
from msgspec.structs import replace

from gpumon.host.procfs import in_initial_pid_namespace
from gpumon.makers.backend import (
    EVERY_SECOND,
    PERIOD,
    RETRY_SECONDS,
    DriverInfo,
    GpuBackend,
    Reading,
    pause_after_lists,
)
from gpumon.makers.nvidia import MAKER
from gpumon.makers.nvidia.device_registry import DeviceRegistry
from gpumon.makers.nvidia.gpu import DriverGoneError, NvmlGpu
from gpumon.makers.nvidia.processes import PidTrust, list_processes, pid_trust
from gpumon.makers.nvidia.queries import SlowCallBudget, pause_after
from gpumon.makers.nvidia.xids import EventXidWatcher, XidReports
from gpumon.makers.source import NoSuchGpuError, SourceError, gpus_there
from gpumon.model.selection import ALL, GpuSelection
from gpumon.model.snapshot import GpuStatus, Trouble, Unknown
from gpumon.system.resource_errors import lack_behind, tolerated_lack_of_files
from gpumon.system.system import THIS_SYSTEM, System

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.host.kernel_watcher import Heard
    from gpumon.makers.backend import ListedProcess
    from gpumon.model.topology import Links

INTEGRATED = frozenset(("5.3", "6.2", "7.2", "8.7", "10.1", "11.0", "12.1"))
"""Compute capabilities that only GPUs without memory of their own have: the Jetsons (Nano, TX2,
Xavier, Orin, Thor with both its numbers) and GB10 of DGX Spark. From NVIDIA's table at
developer.nvidia.com/cuda-gpus. Grace Hopper (9.0) has memory of its own."""

_WATCHER_PATIENCE = 1.0
"""Seconds for the XID watcher to end before NVML is initialised again: its ``nvmlShutdown`` would
count against the new initialisation."""


class NvmlBackend(GpuBackend):
    """The GPUs of NVIDIA's driver.

    ``open`` may be called again after it failed.

    Args:
        selection: The GPUs to read.
        system: The operating system that is read.
        profiled: Whether to read how much of each GPU works; see ``gpm``.
    """

    maker = MAKER

    def __init__(
        self,
        selection: GpuSelection = ALL,
        system: System = THIS_SYSTEM,
        *,
        profiled: bool = False,
    ) -> None:
        super().__init__(selection, system, profiled=profiled)
        self._clock = system.clock
        self.calls = self._library = Library(self._clock)
        self._slow_calls = SlowCallBudget()
        self._registry = DeviceRegistry(
            self._library, system, self._slow_calls, selection, profiled=profiled
        )
        self._trust = PidTrust(processes=False, utilization=False)
        self._watcher: EventXidWatcher | None = None
        self._xids = XidReports()
        self._slots: list[str] = []
        self._initialised = False
        self._running = False
        self._trouble: Trouble | None = None
        self._retry_at = -math.inf
        self._check_devices_at = -math.inf
        self._describe_at = math.inf
        self._descriptions = 0
        self._details_due = -math.inf
        self._processes_due = -math.inf
        self._profile_due = -math.inf
        self._listed: dict[int, ListedProcess] | None = None
        self._listed_at: float | None = None
        self._driver = DriverInfo()

    def open(self) -> None:
        """See ``Source.open``."""
        self._xids.hold()  # Until the kernel log was read, see ``hear``.
        try:
            load_library()
        except OSError as error:
            if lack_behind(error) is not None:
                raise
            raise SourceError(NO_LIBRARY.sentence, NO_LIBRARY.advice) from None
        try:
            self._open()
        except SourceError:
            self._stop()
            raise

    def read(self, *, full: bool = True) -> Reading:
        """See ``GpuBackend.read``."""
        now = self._clock.monotonic()
        if self._running or now >= self._retry_at:
            self._try_to_read(now, full=full)
        return Reading(
            time=self._clock.time(),
            gpus=tuple(gpu.snapshot() for gpu in self._registry.gpus) if self._running else (),
            driver=self._driver,
            listed=self._listed,
            listed_at=self._listed_at,
            trouble=self._trouble if not self._running else self._why_empty(),
        )

    def hear(self, heard: Sequence[Heard] | None, *, is_readable: bool) -> None:
        """See ``GpuBackend.hear``."""
        if heard is None:
            self._xids.hold()
        else:
            self._xids.add_heard(heard)
            self._xids.release(self._clock.time() if is_readable else None)

    def links(self) -> Links:
        """See ``GpuBackend.links``."""
        from gpumon.makers.nvidia.links import read_links

        return read_links()

    def close(self) -> None:
        """See ``Source.close``."""
        self._stop()

    # Connection

    def _open(self) -> None:
        """Initialise it and find the GPUs.

        Raises:
            SourceError: There is nothing to sample, or a selected GPU does not exist.
        """
        try:
            if not self._running:
                self._start(self._clock.monotonic())
        except DriverGoneError as gone:
            trouble: Trouble | None = trouble_of(gone.code, self._library, self._system.proc)
        else:
            trouble = self._why_empty()
            missing = self._registry.missing()
            if missing and trouble is not NO_GPUS:
                raise NoSuchGpuError(missing, self._registry.count)
            if trouble is NONE_CHOSEN:
                # The UUID of a GPU that sleeps is not known.
                trouble = Trouble(NONE_CHOSEN.sentence, gpus_there(self._registry.count))
        if trouble is not None:
            raise SourceError(trouble.sentence, trouble.advice)

    def _stop(self, patience: float = 0.0) -> None:
        """Shut NVML down.

        Args:
            patience: Seconds to wait for the XID watcher's thread.
        """
        if self._watcher is not None:
            self._watcher.stop(patience)
            self._watcher = None
        self._registry.forget_handles()
        self._listed, self._listed_at = None, None
        self._running = False
        if self._initialised:
            self._initialised = False
            # A thread that hangs in a call still needs the library.
            if not self._library.hanging:
                self._library.call(None, "nvmlShutdown")

    def _try_to_read(self, now: float, *, full: bool) -> None:
        # After a reload of the driver it is initialised again at once, and must respond then.
        for _ in range(2):
            try:
                if not self._running:
                    self._start(now)
                self._read(now, full=full)
            except DriverGoneError as gone:
                self._trouble = trouble_of(gone.code, self._library, self._system.proc)
                self._retry_at = now + RETRY_SECONDS
                self._stop(_WATCHER_PATIENCE)
                if gone.code == pynvml.NVML_ERROR_UNINITIALIZED:
                    continue
            return

    def _start(self, now: float) -> None:
        """Initialise NVML and find the GPUs; continues where an abandoned thread stopped.

        Raises:
            DriverGoneError: The driver does not respond.
        """
        if not self._initialised:
            code = self._library.call(None, "nvmlInit_v2")
            if code:
                raise DriverGoneError(code)
            self._initialised = True
            self._registry.forget_handles()
            self._descriptions = 0
            self._driver = replace(self._driver, since=self._clock.time())
            self._describe(now)
            self._slots = self._list_slots()
        self._check_devices_at = now + PERIOD
        self._processes_due = now
        self._registry.find(now)
        self._running = True
        self._watcher = EventXidWatcher(self._clock, self._xids)
        self._watcher.start(self._registry.handles())

    def _describe(self, now: float) -> None:
        """Read the versions, and again later while one of them is unknown."""
        no_driver, driver = self._library.text(None, pynvml.nvmlSystemGetDriverVersion)
        no_nvml, nvml = self._library.text(None, pynvml.nvmlSystemGetNVMLVersion)
        initial_namespace = in_initial_pid_namespace(self._system.proc)
        no_cuda, cuda = self._library.ask(None, pynvml.nvmlSystemGetCudaDriverVersion_v2)
        version = None if no_driver else driver
        self._trust = pid_trust(version, initial_namespace)
        self._driver = DriverInfo(
            version=version,
            library_version=None if no_nvml else nvml,
            cuda_version=None if no_cuda else f"{cuda // 1000}.{cuda % 1000 // 10}",
            since=self._driver.since,
            pids_are_ours=self._trust.processes,
        )
        self._descriptions += 1
        pause = pause_after(self._descriptions, answered=True)
        self._describe_at = now + pause if no_driver or no_nvml or no_cuda else math.inf

    def _list_slots(self) -> list[str]:
        """The GPUs of the kernel module; NVML sees them only when it is initialised."""
        try:
            return sorted(os.listdir(f"{self._system.proc}/driver/nvidia/gpus"))  # noqa: PTH208 - no import
        except OSError:
            return []

    def _why_empty(self) -> Trouble | None:
        """Why there is nothing to read; ``None`` if there is something."""
        gpus = self._registry.gpus
        if gpus:
            barred = all(gpu.status is GpuStatus.NO_PERMISSION for gpu in gpus)
            return NO_PERMISSION if barred else None
        return NONE_CHOSEN if self._registry.count else NO_GPUS

    # Reading

    def _read(self, now: float, *, full: bool) -> None:
        """Read what is due. Raises ``DriverGoneError``."""
        if now >= self._check_devices_at:
            self._check_devices(now)
        self._registry.prepare_sample(now)
        details = full or now >= self._details_due
        if details:
            self._details_due = now + EVERY_SECOND
        for gpu in self._registry.gpus:
            if gpu.fast:
                self._registry.guard(gpu, partial(gpu.read_fast, now, details=details))
        for turn in self._slow_calls.take(now):
            spent = self._library.driver_seconds
            self._registry.guard(turn.gpu, partial(turn.gpu.ask, turn.query, now))
            self._slow_calls.done(turn, now, self._library.driver_seconds - spent)
        if now >= self._processes_due or self._registry.restarted:
            self._read_processes(now)
        if now >= self._profile_due:
            spent = self._library.driver_seconds
            for gpu in self._registry.gpus:
                if gpu.profile:
                    self._registry.guard(gpu, partial(gpu.ask_all, gpu.profile, now))
            self._profile_due = now + pause_after_lists(self._library.driver_seconds - spent)
        if self._watcher is not None:
            self._watcher.watch(self._registry.handles())
        self._take_xids()

    def _check_devices(self, now: float) -> None:
        self._check_devices_at = now + PERIOD
        if now >= self._describe_at:
            self._describe(now)
        slots = self._list_slots()
        if slots == self._slots:
            self._registry.check_count(now)
            return
        # NVML counts the GPUs when its first user initialises it, so all users must end first.
        since = self._driver.since
        self._stop(_WATCHER_PATIENCE)
        self._start(now)
        self._driver = replace(self._driver, since=since)

    def _read_processes(self, now: float) -> None:
        self._registry.restarted = False
        spent = self._library.driver_seconds
        for gpu in self._registry.gpus:
            if gpu.fast:
                self._registry.guard(gpu, partial(gpu.ask_all, gpu.process_lists, now))
        self._listed = list_processes(self._registry.gpus, with_utilization=self._trust.utilization)
        self._listed_at = self._clock.time()
        self._processes_due = now + pause_after_lists(self._library.driver_seconds - spent)
        for gpu in self._registry.gpus:
            _detect_unified_memory(gpu)

    def _take_xids(self) -> None:
        if self._xids.nothing_to_report:
            return
        with tolerated_lack_of_files():
            from gpumon.host.pci import slot_of

            for gpu in self._registry.gpus:
                slot = None if gpu.bus_id is None else slot_of(gpu.bus_id)
                report = self._xids.next_of(gpu.uuid, slot)
                if report is not None:
                    gpu.answers.values["xid"], gpu.answers.values["xid_at"] = report


def _detect_unified_memory(gpu: NvmlGpu) -> None:
    """Detect a GPU without memory of its own.

    Two facts must agree: the driver reports no memory, and all GPUs of this compute capability
    have none. Otherwise it stays unknown.
    """
    values = gpu.answers.values
    if values["memory_total"] is not None:
        values["memory_unified"] = False
    elif gpu.fast and values["memory_unified"] is None:
        is_refused = gpu.answers.unknown.get("memory_total") is Unknown.NOT_SUPPORTED
        capability = values["compute_capability"]
        if is_refused and capability is not None:
            values["memory_unified"] = capability in INTEGRATED
