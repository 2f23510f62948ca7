"""The requirements for GPUs, and how many are wanted."""

from __future__ import annotations

from msgspec import Struct

from gpumon.model.selection import ALL, GpuSelection


class Requirements(Struct, frozen=True):
    """The requirements. ``None`` requires nothing.

    Attributes:
        least: Minimum number of GPUs.
        most: Maximum number of GPUs: as many as are eligible, up to this.
        free: Minimum bytes of free memory. If neither this nor ``processes`` is given, a GPU must
            be empty: no process computes on it, and it has no unattributed memory.
        total: Minimum bytes of total memory.
        utilization: Maximum utilisation in percent.
        temperature: Maximum temperature in degrees Celsius.
        processes: Maximum number of computing processes.
        models: Substrings of a product name in lower case, one of which must match.
        architectures: Allowed architectures in lower case.
        capability: Minimum CUDA compute capability.
        only: Only these GPUs.
        never: None of these GPUs; empty is no GPU, not all.
        maker: Only GPUs of the maker with this name; ``None`` is that of the first GPU that is
            asked for.
        mig: MIG devices instead of whole GPUs.
        mine_is_free: Treat the memory of this user's own processes as free, and ignore these
            processes.
        stable: Seconds for which a GPU must have met the requirements.
    """

    least: int = 1
    most: int = 1
    free: int | None = None
    total: int | None = None
    utilization: float | None = None
    temperature: float | None = None
    processes: int | None = None
    models: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    capability: tuple[int, int] | None = None
    only: GpuSelection = ALL
    never: GpuSelection = ALL
    maker: str | None = None
    mig: bool = False
    mine_is_free: bool = False
    stable: float | None = None

    @property
    def empty(self) -> bool:
        """Whether no other process may be on a GPU."""
        return self.free is None and self.processes is None

    def counted(self, kind: str = "") -> str:
        """The number in words: ``2 GPUs``, ``1 to 4 idle GPUs``, ``1 MIG device``."""
        many = str(self.least) if self.least == self.most else f"{self.least} to {self.most}"
        thing = "MIG device" if self.mig else "GPU"
        return f"{many} {kind and f'{kind} '}{thing}{'' if self.most == 1 else 's'}"
