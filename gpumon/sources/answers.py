"""The values that a driver has told of a GPU, and why others are unknown."""

from __future__ import annotations

from typing import Any

from gpumon.model.snapshot import Gpu, GpuStatus, Unknown

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
