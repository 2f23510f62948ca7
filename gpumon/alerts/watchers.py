"""The watchers: each evaluates one alert for all its GPUs or processes."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gpumon.accidents import AccidentFollower, report_of
from gpumon.alerts import notice as notices
from gpumon.alerts.filter_languages import meets
from gpumon.alerts.instances import (
    AlertInstance,
    AlertState,
    RememberedAlert,
    RememberedProcess,
    Transition,
)
from gpumon.alerts.notice import gpu_key, process_key
from gpumon.alerts.when import AccidentWhen, EndWhen, GpuWhen, ProcessWhen, XidWhen, parse_when
from gpumon.findings import RULES, gpu_answer, not_free
from gpumon.findings.finding import FindingKind
from gpumon.findings.registry import PROCESS_RULES
from gpumon.model.accidents import SAME_SECONDS
from gpumon.model.snapshot import ANSWERING

if TYPE_CHECKING:
    from gpumon.accidents import AccidentReport, NewAccident
    from gpumon.alerts.alert import Alert
    from gpumon.alerts.evaluation import EvaluationContext
    from gpumon.alerts.notice import Notice
    from gpumon.findings.finding import Answer, Finding
    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.snapshot import Gpu

MOST_SUBJECTS = 2000
"""How many GPUs or processes of one alert are followed; nothing is reported about others."""
_SLOW_ROUND = 60.0
"""Seconds in which each process is evaluated once by a slow rule, which takes some 0.3 ms."""
_SLOW_MAX_GAP = 3 * _SLOW_ROUND
_LOOKED_UP_WITHIN = 60.0
"""Seconds in which what is unknown of the processes of the first list is looked up."""
_LISTS_WITHOUT = 2
"""Process lists in a row that a process must be missing from: a single list may be incomplete."""


def watcher_of(alert: Alert) -> Watcher[Any]:
    """The watcher of an alert.

    Raises:
        WhenError: Its ``when`` cannot be read.
    """
    when = parse_when(alert.when)
    if isinstance(when, GpuWhen):
        return GpuWatcher(alert, when)
    if isinstance(when, ProcessWhen):
        return ProcessWatcher(alert, when)
    if isinstance(when, XidWhen):
        return XidWatcher(alert, when)
    if isinstance(when, AccidentWhen):
        return AccidentWatcher(alert, when)
    return EndWatcher(alert, when)


_When = TypeVar("_When")


class Watcher(Generic[_When]):
    """Evaluates one alert."""

    def __init__(self, alert: Alert, when: _When) -> None:
        self.alert = alert
        self._when = when
        self.known = RememberedAlert(alert.when)
        """What is known of it, and remembered over a restart."""

    def check(self, context: EvaluationContext) -> list[Notice]:
        """The notices of this evaluation."""
        raise NotImplementedError

    def shift(self, seconds: float) -> None:
        """Move all times into the past, when the clock was set back."""
        self.known.shift(seconds)

    def recall(self, remembered: RememberedAlert, *, fresh: bool) -> None:
        """Continue after a restart; what is not in a ``fresh`` memory did not hold then."""
        if fresh:
            self.known.first_seen = remembered.first_seen
            self.known.xids = remembered.xids
        self.known.instances = {
            key: instance
            for key, instance in islice(remembered.instances.items(), MOST_SUBJECTS)
            if fresh or instance.state is not AlertState.PENDING
        }
        self.known.processes = {
            key: process
            for key, process in remembered.processes.items()
            if key in self.known.instances
        }

    def _update(
        self,
        key: str,
        holds: bool | None,
        context: EvaluationContext,
        since: float | None = None,
        *,
        held_before: bool = False,
        max_gap: float = 0.0,
    ) -> tuple[Transition | None, float]:
        """Evaluate an instance; what is to be reported, and when that began."""
        alert, instance = self.alert, self.known.instances.get(key)
        if instance is None:
            if not holds or len(self.known.instances) >= MOST_SUBJECTS:
                return None, context.now
            instance = AlertInstance(AlertState.PENDING, context.now, context.now)
            self.known.instances[key] = instance
        if held_before and holds and instance.state in {AlertState.PENDING, AlertState.RESOLVED}:
            instance.state = AlertState.SUPPRESSED
        transition = instance.update(
            holds,
            context.now,
            max(max_gap, context.max_gap),
            for_seconds=alert.for_seconds,
            cooldown=alert.cooldown,
            since=since,
        )
        if instance.is_past(context.now, alert.cooldown):
            del self.known.instances[key]
        return transition, instance.since

    def _begin_cooldown(self, key: str, now: float) -> bool:
        """Begin the cooldown of an event that is reported; False while the last one lasts."""
        cooldown, instances = self.alert.cooldown, self.known.instances
        if key in instances and instances[key].is_cooling(now, cooldown):
            return False
        # The newest is last. The oldest make room: each killed process has a cooldown of its own.
        instances.pop(key, None)
        while len(instances) >= MOST_SUBJECTS:
            del instances[next(iter(instances))]
        instances[key] = AlertInstance(AlertState.RESOLVED, now, now, notified_at=now)
        return True


class GpuWatcher(Watcher[GpuWhen]):
    """Evaluates a state or a filter of GPUs."""

    def check(self, context: EvaluationContext) -> list[Notice]:
        found = []
        for gpu in context.snapshot.gpus:
            holds, finding = self._holds(context, gpu)
            first_seen, state = self.known.first_seen, self._when.state
            is_first = gpu.uuid not in first_seen
            # A forecast takes time, so what it finds later has not been there before.
            is_forecast = state is not None and RULES[state].is_forecast
            if is_first and (holds is not None or is_forecast):
                first_seen[gpu.uuid] = context.now
            since = None if finding is None else finding.since
            held_before = is_first or _held_at(first_seen.get(gpu.uuid, 0.0), finding)
            transition, began = self._update(
                gpu_key(gpu.uuid), holds, context, since, held_before=held_before
            )
            if transition is Transition.FIRED:
                found.append(notices.gpu_notice(self.alert, context, gpu, finding, began))
            elif transition is Transition.RESOLVED and self.alert.ended:
                found.append(self._end(context, gpu, began))
        listed = {gpu_key(uuid) for uuid in context.gpus}
        for key in self.known.instances.keys() - listed:
            self._update(key, None, context)
        return found

    def _end(self, context: EvaluationContext, gpu: Gpu, began: float) -> Notice:
        state = None if self._when.state is None else self._when.state.value
        return notices.gpu_ended(self.alert, context, gpu, began, state)

    def _holds(self, context: EvaluationContext, gpu: Gpu) -> tuple[bool | None, Finding | None]:
        meant = meets(self._when.terms, gpu, context)
        if self._when.state is None:
            is_known = gpu.status in ANSWERING and context.history.old(gpu) is None
            return (meant if is_known else None), None
        if meant is False:
            return False, None
        # What is unknown of the terms does not matter while the state is absent.
        holds, finding = _found(gpu_answer(context.history, gpu, self._when.state))
        if holds and meant is None:
            return None, None
        if holds is False and context.is_settling and gpu_key(gpu.uuid) in self.known.instances:
            # After a restart a state needs its time to show again.
            return None, None
        return holds, finding


class ProcessWatcher(Watcher[ProcessWhen]):
    """Evaluates a state or a filter of processes."""

    def __init__(self, alert: Alert, when: ProcessWhen) -> None:
        super().__init__(alert, when)
        self._unknown_at_first: dict[str, float] = {}
        self._next = 0

    def check(self, context: EvaluationContext) -> list[Notice]:
        if not context.list_is_new:
            return []
        found: list[Notice] = []
        listed = set()
        fired: set[ProcessId] = set()
        resolved: set[ProcessId] = set()
        known, processes = self.known, self.known.processes
        is_slow = self._when.state is not None and PROCESS_RULES[self._when.state].is_slow
        chosen = self._chosen(context) if is_slow else None
        for process in context.snapshot.processes:
            key = process_key(process.id)
            listed.add(key)
            if chosen is not None and key not in chosen:
                continue
            holds, finding = self._holds(context, process)
            transition, began = self._update(
                key,
                holds,
                context,
                None if finding is None else finding.since,
                held_before=self._held_at_first(context, process, holds, finding),
                max_gap=_SLOW_MAX_GAP if is_slow else 0.0,
            )
            if key in known.instances and key not in processes:
                processes[key] = _remembered(self.alert, process, context.now)
            if transition is Transition.FIRED:
                processes[key] = kept = _remembered(self.alert, process, began)
                if _is_first_of_server(kept.server, fired):
                    found.append(
                        notices.process_notice(self.alert, context, process, kept, finding)
                    )
            elif transition is Transition.RESOLVED:
                found += self._end(context, key, resolved)
        for key in [key for key in processes if key not in listed]:
            # A process that is not listed meets nothing, if it is known what is there.
            is_known = all(map(context.is_listed, processes[key].gpu_uuids))
            transition, _ = self._update(key, False if is_known else None, context)
            if transition is Transition.RESOLVED:
                found += self._end(context, key, resolved)
            instance = known.instances.get(key)
            if instance is not None and instance.state is AlertState.RESOLVED:
                # It cannot come again, so no cooldown is needed.
                del known.instances[key]
        for key in processes.keys() - known.instances.keys():
            del processes[key]
        for key in self._unknown_at_first.keys() - listed:
            del self._unknown_at_first[key]
        for uuid in context.gpus:
            if uuid not in known.first_seen and context.is_listed(uuid):
                known.first_seen[uuid] = context.now
        return found

    def _held_at_first(
        self,
        context: EvaluationContext,
        process: GpuProcess,
        holds: bool | None,
        finding: Finding | None,
    ) -> bool:
        """Whether this held at the first evaluation already."""
        key, first_seen = process_key(process.id), self.known.first_seen
        times = [first_seen[use.gpu_uuid] for use in process.uses if use.gpu_uuid in first_seen]
        if not times:
            if holds is None:
                self._unknown_at_first[key] = context.now
            return True
        unknown_at = None if holds is None else self._unknown_at_first.pop(key, None)
        if unknown_at is not None and context.now - unknown_at <= _LOOKED_UP_WITHIN:
            return True
        return _held_at(min(times), finding)

    def _end(self, context: EvaluationContext, key: str, resolved: set[ProcessId]) -> list[Notice]:
        process = self.known.processes.get(key)
        if process is None or not self.alert.ended:
            return []
        if not _is_first_of_server(process.server, resolved):
            return []
        state = self._when.state
        named = self.alert.when if state is None else state.value
        return [notices.process_ended(self.alert, context, process, of_state=named)]

    def _chosen(self, context: EvaluationContext) -> set[str]:
        """The processes that are evaluated now: each once a minute."""
        processes = context.snapshot.processes
        count = -(-len(processes) * min(context.pace, _SLOW_ROUND) // _SLOW_ROUND)
        keys = sorted(process_key(process.id) for process in processes)
        chosen = {keys[(self._next + index) % len(keys)] for index in range(int(count))}
        self._next += len(chosen)
        return chosen

    def _holds(
        self, context: EvaluationContext, process: GpuProcess
    ) -> tuple[bool | None, Finding | None]:
        if not all(context.is_listed(use.gpu_uuid) for use in process.uses):
            return None, None
        meant = meets(self._when.terms, process, context.of_processes)
        if self._when.state is None or not meant:
            return meant, None
        return _found(PROCESS_RULES[self._when.state].answer(context.history, process))

    def shift(self, seconds: float) -> None:
        super().shift(seconds)
        self._unknown_at_first = {key: at - seconds for key, at in self._unknown_at_first.items()}


def _is_first_of_server(server: ProcessId | None, seen: set[ProcessId]) -> bool:
    """Whether no other process of this inference server, which has the same load, was seen yet."""
    if server is None:
        return True
    is_first = server not in seen
    seen.add(server)
    return is_first


class XidWatcher(Watcher[XidWhen]):
    """Follows XIDs. An instance that is resolved counts the cooldown of an XID."""

    def check(self, context: EvaluationContext) -> list[Notice]:
        found = []
        for gpu in context.snapshot.gpus:
            xids, seen = context.history.xids(gpu.uuid), self.known.xids.get(gpu.uuid)
            if xids == seen:
                continue
            before = seen or {}
            # After a restart the history knows less than what is remembered.
            self.known.xids[gpu.uuid] = {**before, **xids}
            is_first = gpu.uuid not in self.known.first_seen
            first_seen = self.known.first_seen.setdefault(gpu.uuid, context.now)
            for number, at in xids.items():
                is_new = _is_newer(at, number, before, first_seen, is_first=is_first)
                if is_new and self._when.includes(number, gpu.name):
                    found += self._report(context, gpu, number, at)
        return found

    def _report(
        self, context: EvaluationContext, gpu: Gpu, number: int, at: float | None
    ) -> list[Notice]:
        if meets(self._when.terms, gpu, context) is not True:
            return []
        if not self._begin_cooldown(f"{gpu.uuid}:{number}", context.now):
            return []
        return [notices.xid_notice(self.alert, context, gpu, number, at)]


class AccidentWatcher(Watcher[AccidentWhen]):
    """Follows accidents. An instance counts the cooldown of an accident."""

    def __init__(self, alert: Alert, when: AccidentWhen) -> None:
        super().__init__(alert, when)
        self._accidents = AccidentFollower()
        self._since: float | None = None
        """The kernel log has accidents of the minutes before the start, which are not reported."""

    def check(self, context: EvaluationContext) -> list[Notice]:
        if self._since is None:
            self._since = context.now
        newest = self.known.accidents_at
        self.known.accidents_at = self._since if newest is None else newest
        found = []
        for new in self._accidents.see(context.snapshot):
            accident = new.report.accident
            if accident.time <= self._since:
                continue
            self.known.accidents_at = max(self.known.accidents_at, min(accident.time, context.now))
            selected = self._selected(context, new)
            if selected is not None and self._is_meant(context, new):
                found += self._report(context, selected)
        return found

    def recall(self, remembered: RememberedAlert, *, fresh: bool) -> None:
        super().recall(remembered, fresh=fresh)
        if fresh and remembered.accidents_at is not None:
            self.known.accidents_at = remembered.accidents_at
            # The time of a line in the kernel log is known to some milliseconds.
            self._since = remembered.accidents_at + SAME_SECONDS

    def shift(self, seconds: float) -> None:
        super().shift(seconds)
        if self._since is not None:
            self._since -= seconds

    def _selected(self, context: EvaluationContext, new: NewAccident) -> AccidentReport | None:
        """The accident from its first line of a selected kind on, such as a reset after an XID."""
        lines = (new.report.accident, *new.report.further)
        for place, line in enumerate(lines):
            if self._when.includes(line.kind):
                if not place:
                    return new.report
                return report_of(line, new.before, context.snapshot, lines[place + 1 :])
        return None

    def _is_meant(self, context: EvaluationContext, new: NewAccident) -> bool:
        """Whether a GPU of the accident met the filter before it."""
        if not self._when.terms.tests:
            return True
        if new.before is not None:
            context = context.at(new.before)
        process = new.report.process
        uuids = {new.report.accident.gpu_uuid}
        if process is not None:
            uuids |= {use.gpu_uuid for use in process.uses}
        return any(
            meets(self._when.terms, gpu, context) is True
            for gpu in context.snapshot.gpus
            if gpu.uuid in uuids
        )

    def _report(self, context: EvaluationContext, report: AccidentReport) -> list[Notice]:
        key = notices.accident_key(report.accident)
        if not self._begin_cooldown(key, context.now):
            return []
        return [notices.accident_notice(self.alert, context, report)]


def _is_newer(
    at: float | None,
    number: int,
    before: dict[int, float | None],
    first_seen: float,
    *,
    is_first: bool,
) -> bool:
    """Whether a report of an XID, ``at`` a time or unknown, is not in what was reported ``before``.

    The GPU was first evaluated at ``first_seen``; with ``is_first`` that is now.
    """
    if number not in before:
        return not is_first if at is None else at > first_seen
    last = before[number]
    return at is not None and (last is None or at > last)


class EndWatcher(Watcher[EndWhen]):
    """Follows processes to their end."""

    def check(self, context: EvaluationContext) -> list[Notice]:
        if not context.list_is_new:
            return []
        followed, listed = self.known.processes, set()
        for process in context.snapshot.processes:
            key = process_key(process.id)
            listed.add(key)
            known = followed.get(key)
            if known is not None:
                if known.missing or known.name is None:
                    followed[key] = _remembered(self.alert, process, known.since)
            elif len(followed) < MOST_SUBJECTS and meets(
                self._when.terms, process, context.of_processes
            ):
                followed[key] = _remembered(self.alert, process, context.now)
        found = []
        for key in [key for key in followed if key not in listed]:
            gone = followed[key]
            if not all(map(context.is_listed, gone.gpu_uuids)):
                continue
            gone.missing += 1
            if gone.missing >= _LISTS_WITHOUT:
                del followed[key]
                if context.now - gone.since >= self.alert.for_seconds:
                    found.append(notices.process_ended(self.alert, context, gone))
        return found

    def follow(self, process: GpuProcess, now: float) -> None:
        """Follow this process, whatever the filter says."""
        self.known.processes[process_key(process.id)] = _remembered(self.alert, process, now)

    def recall(self, remembered: RememberedAlert, *, fresh: bool) -> None:
        if fresh:
            self.known.processes = dict(islice(remembered.processes.items(), MOST_SUBJECTS))


class FreeWatcher(Watcher[None]):
    """Waits until a GPU is free, also if that is now."""

    def __init__(self, alert: Alert, gpu: Gpu) -> None:
        super().__init__(alert, None)
        self._uuid = gpu.uuid

    def check(self, context: EvaluationContext) -> list[Notice]:
        gpu = context.gpus.get(self._uuid)
        if gpu is None or not_free(context.history, gpu) is not None:
            return []
        _, finding = _found(gpu_answer(context.history, gpu, FindingKind.FREE))
        return [notices.gpu_notice(self.alert, context, gpu, finding, None)]


def _held_at(time: float, finding: Finding | None) -> bool:
    """Whether a state held at this time already, though only more time has shown it."""
    if finding is None or finding.since is None or RULES[finding.kind].is_forecast:
        return False
    return finding.since <= time


def _found(answer: Answer) -> tuple[bool | None, Finding | None]:
    """Whether a state holds, ``None`` if that is unknown, and the finding if it does."""
    return (True, answer) if answer else (answer, None)


def _remembered(alert: Alert, process: GpuProcess, since: float) -> RememberedProcess:
    """What is needed to report the end of a process."""
    by_index = sorted(process.uses, key=lambda use: use.gpu_index)
    uses = {use.gpu_uuid: use.gpu_index for use in by_index}
    return RememberedProcess(
        process.id.pid,
        process.id.start_time,
        process.name,
        process.user,
        tuple(uses.values()),
        tuple(uses),
        since,
        notices.command_line(alert, process),
        server=process.server_id,
    )
