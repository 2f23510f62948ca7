"""What the screens show: the present, or a moment of the past."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpumon.findings import conditions
from gpumon.ui.view.dashboard import Timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.recording import Event
    from gpumon.recording.history import History
    from gpumon.recording.playback import Player
    from gpumon.ui.session import Session

_MARKS_SECONDS = 1.0
"""The bar's marks are asked for this often: there may be thousands."""


class ViewedTime:
    """Stands between the screens and what they show, so that none of them knows whether it is now.

    A live session can be rewound over its own recording, while it goes on sampling and recording;
    that of a replay is always in the past.

    Args:
        session: What there is to show.
        ring: Called on another thread when the past has something new to show.
    """

    def __init__(self, session: Session, ring: Callable[[], None]) -> None:
        self._session = session
        self._ring = ring
        self.player: Player | None = session.player
        """What plays the past; ``None`` in the present."""
        self._marks: Sequence[Event] = ()
        self._marked_at = -_MARKS_SECONDS

    @property
    def is_live(self) -> bool:
        """Whether there is a present to return to."""
        return self._session.player is None

    @property
    def is_past(self) -> bool:
        """Whether what is shown is no longer so: then nothing is done about it."""
        return self.player is not None

    @property
    def marks_complete(self) -> bool:
        """Whether everything that happened in the past is known by now."""
        return self._session.tape.marks_complete

    @property
    def history(self) -> History:
        """What was seen until the moment that is shown; another one after a jump."""
        return self._session.history if self._shown is None else self._shown.history

    @property
    def _shown(self) -> Player | None:
        """The player, once it has something to show: until then the present stays in sight."""
        player = self.player
        return None if player is not None and self.is_live and player.moment is None else player

    @property
    def settled(self) -> bool:
        """Whether all that led to what is shown has been looked at."""
        player = self._shown
        return player is None or player.settled

    @property
    def timeline(self) -> Timeline | None:
        """Which moment of the past is shown; ``None`` in the present."""
        player = self._shown
        if player is None:
            return None
        playing = player.playing
        now = time.monotonic()
        if now - self._marked_at >= _MARKS_SECONDS:
            self._marked_at = now
            self._marks = self._session.tape.marks(playing.first, playing.last)
        return Timeline(playing, self._marks, self.is_live, player.settled)

    def marks(self, first: float, last: float) -> Sequence[Event]:
        """What happened from one moment to another, oldest first."""
        return self._session.tape.marks(first, last)

    def follow(self) -> None:
        """Return to the present once what is played has caught up with it."""
        if self.is_live and self.player is not None:
            playing = self.player.playing
            if playing.playing and playing.at_end:
                self.come_back()

    def rewind(self) -> Player | None:
        """Leave the present for the newest moment of the recording, paused; or stay in the past.

        Returns:
            What plays it; ``None`` while nothing has been kept.
        """
        if self.player is None:
            if self._session.tape.first is None:
                return None
            from gpumon.recording.playback import Player

            history = self._session.history
            watched = conditions(history.thresholds)
            self.player = Player(
                self._session.tape, watched, thresholds=history.thresholds, history=history
            )
            self.player.subscribe(lambda _: self._ring(), lambda _: self._ring())
            self.player.start()
        return self.player

    @property
    def failure(self) -> BaseException | None:
        """Why the past cannot be shown any more."""
        return None if self.player is None else self.player.collector.failure

    def come_back(self) -> None:
        """Return to the present, where there is one."""
        if self.is_live and self.player is not None:
            player, self.player = self.player, None
            player.stop()

    def close(self) -> None:
        """Play no more."""
        if self.player is not None:
            self.player.stop()
