"""ROCm's variables by which programs see only some GPUs.

``ROCR_VISIBLE_DEVICES`` has indices or UUIDs; ``HIP_VISIBLE_DEVICES``, or if that is not set
``CUDA_VISIBLE_DEVICES``, has indices among the GPUs that are left, and ``GPU_DEVICE_ORDINAL`` the
same for OpenCL (rocm.docs.amd.com, "GPU isolation techniques" and "HIP environment variables").
The first hides all GPUs if it is empty; the others count as not set then (``rocdevice.cpp`` of
ROCm/clr).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.makers.visible_devices import DeviceList, Meaning, VisibleDevices
from gpumon.model.makers import gpus_of, makers_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.model.snapshot import Gpu

_CUDA, _OPENCL = "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"


class RocmDevices(VisibleDevices):
    """See the module."""

    uuid_prefix = "GPU-"

    def assignments(self, uuids: Sequence[str], gpus: Sequence[Gpu]) -> dict[str, str]:
        """See ``VisibleDevices.assignments``."""
        rocr, hip = self.maker.variables
        indices = self.bus_indices(gpus)
        # Older GPUs and processors have no UUID: they are counted.
        listed = ",".join(
            uuid if uuid.startswith(self.uuid_prefix) else indices[uuid] for uuid in uuids
        )
        # Inherited values would select again among what is left.
        left = ",".join(map(str, range(len(uuids))))
        return {rocr: listed, hip: left, _OPENCL: left}

    def doubt(
        self,
        uuids: Sequence[str],
        gpus: Sequence[Gpu],
        indices: Sequence[str] | None = None,  # noqa: ARG002 - the signature of the base
    ) -> str:
        """See ``VisibleDevices.doubt``."""
        several = len(self.bus_order(gpus_of(self.maker, gpus))) > 1
        counted = [uuid for uuid in uuids if not uuid.startswith(self.uuid_prefix)]
        if not counted or not several:
            return ""
        names = ", ".join(counted)
        return f"{names}: selected by index, for lack of a UUID; ROCm may number GPUs differently."

    def selecting_variable(self, environment: Mapping[str, str], gpus: Sequence[Gpu]) -> str | None:
        """See ``VisibleDevices.selecting_variable``.

        Where a machine has GPUs of CUDA, its variable means those, although HIP reads it too.
        """
        rocr, hip = self.maker.variables
        if rocr in environment:
            return rocr
        if environment.get(hip):
            return hip
        if environment.get(_CUDA) and not any(maker.has_cuda for maker in makers_of(gpus)):
            return _CUDA
        return None

    def visible(self, environment: Mapping[str, str], gpus: Sequence[Gpu]) -> Meaning:
        """See ``VisibleDevices.visible``."""
        rocr, hip = self.maker.variables
        own = gpus_of(self.maker, gpus)
        reading = DeviceList(self.uuid_prefix)
        seen, counted = own, False
        first = environment.get(rocr)
        if first is not None:
            seen = reading.named(first, own)
            counted = bool(seen) and any(part.strip().isdigit() for part in first.split(","))
        second = environment.get(hip) or environment.get(_CUDA)
        if second:
            seen = reading.named(second, seen)
            counted = counted or (first is None and bool(seen))
        if counted and len({gpu.name for gpu in own}) > 1:
            reading.doubts.append(
                "the GPUs are not all of one model, and the order in which ROCm numbers them is "
                "not known here: use UUIDs to be certain"
            )
        return reading.meaning(seen)
