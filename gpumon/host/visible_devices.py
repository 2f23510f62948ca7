"""The environment variables by which programs see only some GPUs, for each maker.

- NVIDIA: see ``cuda_visible_devices``.
- AMD: ``ROCR_VISIBLE_DEVICES`` has indices or UUIDs; ``HIP_VISIBLE_DEVICES``, or if that is not set
  ``CUDA_VISIBLE_DEVICES``, has indices among the GPUs that are left, and ``GPU_DEVICE_ORDINAL`` the
  same for OpenCL (rocm.docs.amd.com, "GPU isolation techniques" and "HIP environment variables").
  The first hides all GPUs if it is empty; the others count as not set then (``rocdevice.cpp`` of
  ROCm/clr).
- Intel: ``ZE_AFFINITY_MASK`` has indices, ``0,1.0``; a part after a point is a tile. They follow
  the PCI bus if ``ZE_ENABLE_PCI_ID_DEVICE_ORDER`` is 1, and count cards, not tiles, if
  ``ZE_FLAT_DEVICE_HIERARCHY`` is COMPOSITE (Level Zero specification, "Environment Variables").
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from gpumon.host.cuda_visible_devices import Meaning, Visible, mapping, quoted, visible_devices
from gpumon.host.power import driver_of, graphics_devices
from gpumon.model.makers import MAKERS, Maker, gpus_of, maker_of, makers_of
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.model.snapshot import Gpu

_CUDA, _CUDA_ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
_ROCR, _HIP = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"
_OPENCL = "GPU_DEVICE_ORDINAL"
_MASK, _MASK_ORDER = "ZE_AFFINITY_MASK", "ZE_ENABLE_PCI_ID_DEVICE_ORDER"
_HIERARCHY, _BY_CARD = "ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE"

VARIABLES = {
    Maker.NVIDIA: (_CUDA, _CUDA_ORDER),
    Maker.AMD: (_ROCR, _HIP),
    Maker.INTEL: (_MASK, _MASK_ORDER, _HIERARCHY),
}
"""The variables that decide which GPUs of a maker a program sees."""

MAIN_VARIABLE = {maker: names[0] for maker, names in VARIABLES.items()}
"""The variable that selects GPUs of a maker for any program."""

_UUID = "GPU-"


def assignments(maker: Maker, uuids: Sequence[str], gpus: Sequence[Gpu]) -> dict[str, str]:
    """The variables that make a program see these GPUs or MIG devices only, the main one first.

    Args:
        maker: Their maker.
        uuids: Their UUIDs, in the order in which the program shall see them.
        gpus: All GPUs of the machine.
    """
    if maker is Maker.NVIDIA:
        return {_CUDA: ",".join(uuids)}
    own = gpus_of(maker, gpus)
    order = _bus_order(maker, own)
    indices = {gpu.uuid: str(order.index(_bus(gpu))) for gpu in own}
    if maker is Maker.INTEL:
        mask = ",".join(indices[uuid] for uuid in uuids)
        return {_MASK: mask, _MASK_ORDER: "1", _HIERARCHY: _BY_CARD}
    # Older GPUs and processors have no UUID: they are counted.
    listed = ",".join(uuid if uuid.startswith(_UUID) else indices[uuid] for uuid in uuids)
    # Inherited values would select again among what is left.
    left = ",".join(map(str, range(len(uuids))))
    return {_ROCR: listed, _HIP: left, _OPENCL: left}


def doubt_of_counting(maker: Maker, uuids: Sequence[str], gpus: Sequence[Gpu]) -> str:
    """Why a program may count AMD's GPUs otherwise than ``assignments``; usually empty.

    Args:
        maker: Their maker.
        uuids: Their UUIDs.
        gpus: All GPUs of the machine.
    """
    several = len(_bus_order(maker, gpus_of(maker, gpus))) > 1
    counted = [uuid for uuid in uuids if not uuid.startswith(_UUID)]
    if maker is not Maker.AMD or not counted or not several:
        return ""
    return f"{', '.join(counted)} has no UUID and is counted, and ROCm may count otherwise"


def assignment_line(uuids: Sequence[str], gpus: Sequence[Gpu]) -> str:
    """A shell assignment that makes a program see these GPUs or MIG devices only.

    Args:
        uuids: UUIDs of GPUs of one maker.
        gpus: All GPUs of the machine.
    """
    named = [gpu for gpu in gpus if gpu.uuid in uuids]
    maker = maker_of(named[0].name) if named else Maker.NVIDIA
    values = assignments(maker, uuids, gpus)
    return " ".join(f"{name}={shlex.quote(printable(value))}" for name, value in values.items())


def names_gpu(environment: Mapping[str, str], uuid: str) -> bool:
    """Whether a variable of an environment contains the UUID of a GPU or MIG device.

    One without a UUID has an index there, which may be that of any GPU.
    """
    values = [environment[name] for name in MAIN_VARIABLE.values() if name in environment]
    if uuid.startswith("PCI-"):
        return bool(values)
    return any(uuid in value.split(",") for value in values)


def selecting_variable(
    maker: Maker, environment: Mapping[str, str], gpus: Sequence[Gpu]
) -> str | None:
    """The variable by which an environment selects some of a maker's GPUs.

    Where a machine has GPUs of NVIDIA, CUDA's variable means those, although HIP reads it too.

    Args:
        maker: The maker.
        environment: Variables by name.
        gpus: All GPUs of the machine.
    """
    main = MAIN_VARIABLE[maker]
    if main in environment:
        return main
    if maker is Maker.AMD:
        if environment.get(_HIP):
            return _HIP
        if environment.get(_CUDA) and Maker.NVIDIA not in makers_of(gpus):
            return _CUDA
    return None


def visible_gpus(maker: Maker, environment: Mapping[str, str], gpus: Sequence[Gpu]) -> Meaning:
    """The devices of one maker that a program sees.

    Args:
        maker: The maker.
        environment: The variables of the program.
        gpus: All GPUs of the machine.
    """
    own = gpus_of(maker, gpus)
    if maker is Maker.NVIDIA:
        return visible_devices(environment.get(_CUDA), environment.get(_CUDA_ORDER), own)
    if maker is Maker.AMD:
        return _amd(environment, own)
    return _intel(environment, own)


class _Reading:
    """Reads lists of devices; a list ends at its first invalid entry."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.doubts: list[str] = []

    def take(self, value: str, gpus: Sequence[Gpu], *, uuids: bool) -> list[Gpu]:
        """The GPUs that a list names, of these."""
        found: list[Gpu] = []
        for entry in map(str.strip, value.split(",")):
            gpu = _named(entry, gpus, uuids=uuids)
            if gpu is None or gpu in found:
                why = "there is no such GPU" if gpu is None else "it is named twice"
                if value:
                    self.notes.append(f"the list ends at {quoted(entry)}: {why}")
                break
            found.append(gpu)
        return found

    def meaning(self, gpus: Sequence[Gpu]) -> Meaning:
        devices = tuple(Visible(n, gpu.uuid, gpu.uuid, gpu.index) for n, gpu in enumerate(gpus))
        sentence = mapping(devices, "device ")
        why = "; ".join(dict.fromkeys(self.notes + self.doubts))
        return Meaning(
            devices, not self.doubts, f"probably {sentence}" if self.doubts else sentence, why
        )


def _named(entry: str, gpus: Sequence[Gpu], *, uuids: bool) -> Gpu | None:
    if entry.isascii() and entry.isdigit():
        # A number of many digits names no GPU.
        number = int(entry) if len(entry) <= 9 else len(gpus)
        return gpus[number] if number < len(gpus) else None
    if uuids and entry.startswith(_UUID):
        return next((gpu for gpu in gpus if gpu.uuid.lower() == entry.lower()), None)
    return None


def _amd(environment: Mapping[str, str], own: Sequence[Gpu]) -> Meaning:
    reading = _Reading()
    seen, counted = list(own), False
    first = environment.get(_ROCR)
    if first is not None:
        seen = reading.take(first, own, uuids=True)
        counted = bool(seen) and any(part.strip().isdigit() for part in first.split(","))
    second = environment.get(_HIP) or environment.get(_CUDA)
    if second:
        seen = reading.take(second, seen, uuids=True)
        counted = counted or (first is None and bool(seen))
    if counted and len({gpu.name for gpu in own}) > 1:
        reading.doubts.append(
            "the GPUs are not all of one model, and in which order ROCm counts them is not known "
            "here: UUIDs leave no doubt"
        )
    return reading.meaning(seen)


def _intel(environment: Mapping[str, str], own: Sequence[Gpu]) -> Meaning:
    reading = _Reading()
    value = environment.get(_MASK)
    if not value:
        return reading.meaning(own)
    by_bus = {_bus(gpu): gpu for gpu in own}
    slots = _bus_order(Maker.INTEL, own)
    if environment.get(_MASK_ORDER) != "1" and len(slots) > 1:
        reading.doubts.append(f"without {_MASK_ORDER}=1 the order of the GPUs is not known here")
    if environment.get(_HIERARCHY) != _BY_CARD and any(" Max 1" in (gpu.name or "") for gpu in own):
        reading.doubts.append(f"without {_HIERARCHY}={_BY_CARD} the tiles of a card are counted")
    found: dict[str, Gpu] = {}
    for entry in map(str.strip, value.split(",")):
        number = entry.partition(".")[0]
        if not (number.isascii() and number.isdigit() and len(number) <= 9):
            reading.notes.append(f"{quoted(entry)} is no index")
        elif int(number) < len(slots):
            gpu = by_bus.get(slots[int(number)])
            if gpu is not None:
                found[gpu.uuid] = gpu
    return reading.meaning(list(found.values()))


def _bus(gpu: Gpu) -> str:
    return (gpu.pci_bus_id or "").lower()


def _bus_order(maker: Maker, own: Sequence[Gpu]) -> list[str]:
    """The bus IDs of a maker's GPUs in the order of the bus.

    A processor's own GPU counts although it may not be shown. It is left out if these GPUs are
    those of another machine.
    """
    known = sorted(map(_bus, own))
    facts = MAKERS[maker]
    devices = graphics_devices(facts.pci_vendor)
    there = [one for one in devices if driver_of(one) in facts.kernel_drivers]
    return there if set(known) <= set(there) else known
