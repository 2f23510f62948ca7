"""A screen on which time can be turned back, and played."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from textual.screen import Screen

from gpumon.recording import RecordingError
from gpumon.recording.playback.replay import STEP_SECONDS
from gpumon.ui.view.key_names import keycap

if TYPE_CHECKING:
    from gpumon.recording.playback import Player
    from gpumon.ui.viewed_time import ViewedTime


class TimedScreen(Screen[None]):
    """The keys that lead into the past, about in it, and back."""

    def __init__(self, stage: ViewedTime) -> None:
        super().__init__()
        self._stage = stage

    @abstractmethod
    def say(self, message: str) -> None:
        """Put a message before the person for a moment."""

    @abstractmethod
    def _hush(self) -> None:
        """What was said is over."""

    @abstractmethod
    def take(self) -> None:
        """Show what there is to show now."""

    def action_step(self, samples: int) -> None:
        """Move by samples."""
        if not self._reach_now(samples * STEP_SECONDS) and (player := self._rewind()) is not None:
            player.step(samples)
            self._moved()

    def action_jump(self, seconds: int) -> None:
        """Move by seconds."""
        if not self._reach_now(seconds) and (player := self._rewind()) is not None:
            player.jump(seconds)
            self._moved()

    def _reach_now(self, seconds: float) -> bool:
        """Return to the present where so far on there is nothing newer; False where there is."""
        player = self._stage.player
        if seconds <= 0 or not self._stage.is_live:
            return False
        if player is None:
            self.say(f"this is now: {keycap('step_back')} goes back in time")
            return True
        return player.reaches_end(seconds) and self.come_back()

    def _moved(self) -> None:
        """Another moment is shown: what was said of the one before is over."""
        self._hush()
        self.take()

    def action_event(self, direction: int) -> None:
        """Move to where something happened."""
        # Seen from the present, what the newest sample brought has happened already.
        from_now = self._stage.player is None
        player = self._rewind()
        if player is None:
            return
        try:
            mark = player.to_mark(forward=direction > 0, or_here=from_now)
        except RecordingError as error:
            self.say(error.sentence)
            return
        self._moved()
        if mark is None:
            where = "after" if direction > 0 else "before"
            known = f"no event is known {where} this moment"
            if not self._stage.marks_complete:
                known += ": not all of the log has been looked through yet"
            self.say(known)
        else:
            self.say(mark.sentence)

    def action_go_to(self) -> None:
        """Ask for a time, and go there."""
        from gpumon.ui.dialogs.moment import MomentDialog

        player = self._rewind()
        if player is None:
            return

        def go(time: float | None) -> None:
            if time is not None:
                player.seek(time)
            self._moved()

        self.app.push_screen(MomentDialog(player.playing), go)

    def _rewind(self) -> Player | None:
        player = self._stage.rewind()
        if player is None:
            self.say("nothing has been seen yet")
        return player

    def play_or_pause(self) -> bool:
        """In the past, play or hold still; False in the present."""
        player = self._stage.player
        if player is None:
            return False
        playing = player.playing
        if playing.playing:
            player.pause()
        else:
            player.play()
        self.take()
        return True

    def change_speed(self, step: int) -> bool:
        """In the past, play faster or slower; False in the present."""
        player = self._stage.player
        if player is None:
            return False
        # What plays is imported by whoever looks back.
        from gpumon.recording.playback import SPEEDS

        now = player.playing.speed
        faster = [speed for speed in SPEEDS if speed > now * 1.001]
        slower = [speed for speed in SPEEDS if speed < now * 0.999]
        if step > 0 and faster:
            player.speed = faster[0]
        elif step < 0 and slower:
            player.speed = slower[-1]
        self.say(f"playback speed {player.playing.speed:g}×")
        return True

    def go_to_edge(self, edge: int) -> bool:
        """In the past, go to its first sample, or to its last and so to now; else False."""
        player = self._stage.player
        if player is None or edge > 0:
            return self.come_back()
        player.seek(player.playing.first)
        self._moved()
        return True

    def come_back(self) -> bool:
        """From the past to the present, or to the end of a log; False in the present."""
        player = self._stage.player
        if player is None:
            return False
        if self._stage.is_live:
            self._stage.come_back()
        elif (last := player.playing.last) is not None:
            player.seek(last)
        self._moved()
        return True
