"""What makers' product names and error codes mean.

This is not part of ``GpuBackend`` because it also applies to logs, which are read without a driver.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from gpumon.model.makers import Maker, maker_of

RESET_COMMAND = "nvidia-smi --gpu-reset"
"""Resets a GPU that the driver reports as ``RESET_REQUIRED``; needs root."""

XID_CATALOGUE = "docs.nvidia.com/deploy/xid-errors"

_BRANDS = {
    Maker.NVIDIA: ("NVIDIA ", "GeForce ", "Tesla "),
    Maker.AMD: ("AMD ", "Radeon ", "Instinct "),
    Maker.INTEL: ("Intel ", "Data Center GPU "),
}


def short_name(name: str) -> str:
    """The name of a GPU without the maker and the brand: ``RTX 4090``, ``MI300X``.

    What names a model only with them keeps them: ``Radeon VII``, ``Intel Graphics``, ``Quadro
    T1000`` (``NVIDIA T1000`` is another model).
    """
    for brand in _BRANDS[maker_of(name)]:
        rest = name.removeprefix(brand).strip()
        if " " in rest or any(character.isdigit() for character in rest):
            name = rest
    return name.strip()


def is_same_name(name: str, other: str) -> bool:
    """Whether two names are of one model: newer drivers of NVIDIA put the maker in front."""
    return name == other or name.removeprefix("NVIDIA ") == other.removeprefix("NVIDIA ")


class MakerWords(NamedTuple):
    """What a maker's users call things.

    Attributes:
        cores: Its shader processors, in front of "clock".
        load: The share of time in which a process used a GPU, in front of a percentage.
        kernel_log: What to look for in the kernel log.
        reset: The command that resets a GPU, for root; ``None`` if only a reboot is sure.
    """

    cores: str
    load: str
    kernel_log: str
    reset: str | None


WORDS = {
    Maker.NVIDIA: MakerWords("SM", "SM", "the XID", RESET_COMMAND),
    Maker.AMD: MakerWords("shader", "GPU", "amdgpu", "amd-smi reset --gpureset"),
    Maker.INTEL: MakerWords("GT", "GPU", "i915 or xe", None),
}


@lru_cache(maxsize=256)
def words_of(name: str | None) -> MakerWords:
    """The words for a GPU with this product name."""
    return WORDS[maker_of(name)]


def metric_label(label: str, name: str | None) -> str:
    """The label of a metric in the words of the GPU's maker: ``Shader clock`` for ``SM clock``."""
    cores = words_of(name).cores
    if not label.startswith("SM clock") or cores == "SM":
        return label
    return label.replace("SM", cores[0].upper() + cores[1:], 1)


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
    from gpumon.makers.xids import XIDS  # Most runs see no error and need not load the table.

    return ErrorCode(f"XID {number}", *XIDS.get(number, ()))
