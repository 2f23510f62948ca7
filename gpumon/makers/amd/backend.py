"""The backend of AMD's GPUs.

ROCm's processes are in KFD's list (``kfd``). They hold DRM files too, whose ``fdinfo`` tells the
same memory: the larger of the two numbers counts, never their sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from gpumon.host.namespaces import in_initial_pid_namespace
from gpumon.makers.amd import MAKER
from gpumon.makers.amd.gpu import AmdGpu, uuid_of
from gpumon.makers.amd.kfd import KfdProcesses, nodes_of
from gpumon.makers.backend import COMPUTE
from gpumon.makers.drm.backend import DrmBackend
from gpumon.makers.drm.uses import ProcessUse
from gpumon.model.selection import ALL
from gpumon.system.system import THIS_SYSTEM, System

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpumon.makers.drm.cards import DrmCard
    from gpumon.makers.drm.gpu import DrmGpu
    from gpumon.model.selection import GpuSelection


class AmdBackend(DrmBackend):
    """The GPUs that the kernel's driver ``amdgpu`` runs; see ``DrmBackend``.

    GPUs of the older driver ``radeon``, which reports few values, and those that were given to a
    virtual machine (``vfio-pci``) are not among them.
    """

    maker = MAKER
    advice: ClassVar[str] = (
        "`lspci -nnk -d 1002:` lists those of the machine with their drivers, and "
        "`sudo dmesg | grep amdgpu` shows what the driver reports about them."
    )

    def __init__(
        self,
        selection: GpuSelection = ALL,
        system: System = THIS_SYSTEM,
        *,
        profiled: bool = False,
    ) -> None:
        super().__init__(selection, system, profiled=profiled)
        self._kfd = KfdProcesses(system.sys)
        # In a container its PIDs have another meaning: fdinfo alone tells the processes there.
        self._lists_kfd = in_initial_pid_namespace(system.proc)
        self._kfd_pids: list[int] = []
        self._slots: dict[str, str] = {}

    def new_gpu(self, card: DrmCard) -> DrmGpu:
        """See ``DrmBackend.new_gpu``."""
        nodes = nodes_of(card.bus_id, self._system.sys)
        uuid = uuid_of(card)
        if self._slots.setdefault(uuid, card.bus_id) != card.bus_id:
            # A UUID names one GPU only, whatever the boards say.
            uuid = f"PCI-{card.bus_id}"
        return AmdGpu(card, uuid, nodes, self._calls, self._clock)

    def known_pids(self) -> Collection[int]:
        """See ``DrmBackend.known_pids``."""
        self._kfd_pids = self._kfd.pids() if self._lists_kfd else []
        return self._kfd_pids

    def add_uses(self, gpu: DrmGpu, uses: dict[int, ProcessUse]) -> dict[int, ProcessUse]:
        """See ``DrmBackend.add_uses``."""
        if not isinstance(gpu, AmdGpu) or not gpu.kfd_ids:
            return uses
        for pid in self._kfd_pids:
            memory = self._kfd.memory(pid, gpu.kfd_ids)
            if memory is None:
                continue
            use = uses.get(pid)
            if use is None:
                # A process has a folder for each GPU that it sees, used or not.
                if memory:
                    uses[pid] = ProcessUse(types=frozenset((COMPUTE,)), memory=memory)
                continue
            uses[pid] = replace(
                use,
                types=use.types | {COMPUTE} if memory else use.types,
                memory=max(memory, use.memory or 0),
                # fdinfo tells no time of the queues of ROCm, which bypass the kernel.
                sm=None if memory else use.sm,
            )
        return uses
