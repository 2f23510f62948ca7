"""The backend of AMD's GPUs.

ROCm's processes are in the list of the kernel's compute driver (KFD, part of amdgpu). They hold DRM
files too, whose ``fdinfo`` has the same memory: the larger of the two numbers counts, never their
sum. KFD's files are those of ``drivers/gpu/drm/amd/amdkfd/kfd_topology.c`` and ``kfd_process.c``.
Every user may read them, and no GPU wakes. The PIDs are those of the initial PID namespace.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.host.pci import read_word
from gpumon.host.procfs import in_initial_pid_namespace, read_file
from gpumon.makers.amd import MAKER
from gpumon.makers.amd.gpu import AmdGpu, uuid_of
from gpumon.makers.backend import COMPUTE
from gpumon.makers.drm.backend import DrmBackend
from gpumon.makers.drm.cards import bus_order, card_of, list_nodes, names_in
from gpumon.makers.drm.gpu import ProcessUse
from gpumon.model.selection import ALL
from gpumon.system.system import THIS_SYSTEM, System

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpumon.makers.drm.cards import DrmCard
    from gpumon.makers.drm.gpu import DrmGpu
    from gpumon.model.selection import GpuSelection
    from gpumon.model.topology import Links

_PROPERTY = re.compile(rb"^([a-z_]{1,40}) ([0-9]{1,20})$", re.MULTILINE)
_PROPERTIES_BYTES = 16 * 1024
_MOST_DIGITS = 20
_MOST_EMPTY, _TURNS = 64, 4
"""From this number on, files with 0 are read in every fourth scan only."""

_FUNCTIONS, _DEVICES, _BUSES = 0x7, 0x1F, 0xFF


class KfdNode(Struct, frozen=True):
    """A node of the topology that is a GPU, or a partition of one."""

    number: int  # Its number in the topology.
    gpu_id: int  # The number by which KFD names it in the files of processes.
    bus_id: str  # PCI bus ID of the GPU.
    architecture: str | None  # The target of its compiler: ``gfx1100``; ``None`` if unknown.


def read_nodes(sys: str) -> list[KfdNode]:
    """The GPUs that KFD drives; those that another container may not use are left out."""
    parent = f"{sys}/class/kfd/kfd/topology/nodes"
    nodes = []
    for name in names_in(parent):
        gpu_id = _number(f"{parent}/{name}/gpu_id")
        if not gpu_id or not name.isdecimal():
            continue  # a processor, or a GPU that this cgroup may not use (EPERM)
        properties = read_properties(f"{parent}/{name}/properties")
        location = properties.get("location_id")
        if location is not None:
            bus_id = _bus_id(properties.get("domain", 0), location)
            target = architecture(properties.get("gfx_target_version", 0))
            nodes.append(KfdNode(int(name), gpu_id, bus_id, target))
    return nodes


def read_properties(path: str) -> dict[str, int]:
    """The numbers in a file of the topology by name; none if it cannot be read."""
    try:
        text = read_file(path, _PROPERTIES_BYTES)
    except OSError:
        return {}
    return {key.decode(): int(value) for key, value in _PROPERTY.findall(text)}


def nodes_of(card_bus_id: str, sys: str) -> list[KfdNode]:
    """The nodes of one card: one, or one for each partition.

    Older kernels put the number of the partition into the function of the bus ID.
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


class AmdBackend(DrmBackend):
    """The GPUs that the kernel's driver ``amdgpu`` runs; see ``DrmBackend``.

    GPUs of the older driver ``radeon``, which reports few values, and those that were given to a
    virtual machine (``vfio-pci``) are not among them.
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
        self._kfd = KfdProcesses(system.sys)
        # In a container its PIDs have another meaning: fdinfo alone has the processes there.
        self._lists_kfd = in_initial_pid_namespace(system.proc)
        self._kfd_pids: list[int] = []
        self._slots: dict[str, str] = {}

    def new_gpu(self, card: DrmCard) -> DrmGpu:
        """See ``DrmBackend.new_gpu``."""
        nodes = nodes_of(card.bus_id, self._system.sys)
        return AmdGpu(card, self._uuid(card), nodes, self._calls, self._clock)

    def _uuid(self, card: DrmCard) -> str:
        uuid = uuid_of(card)
        if self._slots.setdefault(uuid, card.bus_id) != card.bus_id:
            # A UUID names one GPU only, whatever the boards say.
            uuid = f"PCI-{card.bus_id}"
        return uuid

    def links(self) -> Links:
        """See ``GpuBackend.links``."""
        from gpumon.makers.amd.links import read_links

        sys = self._system.sys
        cards = sorted((card_of(*node) for node in list_nodes(self._drivers, sys)), key=bus_order)
        return read_links({self._uuid(card): nodes_of(card.bus_id, sys) for card in cards}, sys)

    def known_pids(self) -> Collection[int]:
        """See ``DrmBackend.known_pids``."""
        self._kfd_pids = self._kfd.pids() if self._lists_kfd else []
        return self._kfd_pids

    def add_uses(self, gpu: DrmGpu, uses: dict[int, ProcessUse]) -> dict[int, ProcessUse]:
        """See ``DrmBackend.add_uses``."""
        if not isinstance(gpu, AmdGpu) or not gpu.kfd_ids:
            return uses
        for pid in self._kfd_pids:
            memory = self._kfd.memory(pid, gpu.kfd_ids)
            if memory is None:
                continue
            use = uses.get(pid)
            if use is None:
                # A process has a folder for each GPU that it sees, used or not.
                if memory:
                    uses[pid] = ProcessUse(types=frozenset((COMPUTE,)), memory=memory)
                continue
            uses[pid] = replace(
                use,
                types=use.types | {COMPUTE} if memory else use.types,
                memory=max(memory, use.memory or 0),
                # fdinfo has no time of the queues of ROCm, which bypass the kernel.
                sm=None if memory else use.sm,
            )
        return uses
