"""The time that the screens show: the present, or a moment of the past."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpumon.recording.playback.replay import STEP_SECONDS
from gpumon.recording.recording import RecordingError
from gpumon.ui.view.dashboard_view import Timeline
from gpumon.ui.view.key_names import keycap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.recording.history import History
    from gpumon.recording.playback import Player
    from gpumon.recording.recording import Event
    from gpumon.ui.session import Session

_MARKS_SECONDS = 1.0
"""Seconds between two reads of the timeline's events: there may be thousands."""
NOTHING_RECORDED = "nothing has been seen yet"


def next_of(values: Sequence[float], now: float, step: int) -> float:
    """The next larger or smaller of ascending values; the value of now after the last one."""
    if step > 0:
        return next((value for value in values if value > now + 1e-9), now)
    return next((value for value in reversed(values) if value < now - 1e-9), now)


class ViewedTime:
    """Provides the data of the viewed time; screens need not know whether it is the present.

    A live session can be rewound over its own recording while it continues to sample and record; a
    replay is always in the past.

    Args:
        session: The session.
        wake: Called on another thread when playback has something new to show.
    """

    def __init__(self, session: Session, wake: Callable[[], None]) -> None:
        self.session = session
        self._wake = wake
        self.player: Player | None = session.player
        """The player in the past; ``None`` in the present."""
        self._marks: Sequence[Event] = ()
        self._gaps: Sequence[tuple[float, float]] = ()
        self._marked_at = -_MARKS_SECONDS

    @property
    def is_live(self) -> bool:
        """Whether there is a present to return to."""
        return self.session.player is None

    @property
    def is_past(self) -> bool:
        """Whether the past is shown: actions on processes are then disabled."""
        return self.player is not None

    @property
    def history(self) -> History:
        """The history up to the viewed moment; another object after a jump."""
        return self.session.history if self._shown is None else self._shown.history

    @property
    def _shown(self) -> Player | None:
        """The player, once it has a snapshot: until then the present stays visible."""
        player = self.player
        return None if player is not None and self.is_live and player.moment is None else player

    @property
    def settled(self) -> bool:
        """Whether the history of the viewed moment is complete."""
        player = self._shown
        return player is None or player.settled

    @property
    def timeline(self) -> Timeline | None:
        """The viewed moment of the past; ``None`` in the present."""
        player = self._shown
        if player is None:
            return None
        playing = player.playing
        now = time.monotonic()
        if now - self._marked_at >= _MARKS_SECONDS:
            self._marked_at = now
            recording = self.session.recording
            self._marks = recording.events(playing.first, playing.last)
            self._gaps = recording.gaps
        return Timeline(
            *(playing, self._marks, self.is_live, player.settled, self._gaps),
            origin=self.session.recording.origin(playing.position),
        )

    def follow(self) -> None:
        """Return to the present once playback has caught up with it."""
        if self.is_live and self.player is not None:
            playing = self.player.playing
            if playing.playing and playing.at_end:
                self.return_to_present()

    def rewind(self) -> Player | None:
        """Leave the present for the newest moment of the recording, paused; or stay in the past.

        Returns:
            The player; ``None`` while nothing is recorded.
        """
        if self.player is None:
            if self.session.recording.first is None:
                return None
            from gpumon.recording.playback import Player

            self.player = Player(self.session.recording, self.session.history)
            self.player.collector.subscribe(lambda _: self._wake(), lambda _: self._wake())
            self.player.collector.start()
        return self.player

    # -- keys that move through the past: they return a message, or an empty text ---------------

    def step(self, samples: int) -> str:
        """Move by samples."""
        return self._move(samples * STEP_SECONDS, lambda player: player.source.step(samples))

    def jump(self, seconds: int) -> str:
        """Move by seconds."""
        return self._move(seconds, lambda player: player.source.jump(seconds))

    def _move(self, seconds: float, move: Callable[[Player], None]) -> str:
        """Move, or return to the present if a step forward ends there."""
        if seconds > 0 and self.is_live:
            if self.player is None:
                return f"this is now: {keycap('step_back')} goes back in time"
            if self.player.source.reaches_end(seconds):
                self.return_to_present()
                return ""
        player = self.rewind()
        if player is None:
            return NOTHING_RECORDED
        was_at_start = player.source.is_at_start
        move(player)
        if seconds < 0 and was_at_start:
            return f"nothing older is known. {self.session.recording.beginning}".rstrip()
        return ""

    def go_to_event(self, direction: int) -> str:
        """Move to the next or previous event."""
        # From the present, an event of the newest sample counts as past.
        from_now = self.player is None
        player = self.rewind()
        if player is None:
            return NOTHING_RECORDED
        try:
            event = player.source.to_event(forward=direction > 0, or_here=from_now)
        except RecordingError as error:
            return error.sentence
        if event is not None:
            return event.sentence
        message = f"no event is known {'after' if direction > 0 else 'before'} this moment"
        if not self.session.recording.events_complete:
            message += ": the log has not been searched completely yet"
        return message

    def change_speed(self, step: int) -> str:
        """Play faster or slower."""
        player = self.player
        if player is None:
            return ""
        # Imported here, because most runs never play anything.
        from gpumon.recording.playback import SPEEDS

        player.source.speed = next_of(SPEEDS, player.playing.speed, step)
        return f"playback speed {player.playing.speed:g}×"

    # -- keys that do something else in the present: they return False there ----------------------

    def play_or_pause(self) -> bool:
        """Play or pause."""
        player = self.player
        if player is None:
            return False
        if player.playing.playing:
            player.source.pause()
        else:
            player.source.play()
        return True

    def go_to_edge(self, edge: int) -> bool:
        """Go to the first sample, or to the last: return to now, or go to the end of a log."""
        player = self.player
        if player is None:
            return False
        if edge < 0:
            player.source.seek(player.playing.first)
        elif self.is_live:
            self.return_to_present()
        elif (last := player.playing.last) is not None:
            player.source.seek(last)
        return True

    @property
    def failure(self) -> BaseException | None:
        """Why the past can no longer be shown."""
        return None if self.player is None else self.player.collector.failure

    def return_to_present(self) -> None:
        """Return to the present, if there is one."""
        if self.is_live and self.player is not None:
            player, self.player = self.player, None
            player.collector.stop()

    def close(self) -> None:
        """Stop playback."""
        if self.player is not None:
            self.player.collector.stop()
