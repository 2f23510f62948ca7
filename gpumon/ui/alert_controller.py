"""Alerts on the screen: checks them at each sample, and keeps what the user watches by key."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from gpumon.alerts.engine import AlertEngine
from gpumon.alerts.notice import end_of_job, end_of_process, gpu_key, process_key
from gpumon.findings import not_free
from gpumon.findings.groups import JobGroup
from gpumon.model.processes import GpuProcess
from gpumon.model.snapshot import Gpu
from gpumon.text.formatting import counted
from gpumon.ui.view.dashboard_view import Watched
from gpumon.ui.view.key_names import keycap

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.alerts.alert import Alert
    from gpumon.alerts.notice import Notice
    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.history import History
    from gpumon.ui.session import SessionAlerts

Subject: TypeAlias = Gpu | GpuProcess | JobGroup
"""What the user can watch: until it is free, or has ended."""


_NOTICES_KEPT = 200
_TROUBLES_KEPT = 5


class _Awaited(Struct):
    """Processes whose end is reported once, when the last of them has ended."""

    processes: dict[str, GpuProcess]
    """The processes as they were last listed, by their keys."""
    running: set[str]
    """The keys of those that have not ended."""
    job: str | None
    """The name of the job; ``None`` for a single process."""
    before: Snapshot
    """The last snapshot that lists one of them."""


class AlertController:
    """Checks alerts while the screen is open; for the application's thread.

    Args:
        alerts: The alerts of the configuration.
        history: The history of the machine, which is live.
        deliver: Sends a notice through the channels of its alert; must not block.
        show: Shows the newest notice, and how many more there are.
        changed: Called when something else is watched, or the notices have been read.
        say: Shows a sentence.
    """

    def __init__(
        self,
        alerts: SessionAlerts,
        history: History,
        deliver: Callable[[Alert, Notice], None],
        show: Callable[[Notice, int], None],
        changed: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self.alerts = alerts
        self.notices: deque[Notice] = deque(maxlen=_NOTICES_KEPT)
        """The notices, newest first."""
        self.unread = 0
        """How many notices are newer than the last time their page was open."""
        self.troubles: deque[str] = deque(maxlen=_TROUBLES_KEPT)
        """Reported problems with notifications, oldest first."""
        self._history = history
        self._deliver = deliver
        self._show = show
        self._changed = changed
        self._say = say
        self._engine = AlertEngine(alerts.alerts, history.thresholds, alerts.state)
        self._names = {alert.name for alert in alerts.alerts}
        self._trouble: str | None = None
        self._gpus: set[str] = set()
        self._awaited: list[_Awaited] = []
        self._checked: Snapshot | None = None
        self._listed_at: float | None = None

    @property
    def watched(self) -> Watched:
        """What is watched by key."""
        running = [group.processes[key].id for group in self._awaited for key in group.running]
        return Watched(frozenset(self._gpus), frozenset(running))

    def watch_list(self) -> list[str]:
        """What is watched by key, a line each, in the order of the list and of the keys."""
        latest = self._history.latest
        gpus = () if latest is None else latest.gpus
        lines = [f"GPU {gpu.index}, until it is free" for gpu in gpus if gpu.uuid in self._gpus]
        lines += [
            f"GPU {uuid}, until it is free"
            for uuid in sorted(self._gpus - {gpu.uuid for gpu in gpus})
        ]
        for group in self._awaited:
            if group.job is None:
                (process,) = group.processes.values()
                command = " ".join(process.command)
                lines.append(f"process {process.id.pid}, until it ends: {command or 'unknown'}")
            else:
                left = f"{len(group.running)} of {counted(len(group.processes), 'process', 'es')}"
                lines.append(f"job {group.job}, until it ends: {left} left")
        return lines

    def toggle(self, subject: Subject) -> str:
        """Notify when a GPU is free, or when a process or job has ended; or cancel that.

        Returns:
            The message for the user.
        """
        # What is watched is followed from the newest sample on.
        self.check()
        if isinstance(subject, Gpu):
            message = self._toggle_gpu(subject)
        else:
            message = self._toggle_end(subject)
        self._changed()
        return message

    def _toggle_gpu(self, gpu: Gpu) -> str:
        name = f"GPU {gpu.index}"
        if gpu.uuid in self._gpus:
            self._gpus.discard(gpu.uuid)
            self._engine.cancel(gpu_key(gpu.uuid))
            return f"{name} is no longer watched"
        # Its first finding may be another one, such as heat, and hide that it is free.
        if not_free(self._history, gpu) is None:
            return f"{name} is free"
        self._gpus.add(gpu.uuid)
        self._engine.notify_when_free(gpu)
        return f"will notify when {name} is free ({keycap('notify')} cancels)"

    def _toggle_end(self, subject: GpuProcess | JobGroup) -> str:
        processes = subject.processes if isinstance(subject, JobGroup) else (subject,)
        job = subject.label if isinstance(subject, JobGroup) and len(processes) != 1 else None
        name = f"process {processes[0].id.pid}" if job is None else f"job {job}"
        by_key = {process_key(process.id): process for process in processes}
        known = [group for group in self._awaited if group.running & by_key.keys()]
        for group in known:
            self._awaited.remove(group)
            for key in group.running:
                self._engine.cancel(key)
        if known:
            return f"{name} is no longer watched"
        latest = self._history.latest
        listed = {process.id for process in (latest.processes if latest is not None else ())}
        running = {key for key, process in by_key.items() if process.id in listed}
        if not processes:
            return (
                f"no process of {job} is on a GPU: {keycap('notify')} on a GPU notifies you when "
                "it is free"
            )
        if latest is None or not running:
            return f"{name} is no longer on a GPU"
        for key in running:
            self._engine.notify_when_ended(by_key[key])
        self._awaited.append(_Awaited(by_key, running, job, latest))
        return f"will notify when {name} has ended ({keycap('notify')} cancels)"

    def check(self) -> None:
        """Check the newest snapshot, and report what it shows."""
        latest = self._history.latest
        if latest is None or latest is self._checked:
            return
        self._checked = latest
        notices = []
        for alert, found in self._engine.check(self._history, latest):
            notice = found if alert.name in self._names else self._of_watched(found, latest)
            if notice is not None:
                notices.append(notice)
                self.notices.appendleft(notice)
                self._deliver(alert, notice)
        self._follow(latest)
        if notices:
            self.unread += len(notices)
            self._changed()
            self._show(notices[-1], len(notices) - 1)
        self._report_trouble()

    def _of_watched(self, notice: Notice, latest: Snapshot) -> Notice | None:
        """The notice of what is watched by key; ``None`` while other processes of a job run."""
        group = next((group for group in self._awaited if notice.key in group.running), None)
        if group is None:
            self._gpus.discard(notice.gpu_uuid or "")
            return notice
        group.running.discard(notice.key)
        if group.running:
            return None
        self._awaited.remove(group)
        processes = tuple(group.processes.values())
        if group.job is None:
            return end_of_process(notice, processes[0], group.before, latest)
        return end_of_job(notice, group.job, processes, group.before, latest)

    def _follow(self, latest: Snapshot) -> None:
        """Keep the awaited processes as they are listed now."""
        # Only in the first snapshot with a new list do the list and the memory have the same time.
        is_new = latest.processes_at is None or latest.processes_at != self._listed_at
        self._listed_at = latest.processes_at
        if not self._awaited or not is_new:
            return
        now = {process_key(process.id): process for process in latest.processes}
        for group in self._awaited:
            listed = {key: now[key] for key in group.processes if key in now}
            if listed:
                group.processes |= listed
                group.before = latest

    def _report_trouble(self) -> None:
        """Report once why nothing can be remembered, or that another program sends the same."""
        trouble = self._engine.trouble
        if trouble != self._trouble and trouble is not None:
            self.report(trouble)
        self._trouble = trouble

    def report(self, sentence: str) -> None:
        """Show a problem with notifications, and keep it for the page."""
        self.troubles.append(sentence)
        self._say(sentence)

    def close(self) -> None:
        """Remember what was reported; takes a few seconds at most."""
        self._engine.close()

    def read(self) -> None:
        """The page of alerts is open."""
        if self.unread:
            self.unread = 0
            self._changed()
