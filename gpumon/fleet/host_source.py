"""One host of a fleet as a ``Source``, for a dashboard of it."""

from __future__ import annotations

import time
from threading import Event
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.fleet.fleet import HostStatus
from gpumon.makers.source import DriverlessSource
from gpumon.model.snapshot import Host, Snapshot, Trouble
from gpumon.sampling.collector import unanswering

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.fleet.fleet import Fleet, HostState

_LONGEST_WAIT = 0.9
"""Seconds that ``sample`` waits: a collector takes a longer sample for a hung one."""
_DELAY = 1.0
"""Seconds that a sample may arrive late; if it is older than that, a clock was set back."""
_RETRIED = "It is tried again; the other hosts go on."


class HostSource(DriverlessSource):
    """The snapshots of one host as they arrive; implements ``Source``.

    The host has the name by which the user knows it.

    Args:
        fleet: The fleet, which goes on after this source is closed.
        name: The host.
    """

    def __init__(self, fleet: Fleet, name: str) -> None:
        self._fleet = fleet
        self.hostname = name
        self._changed = Event()
        self._unsubscribe: Callable[[], None] = lambda: None
        self._given: Snapshot | None = None
        self._given_at = float("-inf")

    def open(self) -> None:
        """See ``Source.open``; never fails."""
        self._unsubscribe = self._fleet.subscribe(self._changed.set)

    def sample(self, *, full: bool = True) -> Snapshot:  # noqa: ARG002 - a host sends all it reads
        """The newest snapshot of the host.

        It waits for one that it has not returned yet, less than a second and at most an interval.
        If none arrives, the last one is returned with the current time: the age of its values
        grows. GPUs of a host that is silent or down do not answer.
        """
        snapshot = self._sample()
        # A sample that arrives late is from before the time that the last one was returned with.
        if 0 < self._given_at - snapshot.time < _DELAY:
            snapshot = replace(snapshot, time=self._given_at)
        self._given_at = snapshot.time
        return snapshot

    def _sample(self) -> Snapshot:
        state = self._awaited()
        if state.snapshot is None:
            sentence = state.sentence or f"{self.hostname} has not answered yet"
            return Snapshot(
                time.time(), Host(self.hostname), trouble=Trouble(f"{sentence}.", _RETRIED)
            )
        is_new = state.snapshot is not self._given
        self._given = state.snapshot
        snapshot = replace(state.snapshot, host=replace(state.snapshot.host, name=self.hostname))
        if state.status is HostStatus.LIVE and is_new:
            return snapshot
        snapshot = replace(snapshot, time=max(time.time(), snapshot.time))
        if state.status is HostStatus.LIVE:
            return snapshot
        return unanswering(snapshot, state.since)

    def _awaited(self) -> HostState:
        deadline = time.monotonic() + min(self._fleet.interval, _LONGEST_WAIT)
        while True:
            self._changed.clear()
            state = self._state()
            is_new = state.snapshot is not None and state.snapshot is not self._given
            left = deadline - time.monotonic()
            if is_new or left <= 0:
                return state
            self._changed.wait(left)

    def close(self) -> None:
        """End the subscription. The connection goes on."""
        self._unsubscribe()

    def _state(self) -> HostState:
        return next(one for one in self._fleet.latest().hosts if one.name == self.hostname)
