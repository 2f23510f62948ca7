"""The links between GPUs: what connects two of them."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Link(IntEnum):
    """The connection of two GPUs, the fastest first, as in ``nvidia-smi topo -m``."""

    NVLINK = 0
    """NVLink, directly or through NVSwitch."""
    BOARD = 1
    """The same board."""
    SWITCH = 2
    """One PCIe switch (PIX)."""
    SWITCHES = 3
    """Several PCIe switches (PXB)."""
    HOST = 4
    """The same PCIe host bridge, by way of the processor (PHB)."""
    NODE = 5
    """The same NUMA node (NODE)."""
    SYSTEM = 6
    """Different NUMA nodes (SYS)."""
    UNKNOWN = 7
    """The driver does not report it."""

    @property
    def words(self) -> str:
        """For a person, to go behind "joined by"."""
        return _WORDS[self]


_WORDS = {
    Link.NVLINK: "NVLink",
    Link.BOARD: "their board",
    Link.SWITCH: "one PCIe switch",
    Link.SWITCHES: "PCIe switches",
    Link.HOST: "one PCIe host bridge",
    Link.NODE: "their NUMA node",
    Link.SYSTEM: "the link between processors",
    Link.UNKNOWN: "nobody knows what",
}


class Joint(NamedTuple):
    """The connections of two GPUs."""

    nvlink: bool  # Whether NVLink connects them.
    bus: Link  # Their connection by the PCI bus.

    @property
    def nearest(self) -> Link:
        """The faster of both."""
        return Link.NVLINK if self.nvlink else self.bus


_STRANGERS = Joint(nvlink=False, bus=Link.UNKNOWN)


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
            return Joint(nvlink=False, bus=Link.BOARD)
        return self.between.get(frozenset((one, other)), _STRANGERS)


NONE_KNOWN = Links({})
