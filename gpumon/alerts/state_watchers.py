"""Watchers of what lasts: states and filters, of GPUs and of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.alerts import sentences
from gpumon.alerts.episode import Change, Episode, Phase
from gpumon.alerts.filter_languages import meets
from gpumon.alerts.memory import RememberedAlert, RememberedProcess
from gpumon.alerts.notice import gpu_key, process_key
from gpumon.alerts.watcher import MOST_SUBJECTS, copied, remembered
from gpumon.findings import RULES
from gpumon.findings.registry import PROCESS_RULES
from gpumon.model.snapshot import ANSWERING

if TYPE_CHECKING:
    from gpumon.alerts.alert import Alert
    from gpumon.alerts.look import Look
    from gpumon.alerts.notice import Notice
    from gpumon.alerts.when import GpuWhen, ProcessWhen
    from gpumon.findings.finding import Finding, FindingKind
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu

_GROWTH_ROUND = 60.0
"""Seconds in which each process is looked at once for growth, which takes some 0.3 ms."""
_GROWTH_PATIENCE = 3 * _GROWTH_ROUND
_LOOKED_UP_WITHIN = 60.0
"""Seconds in which what is unknown of the processes of the first list is looked up."""


def _is_forecast(kind: FindingKind | None) -> bool:
    return kind is not None and RULES[kind].is_forecast


class _Episodes:
    """The episodes of an alert by key.

    Args:
        alert: The alert.
    """

    def __init__(self, alert: Alert) -> None:
        self.alert = alert
        self.known: dict[str, Episode] = {}

    def see(
        self,
        key: str,
        holds: bool | None,
        look: Look,
        since: float | None = None,
        *,
        held_before: bool = False,
        patience: float = 0.0,
    ) -> tuple[Change | None, float]:
        """Take what is seen of a subject; what is to be told, and when that began."""
        alert, episode = self.alert, self.known.get(key)
        if episode is None:
            if not holds or len(self.known) >= MOST_SUBJECTS:
                return None, look.now
            episode = Episode(Phase.PENDING, look.now, look.now)
            self.known[key] = episode
        if held_before and holds and episode.phase in {Phase.PENDING, Phase.OVER}:
            episode.phase = Phase.KNOWN
        change = episode.see(
            holds,
            look.now,
            max(patience, look.patience),
            lasting=alert.lasting,
            cooldown=alert.cooldown,
            since=since,
        )
        if episode.is_past(look.now, alert.cooldown):
            del self.known[key]
        return change, episode.since

    def see_nothing_of_others(self, look: Look, keys: set[str]) -> None:
        """Take it that nothing is known of all subjects but these."""
        for key in self.known.keys() - keys:
            self.see(key, None, look)

    def drop_if_over(self, key: str) -> None:
        """Forget a subject that cannot come again."""
        episode = self.known.get(key)
        if episode is not None and episode.phase is Phase.OVER:
            del self.known[key]

    def shift(self, seconds: float) -> None:
        for episode in self.known.values():
            episode.shift(seconds)

    def remember(self) -> dict[str, Episode]:
        return {key: replace(episode) for key, episode in self.known.items()}

    def recall(self, episodes: dict[str, Episode], *, fresh: bool) -> None:
        self.known = {
            key: episode
            for key, episode in list(episodes.items())[:MOST_SUBJECTS]
            if fresh or episode.phase is not Phase.PENDING
        }


class GpuWatcher:
    """Follows a state or a filter of GPUs; implements ``Watcher``."""

    def __init__(self, alert: Alert, when: GpuWhen) -> None:
        self.alert = alert
        self._when = when
        self._episodes = _Episodes(alert)
        self._looked: dict[str, float] = {}

    def check(self, look: Look) -> list[Notice]:
        """See ``Watcher.check``."""
        told = []
        for gpu in look.snapshot.gpus:
            holds, finding = self._holds(look, gpu)
            first = gpu.uuid not in self._looked
            # A forecast takes time, so what it finds later has not been there before.
            if first and (holds is not None or _is_forecast(self._when.state)):
                self._looked[gpu.uuid] = look.now
            since = None if finding is None else finding.since
            key = gpu_key(gpu.uuid)
            change, began = self._episodes.see(
                key, holds, look, since, held_before=first or self._was_there(gpu, finding)
            )
            if change is Change.BEGAN:
                told.append(sentences.gpu_notice(self.alert, look, gpu, finding, began))
            elif change is Change.ENDED and self.alert.ended:
                told.append(self._end(look, gpu, began))
        self._episodes.see_nothing_of_others(look, {gpu_key(uuid) for uuid in look.gpus})
        return told

    def _end(self, look: Look, gpu: Gpu, began: float) -> Notice:
        state = None if self._when.state is None else self._when.state.value
        return sentences.gpu_ended(self.alert, look, gpu, began, state)

    def _holds(self, look: Look, gpu: Gpu) -> tuple[bool | None, Finding | None]:
        meant = meets(self._when.terms, gpu, look.gpu_facts)
        if self._when.state is None:
            is_known = gpu.status in ANSWERING and look.history.old(gpu) is None
            return (meant if is_known else None), None
        if not meant:
            return meant, None
        holds, finding = look.gpu_state(gpu, self._when.state)
        if holds is False and look.is_settling and gpu_key(gpu.uuid) in self._episodes.known:
            # After a restart a state needs its time to show again.
            return None, None
        return holds, finding

    def _was_there(self, gpu: Gpu, finding: Finding | None) -> bool:
        """Whether a state held at the first look already, though only time has shown it."""
        if finding is None or finding.since is None or _is_forecast(finding.kind):
            return False
        return finding.since <= self._looked.get(gpu.uuid, 0.0)

    def shift(self, seconds: float) -> None:
        """See ``Watcher.shift``."""
        self._episodes.shift(seconds)
        self._looked = {uuid: at - seconds for uuid, at in self._looked.items()}

    def remember(self) -> RememberedAlert:
        """See ``Watcher.remember``."""
        return RememberedAlert(self.alert.when, dict(self._looked), self._episodes.remember())

    def recall(self, memory: RememberedAlert, *, fresh: bool) -> None:
        """See ``Watcher.recall``."""
        self._looked = dict(memory.looked) if fresh else {}
        self._episodes.recall(memory.episodes, fresh=fresh)


class ProcessWatcher:
    """Follows a state or a filter of processes; implements ``Watcher``."""

    def __init__(self, alert: Alert, when: ProcessWhen) -> None:
        self.alert = alert
        self._when = when
        self._episodes = _Episodes(alert)
        self._processes: dict[str, RememberedProcess] = {}
        self._looked: dict[str, float] = {}
        self._unknown_at_first: dict[str, float] = {}
        self._turn = 0

    def check(self, look: Look) -> list[Notice]:
        """See ``Watcher.check``."""
        if not look.list_is_new:
            return []
        told: list[Notice] = []
        keys = set()
        slow = self._when.state is not None and PROCESS_RULES[self._when.state].is_slow
        chosen = self._chosen(look) if slow else None
        for process in look.snapshot.processes:
            key = process_key(process.id)
            keys.add(key)
            if chosen is not None and key not in chosen:
                continue
            holds, finding = self._holds(look, process)
            change, began = self._episodes.see(
                key,
                holds,
                look,
                None if finding is None else finding.since,
                held_before=self._was_there(look, process, holds, finding),
                patience=_GROWTH_PATIENCE if slow else 0.0,
            )
            if key in self._episodes.known and key not in self._processes:
                self._processes[key] = remembered(self.alert, process, look.now)
            if change is Change.BEGAN:
                self._processes[key] = kept = remembered(self.alert, process, began)
                told.append(sentences.process_notice(self.alert, look, process, kept, finding))
            elif change is Change.ENDED:
                told += self._end(look, key)
        for key in [key for key in self._processes if key not in keys]:
            # A process that is not listed meets nothing, if it is known what is there.
            listed = all(map(look.is_listed, self._processes[key].gpu_uuids))
            change, _ = self._episodes.see(key, False if listed else None, look)
            if change is Change.ENDED:
                told += self._end(look, key)
            self._episodes.drop_if_over(key)
        for key in [key for key in self._processes if key not in self._episodes.known]:
            del self._processes[key]
        for key in [key for key in self._unknown_at_first if key not in keys]:
            del self._unknown_at_first[key]
        for uuid in look.gpus:
            if uuid not in self._looked and look.is_listed(uuid):
                self._looked[uuid] = look.now
        return told

    def _was_there(
        self, look: Look, process: GpuProcess, holds: bool | None, finding: Finding | None
    ) -> bool:
        """Whether this held at the first look already."""
        key = process_key(process.id)
        looked = [
            self._looked[use.gpu_uuid] for use in process.uses if use.gpu_uuid in self._looked
        ]
        if not looked:
            if holds is None:
                self._unknown_at_first[key] = look.now
            return True
        unknown_at = None if holds is None else self._unknown_at_first.pop(key, None)
        if unknown_at is not None and look.now - unknown_at <= _LOOKED_UP_WITHIN:
            return True
        if finding is None or finding.since is None or _is_forecast(finding.kind):
            return False
        return finding.since <= min(looked)

    def _end(self, look: Look, key: str) -> list[Notice]:
        process = self._processes.get(key)
        if process is None or not self.alert.ended:
            return []
        state = self._when.state
        named = self.alert.when if state is None else state.value
        return [sentences.process_ended(self.alert, look, process, of_state=named)]

    def _chosen(self, look: Look) -> set[str]:
        """The processes whose turn it is: each has one a minute."""
        processes = look.snapshot.processes
        count = -(-len(processes) * min(look.pace, _GROWTH_ROUND) // _GROWTH_ROUND)
        keys = sorted(process_key(process.id) for process in processes)
        chosen = {keys[(self._turn + place) % len(keys)] for place in range(int(count))}
        self._turn += len(chosen)
        return chosen

    def _holds(self, look: Look, process: GpuProcess) -> tuple[bool | None, Finding | None]:
        if not all(look.is_listed(use.gpu_uuid) for use in process.uses):
            return None, None
        meant = meets(self._when.terms, process, look.facts)
        if self._when.state is None or not meant:
            return meant, None
        return look.process_state(process, self._when.state)

    def shift(self, seconds: float) -> None:
        """See ``Watcher.shift``."""
        self._episodes.shift(seconds)
        self._looked = {uuid: at - seconds for uuid, at in self._looked.items()}
        self._unknown_at_first = {key: at - seconds for key, at in self._unknown_at_first.items()}
        for process in self._processes.values():
            process.since -= seconds

    def remember(self) -> RememberedAlert:
        """See ``Watcher.remember``."""
        return RememberedAlert(
            self.alert.when,
            dict(self._looked),
            episodes=self._episodes.remember(),
            processes=copied(self._processes),
        )

    def recall(self, memory: RememberedAlert, *, fresh: bool) -> None:
        """See ``Watcher.recall``."""
        self._looked = dict(memory.looked) if fresh else {}
        self._episodes.recall(memory.episodes, fresh=fresh)
        self._processes = {
            key: process for key, process in memory.processes.items() if key in self._episodes.known
        }
