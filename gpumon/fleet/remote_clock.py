"""Translates the times of another machine's clock to this machine's.

The difference is learned from the time that each sample carries and its arrival, and then kept: the
intervals between samples stay those of the other machine, whatever the network delays. It changes
only when one of the clocks was set.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from gpumon.model.time_shift import TimeShift

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot
    from gpumon.stream import GpuState

_NEAR = 0.2
"""Seconds of difference that count as none: a network takes as long, and nothing needs to be
translated then."""
_STEP = 0.5
"""Seconds by which a sample must disagree if a clock was set."""
_SAMPLES = 10
"""After so many late samples in a row a clock was set; fewer were delayed."""


class RemoteClock:
    """The clock of another machine. An unchanged object gets the same translation again."""

    def __init__(self) -> None:
        self._difference: float | None = None
        self._recent: deque[float] = deque(maxlen=_SAMPLES)
        self._last = float("-inf")
        self._shift = TimeShift(0.0)

    def learn(self, written_at: float, arrived_at: float) -> None:
        """Learn from a sample: its time by the other machine's clock, its arrival by this one's."""
        difference = arrived_at - written_at
        self._recent.append(difference)
        known = self._difference
        was_set = (
            known is None
            # The other clock runs backwards: it was set back.
            or written_at < self._last
            # A sample cannot arrive before it is written.
            or difference < known - _STEP
        )
        self._last = written_at
        if was_set:
            self._recent.clear()
            self._set(difference)
        elif len(self._recent) == _SAMPLES and min(self._recent) > (known or 0.0) + _STEP:
            self._set(min(self._recent))

    def _set(self, difference: float) -> None:
        self._difference = difference
        self._shift = TimeShift(0.0 if abs(difference) <= _NEAR else difference)

    @property
    def shift(self) -> float:
        """Seconds to add to the other machine's times."""
        return self._shift.seconds

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the times of this machine's clock."""
        return self._shift.snapshot(snapshot)

    def states(self, states: tuple[GpuState, ...]) -> tuple[GpuState, ...]:
        """States of GPUs with the times of this machine's clock."""
        if not self._shift.seconds:
            return states
        return tuple([self._shift.row(state) for state in states])
