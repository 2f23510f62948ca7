"""The environment variables by which programs see only some GPUs, for each maker.

``VisibleDevices`` reads a list of indices or UUIDs. Makers whose variables mean something else have
a subclass in their folder.
"""

from __future__ import annotations

import shlex
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.host.pci import driver_of, graphics_devices
from gpumon.model.makers import first_maker, gpus_of, load, maker_of, makers
from gpumon.text.formatting import cell_width, fit, mig_name, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.model.makers import Maker
    from gpumon.model.snapshot import Gpu


class Visible(Struct, frozen=True):
    """A device that a program sees."""

    ordinal: int  # Its index there: 3 for ``cuda:3``.
    uuid: str  # Of the GPU or of the MIG device.
    gpu_uuid: str
    gpu_index: int  # As on the screen.
    mig_index: int | None = None  # Of the MIG device on its GPU.


class Meaning(Struct, frozen=True):
    """The devices that a program sees."""

    devices: tuple[Visible, ...]  # By ordinal; empty also if the order of the GPUs is unknown.
    certain: bool
    sentence: str  # For users: ``cuda:0 is GPU 3, cuda:1 is GPU 1``.
    why: str = ""  # Why there are fewer devices than were named, and the doubts.


class VisibleDevices:
    """What the variables of a maker mean."""

    uuid_prefix = ""
    """How a UUID begins that the variable may have."""

    def __init__(self, maker: Maker) -> None:
        self.maker = maker

    def assignments(
        self,
        uuids: Sequence[str],
        gpus: Sequence[Gpu],  # noqa: ARG002 - for those that count GPUs
    ) -> dict[str, str]:
        """The variables that make a program see these devices only, the main one first.

        Args:
            uuids: UUIDs of GPUs or MIG devices, in the order in which the program shall see them.
            gpus: All GPUs of the machine.
        """
        return {self.maker.main_variable: ",".join(uuids)}

    def assignments_by_index(
        self,
        indices: Sequence[str],  # noqa: ARG002 - for those that can count as gpumon does
        uuids: Sequence[str],
        gpus: Sequence[Gpu],
    ) -> dict[str, str]:
        """The same with gpumon's indices, where programs can be made to count like this."""
        return self.assignments(uuids, gpus)

    def doubt(
        self,
        uuids: Sequence[str],  # noqa: ARG002 - for makers with GPUs that are counted
        gpus: Sequence[Gpu],  # noqa: ARG002 - as above
        indices: Sequence[str] | None = None,  # noqa: ARG002 - as above
    ) -> str:
        """A sentence on why a program may see other GPUs than these; usually empty.

        Args:
            uuids: UUIDs of the devices.
            gpus: All GPUs of the machine.
            indices: Their indices, if these are handed on and not ``assignments``.
        """
        return ""

    def selecting_variable(
        self,
        environment: Mapping[str, str],
        gpus: Sequence[Gpu],  # noqa: ARG002 - for those that share a variable
    ) -> str | None:
        """The variable by which an environment selects some of the maker's GPUs."""
        main = self.maker.main_variable
        return main if main in environment else None

    def visible(self, environment: Mapping[str, str], gpus: Sequence[Gpu]) -> Meaning:
        """The devices that a program with this environment sees."""
        own = gpus_of(self.maker, gpus)
        value = environment.get(self.maker.main_variable)
        reading = DeviceList(self.uuid_prefix)
        return reading.meaning(own if value is None else reading.named(value, own))

    def allocated(self, environment: Mapping[str, str], gpus: Sequence[Gpu]) -> Meaning:
        """The devices that an environment allows programs to choose from."""
        return self.visible(environment, gpus)

    def bus_order(self, own: Sequence[Gpu]) -> list[str]:
        """The bus IDs of the maker's GPUs in the order of the bus.

        A processor's own GPU counts although it may not be shown. It is left out if these GPUs are
        those of another machine.
        """
        known = sorted(map(bus_id, own))
        devices = graphics_devices(self.maker.pci_vendor)
        there = [slot for slot in devices if driver_of(slot) in self.maker.kernel_drivers]
        return there if set(known) <= set(there) else known

    def bus_indices(self, gpus: Sequence[Gpu]) -> dict[str, str]:
        """The index of each of the maker's GPUs in the order of the bus, by UUID."""
        own = gpus_of(self.maker, gpus)
        order = self.bus_order(own)
        return {gpu.uuid: str(order.index(bus_id(gpu))) for gpu in own}


def bus_id(gpu: Gpu) -> str:
    """The PCI bus ID of a GPU as the kernel writes it."""
    return (gpu.pci_bus_id or "").lower()


@cache
def visible_devices_of(maker: Maker) -> VisibleDevices:
    """What the variables of a maker mean."""
    found: VisibleDevices = load(maker.visible_devices)(maker)
    return found


def assignment_line(uuids: Sequence[str], gpus: Sequence[Gpu]) -> str:
    """A shell assignment that makes a program see these GPUs or MIG devices only."""
    named = [gpu for gpu in gpus if gpu.uuid in uuids]
    maker = maker_of(named[0].name) if named else first_maker()
    values = visible_devices_of(maker).assignments(uuids, gpus)
    return " ".join(f"{name}={shlex.quote(printable(value))}" for name, value in values.items())


def names_gpu(environment: Mapping[str, str], uuid: str) -> bool:
    """Whether a variable of an environment contains the UUID of a GPU or MIG device.

    One without a UUID has an index there, which may be that of any GPU.
    """
    variables = [maker.main_variable for maker in makers()]
    values = [environment[name] for name in variables if name in environment]
    if uuid.startswith("PCI-"):
        return bool(values)
    return any(uuid in value.split(",") for value in values)


class DeviceList:
    """Reads lists of devices; a list ends at its first invalid entry."""

    def __init__(self, uuid_prefix: str = "") -> None:
        self._uuid_prefix = uuid_prefix
        self.notes: list[str] = []
        self.doubts: list[str] = []  # They make the meaning uncertain, notes do not.

    def named(self, value: str, gpus: Sequence[Gpu]) -> list[Gpu]:
        """The GPUs that a list names, of these."""
        found: list[Gpu] = []
        for entry in map(str.strip, value.split(",")):
            gpu = self._named(entry, gpus)
            if gpu is None or gpu in found:
                why = "there is no such GPU" if gpu is None else "it is named twice"
                if value:
                    self.notes.append(f"the list ends at {quoted(entry)}: {why}")
                break
            found.append(gpu)
        return found

    def _named(self, entry: str, gpus: Sequence[Gpu]) -> Gpu | None:
        if entry.isascii() and entry.isdigit():
            # A number of many digits names no GPU.
            number = int(entry) if len(entry) <= 9 else len(gpus)
            return gpus[number] if number < len(gpus) else None
        if entry.startswith(self._uuid_prefix):
            return next((gpu for gpu in gpus if gpu.uuid.lower() == entry.lower()), None)
        return None

    def meaning(self, gpus: Sequence[Gpu]) -> Meaning:
        """What a program sees that sees these GPUs."""
        devices = tuple(Visible(n, gpu.uuid, gpu.uuid, gpu.index) for n, gpu in enumerate(gpus))
        sentence = mapping(devices, "device ")
        why = "; ".join(dict.fromkeys(self.notes + self.doubts))
        return Meaning(
            devices, not self.doubts, f"probably {sentence}" if self.doubts else sentence, why
        )


def mapping(devices: Sequence[Visible], prefix: str = "cuda:") -> str:
    """The mapping in words: ``cuda:0 is GPU 3``; a range for three or more consecutive GPUs."""
    if not devices:
        return "no GPU"
    first, last = devices[0], devices[-1]
    in_a_row = all(device.gpu_index - device.ordinal == first.gpu_index for device in devices)
    if len(devices) > 2 and in_a_row:
        return (
            f"{prefix}{first.ordinal} to {prefix}{last.ordinal} "
            f"are GPU {first.gpu_index} to {last.gpu_index}"
        )
    return ", ".join(
        f"{prefix}{device.ordinal} is "
        + (
            f"GPU {device.gpu_index}"
            if device.mig_index is None
            else f"MIG {mig_name(device.gpu_index, device.mig_index)}"
        )
        for device in devices
    )


def quoted(text: str) -> str:
    """A part of an environment, quoted and safe to print."""
    return f'"{cut(printable(text))}"'


def cut(text: str) -> str:
    """The beginning of a text that is long."""
    return text if cell_width(text) <= 44 else fit(text, 44)
