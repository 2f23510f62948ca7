"""The limits of findings that a user can set; the others stand with their rules."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct


class SettingUnit(Enum):
    """The unit of a number in the configuration; its value is the unit's name there."""

    SECONDS = "seconds"
    CELSIUS = "degrees Celsius"
    PERCENT = "percent"
    SHARE = "a share"


Seconds: TypeAlias = Annotated[float, SettingUnit.SECONDS]
Celsius: TypeAlias = Annotated[float, SettingUnit.CELSIUS]
Percent: TypeAlias = Annotated[float, SettingUnit.PERCENT]
Share: TypeAlias = Annotated[float, SettingUnit.SHARE]

WEEK = 604800.0
"""Seconds; the longest time that a limit can have."""


class Thresholds(Struct, frozen=True):
    """Limits of findings that the configuration can change."""

    # In a warmer room, the GPU would then slow down.
    hot_margin: Annotated[
        Celsius,
        Meta(
            ge=0,
            le=100,
            description="a GPU is hot from this many degrees below its slowdown temperature",
        ),
    ] = 5.0
    # An estimate: common slowdown temperatures are around 90 °C.
    hot_unknown: Annotated[
        Celsius,
        Meta(
            ge=0,
            le=200,
            description="a GPU that does not report its slowdown temperature is hot from here",
        ),
    ] = 85.0
    # That is 1 to 4 GB of 24 to 80 GB; another process's CUDA context and libraries take several
    # hundred MB before its first tensor.
    full_share: Annotated[
        Share, Meta(ge=0, le=1, description="a GPU is full below this share of free memory")
    ] = 0.05
    # A job pauses for less between two steps or to read a checkpoint.
    idle_after: Annotated[
        Seconds,
        Meta(ge=1, le=WEEK, description="a GPU or a process is idle after this long without work"),
    ] = 60.0
    # The next three are a heuristic, hence the question mark on screen: a kernel that waits for
    # others counts as running (see ``utilization_gpu``) and draws little power.
    stuck_utilization: Annotated[
        Percent,
        Meta(
            ge=1,
            le=100,
            description="a GPU may be stuck if it is at least this busy and draws little power",
        ),
    ] = 95.0
    stuck_power_share: Annotated[
        Share,
        Meta(
            ge=0,
            le=1,
            description="a busy GPU may be stuck if it draws less than this share of its power "
            "limit",
        ),
    ] = 0.30
    # A collective times out after ten minutes too (PyTorch's default for NCCL), so a job that
    # recovers by itself has recovered by then.
    stuck_after: Annotated[
        Seconds,
        Meta(
            ge=1,
            le=WEEK,
            description="a GPU may be stuck if it is busy and draws little power for this long",
        ),
    ] = 600.0


DEFAULTS = Thresholds()
