"""Faults of a GPU that still responds: memory faults, and the driver's recovery action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.text.formatting import counted, printable

if TYPE_CHECKING:
    from gpumon.model.snapshot import Gpu


MEMORY_FIELDS = (
    "remapped_rows_failure",
    "remapped_rows_pending",
    "retired_pages_pending",
    "ecc_uncorrected_volatile",
)
"""What ``memory_faults`` takes of a GPU, if the GPU reports it."""
HEALTH_FIELDS = (*MEMORY_FIELDS, "recovery_action")


class MemoryFault(Struct, frozen=True):
    """A fault of a GPU's memory, in words."""

    sentence: str
    short: str
    brief: str
    evidence: str


def memory_faults(gpu: Gpu) -> list[MemoryFault]:
    """The faults of a GPU's memory, most severe first."""
    faults = []
    if gpu.remapped_rows_failure:
        faults.append(
            MemoryFault(
                "a bad memory row could not be replaced: the GPU should be returned",
                "row remap failed: replace GPU",
                "bad memory",
                "row remap failure: yes",
            )
        )
    if gpu.remapped_rows_pending:
        faults.append(
            MemoryFault(
                "a bad memory row is replaced at the next reset of the GPU",
                "row remap pending: reset",
                "reset!",
                "row remap pending: yes",
            )
        )
    if gpu.retired_pages_pending:
        faults.append(
            MemoryFault(
                "a bad memory page is retired at the next reset of the GPU",
                "page retirement pending: reset",
                "reset!",
                "page retirement pending: yes",
            )
        )
    if errors := gpu.ecc_uncorrected_volatile:
        words = counted(errors, "uncorrected ECC error")
        faults.append(
            MemoryFault(
                f"{words} since the driver was loaded: what was in that memory is lost",
                words,
                "ECC errors",
                f"uncorrected ECC errors since the driver was loaded: {errors}",
            )
        )
    return faults


def recovery_action(gpu: Gpu) -> str | None:
    """The driver's recovery action, safe to print; ``None`` if there is none or it is unknown."""
    action = gpu.recovery_action
    return None if action is None or action.lower() == "none" else printable(action)
