"""Intervals that had not ended, to go on with after a restart, and at a moment of an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.number_types import Count, Time  # noqa: TC001 - msgspec resolves annotations
from gpumon.model.processes import ProcessId  # noqa: TC001 - as above
from gpumon.recording.history.intervals import ConditionTracker
from gpumon.recording.history.records import GpuRecord, TrackedProcess

if TYPE_CHECKING:
    from gpumon.recording.history.observations import Observations


class StandingInterval(Struct, frozen=True, array_like=True):
    """An ``Interval`` that had not ended."""

    name: str  # of its condition
    since: Time
    last: Time
    start_observed: bool
    samples: Count


class StandingProcess(Struct, frozen=True, array_like=True):
    """What a history knew of a process."""

    id: ProcessId
    first: Time  # of the first list with it
    rest: StandingInterval | None  # in which it held memory and did nothing
    served: tuple[StandingInterval, ...] = ()  # the conditions of its inference server


class Standing(Struct, frozen=True, array_like=True):
    """The intervals of a history that had not ended at a time."""

    time: Time
    pace: float  # Seconds between its samples.
    gpus: dict[str, tuple[StandingInterval, ...]] = {}  # By UUID.
    processes: tuple[StandingProcess, ...] = ()


def standing_of(observed: Observations, pace: float) -> Standing:
    """The intervals that have not ended; under the lock of the observations."""
    gpus: dict[str, tuple[StandingInterval, ...]] = {}
    names = list(observed.place)
    for uuid, record in observed.gpus.items():
        intervals = []
        for place, tracker in enumerate(record.watches):
            record.settle(place, observed.conditions[place].hysteresis)
            intervals.append(_interval(names[place], tracker))
        gpus[uuid] = tuple([interval for interval in intervals if interval is not None])
    processes = [
        StandingProcess(
            process,
            known.first,
            _interval("", known.rest),
            tuple(
                [
                    interval
                    for name, tracker in known.served.items()
                    if (interval := _interval(name, tracker)) is not None
                ]
            ),
        )
        for process, known in observed.processes.items()
        if known.last >= observed.newest.list_seen
    ]
    return Standing(observed.newest.time, pace, gpus, tuple(processes))


def _interval(name: str, tracker: ConditionTracker) -> StandingInterval | None:
    if tracker.since is None:
        return None
    return StandingInterval(
        name, tracker.since, tracker.last, tracker.start_observed, tracker.samples
    )


def resume(observed: Observations, standing: Standing) -> None:
    """Let an empty history go on where another one was; under the lock of the observations.

    The snapshot of that time follows once more, so that its values are known, too.
    Intervals go on if the next sample comes soon enough after ``standing.time``, as if there had
    been no restart. Conditions that this program does not know are left out.
    """
    observed.started = standing.time
    observed.newest.time = standing.time
    observed.list_pace.see(standing.pace)
    for uuid, intervals in standing.gpus.items():
        record = GpuRecord(len(observed.conditions), observed.gpu_depth, standing.time)
        record.series.pace.see(standing.pace)
        record.seen_at = standing.time
        for interval in intervals:
            place = observed.place.get(interval.name)
            if place is not None:
                _continue(record.watches[place], interval)
        observed.gpus[uuid] = record
    for process in standing.processes:
        known = TrackedProcess(process.first)
        known.last = standing.time
        if process.rest is not None:
            _continue(known.rest, process.rest)
        for interval in process.served:
            if interval.name in observed.of_servers:
                known.served[interval.name] = tracker = ConditionTracker()
                _continue(tracker, interval)
        observed.processes[process.id] = known


def _continue(tracker: ConditionTracker, interval: StandingInterval) -> None:
    tracker.since, tracker.last = interval.since, interval.last
    tracker.start_observed, tracker.samples = interval.start_observed, max(0, interval.samples - 1)
