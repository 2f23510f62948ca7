"""What makers' product names and error codes mean.

This is not part of ``GpuBackend`` because it also applies to logs, which are read without a driver.
"""

from __future__ import annotations

from typing import NamedTuple

RESET_COMMAND = "nvidia-smi --gpu-reset"
"""Resets a GPU that the driver reports as ``RESET_REQUIRED``; needs root."""

_BRANDS = ("NVIDIA ", "GeForce ", "Tesla ", "Quadro ")


def short_name(name: str) -> str:
    """The name of a GPU without the maker and the brand: ``RTX 4090``."""
    for brand in _BRANDS:
        name = name.removeprefix(brand)
    return name.strip()


class ErrorCode(NamedTuple):
    """An error that a driver reports as a number.

    Attributes:
        label: How the error is cited: ``XID 79``.
        meaning: ``None`` for a number that is not in the table.
        by_program: Whether a program caused it and the GPU still works.
    """

    label: str
    meaning: str | None
    by_program: bool

    @property
    def explanation(self) -> str:
        """The meaning, or where to find it."""
        return self.meaning or "look it up in XID Errors"


def error_code(number: int) -> ErrorCode:
    """The error with the number that is in ``Gpu.xid``."""
    return ErrorCode(f"XID {number}", _XIDS.get(number), number in _PROGRAM_XIDS)


_XIDS: dict[int, str] = {
    13: "a program crashed on the graphics engine",
    31: "a program touched memory that it does not own",
    32: "a program's commands arrived corrupted",
    38: "the firmware reported an error",
    43: "a program was stopped after an error of its own",
    44: "a fault while programs took turns",
    45: "a program was ended after an earlier error, or killed",
    46: "the GPU stopped processing",
    48: "memory error that could not be corrected",
    61: "the GPU's micro-controller warned",
    62: "the GPU's micro-controller halted",
    63: "a bad piece of memory was marked for replacement",
    64: "a bad piece of memory could not be replaced",
    68: "the video decoder failed",
    69: "a program used the graphics engine wrongly",
    74: "error on an NVLink",
    79: "the GPU fell off the bus",
    92: "corrected memory errors are frequent",
    94: "memory error, kept within one program",
    95: "memory error that may have touched every program",
    109: "a program did not make way for another in time",
    119: "the GPU's system processor (GSP) did not answer",
    120: "the GPU's system processor (GSP) failed",
    121: "error on the link between chips (C2C)",
    140: "memory error that was not recovered from",
    143: "the GPU could not be initialised",
    154: "the driver changed its advice on how to recover the GPU",
}
"""The common ones of NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors), in plain words."""

_PROGRAM_XIDS = frozenset({13, 31, 43, 45, 68})
"""Those that a program causes and that leave the GPU working, by the same catalogue."""
