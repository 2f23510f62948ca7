"""The applications: themes, the terminal, the command palette, and the dashboard of a machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual._styles_cache import StylesCache
from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.css.query import NoMatches
from textual.events import AppBlur, AppFocus, InputEvent, Paste, Resize
from textual.filter import Monochrome
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.worker import WorkerFailed

from gpumon.config.keymap import MOST_USED, display
from gpumon.config.themes import DEFAULT, ThemeChoice, ThemeLibrary, remember, resolve_styles
from gpumon.system.resource_errors import lack_behind, require_files, tolerated_lack_of_files
from gpumon.text.formatting import spelled_out
from gpumon.ui.dialogs.commands import CommandsDialog, KeyCommands
from gpumon.ui.dialogs.confirm import ConfirmDialog, terminal_driver
from gpumon.ui.keys import bindings_of, textual_keymap
from gpumon.ui.screens.help import HelpScreen
from gpumon.ui.screens.inputs import InputScreen
from gpumon.ui.screens.page import PageScreen
from gpumon.ui.screens.painted import CellView, PaintedScreen
from gpumon.ui.terminal.renderer import TerminalRenderer
from gpumon.ui.terminal.styles import COLOURS_256, TRUE_COLOUR, refuses_colour, sgr_styles
from gpumon.ui.terminal.widget_output import FewColours, SameWidth, read_no_markup
from gpumon.ui.theme_controller import RELOAD_SECONDS, ThemeController
from gpumon.ui.view.dashboard_view import DEFAULT_OPTIONS, StartupOptions
from gpumon.ui.view.help_page import page_keys
from gpumon.ui.view.key_names import active_keys, is_method_refused, keys_of, use_keys
from gpumon.ui.view.process_filter import ProcessFilter
from gpumon.ui.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from textual.actions import ActionParseResult
    from textual.binding import BindingType
    from textual.dom import DOMNode
    from textual.driver import Driver
    from textual.events import Event, Key
    from textual.filter import LineFilter
    from textual.messages import TerminalSupportsSynchronizedOutput
    from textual.screen import Screen
    from textual.theme import Theme

    from gpumon.config.keymap import KeyAction, KeyScope
    from gpumon.ui.screens.dashboard import DashboardScreen
    from gpumon.ui.session import Session
    from gpumon.ui.terminal.driver import BackgroundKnown
    from gpumon.ui.terminal.styles import SgrStyles
    from gpumon.ui.terminal.terminal import ShutdownWatchdog
    from gpumon.ui.view.help_page import HelpSection


read_no_markup()

_START_SECONDS = 10.0
"""Maximum seconds that Textual needs to start on a busy machine."""
_FEEDBACK_PARTS = {"processes", "body", "lines", "footer"}
"""Widgets that show the effect of keys: their pending changes are sent first."""
_FROM_TERMINAL = (InputEvent, Paste, AppFocus, AppBlur)
_OPENING = {"filter", "go_to", "help"}
"""Keys that open an input."""
_WARNING_SECONDS = 10.0
"""Seconds for which a warning is shown."""


class BaseApp(App[int]):
    """Screens of rows of cells, with the pages and dialogs of one session at a time."""

    TITLE = "gpumon"
    CSS = """
    VerticalScroll, OptionList, SelectionList {
        scrollbar-background: $panel;
        scrollbar-background-hover: $panel;
        scrollbar-background-active: $panel;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings_of("app")
    COMMANDS: ClassVar = {KeyCommands}

    workspace: Workspace | None = None
    """The session whose screens are shown; ``None`` while those of a fleet are."""

    def __init__(
        self,
        options: StartupOptions = DEFAULT_OPTIONS,
        driver_class: type[Driver] | None = None,
    ) -> None:
        """Make the application with the keys and the theme of the options."""
        super().__init__(driver_class=driver_class)
        self.no_color = refuses_colour(os.environ)
        self._system = None if self.no_color else self.console.color_system
        rich = self._system in {TRUE_COLOUR, COLOURS_256}
        self._colour_filter = None if rich else FewColours(self._system)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self.resource_error: Exception | None = None
        """The exception that ended it, if the machine had run out of a resource."""
        self.watchdog: ShutdownWatchdog | None = None
        """Forces the end if the application hangs."""
        self._themes = ThemeController(self, self._warn)
        self._choice = options.theme or ThemeChoice(DEFAULT, ThemeLibrary().default())
        self._themes.start(self._choice)
        self.renderer = TerminalRenderer(self, self._styles())
        """Writes the changed cells of its screens."""
        self.set_keymap(textual_keymap(options.keys))
        use_keys(options.keys, visitor=options.visitor)
        self._saves_theme = not options.visitor

    @property
    @abstractmethod
    def main_screen(self) -> PaintedScreen:
        """The screen under all pages and dialogs that are open now."""

    def get_default_screen(self) -> PaintedScreen:
        """The main screen, because Textual's own first screen would be visible as a blank frame."""
        return self.main_screen

    def on_mount(self) -> None:
        """Subscribe to themes."""
        self.theme_changed_signal.subscribe(self, self._apply_theme)
        self.set_interval(RELOAD_SECONDS, self._themes.reload_if_changed)
        for sentence in self._choice.sentences:
            self._warn(sentence)
        self._loop = asyncio.get_running_loop()
        self._started.set()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """All key actions by their description: the most used ones, then the rest in groups."""
        return (command for command, _ in self.key_commands(screen))

    def key_commands(self, screen: Screen[object]) -> Iterable[tuple[SystemCommand, str]]:
        """The commands, and for each other words by which it is found."""
        commands = list(self._commands(screen))
        used = {name: place for place, name in enumerate(MOST_USED)}
        commands.sort(key=lambda known: used.get(known[0].name, len(used)))
        for action, about, target in commands:
            run = partial(self.run_action, action.action, target)
            keys = display(keys_of(action.name))
            command = SystemCommand(about, f"key {keys}    {action.group}", run)
            yield command, action.synonyms

    def _commands(
        self, screen: Screen[object]
    ) -> Iterator[tuple[KeyAction, str, App[int] | Screen[None]]]:
        """The actions available on a screen, each with its description and its target."""
        if isinstance(screen, PageScreen):
            for action, about in screen.active_keys():
                yield action, about, screen
        main = self.main_screen
        for action, about in self.active_keys():
            own = "app" in action.on
            target = self if own else main
            # These are the palette itself, and a second name of Quit.
            listed = action.name not in {"palette", "interrupt"}
            if listed and (own or screen is target) and target.check_action(action.method, ()):
                yield action, about, target

    def on_resize(self, event: Resize) -> None:
        """Apply the new size, unless a newer one is known already."""
        size = self._terminal_size()
        if size is not None and size != event.size:
            # This event is out of date, and Textual would apply whatever event comes last.
            event.prevent_default()
            self.post_message(Resize(size, size))
            return
        if self.screen_stack and event.size == self.screen.outer_size:
            # The size changed and reverted between frames: repaint.
            self.refresh()

    def stop_reading(self) -> None:
        """Let the thread that reads keys end.

        If memory is short at the end, Textual does not end it, and the program would wait for it.
        """
        driver = terminal_driver(self)
        if driver is not None:
            driver.exit_event.set()

    def _terminal_size(self) -> Size | None:
        """The terminal's size; ``None`` if the terminal reports changes in-band."""
        driver = self._driver
        if self.is_headless or driver is None or getattr(driver, "_in_band_window_resize", False):
            return None
        return Size(*shutil.get_terminal_size())

    def on_terminal_supports_synchronized_output(
        self, message: TerminalSupportsSynchronizedOutput
    ) -> None:
        """The terminal has answered a query of Textual's, of the renderer's or of a dialog's."""
        driver = terminal_driver(self)
        if driver is None or not driver.replied(message.time):
            self.renderer.answered()
        with self.renderer.in_background():
            views = self.screen.walk_children(CellView)
            for view in sorted(views, key=lambda it: it.id not in _FEEDBACK_PARTS):
                view.send_on()
            self.renderer.flush()

    def _styles(self) -> SgrStyles:
        """The styles of the current theme."""
        return sgr_styles(resolve_styles(self.get_css_variables()), self._system)

    def on_background_known(self, message: BackgroundKnown) -> None:
        """The terminal has replied late: change the default theme, unless the user chose one."""
        if self.theme != self._choice.name:
            return
        suited = self._choice.on_background(is_light=message.is_light)
        if suited.name != self._choice.name:
            self._choice = suited
            self._themes.start(suited)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """The filters for the colours of Textual's own widgets."""
        # Textual's own filter for no colours keeps greys.
        filters = [
            line_filter
            for line_filter in super().get_line_filters()
            if not isinstance(line_filter, Monochrome)
        ]
        filters.append(SameWidth())
        return filters if self._colour_filter is None else [*filters, self._colour_filter]

    def _apply_theme(self, _: Theme) -> None:
        self.renderer.use(self._styles())
        # The theme dialog is on top: the screens beneath it change too.
        for screen in self.screen_stack:
            if isinstance(screen, PaintedScreen):
                screen.repaint()

    def say(self, sentence: str, *, lasting: bool = False) -> None:
        """Show a message on the current screen for a few seconds, or longer."""
        if isinstance(self.screen, PaintedScreen):
            self.screen.say(sentence, lasting=lasting)

    def write_to_terminal(self, sequence: str) -> None:
        """Write a control sequence that draws nothing, such as a notification."""
        if self._driver is not None and self.is_running:
            self._driver.write(sequence)

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """See Textual's; the one place that all key actions pass."""
        method = (
            action.partition("(")[0].rpartition(".")[2] if isinstance(action, str) else action[1]
        )
        if is_method_refused(method):
            self.say("gpumon is read-only in a browser: this key is disabled")
            return True
        with self.reporting_too_many_files():
            try:
                return await super().run_action(action, default_namespace, namespaces)
            except (KeyError, NoMatches):
                # If two keys arrive together, one opens a dialog and the next finds it empty; and
                # Textual's own lists fail if they scroll before their first layout.
                if not isinstance(default_namespace, (OptionList, ModalScreen)):
                    raise
        return True

    def reporting_too_many_files(self) -> AbstractContextManager[None]:
        """Show a message if a module or file cannot be opened; everything else continues."""
        return tolerated_lack_of_files(
            partial(self.say, "this cannot be opened now: too many files are open on this machine")
        )

    def _handle_exception(self, error: Exception) -> None:
        """See Textual's; a long traceback does not help if a resource was exhausted."""
        if isinstance(error, WorkerFailed) and isinstance(error.error, NoMatches):
            # The command palette, the only user of workers, was closed while it searched.
            return
        if lack_behind(error) is not None:
            self.resource_error = error
            self._close_messages_no_wait()
        else:
            super()._handle_exception(error)

    def push_screen(self, *args: Any, **named: Any) -> Any:
        """See Textual's.

        Raises:
            OSError: No file can be opened.
        """
        # Textual reads the style sheet of a screen after it has begun to show it.
        require_files(1)
        return super().push_screen(*args, **named)

    def pop_screen(self) -> AwaitComplete:
        """See Textual's; the main screen itself is never closed."""
        # The second click on a closing screen would close the screen beneath it.
        if self.screen is self.main_screen:
            return AwaitComplete.nothing()  # type: ignore[no-untyped-call,no-any-return]  # Textual's
        # This cache keeps a thousand entries, and with them the closed screens.
        StylesCache.get_inner_outer.cache_clear()
        return super().pop_screen()

    async def on_event(self, event: Event) -> None:
        """See Textual's; after the end there is no screen for input that still arrives."""
        if isinstance(event, _FROM_TERMINAL):
            if not self.screen_stack:
                return
            if isinstance(self.screen, ConfirmDialog) and not self.screen.admits(event):
                event.stop()
                return
        await super().on_event(event)

    def on_key(self, event: Key) -> None:
        """Handle letters of a filter or search before Textual looks up their bindings."""
        if isinstance(self.screen, (PaintedScreen, InputScreen)) and self.screen.accept_key(event):
            event.prevent_default()

    async def on_paste(self, event: Paste) -> None:
        """Insert a line, after the keys that were read before it.

        If it begins with a key that opens an input, it has the effect of typing it.
        """
        line = next(iter(event.text.splitlines()), "")
        screen = self.screen
        if not isinstance(screen, (PaintedScreen, InputScreen)) or screen.accept_text(line):
            return
        for action, _, target in self._commands(screen):
            if action.name in _OPENING and line[:1] in keys_of(action.name):
                await self.run_action(action.action, target)
                if isinstance(opened := self.screen, (PaintedScreen, InputScreen)):
                    opened.accept_text(line[1:])
                return

    def _warn(self, sentence: str) -> None:
        """Show an error in a file long enough to be read."""
        self.notify(sentence, severity="warning", timeout=_WARNING_SECONDS)

    def action_themes(self) -> None:
        """Open the theme dialog."""
        from gpumon.ui.dialogs.choices import ThemesDialog

        self.push_screen(ThemesDialog(self._themes, self.theme), self._remember_theme)

    def _remember_theme(self, name: str | None) -> None:
        if name is None or not self._saves_theme:
            return
        if (fault := remember(name)) is not None:
            self._warn(fault)

    def action_command_palette(self) -> None:
        """See Textual's: open the list of all commands."""
        if not isinstance(self.screen, CommandsDialog):
            placeholder = spelled_out("Search for commands…")
            self.push_screen(CommandsDialog(placeholder=placeholder, id="--command-palette"))

    def action_help(self) -> None:
        """Open the help page: it begins with the state under the cursor and the page's keys."""
        screen = self.screen
        if isinstance(screen, HelpScreen):
            return
        first: list[HelpSection] = []
        if isinstance(screen, PaintedScreen):
            first += screen.state_help()
        if isinstance(screen, PageScreen):
            first += page_keys(screen.heading, screen.active_keys())
        self.push_screen(self._help_screen(first))

    def _help_screen(self, first: Sequence[HelpSection]) -> HelpScreen:
        if self.workspace is not None:
            return HelpScreen(self.active_keys(), self.workspace.session.history, first)
        from gpumon.ui.view.fleet_hosts import fleet_sections

        return HelpScreen(self.active_keys(), None, first, fleet_sections())

    def active_keys(self) -> list[tuple[KeyAction, str]]:
        """The key actions of the application and the main screen that work, with descriptions."""
        place: KeyScope = "fleet" if self.workspace is None else "dashboard"
        readonly = self.workspace is not None and self.workspace.session.machine.processes.readonly
        return [
            (action, about)
            for action, about in active_keys("app", place)
            if not (action.action == "suspend_process" and not self._can_suspend())
            and not (readonly and action.name == "end")
        ]

    def _can_suspend(self) -> bool:
        return self._driver is not None and self._driver.can_suspend

    def action_suspend_process(self) -> None:
        """See Textual's."""
        if self._can_suspend():
            super().action_suspend_process()
        else:
            self.say("gpumon cannot be suspended: no shell here could continue it")

    def action_leave(self) -> None:
        """Quit."""
        self.leave(0)

    def leave_soon(self, status: int) -> bool:
        """Request the end from another thread; False if the application has not started."""
        # A request during the start takes effect once it has started.
        if not self._started.wait(_START_SECONDS) or self._loop is None:
            return False
        self._loop.call_soon_threadsafe(self.leave, status)
        return True

    def leave(self, status: int) -> None:
        """End with a status, even if the driver or the terminal hangs."""
        if self.watchdog is not None:
            self.watchdog.begin(status)
        self.exit(status, return_code=status)


EXIT_NO_SOURCE = 1


class GpumonApp(BaseApp):
    """The dashboard, and the pages and dialogs that it opens."""

    workspace: Workspace

    def __init__(
        self,
        session: Session,
        narrowing: ProcessFilter | None = None,
        options: StartupOptions = DEFAULT_OPTIONS,
        driver_class: type[Driver] | None = None,
    ) -> None:
        """Make the application; the collector of the session may be started later."""
        super().__init__(options, driver_class)
        self.workspace = Workspace(
            self,
            session,
            narrowing or ProcessFilter(),
            options,
            partial(self.leave, EXIT_NO_SOURCE),
        )

    @property
    def main_screen(self) -> DashboardScreen:
        """See ``BaseApp.main_screen``."""
        return self.workspace.dashboard

    def on_mount(self) -> None:
        """Follow the snapshots. Textual also calls the handler of the base."""
        self.workspace.start()

    def on_unmount(self) -> None:
        """Stop everything that calls this application."""
        self.workspace.stop()
        self.workspace.close()
