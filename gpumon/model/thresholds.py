"""Thresholds for findings."""

from __future__ import annotations

from msgspec import Struct


class Thresholds(Struct, frozen=True):
    """Thresholds for findings.

    Attributes:
        hot_margin: A GPU is hot within this many degrees of its slowdown temperature: a warmer room
            would then slow it down.
        hot_unknown: A GPU that reports neither its slowdown temperature nor its margin is hot from
            this temperature on. An estimate: common slowdown temperatures are around 90 °C.
        full_share: A GPU is full below this share of free memory: 1 to 4 GB of 24 to 80 GB, of
            which another process's CUDA context and libraries take several hundred MB before its
            first tensor.
        unlisted_bytes: Memory that may be in use without a listed process, because the driver omits
            its own clients from its list. More than this belongs to a process: a CUDA context takes
            200 to 700 MiB (pytorch#28113).
        overhead_bytes: The same limit if the used memory includes what the driver reserves, as the
            older of its two calls does from driver 510 on: 308 MB (gpustat#141), 513 MiB on an A10G
            (gpustat#168). 1.5 times the larger of these, which also covers the memory of a display
            that belongs to no listed process.
        overhead_share: The same limit as a share of the GPU's memory, if that is more: the reserved
            memory grows with the total.
        idle_after: Seconds without work after which a GPU with processes is idle; a job pauses for
            less between two steps or to read a checkpoint.
        stuck_utilization: Utilisation in percent from which a GPU counts as fully busy,
        stuck_power_share: and the share of its power limit below which it hardly computes. A
            heuristic, hence the question mark on screen: a kernel that waits for others counts as
            running (see ``utilization_gpu``) and draws little power.
        stuck_after: Seconds for which both must hold. A collective times out after ten minutes too
            (PyTorch's default for NCCL), so a job that recovers by itself has recovered by then.
        throttled_after: Seconds of slowdown before it is reported; a single sample may be a change
            of clocks (drivers report this as HW slowdown too).
        unattributed_after: Seconds for which memory or utilisation must have no owner: process
            lists are read less often than these values.
        least_samples: Minimum number of samples, besides the time, to call a GPU idle or stuck: at
            one sample every five minutes, three samples cover ten minutes and prove nothing.
        growth_bytes: Minimum growth of a process to report: several of the blocks of 20 MiB and
            more that allocators request (PyTorch's ``kLargeBuffer``).
        growth_fit: Minimum R² of a line through the values: a single jump has 0.75, four equal
            steps have 0.94.
        program_xid_for: Seconds for which an error that a program caused is reported: the GPU works
            after it, and a user who asks why a job ended asks soon.
        past_xid_for: Seconds for which a hardware error from before gpumon was started is reported:
            the driver does not tell whether the GPU has been reset since.
    """

    hot_margin: float = 5.0
    hot_unknown: float = 85.0
    full_share: float = 0.05
    unlisted_bytes: int = 256 * 2**20
    overhead_bytes: int = 768 * 2**20
    overhead_share: float = 0.01
    idle_after: float = 60.0
    stuck_utilization: float = 95.0
    stuck_power_share: float = 0.30
    stuck_after: float = 600.0
    throttled_after: float = 2.0
    unattributed_after: float = 10.0
    least_samples: int = 10
    growth_bytes: int = 64 * 2**20
    growth_fit: float = 0.9
    program_xid_for: float = 600.0
    past_xid_for: float = 86400.0


DEFAULTS = Thresholds()
