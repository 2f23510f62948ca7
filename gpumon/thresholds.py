"""Where the lines are drawn from which on something is worth a word."""

from __future__ import annotations

from msgspec import Struct


class Thresholds(Struct, frozen=True):
    """Where the lines are drawn.

    Attributes:
        hot_margin: Degrees from the card's own slowdown temperature at which it is hot: near enough
            that a warmer room would slow it down.
        hot_unknown: Degrees Celsius that are hot where the card tells neither that temperature nor
            its margin. A guess: slowdown points of NVIDIA's cards lie around 90.
        full_share: A card is full below this share of free memory: 1 to 4 GB of 24 to 80, of which
            another process's CUDA context and libraries take several hundred MB before its first
            tensor.
        unlisted_bytes: Memory that may be in use with no process to show for it, as the driver
            keeps clients of its own out of its list. More is held by somebody: a CUDA context takes
            200 to 700 MiB (pytorch#28113).
        overhead_bytes: The same where what the driver reserves is among the used: it is in the
            older of its two calls, from 510 on: 308 MB (gpustat#141), 513 MiB on an A10G
            (gpustat#168). Half as much again as the larger of these. It covers a display's memory,
            which belongs to no listed process, too.
        overhead_share: The same as a share of the card, where that is more: what is reserved grows
            with the memory.
        idle_after: Seconds without work after which a card that is held is idle; between two steps,
            or while a checkpoint is read, a job rests for less.
        stuck_utilization: Percent from which on a card counts as fully busy,
        stuck_power_share: and the share of its power limit below which it hardly computes. A rule
            of thumb and no fact of the driver's, hence the question mark: a kernel that waits for
            others counts as running (see ``utilization_gpu``), and draws little.
        stuck_after: Seconds of both together; a collective that waits in vain gives up after ten
            minutes too (PyTorch's default for NCCL), so a job that recovers by itself has by then.
        throttled_after: Seconds of slowdown that are worth a word; one sample may be a change of
            clocks (nvml.h says so of HW slowdown).
        unattributed_after: Seconds for which memory or utilisation must have no owner: lists of
            processes are read less often than these.
        least_samples: How many samples it takes, besides the time, to call a card idle or stuck: at
            one sample in five minutes three of them fill ten minutes and show nothing.
        growth_bytes: By how much a process must have grown before its growth is worth a word: some
            of the pieces of up to 20 MiB and more in which allocators take memory (PyTorch's
            ``kLargeBuffer``).
        growth_fit: How much of the change a line must explain (R²): a single jump comes to 0.75,
            four even steps to 0.94.
        program_xid_for: Seconds for which an XID that a program causes is told: the card is well
            after it, and who looks for why a job ended looks soon.
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


DEFAULTS = Thresholds()
