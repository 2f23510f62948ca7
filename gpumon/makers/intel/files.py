"""Where ``i915`` and ``xe`` have their files, and what the names in them mean."""

from __future__ import annotations

from typing import NamedTuple

# The bits of ``Gpu.clock_event_reasons``.
_POWER_CAP, _SLOWDOWN, _SOFT_THERMAL, _THERMAL = 0x004, 0x008, 0x020, 0x040

THROTTLE_REASONS = {
    "pl1": _POWER_CAP,
    "pl2": _POWER_CAP,
    "pl4": _POWER_CAP,
    "vr_tdc": _POWER_CAP,
    "iccmax": _POWER_CAP,
    "fastvmode": _POWER_CAP,
    "psys_pl1": _POWER_CAP,
    "psys_pl2": _POWER_CAP,
    "prochot": _SLOWDOWN,
    "psys_crit": _SLOWDOWN,
    "ratl": _SOFT_THERMAL,
    "soc_avg_thermal": _SOFT_THERMAL,
    "thermal": _THERMAL,
    "vr_thermalert": _THERMAL,
    "soc_thermal": _THERMAL,
    "mem_thermal": _THERMAL,
    "vr_thermal": _THERMAL,
}
"""Reasons of both drivers: ``pl1``, ``pl2`` and ``pl4`` are limits of power, ``vr_tdc`` and
``iccmax`` of current. ``prochot`` is a signal from outside of the GPU: heat or lack of power.
``ratl`` is a limit of the mean temperature."""


class DriverFiles(NamedTuple):
    """Where a driver has its files, below the folder of the GPU.

    Attributes:
        clocks: Prefixes of the clocks of the main part of the GPU, the newest form first.
        video_clocks: The same of the part that has the video engines, where that is separate.
        actual: Name of the actual clock.
        highest: Name of the highest clock that the hardware allows.
        idle: Counters of milliseconds in the idle state, the newest form first.
        throttle: Prefix of the reasons for lower clocks.
        throttle_status: Whether there is any.
        hwmon: Content of ``name`` of its hwmon folder; a part of a GPU may have another one.
        energy: Names of energy counters, that of the whole card first.
        limits: Groups of power limits; the first group that has any applies.
        temperature: Prefix of the temperature of the package.
        memory_temperature: Prefix of that of the memory.
    """

    clocks: tuple[str, ...]
    video_clocks: tuple[str, ...]
    actual: str
    highest: str
    idle: tuple[str, ...]
    throttle: str
    throttle_status: str
    hwmon: str
    energy: tuple[str, ...]
    limits: tuple[tuple[str, ...], ...]
    temperature: str
    memory_temperature: str | None


def i915_files(node: str) -> DriverFiles:
    """The files of ``i915``; ``node`` is the name of the GPU's primary node."""
    return DriverFiles(
        # ``gt_...`` is the form before Linux 5.18.
        clocks=(f"drm/{node}/gt/gt0/rps_", f"drm/{node}/gt_"),
        video_clocks=(f"drm/{node}/gt/gt1/rps_",),
        actual="act_freq_mhz",
        highest="RP0_freq_mhz",
        idle=(f"drm/{node}/gt/gt0/rc6_residency_ms", f"drm/{node}/power/rc6_residency_ms"),
        throttle=f"drm/{node}/gt/gt0/throttle_reason_",
        throttle_status=f"drm/{node}/gt/gt0/throttle_reason_status",
        hwmon="i915",
        energy=("energy1_input",),
        limits=(("power1_max",),),
        temperature="temp1",
        memory_temperature=None,
    )


XE_FILES = DriverFiles(
    clocks=("tile0/gt0/freq0/",),
    video_clocks=("tile0/gt1/freq0/",),
    actual="act_freq",
    highest="rp0_freq",
    idle=("tile0/gt0/gtidle/idle_residency_ms",),
    throttle="tile0/gt0/freq0/throttle/reason_",
    throttle_status="tile0/gt0/freq0/throttle/status",
    hwmon="xe",
    # The first ones are of the card, the second ones of the package only.
    energy=("energy1_input", "energy2_input"),
    limits=(("power1_max", "power1_cap"), ("power2_max", "power2_cap")),
    temperature="temp2",
    memory_temperature="temp3",
)
