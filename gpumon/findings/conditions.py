"""What has to be followed in every sample, so that a rule can say for how long it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.availability import is_busy_unlisted, normal_unlisted
from gpumon.history import Condition
from gpumon.metrics import CLOCK_EVENT_REASONS, HARMFUL_CLOCK_EVENTS
from gpumon.thresholds import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.history import Holding
    from gpumon.model import Gpu
    from gpumon.thresholds import Thresholds

    _Holds = Callable[[Gpu, Holding | None], bool | None]

IDLE, STUCK, HOT = "idle", "stuck", "hot"
UNATTRIBUTED, BUSY_UNLISTED = "unattributed", "busy unlisted"
HW_SLOWDOWN, HW_POWER_BRAKE = CLOCK_EVENT_REASONS[0x08], CLOCK_EVENT_REASONS[0x80]
"""HW slowdown alone tells no cause; heat and the power brake set it too (nvml.h)."""
THERMAL = (CLOCK_EVENT_REASONS[0x40], CLOCK_EVENT_REASONS[0x20])
"""HW and SW thermal slowdown: the card holds itself to be too hot."""

_COMES_AND_GOES = 5.0
"""Slowdowns come and go several times a second: after so many seconds without, one is over."""


def conditions(thresholds: Thresholds = DEFAULTS) -> dict[str, Condition]:
    """What the history must watch for the rules."""
    watched = {
        IDLE: Condition(_is_idle),
        STUCK: Condition(_is_stuck(thresholds)),
        HOT: Condition(_is_hot(thresholds), linger=_COMES_AND_GOES),
        UNATTRIBUTED: Condition(_is_unattributed(thresholds)),
        BUSY_UNLISTED: Condition(is_busy_unlisted),
    }
    for bit, name in CLOCK_EVENT_REASONS.items():
        if bit & HARMFUL_CLOCK_EVENTS:
            watched[name] = Condition(bit, linger=_COMES_AND_GOES)
    return watched


def _is_idle(gpu: Gpu, holding: Holding | None) -> bool | None:
    """Whether a card does nothing while a process that computes is on it."""
    if gpu.utilization_gpu is None or holding is None:
        return None
    return gpu.utilization_gpu == 0 and holding.computing > 0


def _is_stuck(thresholds: Thresholds) -> _Holds:
    """Whether a card is fully busy at a power that does not look like it."""
    busy, share = thresholds.stuck_utilization, thresholds.stuck_power_share

    def holds(gpu: Gpu, _: Holding | None) -> bool | None:
        utilization, power, limit = gpu.utilization_gpu, gpu.power_draw, gpu.power_limit
        if utilization is None or power is None or not limit:
            return None
        return utilization >= busy and power < share * limit

    return holds


def _is_hot(thresholds: Thresholds) -> _Holds:
    """Whether a card is close to slowing itself down."""
    margin, degrees = thresholds.hot_margin, thresholds.hot_unknown

    def holds(gpu: Gpu, _: Holding | None) -> bool | None:
        left = degrees_left(gpu)
        if left:
            return min(left) <= margin
        return None if gpu.temperature_gpu is None else gpu.temperature_gpu >= degrees

    return holds


def degrees_left(gpu: Gpu) -> list[int]:
    """Degrees to slowing down, by the card's own word and by its slowdown temperature."""
    margins = []
    if gpu.temperature_margin is not None:
        margins.append(gpu.temperature_margin)
    if gpu.temperature_gpu is not None and gpu.temperature_slowdown is not None:
        margins.append(gpu.temperature_slowdown - gpu.temperature_gpu)
    return margins


def _is_unattributed(thresholds: Thresholds) -> _Holds:
    """Whether more memory is used than processes and the driver account for."""

    def holds(gpu: Gpu, holding: Holding | None) -> bool | None:
        used = gpu.memory_used
        if used is None or gpu.memory_unified or holding is None or holding.memory is None:
            return None
        return used - holding.memory > normal_unlisted(gpu, thresholds)

    return holds
