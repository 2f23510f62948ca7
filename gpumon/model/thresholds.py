"""The limits of findings that a user can set; the others stand with their rules."""

from __future__ import annotations

from msgspec import Struct


class Thresholds(Struct, frozen=True):
    """Limits of findings that the configuration can change.

    Attributes:
        hot_margin: A GPU is hot within this many degrees of its slowdown temperature: a warmer room
            would then slow it down.
        hot_unknown: A GPU that reports neither its slowdown temperature nor its margin is hot from
            this temperature on. An estimate: common slowdown temperatures are around 90 °C.
        full_share: A GPU is full below this share of free memory: 1 to 4 GB of 24 to 80 GB, of
            which another process's CUDA context and libraries take several hundred MB before its
            first tensor.
        idle_after: Seconds without work after which a GPU with processes is idle; a job pauses for
            less between two steps or to read a checkpoint.
        stuck_utilization: Utilisation in percent from which a GPU counts as fully busy,
        stuck_power_share: and the share of its power limit below which it hardly computes. A
            heuristic, hence the question mark on screen: a kernel that waits for others counts as
            running (see ``utilization_gpu``) and draws little power.
        stuck_after: Seconds for which both must hold. A collective times out after ten minutes too
            (PyTorch's default for NCCL), so a job that recovers by itself has recovered by then.
    """

    hot_margin: float = 5.0
    hot_unknown: float = 85.0
    full_share: float = 0.05
    idle_after: float = 60.0
    stuck_utilization: float = 95.0
    stuck_power_share: float = 0.30
    stuck_after: float = 600.0


DEFAULTS = Thresholds()
