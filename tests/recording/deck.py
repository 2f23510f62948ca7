"""Recordings, histories and players in the hands of a test."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from gpumon.findings import conditions
from gpumon.model.thresholds import DEFAULTS
from gpumon.recording.history import History
from gpumon.recording.memory.recording import MOST_BYTES, MemoryRecording
from gpumon.recording.playback import Player
from tests.clock import ThreadedClock
from tests.known import known
from tests.screen import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.recording import Recording


def history_of(snapshots: Iterable[Snapshot]) -> History:
    """The history of these snapshots, as a running gpumon has it."""
    history = History(conditions())
    for snapshot in snapshots:
        history.add(snapshot)
    return history


def recorded(snapshots: Iterable[Snapshot], most_bytes: int = MOST_BYTES) -> MemoryRecording:
    """The recording of these snapshots in memory."""
    recording = MemoryRecording(DEFAULTS.full_share, most_bytes)
    for snapshot in snapshots:
        recording.add(snapshot)
    return recording


class Deck:
    """A player that goes on when the test lets time pass, until the test has forgotten it."""

    def __init__(self, tape: Recording, history: History, position: float | None = None) -> None:
        self.clock = ThreadedClock(0.0, epoch=0.0)
        self.player = Player(tape, history, position=position, clock=self.clock)
        self.seen: list[Snapshot] = []
        self.player.collector.subscribe(self.seen.append)
        weakref.finalize(self, self.player.collector.stop, PATIENCE)

    def sample(self, seconds: float = 0.1) -> Snapshot:
        """Let so much time pass, in which samples are taken; the first begins the playback."""
        if not self.clock.threads:
            self.clock.start(self.player.collector)
        self.clock.pass_time(seconds)
        return self.seen[-1]

    def go(self, time: float) -> tuple[Snapshot, History]:
        """Go to a moment and stay until nothing about it becomes better."""
        self.player.source.seek(time)
        return self.settle()

    def settle(self) -> tuple[Snapshot, History]:
        self.sample()
        while not self.player.settled:
            self.sample()
        return known(self.player.moment)
