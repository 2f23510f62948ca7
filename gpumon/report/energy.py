"""The energy of one GPU from its counter, or from power draw where the counter cannot be right."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from gpumon.report.lists import GpuProcessList  # noqa: TC001 - msgspec resolves annotations
from gpumon.report.sums import Energy

if TYPE_CHECKING:
    from gpumon.report.samples import GpuSample

_MOST_WATTS = 3000.0
"""More than any GPU draws; of one with a known power limit, ``_LIMITS`` times that."""
_LIMITS = 2.0
_READ_SECONDS = 5.0
"""gpumon reads the counter every few seconds only: a step may be of this much more time."""
_STILL_SECONDS = 10.0
"""A counter that does not move for this long while power is drawn has stopped."""


class Corrected(NamedTuple):
    """A change of the energy that was counted under a process list."""

    listed: GpuProcessList | None
    energy: Energy


class EnergyMeter(Struct):
    """Follows the counter of one GPU from sample to sample.

    A counter restarts when the driver is loaded, and may have single impossible values. After a
    step that cannot be, the next sample shows which of the two it was: a single value is passed
    over, a restarted counter is followed.
    """

    # the last value before such a step, and its time; ``None`` if the last value is one
    trusted: tuple[float, float] | None = None
    has_moved: bool = False  # whether the counter ever moved
    still: float = 0.0  # seconds for which it has not moved although power was drawn
    still_joules: float = 0.0  # the energy in that time by power draw
    # the parts of it whose energy counts as 0 so far, by the process list at that time
    held: list[Corrected] = []
    # those that turned out to be of a counter that has stopped, to be added up
    released: list[Corrected] = []

    def used(
        self,
        sample: GpuSample,
        after: GpuSample,
        now: float,
        passed: float,
        seconds: float,
        listed: GpuProcessList | None,
        energy: Energy,
    ) -> float:
        """The joules of the ``seconds`` that count between two samples, ``passed`` seconds apart.

        Of ``energy`` only the seconds are added, by their source.
        """
        if passed <= 0:
            return 0.0
        if sample.energy is None or after.energy is None:
            self._restart()
            return _by_power(sample, seconds, energy)
        used = after.energy - sample.energy
        limit = sample.state.power_limit_max
        most = _MOST_WATTS if limit is None else _LIMITS * limit
        is_possible = 0 <= used <= most * (passed + self.still + _READ_SECONDS)
        if self.trusted is not None:
            value, at = self.trusted
            bridged, since = after.energy - value, now - at
            if 0 <= bridged <= most * (since + _READ_SECONDS):
                self._restart()
                energy.counted += seconds
                return bridged * seconds / since
            if is_possible:
                self._restart()
        elif not is_possible:
            self._restart()
            self.trusted = sample.energy, now - passed
        if not is_possible:
            energy.impossible += seconds
            return _by_power(sample, seconds, energy)
        if used == 0:
            return self._stand(sample, passed, seconds, listed, energy)
        self.has_moved = True
        if self.still:
            used = self._caught_up(used, (sample.power_draw or 0.0) * passed)
            self._restart()
        energy.counted += seconds
        return used * seconds / passed

    def end(self) -> None:
        """Release the energy of a counter that never moved."""
        if not self.has_moved:
            self.released, self.held = self.held, []

    def _restart(self) -> None:
        self.trusted = None
        self.still = self.still_joules = 0.0
        self.held = []

    def _stand(
        self,
        sample: GpuSample,
        passed: float,
        seconds: float,
        listed: GpuProcessList | None,
        energy: Energy,
    ) -> float:
        """Count a time in which the counter did not move."""
        watts = sample.power_draw or 0.0
        if watts <= 0:
            energy.counted += seconds
            return 0.0
        self.still += passed
        self.still_joules += watts * passed
        if self.still < _STILL_SECONDS:
            change = Energy(watts * seconds, -seconds, integrated=seconds, stopped=seconds)
            if self.held and self.held[-1].listed is listed:
                self.held[-1].energy.join(change)
            else:
                self.held = [*self.held, Corrected(listed, change)]
            energy.counted += seconds
            return 0.0
        self.released, self.held = self.held, []
        energy.integrated += seconds
        energy.stopped += seconds
        return watts * seconds

    def _caught_up(self, used: float, expected: float) -> float:
        """The part of a step that was not counted while the counter stood still."""
        counted = self.still_joules if self.still >= _STILL_SECONDS else 0.0
        is_late = abs(used - counted - expected) < abs(used - expected)
        return max(0.0, used - counted) if is_late else used


def _by_power(sample: GpuSample, seconds: float, energy: Energy) -> float:
    if sample.power_draw is None or seconds <= 0:
        return 0.0
    energy.integrated += seconds
    return sample.power_draw * seconds
