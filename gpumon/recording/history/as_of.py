"""A history as of a past moment, while the history itself continues."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import nullcontext
from typing import TYPE_CHECKING

from gpumon.availability import FRESH_SECONDS
from gpumon.model.jobs import job_key, launchers_of
from gpumon.model.snapshot import ANSWERING
from gpumon.recording.history.history import History
from gpumon.recording.history.holdings import holdings
from gpumon.recording.history.intervals import Interval
from gpumon.recording.history.records import PATIENCE

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history.holdings import Holding
    from gpumon.recording.history.records import TrackedProcess
    from gpumon.recording.series import Series

REACH = 3600.0
"""Seconds before the moment for which values over time are to be known."""


class HistoryAsOf(History):
    """The answers of a history at the moment of one of its snapshots. Receives no more snapshots.

    The current state comes from the snapshot, its duration from the intervals that the history
    keeps. An interval that the history has dropped was short: it counts as just begun.

    The history of a log that is still being read may not have reached the moment. Then an interval
    counts as begun at the moment or before, and what cannot be known is unknown.

    Args:
        history: The history, which may receive more snapshots meanwhile.
        snapshot: The moment.

    Attributes:
        drawn: Another history of the moment, made of few samples, for values over time that the
            first one does not have: those of exited processes, of days ago, and of the part of a
            log that it has not reached.
    """

    def __init__(self, history: History, snapshot: Snapshot) -> None:
        # All observed data is shared; the attributes set in ``show`` belong to this moment.
        vars(self).update(vars(history))
        self._whole = history
        self.drawn: History | None = None
        self._open = {}
        with self.lock:
            self._views.add(self)
        self.show(snapshot)

    def as_of(self, snapshot: Snapshot) -> History:
        """See ``History.as_of``."""
        return HistoryAsOf(self._whole, snapshot)

    def show(self, snapshot: Snapshot) -> None:
        """Change to another moment, whose snapshot the history also received."""
        listed_at = snapshot.processes_at
        self.now, self.latest = snapshot.time, snapshot
        self._is_reached = self._whole.reaches(snapshot.time)
        self._viewed = {gpu.uuid: gpu for gpu in snapshot.gpus}
        self._listed = {process.id: process for process in snapshot.processes}
        self._lists_known = listed_at is not None and snapshot.time - listed_at <= FRESH_SECONDS
        with self.lock:
            self._list_seen = self._list_before(snapshot)
        self._held: dict[str, tuple[bool | None, ...]] = {}
        self._holdings_known = False

    def lacks_values(self) -> bool:
        """Whether values over time of a subject in the snapshot are no longer kept."""
        with self.lock:
            records = (self._gpus.get(uuid) for uuid in self._viewed)
            processes = (self._processes.get(process) for process in self._listed)
            series = [one.series if one else None for some in (records, processes) for one in some]
            return not all(self._is_known(one) for one in (*series, self._host))

    def holding(self, gpu: Gpu) -> Holding | None:
        """See ``History.holding``."""
        if not self._holdings_known:
            with self.lock:
                launchers = launchers_of(self._listed.values())
                there = [
                    (one, self._first_seen(one), job_key(one, launchers))
                    for one in self._listed.values()
                ]
            self._holdings = holdings(there)
            self._holdings_known = True
        return super().holding(gpu)

    def held(self, uuid: str) -> tuple[bool | None, ...]:
        """See ``History.held``."""
        held = self._held.get(uuid)
        if held is None:
            gpu = self._viewed.get(uuid)
            silent = gpu is None or gpu.status not in ANSWERING
            held = () if gpu is None or silent else self._holding_now(gpu)
            self._held[uuid] = held
        return held

    def interval(self, uuid: str, name: str) -> Interval | None:
        """See ``History.interval``."""
        place = self._place[name]
        held = self.held(uuid)
        # A GPU that does not respond keeps its state, for as long as that is plausible.
        holds = held[place] if held else True
        if holds is None:
            return None
        found, patience, had_ended = None, PATIENCE, True
        hysteresis = self._conditions[place].hysteresis
        with self.lock:
            record = self._gpus.get(uuid)
            if record is not None:
                record.settle(place, hysteresis)
                watch = record.watches[place]
                found, patience = watch.at(self.now), record.patience
                had_ended = not holds and watch.had_ended(self.now, hysteresis)
        since_then = self.now - (self.now if found is None else found.last)
        if not holds:
            is_recent = since_then <= max(patience, hysteresis)
            return found if is_recent and not had_ended else None
        if found is not None and since_then <= patience:
            return found
        return self._just_begun(self.now) if held else None

    def process_idle(self, process: ProcessId) -> Interval | None:
        """See ``History.process_idle``."""
        listed = self._listed.get(process)
        if listed is None or not listed.resting:
            return None
        with self.lock:
            known = self._process(process)
            found = None if known is None else known.rest.at(self._list_seen)
            patience = max(PATIENCE, self._list_pace.late)
        if found is not None and found.last >= self._list_seen - patience:
            return found
        return self._just_begun(self._list_seen)

    def _just_begun(self, time: float) -> Interval:
        return Interval(time, time, start_observed=self._is_reached, samples=1)

    def gpu_seconds(self, user: str | None) -> float | None:
        """See ``History.gpu_seconds``; ``None`` while the history has not reached the moment."""
        if not self._is_reached:
            return None
        with self.lock:
            counted = self._gpu_seconds.get(user)
            newest = self._lists_seen[-1] if self._lists_seen else self.now
            return 0.0 if counted is None else counted.at(self._list_seen, newest)

    def samples(self, uuid: str, field: str, since: float) -> int:
        """See ``History.samples``."""
        with self._drawing():
            return super().samples(uuid, field, since)

    def xids(self, uuid: str) -> dict[int, float | None]:
        """See ``History.xids``."""
        with self.lock:
            record = self._gpus.get(uuid)
            seen = [] if record is None else record.xids_seen
            return {number: at for time, number, at in seen if time <= self.now}

    def _list_before(self, snapshot: Snapshot) -> float:
        """The time of the newest process list up to the moment."""
        place = bisect_right(self._lists_seen, self.now)
        if place and self._is_reached:
            return self._lists_seen[place - 1]
        return min(self.now, snapshot.processes_at or self.now)

    def _process(self, process: ProcessId) -> TrackedProcess | None:
        """The record of a process that ran at the moment."""
        known = self._processes.get(process)
        if known is None or known.first > self.now:
            known = self._past.get(process)
        return known

    def _first_seen(self, process: GpuProcess) -> float:
        known = self._process(process.id)
        return self._list_seen if known is None else min(known.first, self._list_seen)

    def _is_known(self, series: Series | None) -> bool:
        return (
            self._is_reached
            and series is not None
            and series.first <= self.now
            and series.reaches(self.now - REACH)
        )

    def gpu_series(self, uuid: str) -> Series | None:
        """See ``History.gpu_series``."""
        series = super().gpu_series(uuid)
        if self.drawn is None or self._is_known(series):
            return series
        return self.drawn.gpu_series(uuid)

    def process_series(self, process: ProcessId) -> Series | None:
        """See ``History.process_series``."""
        series = super().process_series(process)
        if self.drawn is None or self._is_known(series):
            return series
        return self.drawn.process_series(process)

    def host_series(self) -> Series | None:
        """See ``History.host_series``."""
        series = super().host_series()
        if self.drawn is None or self._is_known(series):
            return series
        return self.drawn.host_series()

    def user_series(self, user: str | None) -> Series | None:
        """See ``History.user_series``."""
        series = super().user_series(user)
        if self.drawn is None or self._is_known(series):
            return series
        return self.drawn.user_series(user)

    def _buckets(
        self,
        series: Series | None,
        place: int,
        seconds: float,
        count: int,
        now: float,
        peak: bool,
    ) -> list[float | None]:
        with self._drawing():
            return super()._buckets(series, place, seconds, count, now, peak)

    def _window(
        self, series: Series | None, place: int, seconds: float, peak: bool = False
    ) -> list[tuple[float, float]]:
        with self._drawing():
            return super()._window(series, place, seconds, peak)

    def _drawing(self) -> AbstractContextManager[object]:
        """No thread adds to the drawn history meanwhile."""
        return nullcontext() if self.drawn is None else self.drawn.lock
