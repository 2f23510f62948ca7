"""A complete backend: two GPUs of a maker that does not exist.

``python -m tests.third_backend …`` is ``gpumon …`` on a machine with these GPUs.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partialmethod

from gpumon.cli import main
from gpumon.host.device_files import DeviceFiles
from gpumon.makers import machine
from gpumon.makers.backend import DriverInfo, GpuBackend, ListedProcess, Reading
from gpumon.makers.sampler import Sampler
from gpumon.model.processes import GpuUse
from gpumon.model.snapshot import Gpu
from gpumon.sampling.enrichment import Lookup

GIB = 2**30
PID, FOLDER = "ACME_PID", "ACME_FOLDER"
"""Environment variables: the process on GPU 0, and the folder of the device files."""


class AcmeBackend(GpuBackend):
    """GPU 0 has a process; GPU 1 is free."""

    name = "acme"
    folder = os.getenv(FOLDER, "/dev")
    device_files = DeviceFiles(gpu=f"{folder}/render{{minor}}", prefix=folder)
    driver = DriverInfo(version="7.1")

    def read(self, *, full: bool = True) -> Reading:  # noqa: ARG002 - the signature of the base
        """See ``GpuBackend.read``."""
        now = time.time()
        owner = ListedProcess("C", (GpuUse("ACME-0", 0, memory_used=5 * GIB),))
        listed = {int(os.environ[PID]): owner} if PID in os.environ else {}
        gpus = (self.gpu(0, now, used=5, busy=93), self.gpu(1, now, used=0, busy=0))
        return Reading(now, gpus, self.driver, listed, now)

    def gpu(self, index: int, now: float, used: int, busy: int) -> Gpu:
        """One GPU with its values; those that are left out are unknown."""
        return Gpu(
            index,
            f"ACME-{index}",
            sampled_at=now,
            name="ACME Rocket",
            minor_number=128 + index,
            memory_total=16 * GIB,
            memory_used=used * GIB,
            memory_free=(16 - used) * GIB,
            utilization_gpu=busy,
            temperature_gpu=40 + busy // 3,
        )


if __name__ == "__main__":
    machine.this_machine = lambda *_, **__: Sampler(AcmeBackend())
    # Nothing is late, however busy the machine.
    Lookup.look_once = partialmethod(Lookup.look_once, patience=60.0)  # type: ignore[assignment]  # a method
    sys.exit(main())
