"""The energy of one GPU from its counter, or from power draw where the counter cannot be right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.report.lists import GpuProcessList  # noqa: TC001 - msgspec resolves annotations
from gpumon.report.sums import Energy

if TYPE_CHECKING:
    from gpumon.report.reading import GpuSample

_MOST_WATTS = 3000.0
"""More than any GPU draws; of one with a known power limit, ``_LIMITS`` times that."""
_LIMITS = 2.0
_READ_SECONDS = 5.0
"""gpumon reads the counter every few seconds only: a step may be of this much more time."""
_STILL_SECONDS = 10.0
"""A counter that does not move for this long while power is drawn has stopped."""


class Corrected(Struct):
    """A change of the energy that was counted under a process list."""

    listed: GpuProcessList | None
    energy: Energy


class EnergyMeter(Struct):
    """Follows the counter of one GPU from sample to sample.

    A counter restarts when the driver is loaded, and may have single impossible values. After a
    step that cannot be, the next sample shows which of the two it was: a single value is passed
    over, a restarted counter is followed.

    Attributes:
        trusted: The last value before such a step, and its time; ``None`` if the last value is one.
        has_moved: Whether the counter ever moved.
        still: Seconds for which it has not moved although power was drawn.
        still_joules: The energy in that time by power draw.
        held: The parts of it whose energy counts as 0 so far, by the process list at that time.
        released: Those that turned out to be of a counter that has stopped, to be added up.
    """

    trusted: tuple[float, float] | None = None
    has_moved: bool = False
    still: float = 0.0
    still_joules: float = 0.0
    held: list[Corrected] = []
    released: list[Corrected] = []

    def used(
        self,
        sample: GpuSample,
        after: GpuSample,
        now: float,
        passed: float,
        seconds: float,
        listed: GpuProcessList | None,
    ) -> Energy:
        """The energy that the GPU used in the counted part of the time between two samples.

        Args:
            sample: The first one.
            after: The second one.
            now: The time of the second one.
            passed: Seconds between them.
            seconds: Those that count.
            listed: The process list at that time.
        """
        if passed <= 0:
            return Energy()
        if sample.energy is None or after.energy is None:
            self._restart()
            return _by_power(sample, seconds)
        used = after.energy - sample.energy
        limit = sample.power_limit_max
        most = _MOST_WATTS if limit is None else _LIMITS * limit
        is_possible = 0 <= used <= most * (passed + self.still + _READ_SECONDS)
        if self.trusted is not None:
            value, at = self.trusted
            bridged, since = after.energy - value, now - at
            if 0 <= bridged <= most * (since + _READ_SECONDS):
                self._restart()
                return Energy(bridged * seconds / since, counted=seconds)
            if is_possible:
                self._restart()
        elif not is_possible:
            self._restart()
            self.trusted = sample.energy, now - passed
        if not is_possible:
            energy = _by_power(sample, seconds)
            energy.impossible = seconds
            return energy
        if used == 0:
            return self._stand(sample, passed, seconds, listed)
        self.has_moved = True
        if self.still:
            used = self._caught_up(used, (sample.power_draw or 0.0) * passed)
            self._restart()
        return Energy(used * seconds / passed, counted=seconds)

    def end(self) -> None:
        """Release the energy of a counter that never moved."""
        if not self.has_moved:
            self.released, self.held = self.held, []

    def _restart(self) -> None:
        self.trusted = None
        self.still = self.still_joules = 0.0
        self.held = []

    def _stand(
        self, sample: GpuSample, passed: float, seconds: float, listed: GpuProcessList | None
    ) -> Energy:
        """The energy of a time in which the counter did not move."""
        watts = sample.power_draw or 0.0
        if watts <= 0:
            return Energy(counted=seconds)
        self.still += passed
        self.still_joules += watts * passed
        if self.still < _STILL_SECONDS:
            change = Energy(watts * seconds, -seconds, integrated=seconds, stopped=seconds)
            if self.held and self.held[-1].listed is listed:
                self.held[-1].energy.add(change)
            else:
                self.held = [*self.held, Corrected(listed, change)]
            return Energy(counted=seconds)
        self.released, self.held = self.held, []
        return Energy(watts * seconds, integrated=seconds, stopped=seconds)

    def _caught_up(self, used: float, expected: float) -> float:
        """The part of a step that was not counted while the counter stood still."""
        counted = self.still_joules if self.still >= _STILL_SECONDS else 0.0
        is_late = abs(used - counted - expected) < abs(used - expected)
        return max(0.0, used - counted) if is_late else used


def _by_power(sample: GpuSample, seconds: float) -> Energy:
    if sample.power_draw is None or seconds <= 0:
        return Energy()
    return Energy(sample.power_draw * seconds, integrated=seconds)
