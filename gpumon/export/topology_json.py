"""A topology as JSON, for programs.

The schema, ``gpumon.topology/1``, is described in ``docs/topology.md``; the rules are those of
``as_json``.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from gpumon.export.as_json import encoded
from gpumon.model.topology import Link

if TYPE_CHECKING:
    from gpumon.model.topology import Joint, Topology, TopologyDevice

SCHEMA = "gpumon.topology/1"
"""The value of the key ``schema``."""


def topology_json(topology: Topology, host: str) -> str:
    """A topology of a host in this schema, with a line break at the end."""
    pairs = combinations(range(len(topology.devices)), 2)
    told = {
        "schema": SCHEMA,
        "host": host,
        "devices": [_device(device) for device in topology.devices],
        "connections": [
            _connection(one, other, joint)
            for one, other in pairs
            if (joint := topology.joints[one][other]) is not None
        ],
    }
    return encoded(told, 2) + "\n"


def _device(device: TopologyDevice) -> dict[str, Any]:
    return {
        "kind": device.kind.value,
        "name": device.name,
        "index": device.index,
        "uuid": device.uuid,
        "pci_bus_id": device.bus_id,
        "numa_node": device.numa_node,
        "cpus": device.cpus,
    }


def _connection(one: int, other: int, joint: Joint) -> dict[str, Any]:
    return {
        "devices": [one, other],
        "nearest": _name(joint.nearest),
        "bus": _name(joint.bus),
        "nvlinks": joint.nvlinks,
        "xgmi_hops": joint.xgmi_hops,
    }


def _name(link: Link) -> str | None:
    if link is Link.UNKNOWN:
        return None
    return link.name if link is Link.NVLINK else link.label
