"""Level Zero's variables by which programs see only some GPUs.

``ZE_AFFINITY_MASK`` has indices, ``0,1.0``; a part after a point is a tile. They follow the PCI bus
if ``ZE_ENABLE_PCI_ID_DEVICE_ORDER`` is 1, and count cards, not tiles, if
``ZE_FLAT_DEVICE_HIERARCHY`` is COMPOSITE (Level Zero specification, "Environment Variables").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.makers.visible_devices import DeviceList, Meaning, VisibleDevices, bus_id, quoted
from gpumon.model.makers import gpus_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.model.snapshot import Gpu

_BY_CARD = "COMPOSITE"


class LevelZeroDevices(VisibleDevices):
    """See the module."""

    def assignments(self, uuids: Sequence[str], gpus: Sequence[Gpu]) -> dict[str, str]:
        """See ``VisibleDevices.assignments``."""
        mask, order, hierarchy = self.maker.variables
        indices = self.bus_indices(gpus)
        return {mask: ",".join(indices[uuid] for uuid in uuids), order: "1", hierarchy: _BY_CARD}

    def visible(self, environment: Mapping[str, str], gpus: Sequence[Gpu]) -> Meaning:
        """See ``VisibleDevices.visible``."""
        mask, order, hierarchy = self.maker.variables
        own = gpus_of(self.maker, gpus)
        reading = DeviceList()
        value = environment.get(mask)
        if not value:
            return reading.meaning(own)
        by_bus = {bus_id(gpu): gpu for gpu in own}
        slots = self.bus_order(own)
        if environment.get(order) != "1" and len(slots) > 1:
            reading.doubts.append(f"without {order}=1 the order of the GPUs is not known here")
        if environment.get(hierarchy) != _BY_CARD and any(" Max 1" in (g.name or "") for g in own):
            reading.doubts.append(f"without {hierarchy}={_BY_CARD} the tiles of a GPU are counted")
        found: dict[str, Gpu] = {}
        for entry in map(str.strip, value.split(",")):
            number = entry.partition(".")[0]
            if not (number.isascii() and number.isdigit() and len(number) <= 9):
                reading.notes.append(f"{quoted(entry)} is not an index")
            elif int(number) < len(slots):
                gpu = by_bus.get(slots[int(number)])
                if gpu is not None:
                    found[gpu.uuid] = gpu
        return reading.meaning(list(found.values()))
