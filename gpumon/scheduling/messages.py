"""Texts about GPUs and their processes, shared by several messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.model.process_states import ENDED
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.model.processes import GpuProcess

_NAMED = 2
"""Maximum number of holders that are named; the others are counted."""


def gib(size: float | None) -> str:
    """Bytes as ``41.2 GiB``."""
    return "an unknown amount" if size is None else f"{size / 2**30:.1f} GiB"


def holders_named(
    processes: Sequence[GpuProcess], memory_of: Callable[[GpuProcess], int | None]
) -> str:
    """The holders of a GPU: ``ann's python (4711) holds 41.2 GiB, and 2 more``; empty if none.

    Args:
        processes: The processes, most memory first.
        memory_of: Returns the bytes that a process holds on the GPU.
    """
    told = [f"{name_of(one)} holds {gib(memory_of(one))}" for one in processes[:_NAMED]]
    if len(processes) > _NAMED:
        told.append(f"and {len(processes) - _NAMED} more")
    return ", ".join(told)


def name_of(process: GpuProcess) -> str:
    """The name of a process for the user: ``ann's python (4711)``."""
    unseen = "a process that has ended" if process.state == ENDED else "a process"
    name = printable(process.name or unseen)
    whose = "" if process.user is None else f"{printable(process.user)}'s "
    return f"{whose}{name} ({process.id.pid})"
