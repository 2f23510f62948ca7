"""The screen of many hosts: a line a host, users and jobs across hosts, the processes of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from gpumon.fleet.terms import FLEET_PROCESSES, HOSTS
from gpumon.text.formatting import printable
from gpumon.ui.keys import bindings_of
from gpumon.ui.screens.list_screen import ListScreen, updating
from gpumon.ui.view import fleet_view
from gpumon.ui.view.fleet_rows import FleetParts, FleetPicture, fleet_keys
from gpumon.ui.view.fleet_view import FleetLayout, FleetListing, FleetView
from gpumon.ui.view.help_page import HelpSection, state_sections
from gpumon.ui.view.key_names import keycap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.binding import BindingType

    from gpumon.filters.language import Language, Selection
    from gpumon.fleet.summary import FleetSummaries
    from gpumon.model.processes import ProcessId
    from gpumon.system.system import Clock
    from gpumon.ui.terminal.renderer import TerminalRenderer
    from gpumon.ui.view.key_names import FooterKey

_CLOCK_SECONDS = 0.25
"""Seconds between two looks at the clock."""


class FleetScreen(ListScreen[FleetView, FleetLayout]):
    """The screen of ``gpumon --hosts``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("fleet")
    parts = FleetParts.__struct_fields__[1:]
    list_part = "lines"

    def __init__(
        self,
        summaries: FleetSummaries,
        view: FleetView,
        renderer: TerminalRenderer,
        clock: Clock,
        open_host: Callable[[str, ProcessId | None], None],
        source: str = "",
        title: str = "",
    ) -> None:
        """Make the screen.

        Args:
            summaries: The newest summary of each host.
            view: The initial view.
            renderer: Writes changed cells.
            clock: That ages are computed with.
            open_host: Opens a host, for the process under the cursor if there is one.
            source: What the hosts are if they are not real, such as ``DEMO``.
            title: What they are together, such as ``slurm 88123``.
        """
        super().__init__(renderer, view, FleetLayout(view=view))
        self._summaries = summaries
        self._picture = FleetPicture()
        self._clock = clock
        self._open_host = open_host
        self._source, self._title = source, title
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
        parts = self._picture.rows(hosts, view, now, width, height, self._source, self._title)
        self._layout, self._view = parts.layout, parts.layout.view
        return parts

    # -- keys ------------------------------------------------------------------------------------

    action_aside = updating(fleet_view.aside)
    action_change_side = updating(fleet_view.change_side)
    action_listing = updating(fleet_view.switch_listing)

    def _open(self) -> None:
        entry = self._layout.entry
        if entry is None:
            self.say(f"choose a line first: {keycap('previous_line', 'next_line')}")
        elif entry.user is not None:
            self._show(fleet_view.narrow_to_user(self._view, entry.user.user))
        elif entry.job is not None and entry.node is None:
            self._show(fleet_view.open_job(self._view, entry.job.key))
        elif entry.host is not None:
            self._open_host(entry.host.name, None if entry.process is None else entry.process.id)

    def _clear_choice(self) -> None:
        """Clear the most recent of filter, list and selection."""
        self._show(replace(fleet_view.clear_choice(self._view), message=""))

    def action_filter(self) -> None:
        """Open the filter line."""
        if self._view.listing is FleetListing.USERS:
            self.say("there is no filter for users: Enter shows the processes of a user")
        elif self._view.listing is FleetListing.MACHINES:
            self.say("there is no filter for the machines of a job")
        else:
            super().action_filter()

    @property
    def _filter(self) -> tuple[str, Language[Any, Any]]:
        by_host = self._view.listing is FleetListing.HOSTS
        return self._view.filter, HOSTS if by_host else FLEET_PROCESSES

    def _narrowed(self, chosen: Selection[Any, Any]) -> FleetView:
        return fleet_view.narrow(self._view, chosen.text)

    def _unfiltered(self) -> FleetView:
        return fleet_view.narrow(self._view, "")

    @property
    def footer_keys(self) -> Sequence[FooterKey]:
        """See ``PaintedScreen.footer_keys``."""
        return fleet_keys(self._layout)

    def state_help(self) -> list[HelpSection]:
        """See ``PaintedScreen.state_help``: the worst state of a host, as its line has it."""
        host = None if self._layout.entry is None else self._layout.entry.host
        if host is None or self._view.listing is not FleetListing.HOSTS:
            return []
        sections = []
        if host.state.remark:
            title = f"{printable(host.name)}: {host.state.status.value}"
            sections = [HelpSection(title, about=host.state.remark, beside=False)]
        if host.worst is None or host.history is None:
            return sections
        name = f"{printable(host.name)} GPU {host.worst.index}"
        return sections + state_sections(name, host.history, (host.worst.state,))
