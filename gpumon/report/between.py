"""Values that follow from two consecutive samples of a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.availability import normal_with_reserve

if TYPE_CHECKING:
    from gpumon.report.reading import GpuSample


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
    return sample.memory_used > normal_with_reserve(sample.memory_total)
