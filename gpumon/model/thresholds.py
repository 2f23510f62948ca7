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
        busy_empty_utilization: A GPU is busy but empty from this utilisation in percent,
        busy_empty_sm: and up to this share of active SMs in percent. DCGM's documentation
            ("Profiling Metrics") calls less than 50 likely ineffective, and 20 what a kernel with a
            fifth of the blocks that fit reaches.
        busy_empty_after: Seconds for which both must hold: the start of a job and a checkpoint look
            the same, and take less.
        memory_bound_dram: The memory limits the speed from this activity of the memory in percent:
            the same documentation gives about 80 as the most that is reached in practice,
        memory_bound_tensor: and up to this activity of the tensor cores in percent. A heuristic:
            DCGM's own load generator reaches more than 90, good training 40 to 60.
        memory_bound_after: Seconds for which both must hold.
        starved_low: A GPU is perhaps starved if its utilisation is at most this, in percent,
        starved_high: and at least this, in turns of ``conditions.TURN`` seconds at most.
        starved_core: While it is low, its busiest process takes at least so many percent of a core,
        starved_core_most: and at most so many: one thread, as of Python without data-loading
            workers (PyTorch's Performance Tuning Guide, "num_workers"). More is a program with
            threads of its own.
        starved_after: Seconds for which the turns must go on: longer than a checkpoint.
        idle_in_job_after: Seconds for which a GPU must be idle while its job works on others. Data
            loading and checkpoints pause for less, see ``idle_after``.
        slow_link_utilization: A PCIe link may be called slow from this utilisation in percent: it
            is lowered while the GPU is not in use (nvidia-smi's manual, "GPU Link Info").
        slow_link_after: Seconds of that: gpumon reads the link several times a minute.
        nvlink_for: Seconds for which NVLink errors are reported. DCGM's health check fails for one
            replay or recovery within its minute; a person looks later.
        nvlink_growing: NVLink errors are a warning when they have increased this many times: the
            reset of a neighbour trains its links anew, once.
        shared_sm: Two jobs share a GPU if each has at least this SM use in percent. A heuristic: a
            job with less hardly slows the other one.
        shared_after: Seconds for which they must.
        power_cap_share: The share of the last hour from which a software power cap is told. It is
            normal under load, so it is told with the details only.
        filling_after: Seconds over which the used memory of a GPU must grow: a model that is being
            loaded grows steadily too.
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
    busy_empty_utilization: float = 90.0
    busy_empty_sm: float = 20.0
    busy_empty_after: float = 300.0
    memory_bound_dram: float = 80.0
    memory_bound_tensor: float = 25.0
    memory_bound_after: float = 180.0
    starved_low: float = 30.0
    starved_high: float = 50.0
    starved_core: float = 90.0
    starved_core_most: float = 115.0
    starved_after: float = 180.0
    idle_in_job_after: float = 60.0
    slow_link_utilization: float = 50.0
    slow_link_after: float = 120.0
    nvlink_for: float = 3600.0
    nvlink_growing: int = 2
    shared_sm: float = 20.0
    shared_after: float = 120.0
    power_cap_share: float = 0.5
    filling_after: float = 900.0
    program_xid_for: float = 600.0
    past_xid_for: float = 86400.0


DEFAULTS = Thresholds()
