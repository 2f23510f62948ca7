"""The application: takes snapshots from the collector's thread to the screen, and ends well."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.color import ColorSystem
from textual._styles_cache import StylesCache
from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.events import AppBlur, AppFocus, InputEvent, Paste, Resize
from textual.filter import Monochrome
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.worker import WorkerFailed

from gpumon.lack import is_lack_of_files, lack_behind
from gpumon.layout.ending import sum_sentence
from gpumon.layout.key_names import use_key_names
from gpumon.layout.listing import Narrowing
from gpumon.layout.writer import CellWriter
from gpumon.sources import SourceError
from gpumon.theming import DEFAULT, Choice, Shelf, remember
from gpumon.tui.awaited import Awaited
from gpumon.tui.bell import Bell
from gpumon.tui.cases import Cases
from gpumon.tui.chosen import USUAL, Chosen
from gpumon.tui.colours import FewColours, colour_system, refuses_colour
from gpumon.tui.dialogs.commands import CommandsDialog
from gpumon.tui.keys import footer_names, keymap, renamed, with_names
from gpumon.tui.pen import Pen
from gpumon.tui.screens.dashboard import DashboardScreen, PageWanted, WordWanted
from gpumon.tui.screens.help import HelpScreen
from gpumon.tui.screens.page import EndRequested, PageScreen
from gpumon.tui.screens.timed import TimedScreen
from gpumon.tui.stage import Stage
from gpumon.tui.theme import Palette
from gpumon.tui.themes import LOOK_SECONDS, Themes
from gpumon.tui.widgets.cell_view import CellView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from textual.actions import ActionParseResult
    from textual.dom import DOMNode
    from textual.driver import Driver
    from textual.events import Event, Key
    from textual.filter import LineFilter
    from textual.messages import TerminalSupportsSynchronizedOutput
    from textual.screen import Screen
    from textual.theme import Theme

    from gpumon.tui.session import Session
    from gpumon.tui.terminal import Ending

EXIT_NO_SOURCE = 1

_BEGINNING = 10.0
"""Seconds that Textual may take to begin on a busy machine."""
_OBEYING = {"processes", "body", "footer"}
"""Where keys are seen to work: what is owed of these is sent before all else."""
_FROM_TERMINAL = (InputEvent, Paste, AppFocus, AppBlur)
_READING = 10.0
"""Seconds that a warning stays."""
_TOLD_FREE = 60.0
"""Seconds for which it is told that a card is free: who waited for that may be elsewhere."""


class GpumonApp(App[int]):
    """The dashboard and what can be opened from it."""

    TITLE = "gpumon"
    CSS = """
    VerticalScroll, OptionList, SelectionList {
        scrollbar-background: $panel;
        scrollbar-background-hover: $panel;
        scrollbar-background-active: $panel;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = with_names(
        Binding("question_mark,f1", "help", "Help: keys, signs, columns", key_display="?"),
        Binding("T", "themes", "Choose a theme …"),
        Binding("q", "leave", "Quit", key_display="q"),
        Binding("ctrl+c", "leave", "Quit", key_display="Ctrl+C", priority=True, system=True),
        Binding("ctrl+z", "suspend_process", "Suspend", key_display="Ctrl+Z"),
    )

    def __init__(
        self,
        session: Session,
        narrowing: Narrowing | None = None,
        chosen: Chosen = USUAL,
        driver_class: type[Driver] | None = None,
    ) -> None:
        """Make the application.

        Args:
            session: Its collector may be started or not: its snapshots are shown from the moment
                this runs.
            narrowing: Which of the processes to show at first; all of them unless told.
            chosen: What is settled for it: columns, order, keys, theme.
            driver_class: What has the terminal; Textual's own choice unless told.
        """
        super().__init__(driver_class=driver_class)
        self.no_color = refuses_colour(os.environ)
        self._system = colour_system(os.environ, self.console.color_system)
        rich = self._system in {ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT}
        self._fewer = None if rich else FewColours(self._system)
        self._session = session
        self._collector = session.collector
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = threading.Event()
        self._bell = Bell(self, self._take_snapshots)
        self.stage = Stage(session, self._bell.ring)
        self.starved_by: Exception | None = None
        """What it ended by, where the machine had run out of something."""
        self.ending: Ending | None = None
        """What forces the end of an application that does not end by itself."""
        self._themes = Themes(self, self._warn)
        self._unsubscribe: Callable[[], None] = lambda: None
        self._choice = chosen.theme or Choice(DEFAULT, Shelf().default())
        self._themes.begin(self._choice)
        palette = self._palette()
        self._pen = Pen(self, palette.inks)
        self.cases = Cases(self, session, self._show_cases, self._say)
        self.dashboard = DashboardScreen(
            session, self.stage, self.cases, self._pen, palette, narrowing or Narrowing(), chosen
        )
        self._awaited = Awaited()
        self._chosen = chosen
        self.set_keymap(keymap(chosen.keys))
        use_key_names(footer_names(chosen.keys))

    def get_default_screen(self) -> DashboardScreen:
        """The dashboard: another one before it would be seen, blank."""
        return self.dashboard

    def on_mount(self) -> None:
        """Take the snapshots."""
        self.theme_changed_signal.subscribe(self, self._take_theme)
        self.set_interval(LOOK_SECONDS, self._themes.look)
        for sentence in self._choice.sentences:
            self._warn(sentence)
        self._loop = asyncio.get_running_loop()
        self._begun.set()
        self._bell.hang()
        self._unsubscribe = self._collector.subscribe(
            lambda _: self._bell.ring(), lambda _: self._bell.ring(), closely=False
        )
        self._bell.ring()

    def on_unmount(self) -> None:
        """No more snapshots."""
        self._bell.take_down()
        self._unsubscribe()
        self.stage.close()
        self.cases.close()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """What the keys do, by its description, and of Textual's own commands one."""
        commands = super().get_system_commands(screen)
        yield from (command for command in commands if command.title == "Quit")
        for binding, target in self._commands(screen):
            key = binding.key_display or binding.key
            run = partial(self.run_action, binding.action, target)
            yield SystemCommand(binding.description, f"key {key}", run)

    def _commands(
        self, screen: Screen[object]
    ) -> Iterator[tuple[Binding, App[int] | Screen[None]]]:
        """What can be done on a screen, and where that is done."""
        for binding in self._explained():
            action = binding.action
            own = any(one.action == action for one in self.BINDINGS if isinstance(one, Binding))
            target = self if own else self.dashboard
            name = action.partition("(")[0]
            # To leave is there by Textual's name.
            if action != "leave" and (own or screen is target) and target.check_action(name, ()):
                yield binding, target
        if isinstance(screen, PageScreen):
            for binding in screen.explained():
                yield renamed(binding, self._chosen.keys), screen

    def on_resize(self, event: Resize) -> None:
        """The terminal has another size now, or had."""
        size = self._terminal_size()
        if size is not None and size != event.size:
            # This one was overtaken, and Textual takes for true what it is told last.
            event.prevent_default()
            self.post_message(Resize(size, size))
            return
        if self.screen_stack and event.size == self.screen.outer_size:
            # It was another one for too short a time to be seen: what the edges cut off is lost.
            self.refresh()

    def _terminal_size(self) -> Size | None:
        """What the terminal itself says; ``None`` where it is not asked but tells by itself."""
        driver = self._driver
        if self.is_headless or driver is None or getattr(driver, "_in_band_window_resize", False):
            return None
        return Size(*shutil.get_terminal_size())

    def _take_snapshots(self) -> None:
        """Show the newest snapshot, or end with what the collector failed of."""
        failure = self._collector.failure or self.stage.failure
        if (
            isinstance(failure, SourceError)
            and failure is self.stage.failure
            and self.stage.is_live
        ):
            self.stage.come_back()
            self._say(failure.sentence)
            self.dashboard.take()
        elif isinstance(failure, SourceError):
            self._leave(EXIT_NO_SOURCE)
        elif failure is not None:
            raise failure
        elif self._collector.latest is not None:
            self.cases.take(self._collector.latest)
            self._tell_of_free_cards()
            with self._pen.at_leisure():
                self.dashboard.take()

    def on_terminal_supports_synchronized_output(
        self, _: TerminalSupportsSynchronizedOutput
    ) -> None:
        """The terminal has answered a question: Textual's, or the pen's."""
        self._pen.answered()
        with self._pen.at_leisure():
            views = self.screen.walk_children(CellView)
            for view in sorted(views, key=lambda it: it.id not in _OBEYING):
                view.send_on()
            self._pen.flush()

    def _palette(self) -> Palette:
        return Palette(self.get_css_variables(), self._system)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """What becomes of the colours of Textual's own widgets."""
        # Textual's own way without colours is greys.
        filters = [one for one in super().get_line_filters() if not isinstance(one, Monochrome)]
        return filters if self._fewer is None else [*filters, self._fewer]

    def _take_theme(self, _: Theme) -> None:
        palette = self._palette()
        self._pen.writer = CellWriter(palette.inks)
        # A theme is chosen in a dialog: what lies beneath it changes with it.
        for screen in self.screen_stack:
            if isinstance(screen, (DashboardScreen, PageScreen)):
                screen.repaint(palette)

    def _show_cases(self) -> None:
        """Tell of processes being ended: the dashboard has lines for it, a page has one."""
        self.dashboard.draw()
        if isinstance(self.screen, PageScreen) and self.cases.reports:
            self.screen.say(sum_sentence(self.cases.reports[-1]), lasting=True)

    def _say(self, sentence: str) -> None:
        """Put a sentence before the person, on whatever screen is in front."""
        screen = self.screen
        if isinstance(screen, (DashboardScreen, PageScreen)):
            screen.say(sentence)

    def on_word_wanted(self, event: WordWanted) -> None:
        """Begin to wait for a card, or wait no longer."""
        said = self._awaited.turn(event.card, self._session.history)
        self.dashboard.await_cards(self._awaited.cards)
        self.dashboard.say(said, lasting=True)

    def _tell_of_free_cards(self) -> None:
        """Ring for those that somebody waits for, whatever is on the screen."""
        for sentence in self._awaited.take(self._session.history):
            self.dashboard.await_cards(self._awaited.cards)
            self.bell()
            self.notify(sentence, timeout=_TOLD_FREE, markup=False)
            self._say(sentence)

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """See Textual's: what a key does, wherever it is bound."""
        with self._telling_of_too_many_files():
            try:
                return await super().run_action(action, default_namespace, namespaces)
            except (KeyError, NoMatches):
                # Of keys that come together, one opens a dialog and the next one finds it empty;
                # Textual's own lists are asked for a page before they were laid out.
                if not isinstance(default_namespace, (OptionList, ModalScreen)):
                    raise
        return True

    @contextmanager
    def _telling_of_too_many_files(self) -> Iterator[None]:
        """What is opened for the first time is read from files; without them all else goes on."""
        try:
            yield
        except (OSError, ImportError) as error:
            if not is_lack_of_files(error):
                raise
            self._say("this cannot be opened now: too many files are open on this machine")

    def on_page_wanted(self, event: PageWanted) -> None:
        """Open the page of a card or of a process."""
        with self._telling_of_too_many_files():
            self._open_page(event)

    def _handle_exception(self, error: Exception) -> None:
        """Textual's own way to end by a bug; pages of what was being done help against no lack."""
        if isinstance(error, WorkerFailed) and isinstance(error.error, NoMatches):
            # Textual's palette, the only one to use these, was closed while it looked for commands.
            return
        if lack_behind(error) is not None:
            self.starved_by = error
            self._close_messages_no_wait()
        else:
            super()._handle_exception(error)

    def pop_screen(self) -> AwaitComplete:
        """See Textual's; the dashboard stays, however often what lay over it is closed."""
        # A second click reaches what the first has closed already, and closes what is on top then.
        if self.screen is self.dashboard:
            return AwaitComplete.nothing()  # type: ignore[no-untyped-call,no-any-return]  # Textual's
        # It remembers a thousand answers by who asked: by what was drawn of each part of a screen.
        StylesCache.get_inner_outer.cache_clear()
        return super().pop_screen()

    def _open_page(self, event: PageWanted) -> None:
        from gpumon.tui.screens.card import CardScreen
        from gpumon.tui.screens.process import ProcessScreen

        subject, session = event.subject, self._session
        page: PageScreen
        if isinstance(subject, str):
            readonly = session.host.readonly
            page = CardScreen(self.stage, self._pen, self._palette(), subject, readonly=readonly)
        else:
            page = ProcessScreen(self.stage, session.host, self._pen, self._palette(), subject)
        self.push_screen(page)

    def on_end_requested(self, event: EndRequested) -> None:
        """A page asks for the end of its process."""
        self.cases.ask(event.targets)

    async def on_event(self, event: Event) -> None:
        """Whatever the terminal sends after the key that quits finds no screen any more."""
        if self.screen_stack or not isinstance(event, _FROM_TERMINAL):
            await super().on_event(event)

    def on_key(self, event: Key) -> None:
        """Keys come here before they are looked up: in the filter line a letter is no command."""
        if self.screen is self.dashboard and self.dashboard.take_key(event):
            event.prevent_default()

    def _warn(self, sentence: str) -> None:
        """Put what is wrong with a file before the person, for as long as it takes to read."""
        self.notify(sentence, severity="warning", timeout=_READING, markup=False)

    def action_themes(self) -> None:
        """Choose a theme by looking at it."""
        from gpumon.tui.dialogs.themes import ThemesDialog

        self.push_screen(ThemesDialog(self._themes, self.theme), self._remember_theme)

    def _remember_theme(self, name: str | None) -> None:
        if name is not None and (fault := remember(name)) is not None:
            self._warn(fault)

    def action_command_palette(self) -> None:
        """See Textual's: open the list of all commands."""
        if not isinstance(self.screen, CommandsDialog):
            self.push_screen(CommandsDialog(id="--command-palette"))

    def action_help(self) -> None:
        """Open the help page."""
        screen = self.screen
        if isinstance(screen, HelpScreen):
            return
        here = None
        if isinstance(screen, PageScreen):
            here = (screen.heading, [renamed(one, self._chosen.keys) for one in screen.explained()])
        self.push_screen(HelpScreen(self._explained(), self._session.history, here))

    def _explained(self) -> list[Binding]:
        """The keys that do something here and have a description, the application's first."""
        bindings = (*self.BINDINGS, *self.dashboard.BINDINGS, *TimedScreen.BINDINGS)
        readonly = self._session.host.readonly
        return [
            renamed(one, self._chosen.keys)
            for one in bindings
            if isinstance(one, Binding)
            and one.description
            and not (readonly and one.action == "end")
            and not (one.action == "suspend_process" and not self._can_suspend())
        ]

    def _can_suspend(self) -> bool:
        return self._driver is not None and self._driver.can_suspend

    def action_suspend_process(self) -> None:
        """See Textual's."""
        if self._can_suspend():
            super().action_suspend_process()
        else:
            self._say("gpumon is not suspended: no shell here could continue it")

    def action_leave(self) -> None:
        """Quit, whatever the driver or the terminal are doing."""
        self._leave(0)

    def leave_soon(self, status: int) -> bool:
        """End with this status, asked for from another thread; False when not running yet."""
        # Told to end while it begins, it ends once it has begun.
        if not self._begun.wait(_BEGINNING) or self._loop is None:
            return False
        self._loop.call_soon_threadsafe(self._leave, status)
        return True

    def _leave(self, status: int) -> None:
        if self.ending is not None:
            self.ending.begin(status)
        self.exit(status, return_code=status)
