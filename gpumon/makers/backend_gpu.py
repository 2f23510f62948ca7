"""What a driver has told of a GPU: its values, why others are unknown, and whether it responds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from gpumon.model.snapshot import Gpu, GpuStatus, Unknown

if TYPE_CHECKING:
    from gpumon.model.snapshot import MigInstance
    from gpumon.system.clock import Clock

DRIVER_FIELDS = Gpu.__struct_fields__[Gpu.__struct_fields__.index("mig") + 1 :]
"""The fields of ``Gpu`` that the driver fills, in their order; the others come first."""

REASON_OF_STATUS: dict[GpuStatus, Unknown] = {
    GpuStatus.LOST: Unknown.GPU_LOST,
    GpuStatus.RESET_REQUIRED: Unknown.GPU_LOST,
    GpuStatus.NO_PERMISSION: Unknown.NO_PERMISSION,
    GpuStatus.ASLEEP: Unknown.ASLEEP,
    GpuStatus.NO_ANSWER: Unknown.NO_ANSWER,
    GpuStatus.FAILING: Unknown.NO_ANSWER,
}
"""Why the values of a GPU with this status are unknown."""


class Answers:
    """Values by name, and the reasons for unknown ones.

    Attributes:
        values: The values; ``None`` is unknown.
        unknown: The reasons for values that are ``None``; replaced, never changed, because a
            snapshot holds it.
    """

    __slots__ = ("unknown", "values")

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        """Create it without any value.

        Args:
            names: The names that ``values`` has from the start, in this order.
        """
        self.values: dict[str, Any] = dict.fromkeys(names)
        self.unknown: dict[str, Unknown] = {}

    def miss(self, names: tuple[str, ...], reason: Unknown | None) -> None:
        """Set values to unknown; a reason of ``None`` means that there is no value."""
        unknown = {name: why for name, why in self.unknown.items() if name not in names}
        for name in names:
            self.values[name] = None
            if reason is not None:
                unknown[name] = reason
        self.unknown = unknown

    def found(self, names: tuple[str, ...]) -> None:
        """Remove the reasons of values that are known again."""
        if not self.unknown.keys().isdisjoint(names):
            self.unknown = {name: why for name, why in self.unknown.items() if name not in names}


class BackendGpu(ABC):
    """A GPU as its backend knows it.

    Attributes:
        uuid: Its UUID.
        index: Its index among the GPUs of its backend.
        status: Whether it responds.
        status_since: Since when, in seconds since the epoch.
        sampled_at: When values were last read, in seconds since the epoch.
        facts: The fields of ``Gpu``.
        mig: Its MIG devices.
    """

    def __init__(self, uuid: str, index: int, clock: Clock, facts: Answers) -> None:
        self.uuid = uuid
        self.index = index
        self.clock = clock
        self.status = GpuStatus.OK
        self.status_since = clock.time()
        self.sampled_at: float | None = None
        self.facts = facts
        self.mig: tuple[MigInstance, ...] = ()

    def set_status(self, status: GpuStatus) -> None:
        """Set the status, and its time if it changed."""
        if status is not self.status:
            self.status = status
            self.status_since = self.clock.time()

    @property
    @abstractmethod
    def processes_unknown(self) -> Unknown | None:
        """Why its processes are unknown; ``None`` if they are known."""

    def snapshot(self) -> Gpu:
        """The GPU with its current values."""
        unknown, why = self.facts.unknown, self.processes_unknown
        if why is not None:
            unknown = {**unknown, "processes": why}
        # Positional: seventy keywords took twice as long.
        return Gpu(
            self.index,
            self.uuid,
            self.status,
            self.status_since,
            self.sampled_at,
            unknown,
            self.mig,
            *self.facts.values.values(),
        )
