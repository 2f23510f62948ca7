"""Finds the network interfaces of real hardware and the ports of RDMA devices.

Left out are interfaces without a device, such as bridges, bonds and the ends of containers, whose
traffic the interfaces below them carry; and what one adapter shows for its virtual functions.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from gpumon.host.pci import read_word
from gpumon.model.network import MOST_NICS, NicKind

_MOST_ENTRIES = 4096
"""Names of a folder that are looked at; a machine with containers may have a thousand."""
_PCI_DEVICE = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_REPRESENTOR = re.compile(r"(c[0-9]+)?pf[0-9]+(vf|sf)[0-9]+")
"""``phys_port_name`` of the end of a virtual function in the adapter's switch."""
_PORT_NUMBER = re.compile(r"[0-9]{1,3}")
_ARPHRD_INFINIBAND = "32"
"""The ``type`` of an IP interface over InfiniBand: ``include/uapi/linux/if_arp.h``."""


class Port(NamedTuple):
    """A network interface, or a port of an RDMA device."""

    name: str  # Not safe to print.
    kind: NicKind
    folder: str  # Has its files of state and counters.
    pci_bus_id: str | None  # Of its device, as the kernel writes it; ``None`` without one.
    is_interface: bool  # Whether the folder is that of a network interface.


def find_ports(sys: str) -> list[Port]:
    """The ports of this machine, at most ``MOST_NICS``: those of RDMA first, each kind by name."""
    rdma = _rdma_ports(f"{sys}/class/infiniband")
    counted = any(port.kind is NicKind.INFINIBAND for port in rdma)
    return [*rdma, *_interfaces(f"{sys}/class/net", counted, MOST_NICS - len(rdma))]


def _rdma_ports(folder: str) -> list[Port]:
    ports: list[Port] = []
    for device in _names(folder):
        here = f"{folder}/{device}"
        if os.path.lexists(f"{here}/device/physfn"):
            continue
        numbers = [name for name in _names(f"{here}/ports") if _PORT_NUMBER.fullmatch(name)]
        for number in numbers:
            if len(ports) >= MOST_NICS:
                return ports
            port = f"{here}/ports/{number}"
            ethernet = read_word(f"{port}/link_layer") == "Ethernet"
            ports.append(
                Port(
                    device if len(numbers) == 1 else f"{device}/{number}",
                    NicKind.ROCE if ethernet else NicKind.INFINIBAND,
                    port,
                    _bus_id(f"{here}/device"),
                    is_interface=False,
                )
            )
    return ports


def _interfaces(folder: str, infiniband_counted: bool, most: int) -> list[Port]:
    """Network interfaces, without those whose traffic the InfiniBand ports have counted."""
    ports: list[Port] = []
    for name in _names(folder):
        if len(ports) >= most:
            break
        here = f"{folder}/{name}"
        device = f"{here}/device"
        if not os.path.lexists(device) or os.path.lexists(f"{device}/physfn"):
            continue
        kind = NicKind.ETHERNET
        if read_word(f"{here}/type") == _ARPHRD_INFINIBAND:
            if infiniband_counted:
                continue
            kind = NicKind.INFINIBAND
        if not _REPRESENTOR.fullmatch(read_word(f"{here}/phys_port_name") or ""):
            ports.append(Port(name, kind, here, _bus_id(device), is_interface=True))
    return ports


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder)[:_MOST_ENTRIES])  # noqa: PTH208 - pathlib is not imported before the first frame
    except OSError:
        return []


def _bus_id(device: str) -> str | None:
    # That of virtio has a PCI device above it.
    found = [part for part in os.path.realpath(device).split("/") if _PCI_DEVICE.fullmatch(part)]
    return found[-1] if found else None
