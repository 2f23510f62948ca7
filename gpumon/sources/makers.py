"""What makers' product names and error codes mean.

This is not part of ``GpuBackend`` because it also applies to logs, which are read without a driver.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

RESET_COMMAND = "nvidia-smi --gpu-reset"
"""Resets a GPU that the driver reports as ``RESET_REQUIRED``; needs root."""

XID_CATALOGUE = "docs.nvidia.com/deploy/xid-errors"

_BRANDS = ("NVIDIA ", "GeForce ", "Tesla ", "Quadro ")


def short_name(name: str) -> str:
    """The name of a GPU without the maker and the brand: ``RTX 4090``."""
    for brand in _BRANDS:
        name = name.removeprefix(brand)
    return name.strip()


class ErrorSeverity(str, Enum):
    """How severe an error code is; the values are the words of ``xid critical`` and the like."""

    BY_PROGRAM = "by program"
    """A program caused it, or only a program was ended by it: the GPU goes on working."""
    NOTE = "note"
    """The driver or the GPU dealt with it, as with a repair of the memory."""
    WARNING = "warning"
    """It should be looked after, mostly by a reset once the GPU is free."""
    CRITICAL = "critical"
    """The GPU, or what it computes, cannot be relied on."""


class ErrorCode(NamedTuple):
    """An error that a driver reports as a number.

    Attributes:
        label: How the error is cited: ``XID 79``.
        meaning: ``None`` for a number that is not in the table, as the other two.
        severity: How severe it is.
        advice: What to do, in words that follow a colon.
    """

    label: str
    meaning: str | None = None
    severity: ErrorSeverity | None = None
    advice: str | None = None

    @property
    def by_program(self) -> bool:
        """Whether a program caused it and the GPU still works."""
        return self.severity is ErrorSeverity.BY_PROGRAM

    @property
    def passing(self) -> bool:
        """Whether the GPU is sound after it, so that it need not be reported for long."""
        return self.severity in (ErrorSeverity.BY_PROGRAM, ErrorSeverity.NOTE)

    @property
    def explanation(self) -> str:
        """The meaning, or where to find it."""
        return self.meaning or f"look it up in NVIDIA's XID catalogue ({XID_CATALOGUE})"


def error_code(number: int) -> ErrorCode:
    """The error with the number that is in ``Gpu.xid``."""
    from gpumon.sources.xids import XIDS  # Most runs see no error and need not load the table.

    return ErrorCode(f"XID {number}", *XIDS.get(number, ()))
