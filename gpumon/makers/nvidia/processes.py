"""Reads NVML's process lists and per-process utilization.

NVML has three lists for each GPU (compute, graphics, MPS clients). A list can grow while it is
read, and its PIDs may be of another namespace: in a container, older drivers report PIDs of the
host. Utilization comes as samples with their own clock.

The functions of ``pynvml`` are not used: they do not retry a list that grew, allocate each list
anew, and cannot read the entries of early 535 drivers.
"""

from __future__ import annotations

import ctypes
import re
import struct
from ctypes import byref, c_uint, c_ulonglong
from typing import TYPE_CHECKING, NamedTuple

import pynvml
from msgspec import Struct

from gpumon.makers.backend import COMPUTE, GRAPHICS, MPS, ListedProcess, joined_type
from gpumon.makers.nvidia.queries import PollRate, Query
from gpumon.model.processes import LARGEST_PID, GpuUse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.makers.nvidia.gpu import NvmlGpu

_UTILIZATION = "utilization"

_ENTRY = struct.Struct("@IQII")
"""``nvmlProcessInfo_t`` of the second and third version: PID, bytes, GPU and compute instance."""
_OLD_ENTRY = struct.Struct("@IQ")
"""``nvmlProcessInfo_v1_t``."""
_LONG_ENTRY = struct.Struct("@IQIIQ")
"""The third version as some early 535 drivers write it (nvitop#75)."""
_SAMPLE = struct.Struct("@IQIIII")
"""``nvmlProcessUtilizationSample_t``: PID, timestamp, SM, memory, encoder, decoder.

Struct alignment puts four bytes after the PID; ``struct`` leaves the tail unpadded, which is the
size NVML has too.
"""

_FIRST_ROOM = 64
_TRIES = 5
_MOST_ROOM = 2**16
"""The driver lists at most 950 processes: a much larger count is an error."""
_NOT_AVAILABLE = 2**64 - 1
_NO_INSTANCE = 2**32 - 1
_MOST_PERCENT = 100
_FIRST_SPAN = 1_000_000
"""Microseconds before the newest sample; older samples of the first call are ignored."""

Instance = tuple[int, int]


class NvmlRow(NamedTuple):
    """An entry of a list."""

    pid: int  # As the driver reports it; see ``pid_trust``.
    memory: int | None  # Bytes.
    instance: Instance | None  # (GPU instance, compute instance) under MIG.


class Sample(NamedTuple):
    """The utilization by a process since its previous sample, in percent."""

    sm: int
    memory: int
    encoder: int
    decoder: int


IDLE = Sample(0, 0, 0, 0)


# Lists


class _List:
    """One of the lists, with a buffer that is reused and grows."""

    def __init__(self, kind: str, gpu: NvmlGpu) -> None:
        self._kind = kind
        self._gpu = gpu
        self._room = 0
        self._count = c_uint()
        self._buffer = ctypes.create_string_buffer(0)
        self._entries_are_long = False

    def read(self, function: str, entry: struct.Struct, handle: ctypes.c_void_p) -> int:
        code = self._fill(function, handle)
        if not code:
            self._gpu.lists.values[self._kind] = self._rows(entry)
        elif code in {pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA}:
            self._gpu.lists.values[self._kind] = ()
            return pynvml.NVML_SUCCESS
        return code

    def read_instances(self, function: str, entry: struct.Struct) -> int:
        """Read each MIG device: this needs no permission for the whole GPU."""
        rows: list[NvmlRow] = []
        for instance, handle in zip(self._gpu.mig, self._gpu.mig_handles, strict=True):
            code = self._fill(function, handle)
            if code in {
                pynvml.NVML_ERROR_INVALID_ARGUMENT,
                pynvml.NVML_ERROR_NOT_FOUND,
                pynvml.NVML_ERROR_NO_DATA,
            }:
                # It was destroyed since the devices were listed, or has no processes.
                continue
            if code:
                return code
            if instance.gpu_instance is None or instance.compute_instance is None:
                here = None
            else:
                here = (instance.gpu_instance, instance.compute_instance)
            rows += (row._replace(instance=here) for row in self._rows(entry))
        self._gpu.lists.values[self._kind] = tuple(rows)
        return pynvml.NVML_SUCCESS

    def _fill(self, function: str, handle: ctypes.c_void_p) -> int:
        if not self._room:
            self._grow(_FIRST_ROOM)
        for _ in range(_TRIES):
            self._count.value = self._room
            code = self._gpu.call(function, handle, byref(self._count), self._buffer)
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE or self._count.value > _MOST_ROOM:
                return code
            self._grow(self._count.value)
        return code

    def _grow(self, needed: int) -> None:
        self._room = max(needed, self._room) * 5 // 4 + 8
        # Some drivers write long entries into a list of shorter ones.
        self._buffer = ctypes.create_string_buffer(self._room * _LONG_ENTRY.size)

    def _rows(self, entry: struct.Struct) -> tuple[NvmlRow, ...]:
        count = min(self._count.value, self._room)
        if entry is _ENTRY and self._entries_are_long:
            entry = _LONG_ENTRY
        rows = self._decode(entry, count)
        if entry is _ENTRY and not _are_processes(rows):
            long_rows = self._decode(_LONG_ENTRY, count)
            if _are_processes(long_rows):
                self._entries_are_long = True
                return long_rows
        return tuple(row for row in rows if row.pid <= LARGEST_PID)

    def _decode(self, entry: struct.Struct, count: int) -> tuple[NvmlRow, ...]:
        rows = []
        for fields in entry.iter_unpack(memoryview(self._buffer)[: count * entry.size]):
            memory = None if fields[1] == _NOT_AVAILABLE else fields[1]
            instance = None
            if len(fields) > 2 and fields[2] != _NO_INSTANCE and fields[3] != _NO_INSTANCE:
                instance = (fields[2], fields[3])
            rows.append(NvmlRow(fields[0], memory, instance))
        return tuple(rows)


def _are_processes(rows: Iterable[NvmlRow]) -> bool:
    """Whether all PIDs are valid. Entries of the wrong length give 0 and 4294967295."""
    return all(0 < row.pid <= LARGEST_PID for row in rows)


def process_queries(gpu: NvmlGpu) -> Iterable[Query]:
    """What is asked of a GPU about its processes; the answers are ``gpu.lists``."""
    for kind, name in (
        (COMPUTE, "nvmlDeviceGetComputeRunningProcesses"),
        (GRAPHICS, "nvmlDeviceGetGraphicsRunningProcesses"),
        (MPS, "nvmlDeviceGetMPSComputeRunningProcesses"),
    ):
        yield _list_query(gpu, kind, name)
    yield Query((_UTILIZATION,), _Utilization(gpu).ask, PollRate.PROCESSES)


def _list_query(gpu: NvmlGpu, kind: str, name: str) -> Query:
    kept = _List(kind, gpu)

    def version(suffix: str, entry: struct.Struct, older: Query | None) -> Query:
        def ask() -> int:
            code = kept.read(name + suffix, entry, gpu.handle)
            if code == pynvml.NVML_ERROR_NO_PERMISSION and gpu.mig:
                return kept.read_instances(name + suffix, entry)
            return code

        return Query((kind,), ask, PollRate.PROCESSES, older)

    plain = version("", _OLD_ENTRY, None)
    return version("_v3", _ENTRY, version("_v2", _ENTRY, plain))


# Utilisation


class _Utilization:
    """The utilization samples of one GPU, by the driver's own timestamps.

    The clock differs between driver versions, so each call starts from the newest timestamp that
    the driver returned.
    """

    def __init__(self, gpu: NvmlGpu) -> None:
        self._gpu = gpu
        self._newest = 0
        self._room = _FIRST_ROOM
        self._count = c_uint()
        self._buffer = ctypes.create_string_buffer(self._room * _SAMPLE.size)

    def ask(self) -> int:
        since = self._newest
        code: int = pynvml.NVML_ERROR_INSUFFICIENT_SIZE
        for _ in range(_TRIES):
            self._count.value = self._room
            code = self._gpu.call(
                "nvmlDeviceGetProcessUtilization",
                self._gpu.handle,
                self._buffer,
                byref(self._count),
                c_ulonglong(since),
            )
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE or self._count.value > _MOST_ROOM:
                break
            self._room = max(self._count.value, self._room) * 5 // 4 + 8
            self._buffer = ctypes.create_string_buffer(self._room * _SAMPLE.size)
        if code in {pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA}:
            self._gpu.lists.values[_UTILIZATION] = {}
            return pynvml.NVML_SUCCESS
        if not code:
            self._gpu.lists.values[_UTILIZATION] = self._samples(since)
        return code

    def _samples(self, since: int) -> dict[int, Sample]:
        """The newest sample of each PID."""
        newest: dict[int, tuple[int, Sample]] = {}
        used = memoryview(self._buffer)[: min(self._count.value, self._room) * _SAMPLE.size]
        for pid, timestamp, *percents in _SAMPLE.iter_unpack(used):
            if timestamp <= since or max(percents) > _MOST_PERCENT:
                continue
            self._newest = max(self._newest, timestamp)
            if pid not in newest or timestamp >= newest[pid][0]:
                newest[pid] = timestamp, Sample(*percents)
        # The first call also returns old samples.
        oldest = since or self._newest - _FIRST_SPAN
        return {pid: sample for pid, (at, sample) in newest.items() if at >= oldest}


# Merging


def list_processes(gpus: Iterable[NvmlGpu], *, with_utilization: bool) -> dict[int, ListedProcess]:
    """The processes of these GPUs by PID.

    Args:
        gpus: The GPUs in index order.
        with_utilization: Whether the utilization samples have PIDs of the same namespace.
    """
    types: dict[int, set[str]] = {}
    uses: dict[int, list[GpuUse]] = {}
    for gpu in gpus:
        _gather(gpu, types, uses, with_utilization=with_utilization)
    return {
        pid: ListedProcess(joined_type(kinds), tuple(uses[pid])) for pid, kinds in types.items()
    }


def _gather(
    gpu: NvmlGpu,
    types: dict[int, set[str]],
    uses: dict[int, list[GpuUse]],
    *,
    with_utilization: bool,
) -> None:
    """Merge the lists of one GPU: a process may be in several, with the same memory in each."""
    merged: dict[tuple[int, Instance | None], int | None] = {}
    for kind in (COMPUTE, GRAPHICS, MPS):
        for row in gpu.lists.values.get(kind) or ():
            key = row.pid, row.instance
            known = merged.get(key)
            if known is None or (row.memory is not None and row.memory > known):
                merged[key] = row.memory
            types.setdefault(row.pid, set()).add(kind)
    samples = gpu.lists.values.get(_UTILIZATION) if with_utilization else None
    for (pid, instance), memory in sorted(merged.items(), key=lambda item: item[0][1] or ()):
        if samples is None:
            use = GpuUse(gpu.uuid, gpu.index, instance, memory)
        else:
            use = GpuUse(gpu.uuid, gpu.index, instance, memory, *samples.get(pid, IDLE))
        uses.setdefault(pid, []).append(use)


# PIDs


_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)*")

# The first releases in which each of the two calls reports the container's own PIDs when it is made
# in a container. Releases in between mix both.
_PROCESSES_FROM = (535, 113)
_UTILIZATION_FROM = (570, 86)


class PidTrust(Struct, frozen=True):
    """Which of NVML's PIDs are in this program's PID namespace."""

    processes: bool  # Those of the lists of running processes.
    # Those of the per-process utilization. It also contains processes of other containers, with
    # PIDs of *their* namespace: use only PIDs that are in the lists.
    utilization: bool


def pid_trust(driver_version: str | None, initial_namespace: bool) -> PidTrust:
    """Whether the driver's PIDs can be looked up here.

    Args:
        driver_version: Such as ``570.124.06``; unknown or malformed versions are not trusted.
        initial_namespace: Whether this program runs in the machine's initial PID namespace, where
            the driver's PIDs are right in every version.
    """
    if initial_namespace:
        return PidTrust(processes=True, utilization=True)
    match = _VERSION.fullmatch(driver_version or "")
    if match is None:
        return PidTrust(processes=False, utilization=False)
    version = int(match[1]), int(match[2])
    return PidTrust(processes=version >= _PROCESSES_FROM, utilization=version >= _UTILIZATION_FROM)
