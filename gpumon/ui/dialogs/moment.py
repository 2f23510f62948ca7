"""The dialog for a time to go to: a time of day, a date, or a distance from the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from gpumon.text.time_parsing import FORMS, MomentError, day_and_time, parse_moment
from gpumon.ui.keys import bindings_of
from gpumon.ui.widgets.text_input import TextInput

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from gpumon.recording.playback.replay import Playing


class MomentDialog(ModalScreen["float | None"]):
    """An input line for a time; errors are shown below it.

    Args:
        playing: The current playback state.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("moment")

    CSS_PATH = "moment.tcss"

    def __init__(self, playing: Playing) -> None:
        super().__init__()
        self._playing = playing

    def compose(self) -> ComposeResult:
        """Compose the question, the input, the error line, and the keys."""
        first, last = self._playing.first, self._playing.last
        with Vertical(id="moment"):
            yield Static(f"Go to a time from {day_and_time(first)} to {day_and_time(last)}")
            yield TextInput(placeholder=FORMS)
            yield Static(id="answer")
            yield Static("Enter go   Esc cancel", id="keys")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to the time, or show why that is not possible."""
        first, last = self._playing.first, self._playing.last
        try:
            moment = parse_moment(event.value, last)
        except MomentError as error:
            self.query_one("#answer", Static).update(str(error))
            return
        if first <= moment <= last:
            self.dismiss(moment)
        else:
            self.query_one("#answer", Static).update(f"{day_and_time(moment)} is not in it.")

    def action_cancel(self) -> None:
        """Change nothing."""
        self.dismiss(None)
