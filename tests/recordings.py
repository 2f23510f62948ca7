"""A tape over snapshots that a test made, for whoever plays one back."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpumon.recording.memory.event_finder import EventFinder
from gpumon.recording.memory.ordering import evenly, event_beside, events_from_to, place_at
from gpumon.recording.recording import WholeRecording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.recording import Event


class ListTape(WholeRecording):
    """A ``Recording`` that keeps every snapshot, the same object it was given.

    Args:
        snapshots: Oldest first, no two at the same time.
        full_share: See ``gpumon.recording.memory.event_finder``.
    """

    def __init__(self, snapshots: Iterable[Snapshot] = (), full_share: float = 0.05) -> None:
        self._snapshots: list[Snapshot] = []
        self._times: list[float] = []
        self._marks: list[Event] = []
        self._finder = EventFinder(full_share)
        for snapshot in snapshots:
            self.add(snapshot)

    def add(self, snapshot: Snapshot) -> None:
        """Let it grow by a snapshot that is newer than all before."""
        assert not self._times or snapshot.time > self._times[-1], "a tape never runs backwards"
        self._snapshots.append(snapshot)
        self._times.append(snapshot.time)
        self._marks += self._finder.see(snapshot)

    @property
    def first(self) -> float | None:
        return self._times[0] if self._times else None

    @property
    def last(self) -> float | None:
        return self._times[-1] if self._times else None

    def at(self, time: float) -> Snapshot | None:
        return self._snapshots[place_at(self._times, time)] if self._times else None

    def between(self, first: float, last: float, most: int) -> Iterator[Snapshot]:
        return (self._snapshots[place] for place in evenly(self._times, first, last, most))

    def step(self, time: float, samples: int) -> float:
        if not self._times:
            return time
        place = place_at(self._times, time) + samples
        return self._times[min(max(place, 0), len(self._times) - 1)]

    def events(self, first: float, last: float) -> Sequence[Event]:
        return events_from_to(self._marks, first, last)

    @property
    def events_complete(self) -> bool:
        return True

    def next_event(self, time: float, *, forward: bool) -> Event | None:
        return event_beside(self._marks, time, forward=forward)


class WatchedTape(ListTape):
    """A tape that calls what a test wants, by the name of a method, before it answers."""

    def __init__(self, snapshots: Iterable[Snapshot] = ()) -> None:
        super().__init__(snapshots)
        self.before: dict[str, Callable[[], object]] = defaultdict(lambda: lambda: None)

    @property
    def last(self) -> float | None:
        self.before["last"]()
        return super().last

    def at(self, time: float) -> Snapshot | None:
        self.before["at"]()
        return super().at(time)

    def step(self, time: float, samples: int) -> float:
        self.before["step"]()
        return super().step(time, samples)
