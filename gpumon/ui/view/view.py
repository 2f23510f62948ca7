"""The view of the dashboard: what the user has chosen to see. An immutable value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.text.table import Sort
from gpumon.ui.view.chart_series import UTIL
from gpumon.ui.view.list_view import Key, ListView
from gpumon.ui.view.table_entries import Listing, ProcessFilter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.host.process_host import RelatedProcess
    from gpumon.kill.outcome import TerminationReport
    from gpumon.model.processes import ProcessId
    from gpumon.recording.playback.replay import Playing
    from gpumon.recording.recording import Event
    from gpumon.ui.view.header_footer import LogNote


class Timeline(Struct, frozen=True):
    """The past moment that is shown."""

    playing: Playing  # The moment and the playback state.
    events: Sequence[Event]  # Those of the whole recording.
    live: bool  # Whether the recording goes on, so that one can return to the present.
    complete: bool = True  # Whether the history before the moment has been read.


class Watched(Struct, frozen=True):
    """What the user watches by key."""

    gpus: frozenset[str] = frozenset()  # UUIDs of GPUs: that they are free.
    # Processes, also those of jobs: that they have ended.
    processes: frozenset[ProcessId] = frozenset()


class View(ListView, frozen=True, kw_only=True):
    """What the user has chosen to see; the functions of ``update`` return the next view."""

    narrowing: ProcessFilter = ProcessFilter()  # Selects the processes that are shown.
    listing: Listing = Listing.PROCESSES
    # The order of the users; while these are listed, that of the processes.
    other_sort: Sort = Sort()
    tags: frozenset[ProcessId] = frozenset()  # The tagged processes.
    toggled: frozenset[Key] = frozenset()  # Lines whose fold state differs from the default.
    relatives: tuple[RelatedProcess, ...] = ()  # Those of the processes, for the tree.
    shift: int = 0  # Cells that commands are scrolled sideways.
    # UUID of the GPU under the cursor; ``None`` if the cursor is in the table. Meanwhile ``cursor``
    # is where it was in the table.
    gpu: str | None = None
    # ``top`` while the cursor is on a GPU, whose processes are listed first.
    top_on_gpu: int = 0
    watched: Watched = Watched()
    unread: int = 0  # How many notices of alerts have not been seen on their page.
    gpus_top: int = 0  # Number of lines of GPUs scrolled away.
    graph: str = UTIL.name  # Key of the value that the small graph shows.
    graph_fits: bool = True  # Whether the small graph fits; set by ``lay_out``.
    paused: bool = False  # Whether the screen is paused.
    host_strip: bool = False  # Whether CPU, memory and load of the host have a line of their own.
    show_cost: bool = False  # Whether the header shows gpumon's own cost.
    readonly: bool = False  # Whether sending signals is disabled.
    reports: tuple[TerminationReport, ...] = ()  # The progress of ending processes.
    timeline: Timeline | None = None  # The past moment that is shown; ``None`` is the present.
    log: LogNote | None = None  # The state of the log that is being written.

    @property
    def in_list(self) -> bool:
        """See ``ListView.in_list``."""
        return self.gpu is None

    @property
    def list_top(self) -> int:
        """See ``ListView.list_top``."""
        return self.top if self.gpu is None else self.top_on_gpu

    def at(self, key: Key) -> View:
        """See ``ListView.at``."""
        return replace(super().at(key), gpu=None)

    def scrolled(self, lines: int) -> View:
        """See ``ListView.scrolled``."""
        if self.gpu is None:
            return super().scrolled(lines)
        return replace(self, top_on_gpu=self.top_on_gpu + lines)
