"""Reads the links between the GPUs of NVIDIA's driver, as ``nvidia-smi topo -m`` shows them."""

from __future__ import annotations

import threading
from itertools import combinations
from typing import TYPE_CHECKING, Any

# Before pynvml, which it imports in 10 ms and not 34.
from gpumon.makers.nvidia.library import Library, load_library

# isort: split
import pynvml
from msgspec import Struct

from gpumon.host.pci import slot_of
from gpumon.model.topology import NO_KNOWN_LINKS, Joint, Link, Links
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_PATIENCE = 2.0

_LINK_BY_LEVEL = {
    pynvml.NVML_TOPOLOGY_INTERNAL: Link.BOARD,
    pynvml.NVML_TOPOLOGY_SINGLE: Link.SWITCH,
    pynvml.NVML_TOPOLOGY_MULTIPLE: Link.SWITCHES,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: Link.HOST,
    pynvml.NVML_TOPOLOGY_NODE: Link.NODE,
    pynvml.NVML_TOPOLOGY_SYSTEM: Link.SYSTEM,
}
_UP = frozenset((pynvml.NVML_NVLINK_STATE_ACTIVE, pynvml.NVML_NVLINK_STATE_SLEEP))


def read_links(patience: float = _PATIENCE) -> Links:
    """The links between all GPUs.

    They are read on demand, on a thread of its own, because the driver may hang. NVML counts its
    users, so sampling is not affected.

    Args:
        patience: Seconds after which they count as unknown.
    """
    found: list[Links] = []
    asking = threading.Thread(
        target=lambda: found.append(_ask_for_links()), name="gpumon-topology", daemon=True
    )
    asking.start()
    asking.join(patience)
    return found[0] if found else NO_KNOWN_LINKS


def _ask_for_links() -> Links:
    try:
        load_library()
    except OSError:
        return NO_KNOWN_LINKS
    library = Library(THIS_SYSTEM.clock)
    if library.call(None, "nvmlInit_v2"):
        return NO_KNOWN_LINKS
    try:
        gpus = _gpus(library)
        slots = {gpu.slot for gpu in gpus.values()} - {None}
        between = {
            frozenset((one, other)): _joint(library, gpus[one], gpus[other], slots)
            for one, other in combinations(gpus, 2)
        }
    finally:
        library.call(None, "nvmlShutdown")
    return Links(between)


class _LinkedGpu(Struct, frozen=True):
    """A GPU, and where its NVLinks end."""

    handle: Any
    slot: str | None  # Its place on the PCI bus.
    # How many of its NVLinks that are up end in each device, by its place on the PCI bus; ``None``
    # is an end that the driver does not name. ``None`` altogether if a link was not read.
    ends: Mapping[str | None, int] | None


def _gpus(library: Library) -> dict[str, _LinkedGpu]:
    """All GPUs that can be opened, by UUID."""
    gpus = {}
    _, count = library.ask(None, pynvml.nvmlDeviceGetCount)
    for index in range(count or 0):
        failed, handle = library.ask(None, pynvml.nvmlDeviceGetHandleByIndex, index)
        if not failed:
            failed, uuid = library.text(None, pynvml.nvmlDeviceGetUUID, handle)
        if not failed:
            _, place = library.ask(None, pynvml.nvmlDeviceGetPciInfo_v3, handle)
            gpus[uuid] = _LinkedGpu(handle, _slot(place), _ends(library, handle))
    return gpus


def _slot(place: Any) -> str | None:
    """The place on the PCI bus in a struct of the driver; ``None`` if there is none in it."""
    # pynvml decodes the texts of a struct when they are read, and refuses invalid ones.
    try:
        return None if place is None else slot_of(str(place.busId))
    except UnicodeDecodeError:
        return None


def _ends(library: Library, handle: Any) -> Mapping[str | None, int] | None:
    """See ``_LinkedGpu.ends``."""
    ends: dict[str | None, int] = {}
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        code, state = library.ask(None, pynvml.nvmlDeviceGetNvLinkState, handle, link)
        if code in {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT}:
            break
        if code:
            return None
        if state in _UP:
            _, place = library.ask(None, pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
            end = _slot(place)
            ends[end] = ends.get(end, 0) + 1
    return ends


def _joint(
    library: Library, one: _LinkedGpu, other: _LinkedGpu, slots: Collection[str | None]
) -> Joint:
    """The connections of two GPUs; ``slots`` are the places of all GPUs on the PCI bus."""
    pair, caps = (one.handle, other.handle), pynvml.NVML_P2P_CAPS_INDEX_NVLINK
    _, status = library.ask(None, pynvml.nvmlDeviceGetP2PStatus, *pair, caps)
    _, level = library.ask(None, pynvml.nvmlDeviceGetTopologyCommonAncestor, *pair)
    bus = _LINK_BY_LEVEL.get(level, Link.UNKNOWN)
    if status != pynvml.NVML_P2P_STATUS_OK:
        return Joint(bus)
    return Joint(bus, Link.NVLINK, _shared_links(one, other, slots))


def _shared_links(one: _LinkedGpu, other: _LinkedGpu, slots: Collection[str | None]) -> int | None:
    """How many NVLinks connect two GPUs that NVLink connects; ``None`` if it is unknown.

    A link ends in the other GPU, or in an NVSwitch, which in a virtual machine has no name
    (github.com/NVIDIA/nccl/issues/1313). Two GPUs at NVSwitches are connected by all their links
    there, by those of the GPU that has fewer.
    """
    if one.ends is None or other.ends is None:
        return None
    direct = one.ends.get(other.slot, 0) if other.slot is not None else 0
    at_switches = [
        sum(count for end, count in gpu.ends.items() if end not in slots)
        for gpu in (one, other)
        if gpu.ends is not None
    ]
    return direct or min(at_switches) or None
