"""Looks at the cards when asked, from a thread of its own: a driver that hangs must not hang us."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from gpumon.collector import MAX_INTERVAL, Collector
from gpumon.model import CardStatus
from gpumon.sources import SourceError
from gpumon.text import duration

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from gpumon.model import Snapshot
    from gpumon.sources import Source

PATIENCE = 10.0
"""Seconds a driver gets: initialising cards without persistence mode takes seconds each."""
QUICK_PATIENCE = 1.0
"""Seconds it gets where the time is nearly over; a driver that is well answers within this."""


class UnavailableError(SourceError):
    """The cards cannot be looked at now. Later they may be."""

    passing = True


class Lookout:
    """Looks at the cards once or again and again.

    Args:
        source: Where snapshots come from; opened and closed here.
        interval: Seconds between the looks that nobody asks for; ``listen`` gets those too.
    """

    def __init__(self, source: Source, interval: float = MAX_INTERVAL) -> None:
        self._source = source
        self._began = time.monotonic()
        self._changed = threading.Condition()
        self._newest: Snapshot | None = None
        self._looks = self._handed_out = 0
        self._failed = False
        self._collector = Collector(source, interval)
        self._collector.subscribe(self._take, lambda _: self._give_up())

    def __enter__(self) -> Lookout:
        self._collector.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A call that hangs is not waited for: it goes with the process.
        call = self._source.current_call
        hangs = call is not None and time.monotonic() - call.since > QUICK_PATIENCE
        self._collector.stop(0.0 if hangs else QUICK_PATIENCE)

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

    @property
    def newest(self) -> Snapshot | None:
        """The last snapshot, ``None`` before the first."""
        return self._newest

    @property
    def silence(self) -> str:
        """That the driver does not answer, and for how long, in a sentence."""
        call = self._source.current_call
        since = self._began if call is None else call.since
        return f"The driver has not answered for {duration(time.monotonic() - since)}."

    def look(self, patience: float = PATIENCE) -> Snapshot:
        """How the cards are now: a sample that begins after this call.

        Args:
            patience: Seconds that the driver gets.

        Raises:
            UnavailableError: The driver does not answer or is gone.
            SourceError: There is nothing to look at.
        """
        began = time.time()
        self._collector.sample_now()
        with self._changed:
            self._changed.wait_for(lambda: self._failed or self._is_from(began), patience)
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
        """The newest snapshot that was not handed out yet, if one comes in so many seconds.

        Raises:
            UnavailableError: The driver is gone, or has never answered.
            SourceError: There is nothing to look at.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failed or self._looks > self._handed_out, seconds)
            if self._looks == self._handed_out and not self._failed:
                return None
        return self._taken(fresh=True)

    def _taken(self, *, fresh: bool) -> Snapshot:
        failure = self._collector.failure
        if failure is not None:
            raise failure
        with self._changed:
            snapshot, self._handed_out = self._newest, self._looks
        if snapshot is None or not fresh:
            raise UnavailableError(
                self.silence, "Other programs that use the cards may hang too; `dmesg` may say why."
            )
        if snapshot.trouble is not None:
            raise UnavailableError(snapshot.trouble.sentence, snapshot.trouble.advice)
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
