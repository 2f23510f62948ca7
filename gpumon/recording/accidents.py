"""The accidents of a recording, joined with what it has of the time around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.accidents import LEFT_SECONDS, AccidentReport, first_lines, report_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.accidents import Accident
    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.recording import Recording

_STEPS_BACK = 4
"""Samples in which a process is looked for: the kernel log is read up to two seconds late."""
_MOMENT = 0.001
"""Seconds: times of a log are known to the millisecond."""


def recorded_accidents(recording: Recording, most: int) -> list[Accident]:
    """The first lines of the accidents of a recording, newest first. Fast."""
    first, last = recording.first, recording.last
    if first is None or last is None:
        return []
    found = [event.accident for event in recording.events(first, last) if event.accident]
    oldest = recording.at(first)
    # What had happened before the recording is no event of it.
    earlier = [] if oldest is None else list(first_lines(oldest.accidents))
    # Not a set: those of one moment keep their order.
    return sorted(dict.fromkeys([*found, *earlier]), key=lambda accident: -accident.time)[:most]


def recorded_report(recording: Recording, accident: Accident) -> AccidentReport:
    """An accident of a recording; may take a second in a log, which is read for it."""
    after = recording.at(accident.time + LEFT_SECONDS)
    further: tuple[Accident, ...] = ()
    if after is not None:
        accident = _with_line(accident, after.accidents)
        further = first_lines(after.accidents).get(accident, ())
    return report_of(accident, _before(recording, accident), after, further)


def _with_line(accident: Accident, later: Iterable[Accident]) -> Accident:
    """The accident with its line in the kernel log, which may come after the driver's event."""
    if accident != accident.bare():
        return accident
    gpu_uuid, number, time = accident.gpu_uuid, accident.number, accident.time
    return next((each for each in later if each.is_error(gpu_uuid, number, time)), accident)


def _before(recording: Recording, accident: Accident) -> Snapshot | None:
    """The newest snapshot from before an accident, in which the process that it names still was.

    A process that it ended may be missing already in the list of the same moment.
    """
    newest = None
    for steps in range(_STEPS_BACK + 1):
        snapshot = recording.at(recording.step(accident.time, -steps))
        if snapshot is None or snapshot.processes_at is None:
            continue
        if snapshot.processes_at > accident.time - _MOMENT:
            continue
        newest = newest or snapshot
        if accident.pid is None or accident.pid in {one.id.pid for one in snapshot.processes}:
            return snapshot
    return newest
