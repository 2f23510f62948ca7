"""What the kernel's compute driver (KFD, part of amdgpu) tells of GPUs and of ROCm's processes.

The files are those of ``drivers/gpu/drm/amd/amdkfd/kfd_topology.c`` and ``kfd_process.c``. Every
user may read them, and no GPU wakes. The PIDs are those of the initial PID namespace.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.host.power import read_word
from gpumon.host.procfs import read_file
from gpumon.makers.drm.cards import names_in

if TYPE_CHECKING:
    from collections.abc import Iterable

_PROPERTY = re.compile(rb"^([a-z_]{1,40}) ([0-9]{1,20})$", re.MULTILINE)
_PROPERTIES_BYTES = 16 * 1024
_MOST_DIGITS = 20
_MOST_EMPTY, _TURNS = 64, 4
"""From this number on, files with 0 are read in every fourth scan only."""

_FUNCTIONS, _DEVICES, _BUSES = 0x7, 0x1F, 0xFF


class KfdNode(Struct, frozen=True):
    """A node of the topology that is a GPU, or a partition of one.

    Attributes:
        gpu_id: The number by which KFD names it in the files of processes.
        bus_id: PCI bus ID of the GPU.
        architecture: The target of its compiler: ``gfx1100``; ``None`` if unknown.
    """

    gpu_id: int
    bus_id: str
    architecture: str | None


def read_nodes(sys: str) -> list[KfdNode]:
    """The GPUs that KFD drives; those that another container may not use are left out.

    Args:
        sys: Where the system file system is mounted.
    """
    parent = f"{sys}/class/kfd/kfd/topology/nodes"
    nodes = []
    for name in names_in(parent):
        gpu_id = _number(f"{parent}/{name}/gpu_id")
        if not gpu_id:
            continue  # a processor, or a GPU that this cgroup may not use (EPERM)
        try:
            text = read_file(f"{parent}/{name}/properties", _PROPERTIES_BYTES)
        except OSError:
            continue
        properties = {key.decode(): int(value) for key, value in _PROPERTY.findall(text)}
        location = properties.get("location_id")
        if location is not None:
            bus_id = _bus_id(properties.get("domain", 0), location)
            target = architecture(properties.get("gfx_target_version", 0))
            nodes.append(KfdNode(gpu_id, bus_id, target))
    return nodes


def nodes_of(card_bus_id: str, sys: str) -> list[KfdNode]:
    """The nodes of one card: one, or one for each partition.

    Older kernels put the number of the partition into the function of the bus ID.

    Args:
        card_bus_id: PCI bus ID of the card.
        sys: Where the system file system is mounted.
    """
    slot = card_bus_id.rpartition(".")[0]
    return [
        node
        for node in read_nodes(sys)
        if node.bus_id == card_bus_id
        or (
            node.bus_id.rpartition(".")[0] == slot
            and not os.path.exists(f"{sys}/bus/pci/devices/{node.bus_id}")  # noqa: PTH110 - pathlib is not imported before the first frame
        )
    ]


def architecture(version: int) -> str | None:
    """The compiler's name of ``gfx_target_version``: 90010 is ``gfx90a``; 0 is unknown."""
    major, rest = divmod(version, 10000)
    minor, stepping = divmod(rest, 100)
    return f"gfx{major}{minor:x}{stepping:x}" if major else None


def _bus_id(domain: int, location: int) -> str:
    """The PCI bus ID; the four highest bits of a location number the partitions of a GPU."""
    bus, device, function = location >> 8 & _BUSES, location >> 3 & _DEVICES, location & _FUNCTIONS
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"


class KfdProcesses:
    """The processes that use ROCm.

    Each process has a file for each GPU that it sees, most of them with 0. On large machines these
    are read in turn, so that memory on a further GPU is seen some scans later.

    Args:
        sys: Where the system file system is mounted.
    """

    def __init__(self, sys: str) -> None:
        self._folder = f"{sys}/class/kfd/kfd/proc"
        self._scan = 0
        self._empty: dict[int, dict[int, int]] = {}
        self._in_turn = False

    def pids(self) -> list[int]:
        """Their PIDs in the initial PID namespace, ascending: begins a scan."""
        self._scan += 1
        pids = sorted(int(name) for name in names_in(self._folder) if name.isdecimal())
        self._empty = {pid: self._empty.get(pid, {}) for pid in pids}
        self._in_turn = sum(map(len, self._empty.values())) > _MOST_EMPTY
        return pids

    def memory(self, pid: int, gpu_ids: Iterable[int]) -> int | None:
        """Bytes of GPU memory that a process holds on some GPUs or partitions together.

        Returns:
            ``None`` if it sees none of them, or has ended.
        """
        empty = self._empty.setdefault(pid, {})
        total = None
        for gpu_id in gpu_ids:
            due = empty.get(gpu_id)
            if due is not None and self._in_turn and self._scan < due:
                total = total or 0
                continue
            size = _number(f"{self._folder}/{pid}/vram_{gpu_id}")
            if size is not None:
                total = (total or 0) + size
            if size:
                empty.pop(gpu_id, None)
            elif size is not None:
                # The first turn spreads the files of a process evenly.
                pause = _TURNS if due is not None else 1 + (pid + len(empty)) % _TURNS
                empty[gpu_id] = self._scan + pause
        return total


def _number(path: str) -> int | None:
    word = read_word(path)
    if word is None or not word.isdecimal() or len(word) > _MOST_DIGITS:
        return None
    return int(word)
