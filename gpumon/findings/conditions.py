"""Conditions that are tracked in every sample, so that a rule knows how long they have held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.availability import is_busy_unlisted, normal_unlisted
from gpumon.model.metrics import CLOCK_EVENT_REASONS, HARMFUL_CLOCK_EVENTS
from gpumon.model.thresholds import DEFAULTS
from gpumon.recording.history import Condition

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.snapshot import Gpu
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.history import Holding

    _Holds = Callable[[Gpu, Holding | None], bool | None]

IDLE, STUCK, HOT = "idle", "stuck", "hot"
UNATTRIBUTED, BUSY_UNLISTED = "unattributed", "busy unlisted"
HW_SLOWDOWN, HW_POWER_BRAKE = CLOCK_EVENT_REASONS[0x08], CLOCK_EVENT_REASONS[0x80]
"""HW slowdown alone does not give a cause; heat and the power brake set it too (nvml.h)."""
THERMAL = (CLOCK_EVENT_REASONS[0x40], CLOCK_EVENT_REASONS[0x20])
"""HW and SW thermal slowdown: the GPU reports that it is too hot."""

_HYSTERESIS = 5.0
"""Slowdowns start and end several times a second; one ends after this many seconds without it."""


def conditions(thresholds: Thresholds = DEFAULTS) -> dict[str, Condition]:
    """The conditions that the history tracks for the rules."""
    watched = {
        IDLE: Condition(_is_idle),
        STUCK: Condition(_is_stuck(thresholds)),
        HOT: Condition(_is_hot(thresholds), hysteresis=_HYSTERESIS),
        UNATTRIBUTED: Condition(_is_unattributed(thresholds)),
        BUSY_UNLISTED: Condition(is_busy_unlisted),
    }
    for bit, name in CLOCK_EVENT_REASONS.items():
        if bit & HARMFUL_CLOCK_EVENTS:
            watched[name] = Condition(bit, hysteresis=_HYSTERESIS)
    return watched


def _is_idle(gpu: Gpu, holding: Holding | None) -> bool | None:
    """Whether a GPU does nothing although a computing process is on it."""
    if gpu.utilization_gpu is None or holding is None:
        return None
    return gpu.utilization_gpu == 0 and holding.computing > 0


def _is_stuck(thresholds: Thresholds) -> _Holds:
    """Whether a GPU is fully busy at a power that is too low for real work."""
    busy, share = thresholds.stuck_utilization, thresholds.stuck_power_share

    def holds(gpu: Gpu, _: Holding | None) -> bool | None:
        utilization, power, limit = gpu.utilization_gpu, gpu.power_draw, gpu.power_limit
        if utilization is None or power is None or not limit:
            return None
        return utilization >= busy and power < share * limit

    return holds


def _is_hot(thresholds: Thresholds) -> _Holds:
    """Whether a GPU is close to its slowdown temperature."""
    margin, degrees = thresholds.hot_margin, thresholds.hot_unknown

    def holds(gpu: Gpu, _: Holding | None) -> bool | None:
        left = degrees_left(gpu)
        if left:
            return min(left) <= margin
        return None if gpu.temperature_gpu is None else gpu.temperature_gpu >= degrees

    return holds


def degrees_left(gpu: Gpu) -> list[int]:
    """Degrees left until slowdown, from the GPU's margin and from its slowdown temperature."""
    margins = []
    if gpu.temperature_margin is not None:
        margins.append(gpu.temperature_margin)
    if gpu.temperature_gpu is not None and gpu.temperature_slowdown is not None:
        margins.append(gpu.temperature_slowdown - gpu.temperature_gpu)
    return margins


def _is_unattributed(thresholds: Thresholds) -> _Holds:
    """Whether more memory is used than the processes and the driver account for."""

    def holds(gpu: Gpu, holding: Holding | None) -> bool | None:
        used = gpu.memory_used
        if used is None or gpu.memory_unified or holding is None or holding.memory is None:
            return None
        return used - holding.memory > normal_unlisted(gpu, thresholds)

    return holds
