"""Translates the times of another machine's clock to this machine's.

The difference is learned from the time that each line carries and its arrival, and then kept: the
intervals between samples stay those of the other machine, whatever the network delays. It changes
only when one of the clocks was set.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gpumon.export.as_json import json_keys
from gpumon.model.processes import HolderScan

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot
    from gpumon.stream import GpuState

T = TypeVar("T", bound=Struct)

_NEAR = 0.2
"""Seconds of difference that count as none: a network takes as long, and nothing needs to be
translated then."""
_STEP = 0.5
"""Seconds by which a line must disagree if a clock was set."""
_LINES = 10
"""After so many late lines in a row a clock was set; fewer were delayed."""


class RemoteClock:
    """The clock of another machine. An unchanged object gets the same translation again."""

    def __init__(self) -> None:
        self._difference: float | None = None
        self._recent: deque[float] = deque(maxlen=_LINES)
        self._last = float("-inf")
        self._before: Snapshot | None = None
        self._ours: Snapshot | None = None
        self._known: dict[int, tuple[Struct, Struct]] = {}
        self._kept: dict[int, tuple[Struct, Struct]] = {}

    def learn(self, written_at: float, arrived_at: float) -> None:
        """Learn from a line: its time by the other machine's clock, its arrival by this one's."""
        difference = arrived_at - written_at
        self._recent.append(difference)
        known = self._difference
        was_set = (
            known is None
            # The other clock runs backwards: it was set back.
            or written_at < self._last
            # A line cannot arrive before it is written.
            or difference < known - _STEP
        )
        self._last = written_at
        if was_set:
            self._recent.clear()
            self._set(difference)
        elif len(self._recent) == _LINES and min(self._recent) > (known or 0.0) + _STEP:
            self._set(min(self._recent))

    def _set(self, difference: float) -> None:
        self._difference = difference
        self._before = None
        self._known, self._kept = {}, {}

    @property
    def shift(self) -> float:
        """Seconds to add to the other machine's times."""
        difference = self._difference or 0.0
        return 0.0 if abs(difference) <= _NEAR else difference

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the times of this machine's clock."""
        if not self.shift:
            return snapshot
        if snapshot is self._before and self._ours is not None:
            return self._ours
        self._known, self._kept = self._kept, {}
        ours = replace(
            self._moved(snapshot),
            host=self._same(snapshot.host),
            gpus=tuple([self._same(gpu) for gpu in snapshot.gpus]),
            processes=tuple([self._same(process) for process in snapshot.processes]),
            reserved=tuple([self._same(reserved) for reserved in snapshot.reserved]),
            holders=snapshot.holders and self._same(snapshot.holders),
        )
        self._before, self._ours = snapshot, ours
        return ours

    def states(self, states: tuple[GpuState, ...]) -> tuple[GpuState, ...]:
        """States of GPUs with the times of this machine's clock."""
        if not self.shift:
            return states
        return tuple([self._moved(state) for state in states])

    def _moved(self, known: T) -> T:
        """A copy with other times."""
        times = {field: getattr(known, field) for field in _time_fields(type(known))}
        return replace(
            known, **{field: time + self.shift for field, time in times.items() if time is not None}
        )

    def _same(self, given: T) -> T:
        """The translation, which is the same object for the same object in the sample before."""
        known = self._known.get(id(given))
        if known is not None and known[0] is given:
            pair = known
        elif isinstance(given, HolderScan):
            suspects = tuple([self._moved(suspect) for suspect in given.suspects])
            pair = given, replace(self._moved(given), suspects=suspects)
        else:
            pair = given, self._moved(given)
        self._kept[id(given)] = pair
        translated: T = pair[1]  # type: ignore[assignment]  # a pair has one type on both sides
        return translated


@cache
def _time_fields(struct: type[Struct]) -> tuple[str, ...]:
    """The fields of a class that are times."""
    keys = json_keys(struct)
    return tuple(field for field, key in keys.items() if key.endswith("_unix_seconds"))
