"""What a sample of a card, and the next one, tell of the time between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.availability import normal_with_reserve
from gpumon.report.sums import Energy
from gpumon.thresholds import DEFAULTS

if TYPE_CHECKING:
    from gpumon.report.reading import CardSample


def energy_used(sample: CardSample, after: CardSample, passed: float, seconds: float) -> Energy:
    """What a card used in the seconds that count of those that passed until the next sample.

    The counter begins anew when the driver is loaded: then it says nothing of the time between.
    """
    if seconds <= 0:
        return Energy()
    if sample.energy is not None and after.energy is not None and after.energy >= sample.energy:
        joules = (after.energy - sample.energy) * seconds / passed
        return Energy(joules, counted=seconds)
    if sample.power is not None:
        return Energy(sample.power * seconds, integrated=seconds)
    return Energy()


def ecc_errors(before: CardSample, after: CardSample) -> int | None:
    """Uncorrected errors that were added; the counter of this load of the driver begins anew."""
    found = []
    if before.ecc_volatile is not None and after.ecc_volatile is not None:
        added = after.ecc_volatile - before.ecc_volatile
        found.append(added if added >= 0 else after.ecc_volatile)
    if before.ecc_aggregate is not None and after.ecc_aggregate is not None:
        found.append(max(0, after.ecc_aggregate - before.ecc_aggregate))
    return max(found, default=None)


def holds_memory(sample: CardSample) -> bool | None:
    """Whether more memory is in use than a card needs that nobody works on."""
    if sample.memory_used is None:
        return None
    # A log may not say whether the driver's reserve is among the used.
    return sample.memory_used > normal_with_reserve(sample.memory_total, DEFAULTS)
