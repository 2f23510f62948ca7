"""Network adapters and their ports: state, traffic and errors; part of the data model."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from gpumon.model.number_types import (  # noqa: TC001 - msgspec resolves annotations
    Count,
    Few,
    Real,
    Time,
)

RECENT_SECONDS = 600.0
"""For so long the screen warns of an error or of a lost link."""
MOST_NICS = 64
"""So many are part of a snapshot at most, the first by name."""


class NicKind(str, Enum):
    """What a port of a network adapter carries."""

    ETHERNET = "ethernet"
    """A network interface: all its traffic but RDMA."""
    INFINIBAND = "infiniband"
    """All traffic of an InfiniBand port, that of its network interfaces too."""
    ROCE = "roce"
    """The RDMA traffic of an Ethernet port, which its network interface does not count."""
    OTHER = "other"
    """A newer gpumon on another machine has more kinds."""

    @classmethod
    def _missing_(cls, _: object) -> NicKind:
        return cls.OTHER


class Nic(Struct, frozen=True, gc=False, array_like=True):
    """A network interface of real hardware, or a port of an RDMA device."""

    name: str  # ``ens1f0``, ``mlx5_0``, ``mlx4_0/2`` for its second port; not safe to print.
    kind: NicKind
    up: bool | None = None  # Whether it has a link and can carry traffic.
    speed: Count | None = None  # Bytes per second that the link can carry in each direction.
    # Bytes since the driver was loaded.
    received: Count | None = None
    transmitted: Count | None = None
    # Bytes per second, between the last two readings.
    receive_rate: Real | None = None
    transmit_rate: Real | None = None
    errors: Count | None = None  # Errors of all kinds since the driver was loaded.
    errors_at: Time | None = None  # When gpumon last saw them rise; ``None``: not seen.
    link_losses: Count | None = None  # How often the link went down since the driver was loaded.
    link_lost_at: Time | None = None  # When gpumon last saw that; ``None``: not seen.
    # Whether data waited for the other side, or were slowed down for it, between two readings.
    congested: bool | None = None
    numa_node: Count | None = None
    pci_bus_id: str | None = None  # As the kernel writes it, ``0000:41:00.0``.
    # The nearest GPUs, by PCI bus ID; none if no GPU is nearer than others by another processor.
    near: Few[str] = ()
    nearness: str | None = None  # Their connection: ``PIX``, ``PXB``, ``PHB`` or ``NODE``.
