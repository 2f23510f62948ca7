"""Finds the GPUs: by index, identified by UUID, also those that are asleep, lost or new.

No call may wake a GPU that is powered down. ``nvmlInit_v2`` "initializes NVML, but does not
initialize any GPUs yet" (nvml.h): it and counting the GPUs are safe.
``nvmlDeviceGetHandleByIndex_v2`` "causes NVML to initialize the target GPU": that, and every call
with a handle, wakes it.
"""

from __future__ import annotations

import ctypes
import math
from ctypes import byref, c_uint
from typing import TYPE_CHECKING

import pynvml

from gpumon.host.pci import graphics_devices, may_sleep, runtime_status
from gpumon.makers.backend import RETRY_SECONDS
from gpumon.makers.nvidia import MAKER
from gpumon.makers.nvidia.gpm import METRICS, GpmSampler
from gpumon.makers.nvidia.gpu import (
    STATUS_OF_CODE,
    DriverGoneError,
    GpuGoneError,
    NvmlGpu,
    StaleHandleError,
)
from gpumon.makers.nvidia.metric_readers import metric_queries
from gpumon.makers.nvidia.processes import process_queries
from gpumon.makers.nvidia.queries import REACTIONS, Reaction
from gpumon.model.snapshot import GpuStatus, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.makers.nvidia.library import Library
    from gpumon.makers.nvidia.queries import SlowCallBudget
    from gpumon.model.selection import GpuSelection
    from gpumon.system.system import System

_SUSPENDED = "suspended"

_NOT_WAITED_FOR = (GpuStatus.ASLEEP, GpuStatus.NO_ANSWER)
"""GPUs that are not retried: another event says when they respond again."""


class DeviceRegistry:
    """The selected GPUs.

    Attributes:
        gpus: The GPUs in index order.
        count: Number of all GPUs, selected or not.
        restarted: Queries of a GPU were restarted, so its process lists must be read.
    """

    def __init__(
        self,
        library: Library,
        system: System,
        slow_calls: SlowCallBudget,
        selection: GpuSelection,
        *,
        profiled: bool,
    ) -> None:
        self._library = library
        self._clock = system.clock
        self._slow_calls = slow_calls
        self._selection = selection
        self._sys = system.sys
        self._profiled = profiled
        self.count = 0
        self._again_at = math.inf
        self._changed = False
        self.restarted = False
        self.gpus: list[NvmlGpu] = []
        self._known: list[NvmlGpu] = []
        self._uuids: list[str] = []
        self._hanging: set[str] = set()

    def forget_handles(self) -> None:
        """Stop all queries until ``find``, because the driver is gone or was initialised."""
        for gpu in self._known:
            gpu.stop_asking()

    def guard(self, gpu: NvmlGpu, ask: Callable[[], object]) -> None:
        """Call a function that reads one GPU, and handle the loss of that GPU.

        Raises:
            DriverGoneError: The driver is gone.
        """
        try:
            ask()
        except GpuGoneError as gone:
            gpu.stop_responding(STATUS_OF_CODE[gone.code])
            self._again_at = min(self._again_at, self._clock.monotonic() + RETRY_SECONDS)
        except StaleHandleError:
            gpu.stop_asking()
            self._changed = True

    def prepare_sample(self, now: float) -> None:
        """Before a sample: stop queries to GPUs that fell asleep, find those that may be back.

        Raises:
            DriverGoneError: The driver is gone.
        """
        if self._library.hanging.keys() != self._hanging:
            self._changed = True
        for gpu in self.gpus:
            if gpu.mig_changed:
                self._start_queries(gpu)
            elif now >= gpu.resume_at:
                gpu.resume(now)
            if gpu.may_sleep and gpu.bus_id is not None:
                asleep = _is_asleep(gpu.bus_id, self._sys)
                if asleep and gpu.fast:
                    gpu.stop_responding(GpuStatus.ASLEEP)
                elif not asleep and gpu.status is GpuStatus.ASLEEP and not gpu.fast:
                    self._changed = True
        if self._changed or now >= self._again_at:
            self.find(now)

    def check_count(self, now: float) -> None:
        """Check whether GPUs were added or removed. Raises as ``find`` does."""
        if self._count_gpus() != self.count:
            self.find(now)
        for gpu in self.gpus:
            gpu.may_sleep = gpu.bus_id is not None and may_sleep(gpu.bus_id, self._sys)

    def find(self, now: float) -> None:
        """Find all GPUs. Known values stay with their UUID.

        Raises:
            DriverGoneError: The driver is gone.
        """
        # Until the end: if this thread hangs here, another one repeats it.
        self._changed = True
        self._hanging = set(self._library.hanging)
        count, known = self._count_gpus(), self._known
        recounted = count != self.count
        asleep = _sleeping_gpus(count, self._sys)
        gpus: list[NvmlGpu] = []
        uuids: list[str] = []
        for index in range(count):
            # A call for a handle wakes the GPU, so those not selected are skipped.
            if not self._selection.prefixes and not self._selection.includes(index, None):
                continue
            others = [gpu for gpu in known if gpu not in gpus]
            if index in asleep:
                gpu = self._sleeping_gpu(index, asleep[index], others)
            else:
                last = _gpu_at(index, others, recounted)
                gpu = self._awake_gpu(index, others, last)
            if gpu.uuid != _placeholder_uuid(index):
                uuids.append(gpu.uuid)
            if self._selection.includes(index, gpu.uuid):
                gpus.append(gpu)
            else:
                gpu.stop_asking()
        for gpu in known:
            if gpu not in gpus:
                gpu.stop_asking()
        self.gpus = self._known = gpus
        self.count, self._uuids, self._changed = count, uuids, False
        waits = any(not gpu.fast and gpu.status not in _NOT_WAITED_FOR for gpu in gpus)
        self._again_at = now + RETRY_SECONDS if waits else math.inf

    def missing(self) -> list[str]:
        """The parts of the selection that match no GPU."""
        return self._selection.missing(self.count, self._uuids)

    def handles(self) -> dict[int, str]:
        """UUIDs of the GPUs that respond, by handle."""
        return {gpu.handle.value or 0: gpu.uuid for gpu in self.gpus if gpu.fast}

    def _count_gpus(self) -> int:
        count = c_uint()
        code = self._library.call(None, "nvmlDeviceGetCount_v2", byref(count))
        if not code:
            return count.value
        if REACTIONS.get(code) is Reaction.DRIVER or not self.count:
            raise DriverGoneError(code)
        return self.count

    def _sleeping_gpu(self, index: int, bus_id: str, known: list[NvmlGpu]) -> NvmlGpu:
        gpu = next((gpu for gpu in known if gpu.bus_id == bus_id), None)
        if gpu is None:
            gpu = self._new(_placeholder_uuid(index), index)
            gpu.answers.values["pci_bus_id"] = bus_id
        gpu.index = index
        gpu.may_sleep = True
        gpu.stop_responding(GpuStatus.ASLEEP)
        return gpu

    def _awake_gpu(self, index: int, known: list[NvmlGpu], last: NvmlGpu | None) -> NvmlGpu:
        """The GPU at an index whose handle may be requested; ``last`` was there before."""
        handle = ctypes.c_void_p()
        # If this hangs, the GPU that was there before is the one that hangs.
        blamed = _placeholder_uuid(index) if last is None else last.uuid
        if blamed in self._library.hanging:
            return self._unanswering(last or self._new(blamed, index))
        code = self._library.call(
            blamed, "nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle)
        )
        uuid = ""
        if not code:
            code, uuid = self._library.text(blamed, pynvml.nvmlDeviceGetUUID, handle)
        if REACTIONS.get(code) is Reaction.DRIVER:
            raise DriverGoneError(code)
        if code:
            return self._without_handle(index, code, last)
        gpu = next((gpu for gpu in known if gpu.uuid == uuid), None) or self._new(uuid, index)
        gpu.index = index
        if uuid in self._library.hanging:
            return self._unanswering(gpu)
        if not gpu.fast or gpu.handle.value != handle.value:
            gpu.handle.value = handle.value
            self._start_queries(gpu)
        return gpu

    def _unanswering(self, gpu: NvmlGpu) -> NvmlGpu:
        """A GPU whose call was given up keeps its last values."""
        gpu.stop_asking()
        if gpu.status is not GpuStatus.NO_ANSWER:
            began = self._library.hanging.get(gpu.uuid, self._clock.monotonic())
            gpu.set_status(GpuStatus.NO_ANSWER)
            gpu.status_since = self._clock.time() - (self._clock.monotonic() - began)
        return gpu

    def _without_handle(self, index: int, code: int, last: NvmlGpu | None) -> NvmlGpu:
        gpu = last or self._new(_placeholder_uuid(index), index)
        gone = REACTIONS.get(code) in {Reaction.GPU, Reaction.REFUSED}
        if gpu.fast and not gone:
            # It responds with the handle it has.
            return gpu
        gpu.stop_responding(STATUS_OF_CODE.get(code, GpuStatus.FAILING))
        return gpu

    def _new(self, uuid: str, index: int) -> NvmlGpu:
        gpu = NvmlGpu(self._library, self._clock, uuid, index, self._slow_calls.add)
        # Before any call: if this thread is given up, the next one must find this object.
        self._known.append(gpu)
        return gpu

    def _start_queries(self, gpu: NvmlGpu) -> None:
        """Start all queries from the beginning."""
        self.restarted = True
        gpu.begin()
        for query in (*metric_queries(gpu), *process_queries(gpu)):
            gpu.add_query(query)
        if self._profiled:
            gpu.profile_with(GpmSampler(gpu))
        else:
            gpu.answers.miss(tuple(METRICS), Unknown.NOT_READ)


def _placeholder_uuid(index: int) -> str:
    """The placeholder for the UUID of a GPU that has not reported one."""
    return f"index-{index}"


def _gpu_at(index: int, known: list[NvmlGpu], recounted: bool) -> NvmlGpu | None:
    """The GPU that was at this index; unknown if the number of GPUs changed."""
    return next(
        (
            gpu
            for gpu in known
            if gpu.index == index and (not recounted or gpu.uuid == _placeholder_uuid(index))
        ),
        None,
    )


def _sleeping_gpus(count: int, sys: str) -> dict[int, str]:
    """The indices of sleeping GPUs, with their PCI bus IDs as NVML writes them.

    NVML counts GPUs in the order of the PCI bus. If it counts fewer than the bus has, as in a
    container that was given some of them, indices cannot be assigned and the result is empty.

    Args:
        count: How many GPUs NVML counts.
        sys: Where the system file system is mounted.
    """
    devices = graphics_devices(MAKER.pci_vendor, sys)
    if len(devices) != count:
        return {}
    return {
        index: _as_nvml(device)
        for index, device in enumerate(devices)
        if runtime_status(device, sys) == _SUSPENDED
    }


def _is_asleep(bus_id: str, sys: str) -> bool:
    """Whether the GPU with this PCI bus ID is powered down now."""
    return runtime_status(bus_id, sys) == _SUSPENDED


def _as_nvml(device: str) -> str:
    domain, rest = device.split(":", 1)
    return f"{domain.zfill(8)}:{rest}".upper()
