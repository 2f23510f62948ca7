"""Conditions that are tracked in every sample, so that a rule knows how long they have held."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpumon.availability.rule import UNLISTED_FIELDS, is_busy_unlisted, normal_unlisted
from gpumon.model.metrics import CLOCK_EVENT_REASONS, HARMFUL_CLOCK_EVENTS
from gpumon.model.thresholds import DEFAULTS
from gpumon.recording.history import Condition

if TYPE_CHECKING:
    from gpumon.model.snapshot import Gpu
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.history import Holding

IDLE, STUCK, HOT = "idle", "stuck", "hot"
UNATTRIBUTED, BUSY_UNLISTED = "unattributed", "busy unlisted"
BUSY_EMPTY, MEMORY_BOUND, SLOW_LINK = "busy but empty", "memory-bound", "slow link"
IDLE_IN_JOB, SHARED = "idle in job", "shared"
LOADED, LOW_ON_CPU, LOW_ON_DISK = "loaded", "low on CPU", "low on disk"
"""Starved: the load is high in turns, and low in turns while a process is at one full core or waits
for a disk."""
HW_SLOWDOWN, HW_POWER_BRAKE = CLOCK_EVENT_REASONS[0x08], CLOCK_EVENT_REASONS[0x80]
"""HW slowdown alone does not give a cause; heat and the power brake set it too (nvml.h)."""
THERMAL = (CLOCK_EVENT_REASONS[0x40], CLOCK_EVENT_REASONS[0x20])
"""HW and SW thermal slowdown: the GPU reports that it is too hot."""
HEAT_FIELDS = ("temperature_gpu", "temperature_slowdown", "temperature_margin")
POWER_CAP = CLOCK_EVENT_REASONS[0x04]
"""The clocks are lowered to stay within the power limit."""
TURN = 30.0
"""Seconds within which a load that comes and goes comes again, and goes again."""

_HYSTERESIS = 5.0
"""Slowdowns start and end several times a second; one ends after this many seconds without it."""
_LIST_HYSTERESIS = 15.0
"""Lists of processes tell the last second only, so kernels that run in between are missed."""


def conditions(thresholds: Thresholds = DEFAULTS) -> dict[str, Condition]:
    """The conditions that the history tracks for the rules."""
    watched = {
        IDLE: Condition(_is_idle),
        STUCK: Condition(partial(_is_stuck, thresholds)),
        HOT: Condition(partial(_is_hot, thresholds), hysteresis=_HYSTERESIS, optional=HEAT_FIELDS),
        UNATTRIBUTED: Condition(partial(_is_unattributed, thresholds), assumed=UNLISTED_FIELDS),
        BUSY_UNLISTED: Condition(is_busy_unlisted, assumed=("display_active",)),
        BUSY_EMPTY: Condition(partial(_is_busy_empty, thresholds), hysteresis=_HYSTERESIS),
        MEMORY_BOUND: Condition(partial(_is_memory_bound, thresholds), hysteresis=_HYSTERESIS),
        SLOW_LINK: Condition(partial(_has_slow_link, thresholds), hysteresis=_HYSTERESIS),
        IDLE_IN_JOB: Condition(_is_idle_in_job, hysteresis=_LIST_HYSTERESIS),
        SHARED: Condition(partial(_is_shared, thresholds), hysteresis=_LIST_HYSTERESIS),
        LOADED: Condition(partial(_is_loaded, thresholds), hysteresis=TURN),
        LOW_ON_CPU: Condition(partial(_is_low_on_cpu, thresholds), hysteresis=TURN),
        LOW_ON_DISK: Condition(partial(_is_low_on_disk, thresholds), hysteresis=TURN),
    }
    for bit, name in CLOCK_EVENT_REASONS.items():
        if bit & HARMFUL_CLOCK_EVENTS or name == POWER_CAP:
            watched[name] = Condition(bit, hysteresis=_HYSTERESIS)
    return watched


def _is_idle(gpu: Gpu, holding: Holding | None) -> bool | None:
    """Whether a GPU does nothing although a computing process is on it."""
    if gpu.utilization_gpu is None or holding is None:
        return None
    return gpu.utilization_gpu == 0 and holding.computing > 0


def _is_stuck(thresholds: Thresholds, gpu: Gpu, _: Holding | None) -> bool | None:
    """Whether a GPU is fully busy at a power that is too low for real work."""
    utilization, power, limit = gpu.utilization_gpu, gpu.power_draw, gpu.power_limit
    if utilization is None or power is None or not limit:
        return None
    is_busy = utilization >= thresholds.stuck_utilization
    return is_busy and power < thresholds.stuck_power_share * limit


def _is_hot(thresholds: Thresholds, gpu: Gpu, _: Holding | None) -> bool | None:
    """Whether a GPU is close to its slowdown temperature."""
    left = degrees_left(gpu)
    if left:
        return min(left) <= thresholds.hot_margin
    degrees = gpu.temperature_gpu
    return None if degrees is None else degrees >= thresholds.hot_unknown


def degrees_left(gpu: Gpu) -> list[int]:
    """Degrees left until slowdown, from the GPU's margin and from its slowdown temperature."""
    margins = []
    if gpu.temperature_margin is not None:
        margins.append(gpu.temperature_margin)
    if gpu.temperature_gpu is not None and gpu.temperature_slowdown is not None:
        margins.append(gpu.temperature_slowdown - gpu.temperature_gpu)
    return margins


def _is_unattributed(thresholds: Thresholds, gpu: Gpu, holding: Holding | None) -> bool | None:
    """Whether more memory is used than the processes and the driver account for."""
    used = gpu.memory_used
    if used is None or gpu.memory_unified or holding is None or holding.memory is None:
        return None
    return used - holding.memory > normal_unlisted(gpu, thresholds)


def _is_busy_empty(thresholds: Thresholds, gpu: Gpu, _: Holding | None) -> bool | None:
    """Whether kernels run nearly all the time and leave most SMs without work."""
    active, utilization = gpu.sm_active, gpu.utilization_gpu
    if active is None or utilization is None:
        return None
    return active <= thresholds.busy_empty_sm and utilization >= thresholds.busy_empty_utilization


def _is_memory_bound(thresholds: Thresholds, gpu: Gpu, _: Holding | None) -> bool | None:
    """Whether the memory is as busy as it can be while the tensor cores do little."""
    dram, tensor = gpu.dram_active, gpu.tensor_active
    if dram is None or tensor is None:
        return None
    return dram >= thresholds.memory_bound_dram and tensor <= thresholds.memory_bound_tensor


def _has_slow_link(thresholds: Thresholds, gpu: Gpu, _: Holding | None) -> bool | None:
    """Whether the PCIe link of a GPU under load is below its maximum."""
    utilization = gpu.utilization_gpu
    if utilization is None:
        return None
    return utilization >= thresholds.slow_link_utilization and link_is_slow(gpu)


def link_is_slow(gpu: Gpu) -> bool | None:
    """Whether generation or width of the PCIe link is below what GPU and machine allow."""
    generation, width = gpu.pcie_generation, gpu.pcie_width
    most, widest = gpu.pcie_generation_max, gpu.pcie_width_max
    if generation is None or most is None or width is None or widest is None:
        return None
    return generation < most or width < widest


def _is_idle_in_job(gpu: Gpu, holding: Holding | None) -> bool | None:
    """Whether a GPU does nothing while its job works on most of its other GPUs."""
    if gpu.utilization_gpu is None or holding is None:
        return None
    return holding.left_out if gpu.utilization_gpu == 0 else False


def _is_shared(thresholds: Thresholds, _: Gpu, holding: Holding | None) -> bool | None:
    """Whether kernels of several jobs run on a GPU."""
    if holding is None or holding.second_sm is None:
        return None
    return holding.second_sm >= thresholds.shared_sm


def _is_loaded(thresholds: Thresholds, gpu: Gpu, _: Holding | None) -> bool | None:
    """Whether a GPU is loaded, for one whose load comes and goes."""
    utilization = gpu.utilization_gpu
    return None if utilization is None else utilization >= thresholds.starved_high


def _is_low_on_cpu(thresholds: Thresholds, gpu: Gpu, holding: Holding | None) -> bool | None:
    """Whether a GPU does little while one of its processes is at one full CPU core."""
    if gpu.utilization_gpu is None or holding is None:
        return None
    if gpu.utilization_gpu > thresholds.starved_low:
        return False
    cpu = holding.cpu_percent
    if cpu is not None and thresholds.starved_core <= cpu <= thresholds.starved_core_most:
        return True
    return None if holding.unseen else False


def _is_low_on_disk(thresholds: Thresholds, gpu: Gpu, holding: Holding | None) -> bool | None:
    """Whether a GPU does little while one of its processes waits inside the kernel."""
    if gpu.utilization_gpu is None or holding is None:
        return None
    if gpu.utilization_gpu > thresholds.starved_low:
        return False
    return bool(holding.blocked) or (None if holding.unseen else False)
