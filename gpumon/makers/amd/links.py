"""Reads the links between AMD's GPUs from the topology of the kernel's compute driver (KFD).

A link has the type 11 if it is XGMI, and a weight of 15 for each hop (``kfd_crat.h``,
``kfd_crat.c``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.makers.amd.backend import read_properties
from gpumon.makers.drm.cards import names_in
from gpumon.model.topology import Joint, Link, Links

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.makers.amd.backend import KfdNode

_XGMI, _WEIGHT_OF_HOP = 11, 15


def read_links(gpus: Mapping[str, Sequence[KfdNode]], sys: str) -> Links:
    """The XGMI between GPUs; their connections by the PCI bus are not in this topology.

    Args:
        gpus: The nodes of each GPU, several if it is divided, by its UUID.
        sys: Where the sysfs file system is mounted.
    """
    owners = {node.number: uuid for uuid, nodes in gpus.items() for node in nodes}
    between: dict[frozenset[str], Joint] = {}
    for number, uuid in owners.items():
        folder = f"{sys}/class/kfd/kfd/topology/nodes/{number}/io_links"
        for name in names_in(folder):
            link = read_properties(f"{folder}/{name}/properties")
            other = owners.get(link.get("node_to", -1))
            if link.get("type") != _XGMI or other is None or other == uuid:
                continue
            pair = frozenset((uuid, other))
            hops = [_hops(link.get("weight", 0)), between.get(pair, Joint()).xgmi_hops]
            fewest = min((count for count in hops if count is not None), default=None)
            between[pair] = Joint(fabric=Link.XGMI, xgmi_hops=fewest)
    return Links(between)


def _hops(weight: int) -> int | None:
    hops, rest = divmod(weight, _WEIGHT_OF_HOP)
    return hops if hops and not rest else None
