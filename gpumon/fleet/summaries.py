"""Judges all hosts of a fleet on a thread of its own, so that no key waits for it."""

from __future__ import annotations

from operator import is_not
from threading import Event, Thread
from typing import TYPE_CHECKING

from gpumon.fleet.summary import HostJudge, HostSummary
from gpumon.model.thresholds import DEFAULTS, Thresholds

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.fleet.fleet import Fleet, HostState

_REST = 0.2
"""Seconds between two rounds, each of which is drawn: some host always has news."""
_STOP_PATIENCE = 1.0


class FleetSummaries:
    """The newest summary of each host of a fleet, which may be started later.

    Attributes:
        failure: The bug that has ended the thread.
        latest: The summaries in the order of the fleet, the same objects while there is no news.
    """

    def __init__(self, fleet: Fleet, thresholds: Thresholds = DEFAULTS) -> None:
        self.failure: BaseException | None = None
        self._fleet = fleet
        self._thresholds = thresholds
        self._judges: dict[str, HostJudge] = {}
        self.latest: tuple[HostSummary, ...] = ()
        self._changed: Callable[[], None] = lambda: None
        self._news = Event()
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="gpumon-fleet-states", daemon=True)
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self, changed: Callable[[], None]) -> None:
        """Start to judge.

        Args:
            changed: Called on another thread after each round that changed something, and after a
                failure.
        """
        self._changed = changed
        self._unsubscribe = self._fleet.subscribe(self._news.set)
        self._news.set()
        self._thread.start()

    def close(self) -> None:
        """Stop; may be called before ``start``."""
        self._unsubscribe()
        self._stopped.set()
        self._news.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_PATIENCE)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._news.wait()
                self._news.clear()
                self._judge()
                self._stopped.wait(_REST)
        except Exception as failure:  # noqa: BLE001 - a thread has nobody above it to see this
            self.failure = failure
            self._changed()

    def _judge(self) -> None:
        hosts = self._fleet.latest().hosts
        made = tuple([self._judge_of(place, one).judge(one) for place, one in enumerate(hosts)])
        before = self.latest
        if len(made) != len(before) or any(map(is_not, made, before)):
            self.latest = made
            self._changed()

    def _judge_of(self, place: int, host: HostState) -> HostJudge:
        judge = self._judges.get(host.name)
        if judge is None:
            judge = self._judges[host.name] = HostJudge(place, self._thresholds)
        return judge
