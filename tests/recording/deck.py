"""A player in the hands of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.recording.playback import Player
from tests.clock import HandClock

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.history import History
    from gpumon.recording.recording import Recording


class CreepingClock(HandClock):
    """One on which some seconds pass while somebody looks at it."""

    creep = 0.0

    def monotonic(self) -> float:
        self.now += self.creep
        return self.now


class Deck:
    """A player whose samples are taken on the test's own thread, and its clock.

    Args:
        tape: What is played.
        position: Where it begins.
        history: What is told the samples of the tape.
    """

    def __init__(self, tape: Recording, history: History, position: float | None = None) -> None:
        self.clock = CreepingClock(0.0, epoch=0.0)
        self.player = Player(tape, history, position=position, clock=self.clock)
        self.seen: list[Snapshot] = []
        self.player.collector.subscribe(self.seen.append)

    def sample(self, seconds: float = 0.1) -> Snapshot:
        """Let so much time pass, and take a sample."""
        self.clock.now += seconds
        self.player.collector._tick()
        return self.seen[-1]

    def go(self, time: float) -> tuple[Snapshot, History]:
        """Go to a moment and stay until nothing about it becomes better."""
        self.player.source.seek(time)
        return self.settle()

    def settle(self) -> tuple[Snapshot, History]:
        self.sample()
        while not self.player.settled:
            self.sample()
        moment = self.player.moment
        assert moment is not None
        return moment
