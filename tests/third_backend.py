"""Two cards of a maker that does not exist: all that another maker's cards take.

``python -m tests.third_backend …`` is ``gpumon …`` on a machine with these cards.
"""

from __future__ import annotations

import os
import sys
import time

from gpumon.cli import main
from gpumon.host.device_files import DeviceFiles
from gpumon.model.snapshot import Gpu, GpuUse, Unknown
from gpumon.sources import Call, machine
from gpumon.sources.backend import DriverFacts, ListedProcess, Reading
from gpumon.sources.links import NONE_KNOWN, Links
from gpumon.sources.sampler import Sampler

GIB = 2**30
PID, FOLDER = "ACME_PID", "ACME_FOLDER"
"""Variables: the process on card 0, and the folder of the device files."""


class AcmeBackend:
    """See ``GpuBackend``."""

    name = "acme"
    device_files = DeviceFiles(
        card=f"{os.getenv(FOLDER, '/dev')}/render{{minor}}", prefix=os.getenv(FOLDER, "/dev")
    )
    current_call = None
    driver_seconds = 0.0
    _driver = DriverFacts(version="7.1")

    def open(self) -> None:
        """Nothing to make ready."""

    def close(self) -> None:
        """Nothing to give back."""

    def give_up(self, _call: Call, /) -> bool:
        """No call hangs."""
        return False

    def past(self) -> tuple[Reading, ...]:
        """It does not remember."""
        return ()

    def links(self) -> Links:
        """Nobody tells."""
        return NONE_KNOWN

    def read(self, *, closely: bool = True) -> Reading:  # noqa: ARG002 - the protocol's signature
        """A card with a process, and a free one."""
        now = time.time()
        gpus = tuple(
            Gpu(
                index,
                f"ACME-{index}",
                name="ACME Rocket",
                minor_number=128 + index,
                sampled_at=now,
                memory_total=16 * GIB,
                memory_used=used,
                memory_free=16 * GIB - used,
                utilization_gpu=busy,
                temperature_gpu=40 + busy // 3,
                unknown={"fan_speed": Unknown.NOT_SUPPORTED},
            )
            for index, used, busy in ((0, 5 * GIB, 93), (1, 0, 0))
        )
        owner = ListedProcess("C", (GpuUse("ACME-0", 0, None, 5 * GIB),))
        listed = {int(os.environ[PID]): owner} if PID in os.environ else {}
        return Reading(now, gpus, self._driver, listed, now)


if __name__ == "__main__":
    machine.this_machine = lambda *_: Sampler(AcmeBackend())
    sys.exit(main())
