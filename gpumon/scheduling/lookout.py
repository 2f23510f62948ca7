"""Looks at the cards when asked, from a thread of its own: a driver that hangs must not hang us."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from gpumon.model.snapshot import CardStatus
from gpumon.sampling.collector import MAX_INTERVAL, Collector
from gpumon.sources import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from gpumon.model.snapshot import Snapshot
    from gpumon.sources import Source

PATIENCE = 10.0
"""Seconds a driver gets: initialising cards without persistence mode takes seconds each."""


class CardSampler:
    """Looks at the cards once or again and again.

    Args:
        source: Where snapshots come from; opened and closed here.
        interval: Seconds between the looks that nobody asks for; ``listen`` gets those too.
        patience: Seconds that the driver gets for a look.
    """

    def __init__(
        self, source: Source, interval: float = MAX_INTERVAL, patience: float = PATIENCE
    ) -> None:
        self._source = source
        self._patience = patience
        self._changed = threading.Condition()
        self._newest: Snapshot | None = None
        self._looks = 0
        self._failed = False
        self._collector = Collector(source, interval)
        self._collector.subscribe(self._take, lambda _: self._give_up())

    def __enter__(self) -> CardSampler:
        self._collector.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._collector.stop()

    @property
    def interval(self) -> float:
        """Seconds between the looks that nobody asks for."""
        return self._collector.interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        self._collector.interval = seconds

    def listen(self, listener: Callable[[Snapshot], None]) -> Callable[[], None]:
        """Have every snapshot from now on, on the sampling thread; returns what ends that."""
        return self._collector.subscribe(listener)

    def look(self) -> Snapshot:
        """How the cards are now: a sample that begins after this call.

        Raises:
            SourceError: There is nothing to look at, or the driver does not answer.
        """
        began = time.time()
        self._collector.sample_now()
        with self._changed:
            self._changed.wait_for(lambda: self._failed or self._is_from(began), self._patience)
            fresh = self._is_from(began)
        return self._taken(fresh=fresh)

    def _is_from(self, began: float) -> bool:
        """Whether the newest snapshot was begun after a time."""
        newest = self._newest
        if newest is None or (self._looks > 1 and newest.time < began):
            return False
        # A sample that was under way may end later; its values were read when they say.
        read = [gpu.sampled_at for gpu in newest.gpus if gpu.status is CardStatus.OK]
        return self._looks == 1 or all(at is None or at >= began for at in read)

    def next(self, seconds: float) -> Snapshot | None:
        """The next snapshot, if one comes in so many seconds.

        Raises:
            SourceError: There is nothing to look at.
        """
        with self._changed:
            before = self._looks
            self._changed.wait_for(lambda: self._failed or self._looks > before, seconds)
            if self._looks == before and not self._failed:
                return None
        return self._taken(fresh=True)

    def _taken(self, *, fresh: bool) -> Snapshot:
        failure = self._collector.failure
        if failure is not None:
            raise failure
        snapshot = self._newest
        if snapshot is None or not fresh:
            call = self._source.current_call
            name = "" if call is None else f" ({call.function} has not come back)"
            raise SourceError(
                f"The driver has not answered for {self._patience:.0f} s{name}.",
                "Other programs that use the cards may hang too; `dmesg` may say why.",
            )
        if snapshot.trouble is not None:
            raise SourceError(snapshot.trouble.sentence, snapshot.trouble.advice)
        return snapshot

    def _take(self, snapshot: Snapshot) -> None:
        with self._changed:
            self._newest = snapshot
            self._looks += 1
            self._changed.notify_all()

    def _give_up(self) -> None:
        with self._changed:
            self._failed = True
            self._changed.notify_all()
