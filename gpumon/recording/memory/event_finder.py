"""Finds the events between a snapshot and the next: process starts and exits, errors, accidents.

A value that is unknown on either side gives no event: a process on a GPU whose list was not read
neither started nor exited, and a GPU that was absent before starts nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpumon.accidents import LISTS_BYTES, AccidentFollower
from gpumon.availability import is_full
from gpumon.model.metrics import HARMFUL_CLOCK_EVENTS, clock_event_names
from gpumon.model.snapshot import ANSWERING, GpuStatus
from gpumon.recording.recording import Event, EventKind
from gpumon.text.formatting import gib, gibibytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.accidents import NewAccident
    from gpumon.model.accidents import Accident
    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.snapshot import Gpu, Snapshot

HYSTERESIS = 5.0
"""Slowdowns come and go several times a second, and memory may hover about its limit: less than so
many seconds after it last was so, it has not begun anew."""
_HELD_KEPT = 256
"""Of more moments those are forgotten that are older than ``HYSTERESIS``."""

_BROKEN = {
    GpuStatus.LOST: "is lost",
    GpuStatus.RESET_REQUIRED: "requires reset",
}


class EventFinder:
    """Finds the events in consecutive snapshots.

    Args:
        full_share: A GPU is full below this share of free memory; ``Thresholds.full_share``.
        lists_bytes: See ``AccidentFollower``.
    """

    def __init__(self, full_share: float, lists_bytes: int = LISTS_BYTES) -> None:
        self._full_share = full_share
        self._before: Snapshot | None = None
        self._accidents = AccidentFollower(lists_bytes)
        self._since = math.inf
        self._earlier: tuple[Gpu, ...] = ()
        self._missing: dict[str, Gpu] = {}
        self._held: dict[tuple[EventKind, str], float] = {}

    def see(self, snapshot: Snapshot) -> list[Event]:
        """The events between the previous snapshot and this one."""
        before, self._before = self._before, snapshot
        # The earliest, because the clock may have been set back.
        self._since = min(self._since, snapshot.time)
        events = (
            []
            if before is None
            else events_between(before, snapshot, self._full_share, self._since)
        )
        if events:
            events = [event for event in events if not self._is_repeated(event)]
        events += self._no_longer_listed(before, snapshot)
        accidents = self._accidents.see(snapshot)
        if before is not None:
            # The kernel log also has accidents from before the recording.
            recent = [new for new in accidents if new.report.accident.time >= self._since]
            events += [_accident_event(new, snapshot.time) for new in recent]
        for gpu in snapshot.gpus:
            if gpu.clock_event_reasons and _slowed(gpu):
                self._held[EventKind.THROTTLED, gpu.uuid] = snapshot.time
            if _is_full(gpu, self._full_share):
                self._held[EventKind.FULL, gpu.uuid] = snapshot.time
        if len(self._held) > _HELD_KEPT:
            now = snapshot.time
            self._held = {key: at for key, at in self._held.items() if 0 <= now - at < HYSTERESIS}
        return events

    def _no_longer_listed(self, before: Snapshot | None, after: Snapshot) -> list[Event]:
        """The GPUs that are missing from two samples in a row, after they were in two.

        The newest sample of a log may be incomplete, and a damaged row may name any GPU.
        """
        if before is None or not after.gpus:
            return []
        earlier, self._earlier = self._earlier, before.gpus
        if len(after.gpus) >= len(before.gpus) and not self._missing:
            return []
        here = {gpu.uuid for gpu in after.gpus}
        steady = {gpu.uuid for gpu in earlier}
        gone = [gpu for uuid, gpu in self._missing.items() if uuid not in here]
        self._missing = {
            gpu.uuid: gpu for gpu in before.gpus if gpu.uuid in steady and gpu.uuid not in here
        }
        return [
            Event(
                after.time,
                EventKind.ERROR,
                gpu.uuid,
                f"GPU {gpu.index} is no longer listed",
                (gpu.uuid,),
            )
            for gpu in gone
        ]

    def _is_repeated(self, event: Event) -> bool:
        if event.kind not in (EventKind.THROTTLED, EventKind.FULL):
            return False
        # A time in the future is from before the clock was set back.
        return (
            0
            <= event.time - self._held.get((event.kind, str(event.subject)), -math.inf)
            < HYSTERESIS
        )


def _accident_event(new: NewAccident, time: float) -> Event:
    report, accident = new.report, new.report.accident
    uuid = accident.gpu_uuid
    subject = uuid or ("" if report.process is None else report.process.id)
    gpus = () if uuid is None else (uuid,)
    recorded = None if new.follows else accident
    return Event(time, EventKind.ACCIDENT, subject, report.sentence, gpus, recorded)


def events_between(
    before: Snapshot, after: Snapshot, full_share: float, since: float = -math.inf
) -> list[Event]:
    """The events between two consecutive snapshots, with the time of the later one.

    Args:
        before: The earlier one.
        after: The later one.
        full_share: A GPU is full below this share of free memory; ``Thresholds.full_share``.
        since: XIDs of a time before this are of the past, and no events.
    """
    events = _comings_and_goings(before, after)
    if before.gpus is not after.gpus:
        gpus = {gpu.uuid: gpu for gpu in before.gpus}
        for gpu in after.gpus:
            earlier = gpus.get(gpu.uuid)
            if earlier is not None and earlier is not gpu:
                events += [
                    Event(after.time, kind, gpu.uuid, f"GPU {gpu.index} {words}", (gpu.uuid,))
                    for kind, words in _happened(earlier, gpu, full_share, since, after.accidents)
                ]
    return events


def _comings_and_goings(before: Snapshot, after: Snapshot) -> list[Event]:
    if (
        before.processes is after.processes
        or before.processes_at == after.processes_at
        or before.processes_at is None
        or after.processes_at is None
    ):
        return []
    was = {process.id: process for process in before.processes}
    now = {process.id: process for process in after.processes}
    if was.keys() == now.keys():
        return []
    listed = _listed(before) & _listed(after)
    went = _apart(was, now, listed)
    came = _apart(now, was, listed)
    return [
        *(_process_event(one, EventKind.WENT, "left", after.time) for one in went),
        *(_process_event(one, EventKind.CAME, "came to", after.time) for one in came),
    ]


def _listed(snapshot: Snapshot) -> set[str]:
    """The GPUs whose process lists are known."""
    return {
        gpu.uuid
        for gpu in snapshot.gpus
        if gpu.status in ANSWERING and "processes" not in gpu.unknown
    }


def _apart(
    here: dict[ProcessId, GpuProcess], there: dict[ProcessId, GpuProcess], listed: set[str]
) -> Iterable[GpuProcess]:
    """The processes of one list that another list could contain but does not."""
    apart = [
        process
        for id_, process in here.items()
        if id_ not in there and all(use.gpu_uuid in listed for use in process.uses)
    ]
    if not apart:
        return apart
    # A process that becomes visible, or invisible, while it runs is still the same process.
    starts: dict[int, list[int | None]] = {}
    for id_ in there:
        starts.setdefault(id_.pid, []).append(id_.start_time)
    return [
        process
        for process in apart
        if process.id.pid not in starts
        or (process.id.start_time is not None and None not in starts[process.id.pid])
    ]


def _named(process: GpuProcess) -> str:
    name = "" if process.name is None else f" {process.name}"
    user = "" if process.user is None else f" of {process.user}"
    return f"{process.id.pid}{name}{user}"


def _process_event(process: GpuProcess, kind: EventKind, verb: str, time: float) -> Event:
    sentence = f"{_named(process)} {verb} {_gpus(process)}"
    uuids = tuple(dict.fromkeys(use.gpu_uuid for use in process.uses))
    return Event(time, kind, process.id, sentence, uuids)


def _gpus(process: GpuProcess) -> str:
    return f"GPU {', '.join(map(str, process.gpu_indices))}"


def _happened(
    before: Gpu, after: Gpu, full_share: float, since: float, accidents: Iterable[Accident]
) -> Iterable[tuple[EventKind, str]]:
    """The events of a GPU, and their text after its number."""
    is_other = (after.xid, after.xid_at) != (before.xid, before.xid_at)
    # The kernel log also tells XIDs from before the recording.
    is_recent = after.xid is not None and (after.xid_at is None or after.xid_at >= since)
    if is_other and is_recent:
        # An accident is an event of its own.
        is_accident = any(each.is_error(after.uuid, after.xid, after.xid_at) for each in accidents)
        if not is_accident:
            yield EventKind.ERROR, f"reported XID {after.xid}"
    if after.status is not before.status and after.status in _BROKEN:
        yield EventKind.ERROR, _BROKEN[after.status]
    action = after.recovery_action
    if action != before.recovery_action and action is not None and action.lower() != "none":
        yield EventKind.ERROR, f"requests the recovery action: {action}"
    slowed = after.clock_event_reasons and _slowed(after)
    if slowed and _slowed(before) == 0:
        yield EventKind.THROTTLED, f"throttled: {' and '.join(clock_event_names(slowed))}"
    if _is_full(after, full_share) and _is_full(before, full_share) is False:
        free = f"{gibibytes(after.memory_free)} of {gibibytes(after.memory_total)} {gib()}"
        yield EventKind.FULL, f"memory full: {free} free"


def _slowed(gpu: Gpu) -> int | None:
    """The harmful active clock event reasons; ``None`` if unknown."""
    reasons = gpu.clock_event_reasons
    return None if reasons is None else reasons & HARMFUL_CLOCK_EVENTS


def _is_full(gpu: Gpu, full_share: float) -> bool | None:
    """Whether its own memory is full; ``None`` if unknown, or if it has none."""
    return None if gpu.memory_unified else is_full(gpu.memory_free, gpu.memory_total, full_share)
