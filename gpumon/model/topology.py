"""How the GPUs and network adapters of a machine are connected, and which processors are near.

The terms are those of ``nvidia-smi topo -m``.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping


class Link(IntEnum):
    """The connection of two devices, the fastest first."""

    NVLINK = 0
    """NVLink, directly or through NVSwitch."""
    XGMI = 1
    """XGMI, the links between AMD's GPUs."""
    BOARD = 2
    """The same board."""
    SWITCH = 3
    """One PCIe switch (PIX)."""
    SWITCHES = 4
    """Several PCIe switches (PXB)."""
    HOST = 5
    """The same PCIe host bridge, by way of the processor (PHB)."""
    NODE = 6
    """The same NUMA node (NODE)."""
    SYSTEM = 7
    """Different NUMA nodes (SYS)."""
    UNKNOWN = 8
    """Nothing reports it."""

    @property
    def words(self) -> str:
        """For a person, to go behind "joined by"."""
        return _WORDS[self]

    @property
    def label(self) -> str:
        """The short name, as in ``nvidia-smi topo -m``; ``–`` if it is unknown."""
        return _LABELS[self]


_WORDS = {
    Link.NVLINK: "NVLink",
    Link.XGMI: "XGMI",
    Link.BOARD: "their board",
    Link.SWITCH: "one PCIe switch",
    Link.SWITCHES: "PCIe switches",
    Link.HOST: "one PCIe host bridge",
    Link.NODE: "their NUMA node",
    Link.SYSTEM: "the link between processors",
    Link.UNKNOWN: "an unknown link",
}
_LABELS = {
    Link.NVLINK: "NV",
    Link.XGMI: "XGMI",
    Link.BOARD: "BOARD",
    Link.SWITCH: "PIX",
    Link.SWITCHES: "PXB",
    Link.HOST: "PHB",
    Link.NODE: "NODE",
    Link.SYSTEM: "SYS",
    Link.UNKNOWN: "–",
}


class Joint(NamedTuple):
    """The connections of two devices. ``None`` is unknown."""

    bus: Link = Link.UNKNOWN  # Their connection by the PCI bus.
    # The links between GPUs that connect them besides: NVLink or XGMI; ``None`` without any.
    fabric: Link | None = None
    nvlinks: int | None = None  # How many NVLinks connect them now.
    xgmi_hops: int | None = None  # From GPU to GPU by XGMI: 1 if they are neighbours.

    @property
    def nearest(self) -> Link:
        """The faster of both."""
        return self.bus if self.fabric is None else self.fabric

    @property
    def label(self) -> str:
        """The short name of the faster: ``NV18``, ``XGMI``, ``XGMI-2`` for two hops, ``PIX``."""
        if self.fabric is Link.NVLINK and self.nvlinks is not None:
            return f"{self.fabric.label}{self.nvlinks}"
        if self.fabric is Link.XGMI and self.xgmi_hops is not None and self.xgmi_hops > 1:
            return f"{self.fabric.label}-{self.xgmi_hops}"
        return self.nearest.label


_STRANGERS = Joint()


class Links:
    """The links between the GPUs of a machine.

    Attributes:
        between: The links by the UUIDs of two GPUs; missing ones are unknown.
    """

    def __init__(self, between: Mapping[frozenset[str], Joint]) -> None:
        self.between = between

    def of(self, one: str, other: str) -> Joint:
        """The connections of two GPUs, by UUID; MIG devices of one GPU share its board."""
        if one == other:
            return Joint(Link.BOARD)
        return self.between.get(frozenset((one, other)), _STRANGERS)


NO_KNOWN_LINKS = Links({})


class DeviceKind(Enum):
    """What a device of a topology is."""

    GPU = "gpu"
    NIC = "nic"


class TopologyDevice(Struct, frozen=True):
    """A GPU or a network adapter. ``None`` is unknown."""

    kind: DeviceKind
    name: str  # ``GPU 0``, or the name of the adapter: ``mlx5_0``, not safe to print.
    bus_id: str | None = None  # Its PCI bus ID, as the kernel writes it: ``0000:41:00.0``.
    numa_node: int | None = None  # The NUMA node that it is at.
    cpus: str | None = (
        None  # The processors of that node, as the kernel writes them: ``0-31,64-95``.
    )
    index: int | None = None  # Of a GPU: its index.
    uuid: str | None = None  # Of a GPU: its UUID.


class Topology(Struct, frozen=True):
    """The GPUs and network adapters of a machine, and how any two of them are connected."""

    devices: tuple[TopologyDevice, ...]  # GPUs by index, then network adapters by name.
    # For each device its connections to all devices, in the same order. Its own is ``None``.
    joints: tuple[tuple[Joint | None, ...], ...]
