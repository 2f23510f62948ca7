"""Decides, sample by sample, what the alerts tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.alerts.alert import Alert
    from gpumon.alerts.notice import Notice
    from gpumon.model.snapshot import Gpu, GpuProcess, Snapshot
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.history import History
    from gpumon.system.folders import Folder


class AlertEngine:
    """Finds what is to be told: a state machine without threads, for one thread and one machine.

    What already holds when the engine first looks at a GPU or a process list is not told, however
    long it goes on. See ``docs/alerts.md`` for the rules.

    Args:
        alerts: The alerts of the configuration.
        thresholds: The thresholds of the findings.
        state: The file in which it remembers what it told, so that a restart tells nothing twice;
            ``None`` to remember nothing, as for the demo, a replay and other machines.
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
        raise NotImplementedError

    @property
    def trouble(self) -> str | None:
        """Why nothing can be remembered, or why what was remembered is not used: one sentence."""
        raise NotImplementedError

    @property
    def watched(self) -> frozenset[str]:
        """Keys of what the user watches by key: ``gpu_key`` of a GPU, ``process_key``."""
        raise NotImplementedError

    def check(self, history: History, snapshot: Snapshot) -> list[tuple[Alert, Notice]]:
        """What is to be told now; call it once for each snapshot, which ``history`` has already."""
        raise NotImplementedError

    def tell_when_free(self, gpu: Gpu) -> None:
        """Tell once, with bell and desktop, when a GPU is free; at the next check if it is now."""
        raise NotImplementedError

    def tell_when_ends(self, process: GpuProcess) -> None:
        """Tell once, with bell and desktop, when a process has ended."""
        raise NotImplementedError

    def forget(self, key: str) -> None:
        """No longer watch a GPU or a process that is in ``watched``."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what is to be remembered."""
        raise NotImplementedError
