"""The screen of many hosts: a line a host, users across hosts, and the processes of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace
from textual.message import Message

from gpumon.fleet.terms import FLEET_PROCESSES, HOSTS
from gpumon.text.formatting import printable
from gpumon.text.table import column_at
from gpumon.ui.keys import bindings_of, click_key
from gpumon.ui.screens.list_screen import ListScreen, updating
from gpumon.ui.view import fleet_update
from gpumon.ui.view.fleet_layout import FleetLayout
from gpumon.ui.view.fleet_rows import FleetParts, FleetPicture, fleet_keys
from gpumon.ui.view.fleet_view import FleetListing, FleetView
from gpumon.ui.view.header_footer import key_at
from gpumon.ui.view.help_page import HelpSection
from gpumon.ui.view.key_names import keycap
from gpumon.ui.view.state_help import state_sections

if TYPE_CHECKING:
    from textual import events
    from textual.binding import BindingType

    from gpumon.filters.language import Selection
    from gpumon.fleet.summary import FleetSummaries
    from gpumon.model.processes import ProcessId
    from gpumon.system.system import Clock
    from gpumon.ui.terminal.renderer import TerminalRenderer

_CLOCK_SECONDS = 0.25
"""Seconds between two looks at the clock."""


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


class FleetScreen(ListScreen[FleetView, FleetLayout]):
    """The screen of ``gpumon --hosts``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("fleet")
    parts = FleetParts.__struct_fields__[1:]

    def __init__(
        self,
        summaries: FleetSummaries,
        view: FleetView,
        renderer: TerminalRenderer,
        clock: Clock,
        source: str = "",
    ) -> None:
        """Make the screen.

        Args:
            summaries: The newest summary of each host.
            view: The initial view.
            renderer: Writes changed cells.
            clock: The clock that ages are computed with.
            source: What the hosts are if they are not real, such as ``DEMO``.
        """
        super().__init__(renderer, view, FleetLayout(view=view))
        self._summaries = summaries
        self._picture = FleetPicture()
        self._clock = clock
        self._source = source
        self._drawn: tuple[object, int] = None, 0

    def on_mount(self) -> None:
        """Follow the clock. Textual also calls the handler of the base."""
        self.set_interval(_CLOCK_SECONDS, self.look)

    @property
    def _urgent(self) -> tuple[str, ...]:
        return ("lines", "footer")

    # -- what is shown ---------------------------------------------------------------------------

    def look(self) -> None:
        """Draw if a host has news, or another second has begun."""
        hosts, second = self._drawn
        if self._summaries.latest is not hosts or int(self._clock.time()) != second:
            with self._renderer.in_background():
                self.draw()

    def _draw_rows(self, view: FleetView, width: int, height: int) -> FleetParts:
        hosts, now = self._summaries.latest, self._clock.time()
        self._drawn = hosts, int(now)
        parts = self._picture.rows(hosts, view, now, width, height, self._source)
        self._layout, self._view = parts.layout, parts.layout.view
        return parts

    # -- keys ------------------------------------------------------------------------------------

    action_move = updating(fleet_update.move)
    action_page = updating(fleet_update.page)
    action_aside = updating(fleet_update.aside)
    action_edge = updating(fleet_update.move_to_end)
    action_change_side = updating(fleet_update.change_side)
    action_listing = updating(fleet_update.switch_listing)
    action_sort = updating(fleet_update.sort)
    action_sort_step = updating(fleet_update.sort_step)
    action_reverse = updating(fleet_update.reverse)

    def action_open(self) -> None:
        """Open the line under the cursor; while a filter is typed, keep the filter."""
        entry = self._layout.entry
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

    def _narrowed(self, chosen: Selection[Any, Any]) -> FleetView:
        return fleet_update.narrow(self._view, chosen.text)

    def _point_at_visible(self) -> None:
        if self._layout.entry is None:
            self._view = fleet_update.move_to(self._view, self._layout, self._view.current.top)

    def state_help(self) -> list[HelpSection]:
        """See ``PaintedScreen.state_help``: the worst state of a host, as its line has it."""
        host = None if self._layout.entry is None else self._layout.entry.host
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

    def _scroll(self, _: events.MouseEvent, rows: int) -> None:
        self._show(fleet_update.scroll(self._view, self._layout, rows))
