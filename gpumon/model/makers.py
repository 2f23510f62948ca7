"""The makers of GPUs, told from product names, which snapshots and logs both have."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache


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


BACKEND_OF = {Maker.NVIDIA: "nvml", Maker.AMD: "amdgpu", Maker.INTEL: "intel"}
"""How ``--backend`` calls the drivers of a maker's GPUs."""

AUTO, ALL = "auto", "all"
BACKENDS = (AUTO, *BACKEND_OF.values(), ALL)
"""The values of ``--backend``."""
