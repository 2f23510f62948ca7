"""Reads the links between GPUs, as ``nvidia-smi topo -m`` shows them.

They are read once, when several GPUs are selected, on a thread of its own, because the driver may
hang. NVML counts its users, so sampling is not affected.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref
from itertools import combinations

import pynvml

from gpumon.makers.links import NONE_KNOWN, Joint, Link, Links
from gpumon.makers.nvidia.library import Library, load_library
from gpumon.system.clock import SystemClock

_PATIENCE = 2.0
"""Seconds after which the links count as unknown."""

_BY_LEVEL = {
    pynvml.NVML_TOPOLOGY_INTERNAL: Link.BOARD,
    pynvml.NVML_TOPOLOGY_SINGLE: Link.SWITCH,
    pynvml.NVML_TOPOLOGY_MULTIPLE: Link.SWITCHES,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: Link.HOST,
    pynvml.NVML_TOPOLOGY_NODE: Link.NODE,
    pynvml.NVML_TOPOLOGY_SYSTEM: Link.SYSTEM,
}


def read_links() -> Links:
    """The links between all GPUs."""
    found: list[Links] = []
    asking = threading.Thread(
        target=lambda: found.append(_ask()), name="gpumon-topology", daemon=True
    )
    asking.start()
    asking.join(_PATIENCE)
    return found[0] if found else NONE_KNOWN


def _ask() -> Links:
    try:
        load_library()
    except OSError:
        return NONE_KNOWN
    library = Library(SystemClock())
    if library.call(None, "nvmlInit_v2"):
        return NONE_KNOWN
    try:
        gpus = _gpus(library)
        between = {
            frozenset((one, other)): _joint(library, gpus[one], gpus[other])
            for one, other in combinations(gpus, 2)
        }
    finally:
        library.call(None, "nvmlShutdown")
    return Links(between)


def _gpus(library: Library) -> dict[str, ctypes.c_void_p]:
    """The handles of all GPUs that can be opened, by UUID."""
    count = ctypes.c_uint()
    gpus: dict[str, ctypes.c_void_p] = {}
    if library.call(None, "nvmlDeviceGetCount_v2", byref(count)):
        return gpus
    for index in range(count.value):
        handle = ctypes.c_void_p()
        if not library.call(
            None, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), byref(handle)
        ):
            failed, uuid = library.text(None, "nvmlDeviceGetUUID", handle)
            if not failed:
                gpus[uuid] = handle
    return gpus


def _joint(library: Library, one: ctypes.c_void_p, other: ctypes.c_void_p) -> Joint:
    value = ctypes.c_int()
    failed = library.call(
        None, "nvmlDeviceGetP2PStatus", one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK, byref(value)
    )
    nvlink = not failed and value.value == pynvml.NVML_P2P_STATUS_OK
    failed = library.call(None, "nvmlDeviceGetTopologyCommonAncestor", one, other, byref(value))
    return Joint(nvlink, Link.UNKNOWN if failed else _BY_LEVEL.get(value.value, Link.UNKNOWN))
