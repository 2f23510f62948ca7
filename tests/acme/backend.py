"""The backend: what it reads from a driver is made up here."""

from __future__ import annotations

import os
import time

from gpumon.makers.backend import DriverInfo, GpuBackend, ListedProcess, Reading
from gpumon.makers.source import NoSuchGpuError
from gpumon.model.error_codes import ErrorSeverity
from gpumon.model.processes import GpuUse
from gpumon.model.snapshot import Gpu
from tests.acme import MAKER, PID

GIB = 2**30

ERRORS = {3: ("a program forgot the countdown", ErrorSeverity.BY_PROGRAM, "count again")}


def version() -> str:
    """See ``Maker.version``."""
    return "ACME driver 7.1"


class AcmeBackend(GpuBackend):
    """GPU 0 has a process, which caused an error; GPU 1 is free."""

    maker = MAKER
    driver = DriverInfo(version="7.1")

    def open(self) -> None:
        """See ``Source.open``; a driver that is not here is a ``SourceError``."""
        if missing := self._selection.missing(2, ["GPU-ACE0", "GPU-ACE1"]):
            raise NoSuchGpuError(missing, 2)

    def read(self, *, full: bool = True) -> Reading:  # noqa: ARG002 - the signature of the base
        """See ``GpuBackend.read``."""
        now = time.time()
        found = (self.gpu(0, now, used=5, busy=93, xid=3), self.gpu(1, now, used=0, busy=0))
        gpus = tuple(gpu for gpu in found if self._selection.includes(gpu.index, gpu.uuid))
        owner = ListedProcess("C", (GpuUse("GPU-ACE0", 0, memory_used=5 * GIB, sm=90),))
        is_used = PID in os.environ and found[0] in gpus
        listed = {int(os.environ[PID]): owner} if is_used else {}
        return Reading(now, gpus, self.driver, listed, now)

    def gpu(self, index: int, now: float, used: int, busy: int, xid: int | None = None) -> Gpu:
        """One GPU with its values; those that are left out are unknown."""
        return Gpu(
            index,
            f"GPU-ACE{index}",
            sampled_at=now,
            name="ACME Rocket R1",
            minor_number=128 + index,
            memory_total=16 * GIB,
            memory_used=used * GIB,
            memory_free=(16 - used) * GIB,
            utilization_gpu=busy,
            temperature_gpu=40 + busy // 3,
            clock_sm=1000,
            xid=xid,
            xid_at=None if xid is None else now,
        )
