"""Why the firmware of an AMD GPU limits its clocks, as bits of ``Gpu.clock_event_reasons``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumon.makers.amd.gpu_metrics import GpuMetrics, Residencies

_POWER_CAP, _SLOWDOWN, _SOFT_THERMAL, _THERMAL = 0x004, 0x008, 0x020, 0x040

_POWER = 0xFF
"""Bits 0 to 7, limits of power; this and the next are ``SMU_THROTTLER_..._BIT`` of
``drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h``."""

_CURRENT = 0xFF << 16
"""Bits 16 to 23, limits of current. They come with load as those of power do."""

_TEMPERATURE = 0xFFF << 32
"""Bits 32 to 43: the firmware keeps a temperature below its limit."""

_REGULATOR_HOT = 0x3 << 44
"""Bits 44 and 45, ``VRHOT``: a voltage regulator has signalled that it is too hot."""

_PROCHOT = 0x3 << 46
"""Bits 46 and 47: a signal from outside of the GPU, because of heat or lack of power."""


def event_reasons(
    metrics: GpuMetrics, before: Residencies | None
) -> tuple[int | None, Residencies | None]:
    """The reasons; ``None`` if the table does not tell them in a form common to all GPUs.

    MI300 counts how long each limit was active, so its reasons are those since the last reading.

    Args:
        metrics: The table now.
        before: What this function returned at the last reading.

    Returns:
        The reasons, and what the next call needs.
    """
    if metrics.throttle is not None:
        reasons = _from_bits(metrics.throttle)
        if metrics.gfx_activity == 0:
            # Heat slows no idle GPU: an RX 7600S sets the bit at 54 °C (its capture in the tests).
            reasons &= ~_SOFT_THERMAL
        return reasons, None
    now = metrics.residencies
    if now is None or before is None or now.cycles == before.cycles:
        return None, now or before
    reasons = 0
    for name, bit in _COUNTED.items():
        if getattr(now, name) != getattr(before, name):
            reasons |= bit
    return reasons, now


_COUNTED = {
    "ppt": _POWER_CAP,
    "prochot": _SLOWDOWN,
    "socket_thm": _SOFT_THERMAL,
    "hbm_thm": _SOFT_THERMAL,
    "vr_thm": _SOFT_THERMAL,
}


def _from_bits(bits: int) -> int:
    reasons = 0
    if bits & (_POWER | _CURRENT):
        reasons |= _POWER_CAP
    if bits & _TEMPERATURE:
        reasons |= _SOFT_THERMAL
    if bits & _REGULATOR_HOT:
        reasons |= _THERMAL
    if bits & _PROCHOT:
        reasons |= _SLOWDOWN
    return reasons
