"""The view: what the user has chosen to see. An immutable value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.config.columns import DEFAULT_COLUMNS
from gpumon.text.table import Sort
from gpumon.ui.view.graph_choices import UTIL
from gpumon.ui.view.table_entries import Key, Listing, ProcessFilter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.host.process_host import RelatedProcess
    from gpumon.kill.outcome import TerminationReport
    from gpumon.model.processes import ProcessId
    from gpumon.recording.playback.replay import Playing
    from gpumon.recording.recording import Event
    from gpumon.ui.view.header_footer import LogNote


class Timeline(Struct, frozen=True):
    """The past moment that is shown.

    Attributes:
        playing: The moment and the playback state.
        events: The events of the whole recording.
        live: Whether the recording goes on, so that one can return to the present.
        complete: Whether the history before the moment has been read.
    """

    playing: Playing
    events: Sequence[Event]
    live: bool
    complete: bool = True


class Watched(Struct, frozen=True):
    """What the user watches by key.

    Attributes:
        gpus: UUIDs of GPUs: that they are free.
        processes: Processes, also those of jobs: that they have ended.
    """

    gpus: frozenset[str] = frozenset()
    processes: frozenset[ProcessId] = frozenset()


class ScreenView(Struct, frozen=True, kw_only=True):
    """What the views of all screens with a list have.

    Attributes:
        editing: Whether the filter line is open; it replaces the last line of the list.
        dialog_open: Whether a dialog, with keys of its own, is on top.
        message: Replaces the keys in the footer.
    """

    editing: bool = False
    dialog_open: bool = False
    message: str = ""


class View(ScreenView, frozen=True):
    """What the user has chosen to see; the functions of ``update`` return the next view.

    Attributes:
        interval: Seconds between samples.
        narrowing: Selects the processes that are shown.
        listing: What the table lists: processes, a tree, users or jobs.
        sort: Order of the processes.
        user_sort: Order of the users.
        columns: Keys of the columns of both tables, as ``whole_choice`` orders them.
        cursor: The line under the cursor.
        tags: The tagged processes.
        toggled: Lines whose fold state differs from the default.
        relatives: The families of the processes, for the tree.
        top: Number of lines of the table scrolled away.
        top_on_gpu: The same while the cursor is on a GPU, whose processes are listed first.
        follows_cursor: Whether the table scrolls with the cursor; the mouse wheel ends this.
        shift: Cells that commands are scrolled sideways.
        gpu: UUID of the GPU under the cursor; ``None`` if the cursor is in the table. Meanwhile
            ``cursor`` is where it was in the table.
        watched: What the user watches by key.
        unread: How many notices of alerts have not been seen on their page.
        gpus_top: Number of lines of GPUs scrolled away.
        graph: Key of the value that the small graph shows.
        graph_fits: Whether the small graph fits; set by ``lay_out``.
        paused: Whether the screen is paused.
        host_strip: Whether CPU, memory and load of the host have a line of their own.
        show_cost: Whether the header shows gpumon's own cost.
        readonly: Whether sending signals is disabled.
        reports: The progress of ending processes.
        timeline: The past moment that is shown; ``None`` is the present.
        log: The state of the log that is being written.
    """

    interval: float
    narrowing: ProcessFilter = ProcessFilter()
    listing: Listing = Listing.PROCESSES
    sort: Sort = Sort()
    user_sort: Sort = Sort()
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    cursor: Key | None = None
    tags: frozenset[ProcessId] = frozenset()
    toggled: frozenset[Key] = frozenset()
    relatives: tuple[RelatedProcess, ...] = ()
    top: int = 0
    top_on_gpu: int = 0
    follows_cursor: bool = True
    shift: int = 0
    gpu: str | None = None
    watched: Watched = Watched()
    unread: int = 0
    gpus_top: int = 0
    graph: str = UTIL.key
    graph_fits: bool = True
    paused: bool = False
    host_strip: bool = False
    show_cost: bool = False
    readonly: bool = False
    reports: tuple[TerminationReport, ...] = ()
    timeline: Timeline | None = None
    log: LogNote | None = None

    @property
    def table_top(self) -> int:
        """Number of lines of the table scrolled away now."""
        return self.top if self.gpu is None else self.top_on_gpu

    @property
    def order(self) -> Sort:
        """Order of the listed users or processes."""
        return self.user_sort if self.listing is Listing.USERS else self.sort
