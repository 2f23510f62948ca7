"""A machine whose samples a test makes, with the engine that checks them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.alerts.alert import Alert
from gpumon.alerts.engine import AlertEngine
from gpumon.findings import DEFAULTS, conditions
from gpumon.recording.history import History
from tests.build import NOON, gpu, snapshot
from tests.known import known

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.alerts.notice import Notice
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.model.thresholds import Thresholds


def hot(**changes: object) -> Gpu:
    return gpu(temperature_gpu=91, **changes)


class Machine:
    """Shows samples to an engine, and keeps its notices; ``state`` is the file of the engine."""

    def __init__(
        self, *alerts: Alert, state: Path | None = None, thresholds: Thresholds = DEFAULTS
    ) -> None:
        self.alerts = alerts
        self.notices: list[Notice] = []
        self.now = NOON
        self._state = state
        self._thresholds = thresholds
        self._begin()

    def _begin(self) -> None:
        self.history = History(conditions(self._thresholds), self._thresholds)
        self.engine = AlertEngine(self.alerts, self._thresholds, self._state)

    def see(
        self, seconds: float, *gpus: Gpu, processes: tuple[GpuProcess, ...] = (), step: float = 1.0
    ) -> list[Notice]:
        """Show the same for so long, and return the notices."""
        return self.show(
            seconds, snapshot(self.now, *gpus, processes=processes, processes_at=None), step
        )

    def show(self, seconds: float, seen: Snapshot, step: float = 1.0) -> list[Notice]:
        """Show a snapshot for so long; its times and that of its list are made anew each time."""
        before = len(self.notices)
        for _ in range(max(1, round(seconds / step))):
            listed = None if seen.trouble else self.now
            self.history.add(replace(seen, time=self.now, processes_at=listed))
            latest = known(self.history.latest)
            self.notices += [notice for _, notice in self.engine.check(self.history, latest)]
            self.now += step
        return self.notices[before:]

    def restart(self, pause: float = 0.0) -> None:
        """End and begin anew, as another program would."""
        self.engine.close()
        self.now += pause
        self._begin()


def watched(
    *alerts: Alert, processes: tuple[GpuProcess, ...] = (), state: Path | None = None
) -> Machine:
    """A machine whose GPU has been well since the first sample, ten seconds ago."""
    machine = Machine(*alerts, state=state)
    machine.see(10, gpu(), processes=processes)
    return machine


def alert(when: str, **changes: object) -> Alert:
    return replace(Alert(name=when, when=when), **changes)
