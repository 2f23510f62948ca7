"""Which GPUs a scheduler has given to jobs of this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from gpumon.model.allocations import Allocation

if TYPE_CHECKING:
    from gpumon.allocations.slurm import SlurmAllocations
    from gpumon.model.snapshot import Snapshot

_PROGRAM = "scontrol"


class Allocations:
    """Finds what schedulers have given to jobs here. Not thread-safe."""

    unknown: ClassVar[tuple[Allocation, ...]] = (Allocation("slurm", unplaced=None),)
    """What is known before the first look: nothing."""

    def __init__(self) -> None:
        self._made: SlurmAllocations | None = None

    @property
    def _slurm(self) -> SlurmAllocations:
        # Needed after the first picture only.
        from gpumon.allocations.slurm import SlurmAllocations

        if self._made is None:
            self._made = SlurmAllocations()
        return self._made

    def find(self, snapshot: Snapshot) -> tuple[tuple[Allocation, ...], float]:
        """See ``SlurmAllocations.find``."""
        return self._slurm.find(snapshot)

    def settle(self, snapshot: Snapshot, seconds: float) -> tuple[Allocation, ...]:
        """See ``SlurmAllocations.settle``."""
        return self._slurm.settle(snapshot, seconds)


def local_allocations() -> Allocations | None:
    """What schedulers have given to jobs here; ``None`` where there is no scheduler to ask."""
    # ``shutil.which`` takes longer to import than this takes.
    folders = os.get_exec_path()
    if not any(os.access(f"{folder}/{_PROGRAM}", os.X_OK) for folder in folders):
        return None
    return Allocations()
