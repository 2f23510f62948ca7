"""Finds the GPUs that a program sees with ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER``.

The rules are those of the CUDA programming guide (CUDA environment variables) and of the MIG user
guide (CUDA device enumeration). Undocumented cases (signs, text after digits, duplicate GPUs,
indices among UUIDs) follow PyTorch's tests with driver 525.60.13, pytorch/pytorch#92315.

CUDA's index is not nvidia-smi's: unless ``CUDA_DEVICE_ORDER`` is ``PCI_BUS_ID`` the fastest GPU
comes first, and only CUDA knows which one that is. An uncertain result says so, and names no GPU by
a guess.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.makers.visible_devices import Meaning, Visible, VisibleDevices, cut, mapping, quoted
from gpumon.model.makers import gpus_of
from gpumon.model.snapshot import Device, GpuStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.model.snapshot import Gpu


_BY_BUS = "PCI_BUS_ID"


class CudaDevices(VisibleDevices):
    """See the module."""

    def assignments_by_index(
        self,
        indices: Sequence[str],
        uuids: Sequence[str],  # noqa: ARG002 - other makers need them
        gpus: Sequence[Gpu],  # noqa: ARG002 - as above
    ) -> dict[str, str]:
        """See ``VisibleDevices.assignments_by_index``: in this order they are CUDA's, too."""
        main, order = self.maker.variables
        return {order: _BY_BUS, main: ",".join(indices)}

    def doubt(
        self,
        uuids: Sequence[str],  # noqa: ARG002 - as above
        gpus: Sequence[Gpu],
        indices: Sequence[str] | None = None,
    ) -> str:
        """See ``VisibleDevices.doubt``; UUIDs leave none."""
        if indices is None or not all(map(str.isdecimal, indices)):
            return ""
        meaning = visible_devices(",".join(indices), _BY_BUS, gpus_of(self.maker, gpus))
        if meaning.certain:
            return ""
        return f"the indices are not certain: {meaning.why}. Use --format uuid to be certain."

    def visible(self, environment: Mapping[str, str], gpus: Sequence[Gpu]) -> Meaning:
        """See ``VisibleDevices.visible``."""
        main, order = self.maker.variables
        own = gpus_of(self.maker, gpus)
        return visible_devices(environment.get(main), environment.get(order), own)

    def allocated(self, environment: Mapping[str, str], gpus: Sequence[Gpu]) -> Meaning:
        """See ``VisibleDevices.allocated``.

        A program sees at most one MIG device; of several allocated ones, any may be used.
        """
        meaning = self.visible(environment, gpus)
        if not meaning.devices and not meaning.certain:
            return meaning
        main, order = self.maker.variables
        own = gpus_of(self.maker, gpus)
        devices = list(meaning.devices)
        for part in environment.get(main, "").split(","):
            if part.startswith("MIG-"):
                devices += visible_devices(part, environment.get(order), own).devices
        return replace(meaning, devices=tuple(devices))


def visible_devices(value: str | None, order: str | None, gpus: Sequence[Gpu]) -> Meaning:
    """The devices that a program with this environment sees.

    This is wrong if the program does not see the same GPUs as gpumon does: in a container of its
    own, or as an MPS client, the indices count the GPUs there.

    Args:
        value: Its ``CUDA_VISIBLE_DEVICES``; ``None`` if not set.
        order: Its ``CUDA_DEVICE_ORDER``; ``None`` if not set.
        gpus: All GPUs of the machine.
    """
    return _Interpreter(order, gpus).meaning(value)


class _Invalid(Exception):  # noqa: N818 - the ordinary end of a list
    """An entry that names no GPU; the text says why."""


_INDEX = re.compile(r"\s*([+-]?[0-9]+)")
_OLD_MIG = re.compile(r"MIG-(GPU-[^/]*)/([0-9]{1,9})/([0-9]{1,9})")
_GONE = {
    GpuStatus.LOST: "is lost",
    GpuStatus.RESET_REQUIRED: "needs a reset",
    GpuStatus.NO_PERMISSION: "may not be opened",
}


class _Interpreter:
    """Interprets one environment. ``doubts`` make the result uncertain, ``notes`` do not."""

    def __init__(self, order: str | None, gpus: Sequence[Gpu]) -> None:
        self.gpus = sorted(gpus, key=lambda gpu: gpu.index)
        self.order = order
        self.doubts: list[str] = []
        self.notes: list[str] = []

    def meaning(self, value: str | None) -> Meaning:
        by_index = value is None or not value.startswith(("GPU-", "MIG-"))
        named = [Device(gpu) for gpu in self.gpus] if value is None else self._listed(value)
        if by_index and named:
            self._doubt_counting()
            if not self._order_known():
                return self._unordered(len(named))
        self._doubt_gone([device.gpu for device in named])
        seen = self._after_mig(named)
        devices = tuple(
            Visible(
                ordinal,
                device.uuid,
                device.gpu.uuid,
                device.gpu.index,
                None if device.mig is None else device.mig.index,
            )
            for ordinal, device in enumerate(seen)
        )
        sentence = mapping(devices)
        return self._say(devices, f"probably {sentence}" if self.doubts else sentence)

    def _say(self, devices: tuple[Visible, ...], sentence: str) -> Meaning:
        why = "; ".join(dict.fromkeys(self.notes + self.doubts))
        return Meaning(devices, not self.doubts, sentence, why)

    def _listed(self, value: str) -> list[Device]:
        """The devices of a list, up to the first invalid entry."""
        if not value:
            self.notes.append("CUDA_VISIBLE_DEVICES is empty")
            return []
        kind = value[:4]
        resolve = {"GPU-": self._by_uuid, "MIG-": self._by_mig_uuid}.get(kind, self._by_index)
        named: list[Device] = []
        for entry in value.split(","):
            try:
                device = resolve(entry)
            except _Invalid as invalid:
                self.notes.append(f"the list ends at {quoted(entry)}: {invalid}")
                return named
            if device in named:
                self.notes.append(f"{quoted(entry)} is named twice, so CUDA shows no GPU")
                return []
            named.append(device)
        return named

    def _by_index(self, entry: str) -> Device:
        match = _INDEX.match(entry)
        if match is None:
            if entry.lstrip().startswith(("GPU-", "MIG-")):
                raise _Invalid("indices and UUIDs do not mix")
            raise _Invalid("it is neither an index nor a UUID")
        digits = match[1]
        # A number of many digits names no GPU.
        number = int(digits) if len(digits) <= 9 else -1
        if not 0 <= number < len(self.gpus):
            raise _Invalid(f"there is no GPU {cut(digits)}")
        if str(number) != entry.strip():
            self.doubts.append(f"how CUDA reads {quoted(entry)} is not documented")
        return Device(self.gpus[number])

    def _by_uuid(self, entry: str) -> Device:
        self._check_kind(entry, "GPU-")
        return Device(self._gpu(entry))

    def _by_mig_uuid(self, entry: str) -> Device:
        self._check_kind(entry, "MIG-")
        devices = [Device(gpu, mig) for gpu in self.gpus for mig in gpu.mig]
        for device in devices:
            if device.uuid == entry:
                return device
        old = _OLD_MIG.fullmatch(entry)
        if old is not None:
            gpu = self._gpu(old[1])
            instance = int(old[2]), int(old[3])
            for mig in gpu.mig:
                if (mig.gpu_instance, mig.compute_instance) == instance:
                    return Device(gpu, mig)
        begun = [device for device in devices if device.uuid.startswith(entry)]
        if len(begun) != 1:
            raise _Invalid("it fits several MIG devices" if begun else "there is no such device")
        self.doubts.append(f"whether CUDA takes {quoted(entry)} for a whole UUID is not documented")
        return begun[0]

    def _check_kind(self, entry: str, kind: str) -> None:
        if entry.startswith(kind):
            return
        if entry.strip().startswith(kind):
            self.doubts.append("whether CUDA allows a space before a UUID is not documented")
            raise _Invalid("a space stands before it")
        raise _Invalid(f"a list that begins with {kind} holds nothing else")

    def _gpu(self, beginning: str) -> Gpu:
        """The GPU whose UUID has this prefix."""
        begun = [gpu for gpu in self.gpus if gpu.uuid.startswith(beginning)]
        if len(begun) != 1:
            raise _Invalid("it fits several GPUs" if begun else "there is no such GPU")
        return begun[0]

    def _order_known(self) -> bool:
        """Whether CUDA uses nvidia-smi's order, as it does if all GPUs are of one model."""
        if self.order == "PCI_BUS_ID" or len(self.gpus) <= 1:
            return True
        names = {gpu.name for gpu in self.gpus}
        return len(names) == 1 and None not in names

    def _unordered(self, count: int) -> Meaning:
        """The result for ``count`` GPUs in an unknown order."""
        known = all(gpu.name is not None for gpu in self.gpus)
        why = "the GPUs are not all of one model" if known else "the model of a GPU is unknown"
        self.doubts.append(
            f"{why}, and without CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA puts the fastest first"
        )
        total = len(self.gpus)
        if count == total:
            return self._say((), f"all {total} GPUs, in an order that cannot be known here")
        return self._say((), f"{count} of the {total} GPUs, which cannot be known here")

    def _doubt_counting(self) -> None:
        """Add doubts about indices if CUDA may not count a GPU."""
        self._doubt_gone(self.gpus)
        if len(self.gpus) > 1 and any(_has_mig(gpu) for gpu in self.gpus):
            self.doubts.append("where a GPU has MIG on, CUDA may number the GPUs differently")

    def _doubt_gone(self, gpus: Sequence[Gpu]) -> None:
        for gpu in gpus:
            if gpu.status in _GONE:
                self.doubts.append(
                    f"GPU {gpu.index} {_GONE[gpu.status]}, and CUDA may not count it"
                )

    def _after_mig(self, named: list[Device]) -> list[Device]:
        """The devices that CUDA shows: with MIG only one MIG device, and no other GPU."""
        instances = [device for device in named if device.mig is not None]
        if instances:
            if len(instances) > 1:
                self.notes.append("CUDA shows one MIG device at most")
            return instances[:1]
        for device in named:
            gpu = device.gpu
            if gpu.mig:
                self.doubts.append(
                    f"GPU {gpu.index} has MIG on: of its devices CUDA takes the first it may open, "
                    "and no other GPU"
                )
                return [Device(gpu, min(gpu.mig, key=lambda mig: mig.index))]
        bare = [device.gpu.index for device in named if _has_mig(device.gpu)]
        self.notes += [f"GPU {index} has MIG on and no MIG device" for index in bare]
        return [device for device in named if not _has_mig(device.gpu)]


def _has_mig(gpu: Gpu) -> bool:
    return bool(gpu.mig_mode or gpu.mig)
