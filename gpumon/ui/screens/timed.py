"""The base of screens with rewind and playback."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from gpumon.recording.playback.replay import STEP_SECONDS
from gpumon.recording.recording import RecordingError
from gpumon.ui.screens.list_screen import ListScreen
from gpumon.ui.view import update
from gpumon.ui.view.dashboard_layout import Layout
from gpumon.ui.view.key_names import keycap
from gpumon.ui.view.view import View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.recording.playback import Player
    from gpumon.ui.terminal.renderer import TerminalRenderer
    from gpumon.ui.viewed_time import ViewedTime


def next_of(values: Sequence[float], now: float, step: int) -> float:
    """The next larger or smaller of ascending values; the value of now after the last one."""
    if step > 0:
        return next((value for value in values if value > now + 1e-9), now)
    return next((value for value in reversed(values) if value < now - 1e-9), now)


class TimedScreen(ListScreen[View, Layout]):
    """The key actions that move through the past and back to the present.

    Args:
        viewed_time: The source of snapshots and history.
        renderer: Writes changed cells.
        view: The initial view.
    """

    def __init__(self, viewed_time: ViewedTime, renderer: TerminalRenderer, view: View) -> None:
        super().__init__(renderer, view, Layout(view=view))
        self._viewed_time = viewed_time

    @abstractmethod
    def take(self) -> None:
        """Show the viewed time."""

    def action_step(self, samples: int) -> None:
        """Move by samples."""
        if not self._reach_now(samples * STEP_SECONDS) and (player := self._rewind()) is not None:
            player.source.step(samples)
            self._moved()

    def action_jump(self, seconds: int) -> None:
        """Move by seconds."""
        if not self._reach_now(seconds) and (player := self._rewind()) is not None:
            player.source.jump(seconds)
            self._moved()

    def _reach_now(self, seconds: float) -> bool:
        """Return to the present if a step forward ends there; False if it does not."""
        player = self._viewed_time.player
        if seconds <= 0 or not self._viewed_time.is_live:
            return False
        if player is None:
            self.say(f"this is now: {keycap('step_back')} goes back in time")
            return True
        return player.source.reaches_end(seconds) and self.return_to_present()

    def _moved(self) -> None:
        """Show another moment, without the message about the previous one."""
        self._view = update.clear_message(self._view)
        self.take()

    def action_event(self, direction: int) -> None:
        """Move to the next or previous event."""
        # From the present, an event of the newest sample counts as past.
        from_now = self._viewed_time.player is None
        player = self._rewind()
        if player is None:
            return
        try:
            mark = player.source.to_event(forward=direction > 0, or_here=from_now)
        except RecordingError as error:
            self.say(error.sentence)
            return
        self._moved()
        if mark is None:
            where = "after" if direction > 0 else "before"
            known = f"no event is known {where} this moment"
            if not self._viewed_time.session.recording.events_complete:
                known += ": the log has not been searched completely yet"
            self.say(known)
        else:
            self.say(mark.sentence)

    def action_go_to(self) -> None:
        """Open the dialog for a time, and go there."""
        from gpumon.ui.dialogs.moment import MomentDialog

        player = self._rewind()
        if player is None:
            return

        def go(time: float | None) -> None:
            if time is not None:
                player.source.seek(time)
            self._moved()

        self.app.push_screen(MomentDialog(player.playing), go)

    def _rewind(self) -> Player | None:
        player = self._viewed_time.rewind()
        if player is None:
            self.say("nothing has been seen yet")
        return player

    def play_or_pause(self) -> bool:
        """In the past, play or pause; False in the present."""
        player = self._viewed_time.player
        if player is None:
            return False
        playing = player.playing
        if playing.playing:
            player.source.pause()
        else:
            player.source.play()
        self.take()
        return True

    def change_speed(self, step: int) -> bool:
        """In the past, play faster or slower; False in the present."""
        player = self._viewed_time.player
        if player is None:
            return False
        # Imported here, because most runs never play anything.
        from gpumon.recording.playback import SPEEDS

        player.source.speed = next_of(SPEEDS, player.playing.speed, step)
        self.say(f"playback speed {player.playing.speed:g}×")
        return True

    def go_to_edge(self, edge: int) -> bool:
        """In the past, go to the first sample, or return to now; False in the present."""
        player = self._viewed_time.player
        if player is None or edge > 0:
            return self.return_to_present()
        player.source.seek(player.playing.first)
        self._moved()
        return True

    def return_to_present(self) -> bool:
        """Return to the present, or go to the end of a log; False in the present."""
        player = self._viewed_time.player
        if player is None:
            return False
        if self._viewed_time.is_live:
            self._viewed_time.return_to_present()
        elif (last := player.playing.last) is not None:
            player.source.seek(last)
        self._moved()
        return True
