"""Accidents: what the kernel reported of a GPU or of a killed process; part of the data model.

An ``Accident`` has what its line in the kernel log says, and nothing else. Whose process and job
it was is known from the snapshots before and after it.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from gpumon.model.number_types import Count, Time  # noqa: TC001 - msgspec resolves annotations

ACCIDENT_SECONDS = 600.0
"""For so long an accident is part of the snapshots."""
ACCIDENTS_KEPT = 32
"""So many accidents are part of a snapshot at most: the newest."""
SAME_SECONDS = 2.0
"""Two equal reports less than so many seconds apart are of one accident: an event of the driver and
its line in the kernel log, or a line that is read again after a clock was corrected."""


class AccidentKind(str, Enum):
    """The kind of an accident."""

    ERROR_CODE = "error code"
    """NVIDIA's driver reported an XID."""
    TIMEOUT = "timeout"
    """A GPU did not finish the work of a process in time: amdgpu, i915, xe."""
    RESET = "reset"
    """A driver began to reset a GPU, which ends the work of all processes on it."""
    OUT_OF_MEMORY = "out of memory"
    """The kernel's OOM killer killed a process, or a cgroup counted one that it killed."""
    OTHER = "other"
    """A newer gpumon on another machine has more kinds."""

    @classmethod
    def _missing_(cls, _: object) -> AccidentKind:
        return cls.OTHER


class Accident(Struct, frozen=True, gc=False, array_like=True):
    """An accident, as the kernel reported it. ``None`` means that it did not say.

    Attributes:
        time: When, in seconds since the epoch, from the kernel's own clock.
        kind: What happened.
        gpu_uuid: UUID of the GPU; ``None`` if it is of no GPU, as when the memory of the host is
            used up, or if the kernel did not say of which, as older ones of amdgpu.
        number: The number of an error code, as of an XID.
        pid: The process that the kernel names; a PID of the host's namespace.
        process_name: Its name, not safe to print.
        channel: The channel of the GPU that it names, as written: ``00000008``, ``gfx_0.0.0``.
        text: The rest of the line, at most ``TEXT_BYTES`` long, not safe to print.
        cgroup: Path of the memory cgroup whose limit was met; ``None`` for the machine's memory, or
            if the kernel did not say which: ``text`` then begins with ``Memory cgroup``. If only
            the cgroup's counter is known, which has processes killed for the machine's memory
            too, ``text`` is ``oom_kill`` and how many were killed.
        memory: Bytes of host memory that a killed process had.
    """

    time: Time
    kind: AccidentKind
    gpu_uuid: str | None = None
    number: Count | None = None
    pid: Count | None = None
    process_name: str | None = None
    channel: str | None = None
    text: str = ""
    cgroup: str | None = None
    memory: Count | None = None

    def bare(self) -> Accident:
        """The accident without what only the kernel log reports, as a driver's event has it."""
        return Accident(self.time, self.kind, self.gpu_uuid, self.number)

    def is_error(self, gpu_uuid: str | None, number: int | None, at: float | None) -> bool:
        """Whether it is this error code of a GPU, of the same time if that is known."""
        return (
            self.kind is AccidentKind.ERROR_CODE
            and (self.gpu_uuid, self.number) == (gpu_uuid, number)
            and (at is None or abs(self.time - at) <= SAME_SECONDS)
        )


TEXT_BYTES = 200
"""Length of ``Accident.text`` at most."""
