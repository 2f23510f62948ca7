"""A player in the hands of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.findings import conditions
from gpumon.recording.playback import Player

if TYPE_CHECKING:
    import threading

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording import Recording
    from gpumon.recording.history import History


class FakeClock:
    """A clock that moves when somebody waits, or by hand."""

    def __init__(self, creep: float = 0.0) -> None:
        self.now = 0.0
        self.creep = creep
        """Seconds that pass while somebody looks at it."""

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        self.now += self.creep
        return self.now

    def wait(self, event: threading.Event, timeout: float) -> bool:
        if event.is_set():
            return True
        self.now += timeout
        return False


class Deck:
    """A player whose samples are taken on the test's own thread, and its clock.

    Args:
        tape: What is played.
        position: Where it begins.
        history: What was told the samples of the tape, as in a rewind; without, as in a replay.
    """

    def __init__(
        self, tape: Recording, position: float | None = None, history: History | None = None
    ) -> None:
        self.clock = FakeClock()
        self.player = Player(
            tape, conditions(), position=position, clock=self.clock, history=history
        )
        self.seen: list[Snapshot] = []
        self.player.subscribe(self.seen.append)

    def sample(self, seconds: float = 0.1) -> Snapshot:
        """Let so much time pass, and take a sample."""
        self.clock.now += seconds
        self.player.collector._tick()
        return self.seen[-1]

    def go(self, time: float) -> tuple[Snapshot, History]:
        """Go to a moment and stay until nothing about it becomes better."""
        self.player.seek(time)
        return self.settle()

    def settle(self) -> tuple[Snapshot, History]:
        self.sample()
        while not self.player.settled:
            self.sample()
        moment = self.player.moment
        assert moment is not None
        return moment
