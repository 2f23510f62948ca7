"""The dialog for a time to go to: a time of day, a date, or a distance from the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from gpumon.text.time_parsing import FORMS, MomentError, day_and_time, parse_moment
from gpumon.ui.keys import bindings_of
from gpumon.ui.widgets.text_input import InputScreen, TextInput

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from gpumon.recording.playback.replay import Playing


class MomentDialog(InputScreen["float | None"], ModalScreen["float | None"]):
    """An input line for a time; errors are shown below it.

    Args:
        playing: The current playback state.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("moment")

    CSS_PATH = "moment.tcss"

    def __init__(self, playing: Playing) -> None:
        super().__init__()
        self._playing = playing
        self._wrong = ""

    def compose(self) -> ComposeResult:
        """Compose the question, the input, the error line, and the keys."""
        first, last = self._playing.first, self._playing.last
        with Vertical(id="moment"):
            yield Static(f"Go to a time from {day_and_time(first)} to {day_and_time(last)}")
            yield TextInput(self._early, placeholder=FORMS, select_on_focus=False)
            yield Static(id="answer")
            yield Static("Enter go   Esc cancel", id="keys")

    def take_key(self, event: events.Key) -> bool:
        """Insert a letter, or take Enter for the input, which may not have the focus yet."""
        if event.key == "enter":
            self._go()
            return True
        return super().take_key(event)

    def on_input_submitted(self) -> None:
        """Go to the time."""
        self._go()

    def on_mount(self) -> None:
        """Show what is wrong with a time that was entered before."""
        self._show(self._wrong)

    def _go(self) -> None:
        """Go to the time, or show why that is not possible."""
        first, last = self._playing.first, self._playing.last
        try:
            moment = parse_moment(self.typed, last)
        except MomentError as error:
            self._show(str(error))
            return
        if first <= moment <= last:
            self.dismiss(moment)
        else:
            self._show(f"{day_and_time(moment)} is not in it.")

    def _show(self, wrong: str) -> None:
        self._wrong = wrong
        for answer in self.query("#answer").results(Static):
            answer.update(wrong)

    def action_cancel(self) -> None:
        """Change nothing."""
        self.dismiss(None)
