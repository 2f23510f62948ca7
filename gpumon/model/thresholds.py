"""The limits of findings that a user can set; the others stand with their rules."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

SECONDS, CELSIUS, PERCENT, SHARE = "seconds", "degrees Celsius", "percent", "a share"
"""Units of the configuration."""

WEEK = 604800.0
"""Seconds; the longest time that a limit can have."""


class Number(Struct, frozen=True):
    """A setting that is a number."""

    about: str  # What it does.
    unit: str
    least: float
    most: float


class Thresholds(Struct, frozen=True):
    """Limits of findings that the configuration can change."""

    # In a warmer room, the GPU would then slow down.
    hot_margin: Annotated[
        float,
        Number(
            "a GPU is hot from this many degrees below its slowdown temperature", CELSIUS, 0, 100
        ),
    ] = 5.0
    # An estimate: common slowdown temperatures are around 90 °C.
    hot_unknown: Annotated[
        float,
        Number(
            "a GPU that does not report its slowdown temperature is hot from here", CELSIUS, 0, 200
        ),
    ] = 85.0
    # That is 1 to 4 GB of 24 to 80 GB; another process's CUDA context and libraries take several
    # hundred MB before its first tensor.
    full_share: Annotated[
        float, Number("a GPU is full below this share of free memory", SHARE, 0, 1)
    ] = 0.05
    # A job pauses for less between two steps or to read a checkpoint.
    idle_after: Annotated[
        float,
        Number("a GPU or a process is idle after this long without work", SECONDS, 1, WEEK),
    ] = 60.0
    # A job may prepare its data for long before its first kernel.
    unused_after: Annotated[
        float,
        Number(
            "a GPU of a job needs attention after this long without a process",
            SECONDS,
            1,
            WEEK,
        ),
    ] = 3600.0
    # The next three are a heuristic, hence the question mark on screen: a kernel that waits for
    # others counts as running (see ``utilization_gpu``) and draws little power.
    stuck_utilization: Annotated[
        float,
        Number("a GPU may be stuck if it is at least this busy at low power", PERCENT, 1, 100),
    ] = 95.0
    stuck_power_share: Annotated[
        float, Number("a busy GPU may be stuck below this share of its power limit", SHARE, 0, 1)
    ] = 0.30
    # A collective times out after ten minutes too (PyTorch's default for NCCL), so a job that
    # recovers by itself has recovered by then.
    stuck_after: Annotated[
        float,
        Number("a GPU may be stuck if it is busy at low power for this long", SECONDS, 1, WEEK),
    ] = 600.0


DEFAULTS = Thresholds()
