"""Watchers of events: XIDs, and the ends of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.alerts import sentences
from gpumon.alerts.episode import Episode, Phase
from gpumon.alerts.filter_languages import meets
from gpumon.alerts.memory import RememberedAlert, RememberedProcess
from gpumon.alerts.notice import process_key
from gpumon.alerts.watcher import MOST_SUBJECTS, copied, remembered

if TYPE_CHECKING:
    from gpumon.alerts.alert import Alert
    from gpumon.alerts.look import Look
    from gpumon.alerts.notice import Notice
    from gpumon.alerts.when import EndWhen, XidWhen
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu

_LISTS_WITHOUT = 2
"""Process lists in a row that a process must be missing from: one may be incomplete."""


class XidAlertWatcher:
    """Follows XIDs; implements ``Watcher``."""

    def __init__(self, alert: Alert, when: XidWhen) -> None:
        self.alert = alert
        self._when = when
        self._seen: dict[str, dict[int, float | None]] = {}
        self._told: dict[str, float] = {}
        self._looked: dict[str, float] = {}

    def check(self, look: Look) -> list[Notice]:
        """See ``Watcher.check``."""
        told = []
        for gpu in look.snapshot.gpus:
            now, before = look.history.xids(gpu.uuid), self._seen.get(gpu.uuid)
            if now == before:
                continue
            # After a restart the history knows less than what is remembered.
            self._seen[gpu.uuid] = {**(before or {}), **now}
            is_first = gpu.uuid not in self._looked
            looked = self._looked.setdefault(gpu.uuid, look.now)
            for number, at in now.items():
                is_new = _is_newer(at, number, before or {}, looked, is_first=is_first)
                if is_new and self._when.choice.includes(number):
                    told += self._tell(look, gpu, number, at)
        return told

    def _tell(self, look: Look, gpu: Gpu, number: int, at: float | None) -> list[Notice]:
        if meets(self._when.terms, gpu, look.gpu_facts) is not True:
            return []
        key = f"{gpu.uuid}:{number}"
        last = self._told.get(key)
        if last is not None and look.now - last < self.alert.cooldown:
            return []
        if len(self._told) >= MOST_SUBJECTS:
            self._told = {
                other: then
                for other, then in self._told.items()
                if look.now - then < self.alert.cooldown
            }
        self._told[key] = look.now
        return [sentences.xid_notice(self.alert, look, gpu, number, at)]

    def shift(self, seconds: float) -> None:
        """See ``Watcher.shift``."""
        self._told = {key: at - seconds for key, at in self._told.items()}
        self._looked = {uuid: at - seconds for uuid, at in self._looked.items()}

    def remember(self) -> RememberedAlert:
        """See ``Watcher.remember``."""
        # A cooldown is an episode that is over.
        episodes = {key: Episode(Phase.OVER, at, at, told_at=at) for key, at in self._told.items()}
        seen = {uuid: dict(xids) for uuid, xids in self._seen.items()}
        return RememberedAlert(self.alert.when, dict(self._looked), episodes, seen)

    def recall(self, memory: RememberedAlert, *, fresh: bool) -> None:
        """See ``Watcher.recall``."""
        self._told = {
            key: episode.told_at
            for key, episode in memory.episodes.items()
            if episode.told_at is not None
        }
        if fresh:
            self._seen = {uuid: dict(xids) for uuid, xids in memory.xids.items()}
            self._looked = dict(memory.looked)


def _is_newer(
    at: float | None,
    number: int,
    before: dict[int, float | None],
    looked: float,
    *,
    is_first: bool,
) -> bool:
    """Whether a report of an XID is one that was not there before.

    Args:
        at: When it was reported; ``None`` is unknown.
        number: The XID.
        before: What was reported before.
        looked: When the GPU was first looked at.
        is_first: Whether that is now.
    """
    if number not in before:
        return not is_first if at is None else at > looked
    last = before[number]
    return at is not None and (last is None or at > last)


class EndWatcher:
    """Follows processes to their end; implements ``Watcher``."""

    def __init__(self, alert: Alert, when: EndWhen) -> None:
        self.alert = alert
        self._when = when
        self._processes: dict[str, RememberedProcess] = {}

    def check(self, look: Look) -> list[Notice]:
        """See ``Watcher.check``."""
        if not look.list_is_new:
            return []
        there = set()
        for process in look.snapshot.processes:
            key = process_key(process.id)
            there.add(key)
            known = self._processes.get(key)
            if known is not None:
                if known.missing or known.name is None:
                    self._processes[key] = remembered(self.alert, process, known.since)
            elif len(self._processes) < MOST_SUBJECTS and meets(
                self._when.terms, process, look.facts
            ):
                self._processes[key] = remembered(self.alert, process, look.now)
        told = []
        for key in [key for key in self._processes if key not in there]:
            process_ = self._processes[key]
            if not all(map(look.is_listed, process_.gpu_uuids)):
                continue
            process_.missing += 1
            if process_.missing >= _LISTS_WITHOUT:
                del self._processes[key]
                if look.now - process_.since >= self.alert.lasting:
                    told.append(sentences.process_ended(self.alert, look, process_))
        return told

    def follow(self, process: GpuProcess, now: float) -> None:
        """Follow this process, whatever the filter says."""
        self._processes[process_key(process.id)] = remembered(self.alert, process, now)

    def shift(self, seconds: float) -> None:
        """See ``Watcher.shift``."""
        for process in self._processes.values():
            process.since -= seconds

    def remember(self) -> RememberedAlert:
        """See ``Watcher.remember``."""
        return RememberedAlert(self.alert.when, processes=copied(self._processes))

    def recall(self, memory: RememberedAlert, *, fresh: bool) -> None:
        """See ``Watcher.recall``."""
        if fresh:
            self._processes = dict(list(memory.processes.items())[:MOST_SUBJECTS])
