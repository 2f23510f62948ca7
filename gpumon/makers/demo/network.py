"""The demo's network adapters: two, each at the PCIe switch of a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.makers.demo.curves import mean
from gpumon.makers.demo.gpus import PCI_BUSES
from gpumon.model.network import Nic, NicKind

if TYPE_CHECKING:
    from gpumon.makers.demo.curves import Area

NIC_BESIDE = {0: "mlx5_0", 4: "mlx5_1"}
"""The adapters, by the index of the GPU at the same PCIe switch."""
_GPUS_OF_NODE = 4
_SPEED = 50_000_000_000
_BUSIEST = 31e9
"""Bytes per second when all processors are busy."""
_TRANSMITTED = 0.97
_SECONDS_BEFORE = 9 * 86_400.0
"""Since the driver was loaded, at the start of the demo."""
_WINDOW = 2.0


def bus_of(beside: int, port: int) -> str:
    """PCI bus of a device at a port of the switch of a GPU."""
    return f"{16 * (2 * beside + 1) + 9 + port:02x}"


def demo_nics(busy: Area, now: float) -> tuple[Nic, ...]:
    """The adapters, seconds after the demo's start, which carry data as the processors work."""
    nics = []
    for place, (beside, name) in enumerate(NIC_BESIDE.items()):
        at = now - 7.0 * place
        rate = _BUSIEST * mean(busy, at, _WINDOW)
        total = _BUSIEST * (busy(at) - busy(-_SECONDS_BEFORE))
        nics.append(
            Nic(
                name=name,
                kind=NicKind.INFINIBAND,
                up=True,
                speed=_SPEED,
                received=round(total),
                transmitted=round(total * _TRANSMITTED),
                receive_rate=round(rate, 1),
                transmit_rate=round(rate * _TRANSMITTED, 1),
                errors=0,
                link_losses=0,
                congested=False,
                numa_node=beside // _GPUS_OF_NODE,
                pci_bus_id=f"0000:{bus_of(beside, 1)}:00.0",
                near=(f"0000:{PCI_BUSES[beside].lower()}:00.0",),
                nearness="PIX",
            )
        )
    return tuple(nics)
