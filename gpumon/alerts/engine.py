"""Decides, sample by sample, which notices the alerts send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.alerts.evaluation import EvaluationContext
from gpumon.alerts.memory import AlertMemory, Remembered
from gpumon.alerts.notice import gpu_key, process_key
from gpumon.alerts.watchers import EndWatcher, FreeWatcher, watcher_of
from gpumon.alerts.when import EndWhen
from gpumon.filters.language import Selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.alerts.alert import Alert
    from gpumon.alerts.notice import Notice
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.history import History
    from gpumon.system.folders import Folder

FRESH_FOR = 3600.0
"""Seconds after which what was remembered no longer shows what is new: what began in a longer pause
holds at the first evaluation, and is not reported."""
_SETTLING = 600.0
"""Seconds that a state may need to show after a restart, at least."""
_SAVE_SECONDS = 60.0
"""Seconds between two writes at least, if nothing was reported."""
_CLOSE_SECONDS = 2.0


class AlertEngine:
    """Finds what is to be reported: a state machine for one machine, for one thread.

    It reports changes only: a condition that already holds when the engine first sees a GPU or a
    process list is not reported, however long it lasts. An unknown value, as while the driver or a
    GPU does not answer, starts nothing and ends nothing. ``docs/alerts.md`` has all rules.

    With 8 GPUs, 40 processes and 10 alerts a check takes 0.4 to 0.7 ms: half of it are findings.

    In the file ``state``, which ``memory_path`` names, it remembers what it reported, so that a
    restart repeats nothing; the demo, a replay and other machines have none.

    Raises:
        WhenError: The condition of an alert is invalid; ``read_alerts`` leaves such alerts out.
    """

    def __init__(
        self, alerts: Sequence[Alert], thresholds: Thresholds, state: Folder | None = None
    ) -> None:
        self._watchers = [watcher_of(alert) for alert in alerts]
        self._by_key: dict[str, EndWatcher | FreeWatcher] = {}
        self._settling = max(_SETTLING, thresholds.idle_after, thresholds.stuck_after) + 10
        self._memory = AlertMemory(state) if state is not None and alerts else None
        self._remembered = None if self._memory is None else self._memory.load()
        self._list_at: float | None = None
        self._now: float | None = None
        self._pace = 0.0
        self._saved_at = 0.0
        self._settles_at = 0.0

    @property
    def trouble(self) -> str | None:
        """Why the file cannot be used, or that another program sends the same; one sentence."""
        return None if self._memory is None else self._memory.trouble

    def check(self, history: History, snapshot: Snapshot) -> list[tuple[Alert, Notice]]:
        """What is to be reported now; call it once per snapshot, which ``history`` has already.

        Returns:
            The notices, each with its alert. While another program of the user sends the same
            alerts, these have the channels of the terminal only.
        """
        now = history.now
        if self._now is None:
            self._begin(now)
        elif now < self._now:
            self._shift(self._now - now)
        # Most people have no alerts: then a sample costs nothing here.
        found = self._evaluate(history, snapshot) if self._watchers or self._by_key else []
        self._list_at = snapshot.processes_at
        if self._now is not None:
            self._pace = now - self._now
        self._now = now
        if found or now - self._saved_at >= _SAVE_SECONDS:
            self._save(now)
        return found

    def _evaluate(self, history: History, snapshot: Snapshot) -> list[tuple[Alert, Notice]]:
        context = EvaluationContext(
            history,
            snapshot,
            pace=self._pace,
            is_settling=history.now < self._settles_at,
            list_is_new=snapshot.processes_at is None or snapshot.processes_at != self._list_at,
        )
        sends_all = self._memory is None or self._memory.is_ours
        found = [
            (watcher.alert if sends_all else watcher.alert.in_terminal(), notice)
            for watcher in self._watchers
            for notice in watcher.check(context)
        ]
        for key, watcher in list(self._by_key.items()):
            notices = watcher.check(context)
            found += [(watcher.alert, notice) for notice in notices]
            if notices:
                del self._by_key[key]
        return found

    def _begin(self, now: float) -> None:
        """Take what was remembered, at the first evaluation."""
        self._saved_at = now
        found, self._remembered = self._remembered, None
        if found is None:
            return
        is_fresh = 0 <= now - found.at <= FRESH_FOR
        self._pace = found.pace
        self._settles_at = now + self._settling
        for watcher in self._watchers:
            memory = found.alerts.get(watcher.alert.name)
            if memory is not None and memory.when == watcher.alert.when:
                watcher.recall(memory, fresh=is_fresh)
                if found.at > now:
                    watcher.shift(found.at - now)

    def _shift(self, seconds: float) -> None:
        """Follow a clock that was set back, as the history does."""
        for watcher in (*self._watchers, *self._by_key.values()):
            watcher.shift(seconds)
        self._settles_at -= seconds
        self._saved_at -= seconds
        assert self._now is not None  # noqa: S101 - there was a sample
        self._now -= seconds

    def _save(self, now: float) -> None:
        self._saved_at = now
        if self._memory is not None:
            known = {watcher.alert.name: watcher.known for watcher in self._watchers}
            self._memory.save(Remembered(now, self._pace, known))

    def notify_when_free(self, gpu: Gpu) -> None:
        """Notify once, with bell and desktop, when a GPU is free; at the next check if it is."""
        alert = _alert_by_key(f"GPU {gpu.index} is free", f"free gpu:{gpu.index}")
        self._by_key[gpu_key(gpu.uuid)] = FreeWatcher(alert, gpu)

    def notify_when_ended(self, process: GpuProcess) -> None:
        """Notify once, with bell and desktop, when a process has ended."""
        alert = _alert_by_key(f"{process.id.pid} ends", f"ends {process.id.pid}")
        watcher = EndWatcher(alert, EndWhen(Selection("", (lambda _, __: False,))))
        watcher.follow(process, self._now or 0.0)
        self._by_key[process_key(process.id)] = watcher

    def cancel(self, key: str) -> None:
        """No longer watch a GPU or a process, by ``gpu_key`` or ``process_key``."""
        self._by_key.pop(key, None)

    def close(self) -> None:
        """Write what is to be remembered, for a few seconds at most."""
        if self._now is not None:
            self._save(self._now)
        if self._memory is not None:
            self._memory.close(_CLOSE_SECONDS)


def _alert_by_key(name: str, when: str) -> Alert:
    # Imported here: without alerts nothing that reads them is needed before the key is pressed.
    from gpumon.alerts.alert import Alert
    from gpumon.alerts.channels.terminal import Bell, Desktop

    return Alert(name=name, when=when, channels=(Bell(), Desktop()))
