"""Values that follow from two consecutive samples of a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.availability.rule import normal_with_reserve
from gpumon.model.thresholds import DEFAULTS
from gpumon.report.sums import Energy

if TYPE_CHECKING:
    from gpumon.report.reading import GpuSample


def energy_used(sample: GpuSample, after: GpuSample, passed: float, seconds: float) -> Energy:
    """The energy that a GPU used in the counted part of the time between two samples.

    The counter restarts when the driver is loaded: then it says nothing about the time between.
    """
    if seconds <= 0:
        return Energy()
    if sample.energy is not None and after.energy is not None and after.energy >= sample.energy:
        joules = (after.energy - sample.energy) * seconds / passed
        return Energy(joules, counted=seconds)
    if sample.power_draw is not None:
        return Energy(sample.power_draw * seconds, integrated=seconds)
    return Energy()


def ecc_errors(before: GpuSample, after: GpuSample) -> int | None:
    """New uncorrected errors; the volatile counter restarts when the driver is loaded."""
    old, new = before.ecc_uncorrected_volatile, after.ecc_uncorrected_volatile
    old_ever, new_ever = before.ecc_uncorrected_aggregate, after.ecc_uncorrected_aggregate
    found = None
    if old is not None and new is not None:
        found = new - old if new >= old else new
    if old_ever is not None and new_ever is not None:
        ever = new_ever - old_ever
        if found is None or ever > found:
            found = max(0, ever)
    return found


def holds_memory(sample: GpuSample) -> bool | None:
    """Whether more memory is in use than an unused GPU needs."""
    if sample.memory_used is None:
        return None
    # A log may not say whether the driver's reserve counts as used.
    return sample.memory_used > normal_with_reserve(sample.memory_total, DEFAULTS)
