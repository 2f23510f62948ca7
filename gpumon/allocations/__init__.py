"""Which GPUs a scheduler has given to jobs of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumon.allocations.slurm import SlurmAllocations


def local_allocations() -> SlurmAllocations | None:
    """What schedulers have given to jobs here; ``None`` where there is no scheduler to ask."""
    import shutil

    # The name of the program is that of ``scontrol.PROGRAM``; without it nothing is imported.
    if shutil.which("scontrol") is None:
        return None
    from gpumon.allocations.slurm import SlurmAllocations

    return SlurmAllocations()
