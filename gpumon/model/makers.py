"""The makers of GPUs, told from product names, which snapshots and logs both have."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.snapshot import Gpu


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


def gpus_of(maker: Maker, gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs of a maker, by index."""
    own = [gpu for gpu in gpus if maker_of(gpu.name) is maker]
    return sorted(own, key=lambda gpu: gpu.index)


def makers_of(gpus: Sequence[Gpu]) -> tuple[Maker, ...]:
    """The makers of these GPUs, in the order of their first GPU."""
    ordered = sorted(gpus, key=lambda gpu: gpu.index)
    return tuple(dict.fromkeys(maker_of(gpu.name) for gpu in ordered))


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
