"""The backend of Intel's GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpumon.makers.drm.backend import DrmBackend, device_files
from gpumon.makers.intel.gpu import IntelGpu
from gpumon.model.makers import Maker

if TYPE_CHECKING:
    from gpumon.makers.drm.cards import DrmCard
    from gpumon.makers.drm.gpu import DrmGpu


class IntelBackend(DrmBackend):
    """The GPUs that the kernel's drivers ``i915`` and ``xe`` run; see ``DrmBackend``."""

    name = "intel"
    device_files = device_files(Maker.INTEL)
    maker: ClassVar[Maker] = Maker.INTEL
    advice: ClassVar[str] = (
        "`lspci -nnk -d 8086:` lists those of the machine with their drivers, and "
        "`sudo dmesg | grep -E 'i915|xe'` shows what the drivers report about them."
    )

    def new_gpu(self, card: DrmCard) -> DrmGpu:
        """See ``DrmBackend.new_gpu``."""
        return IntelGpu(card, self._calls, self._clock, self._dev)
