"""Dialogs that choose from a list (columns, themes), and those for a time."""

from __future__ import annotations

from abc import abstractmethod
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.containers import Vertical
from textual.screen import ModalScreen, ScreenResultType
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from gpumon.config.columns import COLUMN, COLUMN_SETS, GPU_COLUMN, whole_choice
from gpumon.text.formatting import printable, spelled_out
from gpumon.text.time_parsing import FORMS, day_and_time, parse_moment
from gpumon.text.unit_parsing import TIMESPAN
from gpumon.ui.keys import bindings_of
from gpumon.ui.screens.inputs import InputScreen, TextInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from gpumon.recording.playback.replay import Playing
    from gpumon.ui.theme_controller import ThemeController


class ListDialog(ModalScreen[ScreenResultType]):
    """A dialog with one list."""

    def action_go(self, where: str) -> None:
        """Move the cursor: the list's own keys are the arrows only."""
        getattr(self.query_one(OptionList), f"action_{where}")()


_ALWAYS = frozenset({"pid", "command"})
"""Without PID and command it is not visible which process a key affects."""


class ColumnsDialog(ListDialog["tuple[str, ...] | None"]):
    """A list of all columns, the chosen ones first and in their order.

    Args:
        chosen: Keys of the columns shown now.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("columns")

    CSS_PATH = "columns.tcss"

    def __init__(self, chosen: Sequence[str]) -> None:
        super().__init__()
        self._chosen = set(chosen)
        self._order = _with_hidden(chosen)

    def compose(self) -> ComposeResult:
        """Compose the list and its keys."""
        with Vertical(id="columns"):
            yield OptionList(id="list")
            yield Static("Space show or hide  Shift+↑↓ move  d next set  Enter keep  Esc cancel")

    def on_mount(self) -> None:
        """Highlight the first column."""
        if not self.query(OptionList):
            # If it was closed as soon as it was opened, it has no widgets.
            return
        self._fill(0)
        self.query_one(OptionList).focus()

    def _fill(self, at: int) -> None:
        listed = self.query_one(OptionList)
        listed.clear_options()
        listed.add_options([self._line(key) for key in self._order])
        listed.highlighted = at

    def _line(self, key: str) -> Text:
        shown = key in self._chosen
        # No colours: they would have to be legible on the highlighted line's background, too.
        text = Text("● " if shown else "○ ")
        gpu = GPU_COLUMN.get(key)
        label = f"GPU {gpu.label}" if gpu is not None else COLUMN[key].label
        text.append(f"{label:<11}", "bold" if shown else "")
        text.append(spelled_out((gpu or COLUMN[key]).about))
        return text

    @property
    def _at(self) -> int:
        return self.query_one(OptionList).highlighted or 0

    def on_option_list_option_selected(self) -> None:
        """A click has the effect of Space."""
        self.action_turn()

    def action_turn(self) -> None:
        """Show the column, or hide it."""
        key = self._order[self._at]
        if key not in _ALWAYS:
            self._chosen ^= {key}
        self._fill(self._at)

    def action_shift(self, step: int) -> None:
        """Move the column; the command stays last, because it takes the rest of its row."""
        at, to = self._at, self._at + step
        if "command" in (self._order[at], self._order[max(0, min(to, len(self._order) - 1))]):
            return
        if 0 <= to < len(self._order):
            self._order[at], self._order[to] = self._order[to], self._order[at]
            self._fill(to)

    def action_default(self) -> None:
        """Show the next named set: the default first, unless it is shown already."""
        sets = list(COLUMN_SETS.values())
        shown = tuple(key for key in self._order if key in self._chosen)
        columns = sets[(sets.index(shown) + 1) % len(sets) if shown in sets else 0]
        self._chosen = set(columns)
        self._order = _with_hidden(columns)
        self._fill(0)

    def action_keep(self) -> None:
        """Apply the choice."""
        self.dismiss(tuple(key for key in self._order if key in self._chosen))

    def action_cancel(self) -> None:
        """Change nothing."""
        self.dismiss(None)


def _with_hidden(chosen: Sequence[str]) -> list[str]:
    """All columns: of each table the chosen ones in order, then the others."""
    return list(whole_choice([*chosen, *COLUMN, *GPU_COLUMN]))


class ThemesDialog(ListDialog["str | None"]):
    """A list of all themes: the user's own, gpumon's, Textual's.

    Args:
        themes: Applies the themes.
        current: The current theme, which Escape restores.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("themes")

    CSS_PATH = "themes.tcss"

    def __init__(self, themes: ThemeController, current: str) -> None:
        super().__init__()
        self._themes = themes
        self._current = current
        self._faulty = False

    def compose(self) -> ComposeResult:
        """Compose the list, the description of a theme, and the keys."""
        with Vertical(id="themes"):
            yield OptionList(id="names")
            yield Static(id="fault")
            yield Static("↑↓ preview   Enter keep   Esc cancel", id="keys")

    def on_mount(self) -> None:
        """Highlight the current theme."""
        if not self.query("#fault"):
            # If it was closed as soon as it was opened, it has no widgets.
            return
        names, library = self._themes.library.names(), self._themes.library
        own, shipped = set(library.own()), set(library.shipped())
        listed = self.query_one(OptionList)
        for name in names:
            whose = "yours" if name in own else "" if name in shipped else "Textual"
            listed.add_option(Option(Text(f"{printable(name):<22}{whose}"), id=name))
        if self._current in names:
            listed.highlighted = names.index(self._current)
        listed.focus()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the highlighted theme, or what is wrong with it."""
        fault = self._themes.use(event.option_id or "")
        self._faulty = fault is not None
        self.query_one("#fault", Static).update(fault or "")

    def on_option_list_option_selected(self, _: OptionList.OptionSelected) -> None:
        """A click on a theme keeps it."""
        self.action_keep()

    def action_keep(self) -> None:
        """Keep the shown theme; a theme that cannot be shown cannot be kept."""
        highlighted = self.query_one(OptionList).highlighted_option
        if highlighted is not None and not self._faulty:
            self.dismiss(highlighted.id)

    def action_cancel(self) -> None:
        """Restore the previous theme."""
        self._themes.use(self._current)
        self.dismiss(None)


class LineDialog(InputScreen["float | None"], ModalScreen["float | None"]):
    """An input line for a number of seconds; errors are shown below it."""

    CSS_PATH = "line.tcss"

    question = ""
    """What is asked for."""
    forms = ""
    """The valid forms, shown while the line is empty."""
    verb = ""
    """What Enter does."""

    def __init__(self) -> None:
        super().__init__()
        self._wrong = ""

    @abstractmethod
    def read(self, text: str) -> float:
        """What is typed, as a number.

        Raises:
            ValueError: It is not valid; the message is for the user.
        """

    def compose(self) -> ComposeResult:
        """Compose the question, the input, the error line, and the keys."""
        with Vertical(id="line"):
            yield Static(self.question)
            yield TextInput(self._early, placeholder=self.forms, select_on_focus=False)
            yield Static(id="answer")
            yield Static(f"Enter {self.verb}   Esc cancel", id="keys")

    def accept_key(self, event: events.Key) -> bool:
        """Insert a letter, or take Enter for the input, which may not have the focus yet."""
        if event.key == "enter":
            self._finish()
            return True
        return super().accept_key(event)

    def on_input_submitted(self) -> None:
        """Take what is typed."""
        self._finish()

    def on_mount(self) -> None:
        """Show what is wrong with a text that was entered before."""
        self._show(self._wrong)

    def _finish(self) -> None:
        """Close with the number, or show why the text is not valid."""
        try:
            self.dismiss(self.read(self.typed))
        except ValueError as error:
            self._show(str(error))

    def _show(self, wrong: str) -> None:
        self._wrong = wrong
        for answer in self.query("#answer").results(Static):
            answer.update(wrong)

    def action_cancel(self) -> None:
        """Change nothing."""
        self.dismiss(None)


class MomentDialog(LineDialog):
    """Asks for a time of the playback.

    Args:
        playing: The current playback state.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("moment")

    forms = FORMS
    verb = "go"

    def __init__(self, playing: Playing) -> None:
        super().__init__()
        self._playing = playing
        first, last = playing.first, playing.last
        self.question = f"Go to a time from {day_and_time(first)} to {day_and_time(last)}"

    def read(self, text: str) -> float:
        """See ``LineDialog``."""
        moment = parse_moment(text, self._playing.last)
        if not self._playing.first <= moment <= self._playing.last:
            raise ValueError(f"{day_and_time(moment)} is not in this recording.")
        return moment


class TimespanDialog(LineDialog):
    """Asks for a length of time."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("timespan")

    forms = "30s, 15m, 1h30m, 8h or 2d"

    def __init__(self, question: str, verb: str) -> None:
        super().__init__()
        self.question, self.verb = question, verb

    def read(self, text: str) -> float:
        """See ``LineDialog``."""
        seconds, _ = TIMESPAN.read(text.strip())
        if not 0 < seconds <= TIMEOUT_MAX:
            raise ValueError(TIMESPAN.advice)
        return seconds
