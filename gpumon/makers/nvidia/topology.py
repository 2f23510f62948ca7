"""Reads the links between GPUs, as ``nvidia-smi topo -m`` shows them.

They are read once, when several GPUs are selected, on a thread of its own, because the driver may
hang. NVML counts its users, so sampling is not affected.
"""

from __future__ import annotations

import threading
from itertools import combinations
from typing import Any

import pynvml

from gpumon.makers.backend import NO_KNOWN_LINKS, Joint, Link, Links
from gpumon.makers.nvidia.library import Library, load_library
from gpumon.system.system import SystemClock

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
    return found[0] if found else NO_KNOWN_LINKS


def _ask() -> Links:
    try:
        load_library()
    except OSError:
        return NO_KNOWN_LINKS
    library = Library(SystemClock())
    if library.call(None, "nvmlInit_v2"):
        return NO_KNOWN_LINKS
    try:
        gpus = _gpus(library)
        between = {
            frozenset(pair): _joint(library, *(gpus[uuid] for uuid in pair))
            for pair in combinations(gpus, 2)
        }
    finally:
        library.call(None, "nvmlShutdown")
    return Links(between)


def _gpus(library: Library) -> dict[str, Any]:
    """The handles of all GPUs that can be opened, by UUID."""
    gpus = {}
    _, count = library.ask(None, pynvml.nvmlDeviceGetCount)
    for index in range(count or 0):
        failed, handle = library.ask(None, pynvml.nvmlDeviceGetHandleByIndex, index)
        if not failed:
            failed, uuid = library.text(None, pynvml.nvmlDeviceGetUUID, handle)
        if not failed:
            gpus[uuid] = handle
    return gpus


def _joint(library: Library, *pair: Any) -> Joint:
    caps = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
    _, status = library.ask(None, pynvml.nvmlDeviceGetP2PStatus, *pair, caps)
    _, level = library.ask(None, pynvml.nvmlDeviceGetTopologyCommonAncestor, *pair)
    return Joint(status == pynvml.NVML_P2P_STATUS_OK, _BY_LEVEL.get(level, Link.UNKNOWN))
