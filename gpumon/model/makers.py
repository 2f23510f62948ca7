"""The makers of GPUs, told from product names, which snapshots and logs both have."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import NamedTuple


class Maker(str, Enum):
    """A maker of GPUs; the values are the words on screen."""

    NVIDIA = "NVIDIA"
    AMD = "AMD"
    INTEL = "Intel"


@lru_cache(maxsize=256)
def maker_of(name: str | None) -> Maker:
    """The maker of a GPU.

    Args:
        name: Its product name. The backends of AMD and Intel begin it with the maker's name; old
            drivers of NVIDIA do not (``GeForce GTX 1080``, ``Tesla V100``).
    """
    for maker in (Maker.AMD, Maker.INTEL):
        if name is not None and name.startswith(f"{maker.value} "):
            return maker
    return Maker.NVIDIA


class MakerFacts(NamedTuple):
    """What distinguishes a maker's GPUs for programs.

    Attributes:
        backend: How ``--backend`` calls their drivers.
        pci_vendor: The PCI vendor ID, as the kernel writes it.
        kernel_drivers: The kernel drivers whose GPUs gpumon shows.
        device: The word before the index in Prometheus' label ``device``.
    """

    backend: str
    pci_vendor: str
    kernel_drivers: tuple[str, ...]
    device: str


MAKERS = {
    Maker.NVIDIA: MakerFacts("nvml", "0x10de", ("nvidia",), "nvidia"),
    Maker.AMD: MakerFacts("amdgpu", "0x1002", ("amdgpu",), "amdgpu"),
    Maker.INTEL: MakerFacts("intel", "0x8086", ("i915", "xe"), "intel"),
}

AUTO, ALL = "auto", "all"
BACKENDS = (AUTO, *(facts.backend for facts in MAKERS.values()), ALL)
"""The values of ``--backend``."""
