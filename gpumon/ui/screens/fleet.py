"""The screen of many hosts: a line a host, users across hosts, and the processes of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Concatenate, ParamSpec

from msgspec.structs import replace
from textual.message import Message

from gpumon.fleet.terms import FLEET_PROCESSES, HOSTS
from gpumon.text.formatting import printable
from gpumon.ui.keys import bindings_of, click_key
from gpumon.ui.screens.painted import PaintedScreen
from gpumon.ui.view import fleet_update
from gpumon.ui.view.fleet_layout import FleetLayout
from gpumon.ui.view.fleet_rows import FleetPicture, fleet_keys
from gpumon.ui.view.fleet_update import FleetUpdate
from gpumon.ui.view.fleet_view import FleetListing, FleetView
from gpumon.ui.view.header_footer import key_at
from gpumon.ui.view.help_page import HelpSection
from gpumon.ui.view.key_names import keycap
from gpumon.ui.view.process_table import column_at
from gpumon.ui.view.state_help import state_sections
from gpumon.ui.widgets.filter_bar import FilterBar

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from gpumon.fleet.summaries import FleetSummaries
    from gpumon.model.processes import ProcessId
    from gpumon.system.clock import Clock
    from gpumon.ui.palette import Palette
    from gpumon.ui.terminal.renderer import TerminalRenderer
    from gpumon.ui.view.fleet_lists import FleetEntry

_P = ParamSpec("_P")

_PARTS = ("header", "lines", "rule", "footer")
_CLOCK_SECONDS = 0.25
"""Seconds between two looks at the clock."""
_MESSAGE_SECONDS = 3.0
_READING_SECONDS = 10.0
_WHEEL_ROWS = 3


class HostRequested(Message):
    """The user opens a host.

    Attributes:
        name: The host.
        process: The process under the cursor, if the host is opened for one.
    """

    def __init__(self, name: str, process: ProcessId | None = None) -> None:
        super().__init__()
        self.name = name
        self.process = process


def _updating(
    change: Callable[Concatenate[FleetView, FleetLayout, _P], FleetView | FleetUpdate],
) -> Callable[Concatenate[FleetScreen, _P], None]:
    """Make an action from a function of ``fleet_update``; it shows the next view."""

    def action(self: FleetScreen, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        self._show(change(self._view, self._layout, *args, **kwargs))

    return action


class FleetScreen(PaintedScreen):
    """The screen of ``gpumon --hosts``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("fleet")
    AUTO_FOCUS = ""
    CSS = """
    FleetScreen { layout: vertical; overflow: hidden; background: $background; }
    """

    def __init__(
        self,
        summaries: FleetSummaries,
        view: FleetView,
        renderer: TerminalRenderer,
        palette: Palette,
        clock: Clock,
        source: str = "",
        config_error: str = "",
    ) -> None:
        """Make the screen.

        Args:
            summaries: The newest summary of each host.
            view: The initial view.
            renderer: Writes changed cells.
            palette: The colours.
            clock: The clock that ages are computed with.
            source: What the hosts are if they are not real, such as ``DEMO``.
            config_error: The errors in the configuration; empty if there are none.
        """
        super().__init__(renderer, palette)
        self._summaries = summaries
        self._view = view
        self._layout = FleetLayout(view)
        self._picture = FleetPicture()
        self._clock = clock
        self._source = source
        self._config_error = config_error
        self._heights: tuple[int, ...] = ()
        self._bar = FilterBar()
        self._drawn: tuple[object, int] = None, 0

    def compose(self) -> ComposeResult:
        """Compose the parts from top to bottom."""
        self._make_views(_PARTS)
        for name, view in self._views.items():
            if name == "footer":
                yield self._bar
            yield view

    def on_mount(self) -> None:
        """Draw it, and follow the clock."""
        self.say(self._config_error, lasting=True)
        self.set_interval(_CLOCK_SECONDS, self.look)

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.draw()

    def on_screen_resume(self) -> None:
        """Redraw: nothing was drawn while another screen was on top."""
        self.draw()

    def on_screen_suspend(self) -> None:
        """Redraw without the footer's keys, which do not work under a dialog."""
        self.draw()

    # -- what is shown ---------------------------------------------------------------------------

    def look(self) -> None:
        """Draw if a host has news, or another second has begun."""
        hosts, second = self._drawn
        if self._summaries.latest is not hosts or int(self._clock.time()) != second:
            with self._renderer.in_background():
                self.draw()

    def draw(self) -> None:
        """Update all parts; unchanged cells are not sent."""
        top = self.app.screen
        if not self.is_attached or not (top is self or (top.is_modal and self.is_current)):
            return
        behind = bool(self._heights) and self._renderer.behind()
        size = self.size if self.size.width else self.app.size
        hosts, now = self._summaries.latest, self._clock.time()
        view = replace(self._view, dialog_open=top is not self)
        # The next key may refer to these rows, even if the terminal does not show them yet.
        parts = self._picture.rows(hosts, view, now, size.width, size.height, self._source)
        self._layout, self._view = parts.layout, parts.layout.view
        if behind:
            self._drawn = None, 0
            return
        self._drawn = hosts, int(now)
        heights = (*(len(getattr(parts, name)) for name in _PARTS), int(self._view.editing))
        moved = heights != self._heights
        self._heights = heights
        for name in ("lines", "footer", "rule", "header"):
            shown = self._views[name]
            rows = getattr(parts, name)
            if moved:
                shown.styles.height = len(rows)
            shown.show(rows, size.width, moved=moved)
        self._renderer.flush()

    def _show(self, after: FleetView | FleetUpdate) -> None:
        """Draw the next view, and show its message if it has one."""
        if isinstance(after, FleetUpdate):
            self._view = after.view
            self.say(after.message)
        else:
            self._view = after
            self.draw()

    def say(self, message: str, *, lasting: bool = False) -> None:
        """Show a message in place of the footer."""
        self._view = replace(self._view, message=message)
        seconds = _READING_SECONDS if lasting else _MESSAGE_SECONDS
        self._expire_after(seconds if message else None)
        self.draw()

    def _expire_message(self) -> None:
        self.say("")

    @property
    def _entry(self) -> FleetEntry | None:
        """The line under the cursor."""
        return self._layout.entry

    # -- keys ------------------------------------------------------------------------------------

    action_move = _updating(fleet_update.move)
    action_page = _updating(fleet_update.page)
    action_aside = _updating(fleet_update.aside)
    action_edge = _updating(fleet_update.move_to_end)
    action_change_side = _updating(fleet_update.change_side)
    action_listing = _updating(fleet_update.switch_listing)
    action_sort = _updating(fleet_update.sort)
    action_sort_step = _updating(fleet_update.sort_step)
    action_reverse = _updating(fleet_update.reverse)

    def action_open(self) -> None:
        """Open the line under the cursor; while a filter is typed, keep the filter."""
        entry = self._entry
        if self._view.editing:
            self._keep_filter()
        elif entry is None:
            self.say(f"choose a line first: {keycap('previous_line', 'next_line')}")
        elif entry.user is not None:
            self._show(fleet_update.narrow_to_user(self._view, entry.user.user))
        elif entry.host is not None:
            process = None if entry.process is None else entry.process.id
            self.post_message(HostRequested(entry.host.name, process))

    def action_release(self) -> None:
        """Clear the most recent of filter, list and selection."""
        if self._view.editing:
            self._close_bar()
            self._show(fleet_update.narrow(self._view, ""))
        else:
            self._show(replace(fleet_update.clear_choice(self._view), message=""))

    def action_filter(self) -> None:
        """Open the filter line."""
        if self._view.editing:
            return
        if self._view.listing is FleetListing.USERS:
            self.say("users have no filter: Enter shows the processes of one")
            return
        self._view = replace(self._view, editing=True)
        by_host = self._view.listing is FleetListing.HOSTS
        self._bar.open(self._view.current.filter, HOSTS if by_host else FLEET_PROCESSES)
        self.draw()

    def on_filter_bar_changed(self, event: FilterBar.Changed) -> None:
        """Apply the typed filter; after an error the last valid filter stays."""
        if not self._view.editing:
            return
        view = replace(self._view, message=event.wrong)
        if event.filter is not None:
            view = fleet_update.narrow(view, event.filter.text)
        self._show(view)

    def take_key(self, event: events.Key) -> bool:
        """Handle a letter of the filter."""
        if self._view.editing and event.is_printable and event.character:
            self._bar.insert(event.character)
            return True
        return False

    def _keep_filter(self) -> None:
        """Close the filter line, and move the cursor to a visible line; stay after an error."""
        read = self._bar.read()
        self.on_filter_bar_changed(read)
        if read.wrong:
            return
        self._close_bar()
        if self._entry is None:
            self._view = fleet_update.move_to(self._view, self._layout, self._view.current.top)
        self.draw()

    def _close_bar(self) -> None:
        self._bar.close()
        self._view = replace(self._view, editing=False, message="")

    def state_help(self) -> list[HelpSection]:
        """See ``PaintedScreen.state_help``: the worst state of a host, as its line has it."""
        host = None if self._entry is None else self._entry.host
        if host is None or self._view.listing is not FleetListing.HOSTS:
            return []
        sections = []
        if host.state.sentence:
            title = f"{printable(host.name)}: {host.state.status.value}"
            sections = [HelpSection(title, about=host.state.sentence, beside=False)]
        if host.worst is None or host.history is None:
            return sections
        name = f"{printable(host.name)} GPU {host.worst.index}"
        return sections + state_sections(name, host.history, (host.worst.state,))

    # -- mouse -----------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """Sort by a clicked heading, select a clicked line; a double click opens it."""
        view, _ = self.get_widget_at(event.screen_x, event.screen_y)
        line, layout = event.screen_y - view.region.y, self._layout
        if view is self._views["footer"] and not self._view.message:
            click_key(self, key_at(fleet_keys(layout), self.size.width, event.screen_x))
        elif view is not self._views["lines"]:
            return
        elif line == 0:
            column = column_at(layout.headers, layout.within_line(event.screen_x))
            if column is not None:
                self.action_sort(column.key)
        elif (index := layout.line_at(event.screen_x, line - 1)) is not None:
            self._show(fleet_update.move_to(self._view, layout, index))
            if event.chain == 2:
                self.action_open()

    def on_mouse_scroll_down(self, _: events.MouseScrollDown) -> None:
        """Scroll down."""
        self._show(fleet_update.scroll(self._view, self._layout, _WHEEL_ROWS))

    def on_mouse_scroll_up(self, _: events.MouseScrollUp) -> None:
        """Scroll up."""
        self._show(fleet_update.scroll(self._view, self._layout, -_WHEEL_ROWS))
