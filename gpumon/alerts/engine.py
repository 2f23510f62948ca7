"""Decides, sample by sample, what the alerts tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.alerts.alert import Alert, Bell, Desktop
from gpumon.alerts.event_watchers import EndWatcher, XidAlertWatcher
from gpumon.alerts.look import Look
from gpumon.alerts.memory import AlertMemory, Remembered
from gpumon.alerts.notice import gpu_key, process_key
from gpumon.alerts.sentences import gpu_notice
from gpumon.alerts.state_watchers import GpuWatcher, ProcessWatcher
from gpumon.alerts.when import EndWhen, GpuWhen, ProcessWhen, XidWhen, parse_when
from gpumon.filters.language import Selection
from gpumon.findings.finding import FindingKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.alerts.notice import Notice
    from gpumon.alerts.watcher import Watcher
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.history import History
    from gpumon.system.folders import Folder

FRESH_FOR = 3600.0
"""Seconds after which what was remembered no longer says what is new: what began in a longer pause
holds at the first look, and that is not told."""
_SETTLING = 600.0
"""Seconds that a state may need to show after a restart, at least."""
_SAVE_SECONDS = 60.0
"""Seconds between two writes at least, if nothing was told."""
_CLOSE_SECONDS = 2.0
_ASKED = (Bell(), Desktop())


class AlertEngine:
    """Finds what is to be told: a state machine for one machine, for one thread.

    What already holds when the engine first looks at a GPU or a process list is not told, however
    long it goes on. What is unknown, as while the driver or a GPU does not answer, begins nothing
    and ends nothing. ``docs/alerts.md`` has all rules.

    With 8 GPUs, 40 processes and 10 alerts a check takes 0.4 to 0.7 ms: half of it are findings.

    Args:
        alerts: The alerts of the configuration.
        thresholds: The thresholds of the findings.
        state: The file in which it remembers what it told, so that a restart tells nothing twice;
            ``memory_path`` names it. ``None`` to remember nothing, as for the demo, a replay and
            other machines.
        user: The user that ``me`` means; this program's by default.

    Raises:
        WhenError: The condition of an alert is invalid; ``read_alerts`` leaves such alerts out.
    """

    def __init__(
        self,
        alerts: Sequence[Alert],
        thresholds: Thresholds,
        state: Folder | None = None,
        user: str | None = None,
    ) -> None:
        self._watchers = [_watcher_of(alert, user) for alert in alerts]
        self._asked: dict[str, EndWatcher | _FreeOnce] = {}
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
        """Why the file cannot be used, or that another program tells the same; one sentence."""
        return None if self._memory is None else self._memory.trouble

    @property
    def watched(self) -> frozenset[str]:
        """Keys of what the user watches by key: ``gpu_key`` of a GPU, ``process_key``."""
        return frozenset(self._asked)

    def check(self, history: History, snapshot: Snapshot) -> list[tuple[Alert, Notice]]:
        """What is to be told now; call it once for each snapshot, which ``history`` has already.

        Returns:
            The notices, each with its alert. While another program of the user tells the same
            alerts, these have the ways of the terminal only.
        """
        now = history.now
        if self._now is None:
            self._begin(now)
        elif now < self._now:
            self._shift(self._now - now)
        # Most people are told nothing: then a sample costs nothing here.
        told = self._look(history, snapshot) if self._watchers or self._asked else []
        self._list_at = snapshot.processes_at
        if self._now is not None:
            self._pace = now - self._now
        self._now = now
        if told or now - self._saved_at >= _SAVE_SECONDS:
            self._save(now)
        return told

    def _look(self, history: History, snapshot: Snapshot) -> list[tuple[Alert, Notice]]:
        """Show a snapshot to all watchers."""
        look = Look(
            history,
            snapshot,
            pace=self._pace,
            is_settling=history.now < self._settles_at,
            list_is_new=snapshot.processes_at is None or snapshot.processes_at != self._list_at,
        )
        told = [
            (self._as_told(watcher.alert), notice)
            for watcher in self._watchers
            for notice in watcher.check(look)
        ]
        for key, watcher in list(self._asked.items()):
            found = watcher.check(look)
            told += [(watcher.alert, notice) for notice in found]
            if found:
                del self._asked[key]
        return told

    def _as_told(self, alert: Alert) -> Alert:
        """An alert with the ways in which this program tells it."""
        if self._memory is None or self._memory.is_ours:
            return alert
        at_terminal = tuple(way for way in alert.ways if isinstance(way, (Bell, Desktop)))
        return replace(alert, ways=at_terminal)

    def _begin(self, now: float) -> None:
        """Take what was remembered, at the first look."""
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
        for watcher in (*self._watchers, *self._asked.values()):
            watcher.shift(seconds)
        self._settles_at -= seconds
        self._saved_at -= seconds
        assert self._now is not None  # noqa: S101 - there was a look
        self._now -= seconds

    def _save(self, now: float) -> None:
        self._saved_at = now
        if self._memory is None:
            return
        self._memory.save(
            Remembered(
                now,
                self._pace,
                {watcher.alert.name: watcher.remember() for watcher in self._watchers},
            )
        )

    def tell_when_free(self, gpu: Gpu) -> None:
        """Tell once, with bell and desktop, when a GPU is free; at the next check if it is now."""
        self._asked[gpu_key(gpu.uuid)] = _FreeOnce(gpu)

    def tell_when_ends(self, process: GpuProcess) -> None:
        """Tell once, with bell and desktop, when a process has ended."""
        pid = process.id.pid
        alert = Alert(name=f"{pid} ends", when=f"ends {pid}", ways=_ASKED)
        watcher = EndWatcher(alert, EndWhen(Selection("", (lambda _, __: False,))))
        watcher.follow(process, self._now or 0.0)
        self._asked[process_key(process.id)] = watcher

    def forget(self, key: str) -> None:
        """No longer watch a GPU or a process that is in ``watched``."""
        self._asked.pop(key, None)

    def close(self) -> None:
        """Write what is to be remembered, for a few seconds at most."""
        if self._now is not None:
            self._save(self._now)
        if self._memory is not None:
            self._memory.close(_CLOSE_SECONDS)


def _watcher_of(alert: Alert, user: str | None) -> Watcher:
    """The watcher of an alert.

    Raises:
        WhenError: Its ``when`` cannot be read.
    """
    when = parse_when(alert.when, user)
    if isinstance(when, GpuWhen):
        return GpuWatcher(alert, when)
    if isinstance(when, ProcessWhen):
        return ProcessWatcher(alert, when)
    if isinstance(when, XidWhen):
        return XidAlertWatcher(alert, when)
    return EndWatcher(alert, when)


class _FreeOnce:
    """Waits until a GPU is free.

    Attributes:
        alert: What is told.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.alert = Alert(
            name=f"GPU {gpu.index} is free", when=f"free gpu:{gpu.index}", ways=_ASKED
        )
        self._uuid = gpu.uuid

    def check(self, look: Look) -> list[Notice]:
        """What is to be told now."""
        gpu = look.gpus.get(self._uuid)
        if gpu is None or not look.is_free(gpu):
            return []
        _, finding = look.gpu_state(gpu, FindingKind.FREE)
        return [gpu_notice(self.alert, look.snapshot, gpu, look.now, finding, None)]

    def shift(self, seconds: float) -> None:
        """It holds no times."""
