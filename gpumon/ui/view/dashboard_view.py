"""What the user has chosen to see of the dashboard, and the next view for each of its keys.

Only keys that other lists do not have are here; the functions are called as those of ``list_view``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpumon.config.columns import DEFAULT_COLUMNS
from gpumon.config.keymap import DEFAULT_WINDOW, ChartWindow
from gpumon.model.snapshot import lines_of
from gpumon.text.table import Sort
from gpumon.ui.view import list_view
from gpumon.ui.view.chart_series import (
    AUTO_GRAPH,
    LOAD_AND_MEMORY,
    large_graph,
    next_small_graph,
    small_graph,
)
from gpumon.ui.view.gpu_text import users_of_gpu
from gpumon.ui.view.key_names import keycap
from gpumon.ui.view.list_view import Key, ListView, clear_message
from gpumon.ui.view.process_filter import ProcessFilter
from gpumon.ui.view.process_table import Listing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.config.themes import ThemeChoice
    from gpumon.findings.groups import JobGroup
    from gpumon.host.process_host import RelatedProcess
    from gpumon.kill.outcome import TerminationReport
    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.snapshot import Gpu
    from gpumon.recording.playback.replay import Playing
    from gpumon.recording.recording import Event
    from gpumon.ui.view.dashboard_layout import Layout
    from gpumon.ui.view.gpu_table import GpusShape
    from gpumon.ui.view.header_footer import LogNote


class Timeline(Struct, frozen=True):
    """The past moment that is shown."""

    playing: Playing  # The moment and the playback state.
    events: Sequence[Event]  # Those of the whole recording.
    live: bool  # Whether the recording goes on, so that one can return to the present.
    complete: bool = True  # Whether the history before the moment has been read.
    gaps: Sequence[tuple[float, float]] = ()  # Known times in which nothing was recorded.
    origin: str = ""  # Where the moment is from, if not from this run.

    @property
    def tag(self) -> str:
        """The word in the header; empty for a replay, whose source has one."""
        if not self.live:
            return ""
        return "HISTORY" if self.origin else "REWIND"


class Watched(Struct, frozen=True):
    """What the user watches by key."""

    gpus: frozenset[str] = frozenset()  # UUIDs of GPUs: that they are free.
    # Processes, also those of jobs: that they have ended.
    processes: frozenset[ProcessId] = frozenset()


class View(ListView, frozen=True, kw_only=True):
    """What is seen, as the user has chosen; functions here and in ``list_view`` give the next."""

    narrowing: ProcessFilter = ProcessFilter()  # Selects the processes that are shown.
    listing: Listing = Listing.PROCESSES
    # The order of the users; while these are listed, that of the processes.
    other_sort: Sort = Sort()
    tags: frozenset[ProcessId] = frozenset()  # The tagged processes.
    gpu_tags: frozenset[str] = frozenset()  # UUIDs of the tagged GPUs.
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
    graph: str = AUTO_GRAPH  # Name of the series that the graphs show.
    graph_fits: bool = True  # Whether the small graph fits; set by ``lay_out``.
    window: ChartWindow = DEFAULT_WINDOW  # The time that all charts show.
    has_charts: bool = False  # Whether the dashboard has charts; set by ``lay_out``.
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

    @property
    def is_past(self) -> bool:
        """Whether the charts end before now: in the past, and on a paused screen."""
        return self.paused or self.timeline is not None

    @property
    def compares(self) -> bool:
        """Whether the key that opens a GPU compares the tagged ones instead."""
        return self.gpu is not None and len(self.gpu_tags) > 1

    def at(self, key: Key) -> View:
        """See ``ListView.at``."""
        return replace(super().at(key), gpu=None)

    def scrolled(self, lines: int) -> View:
        """See ``ListView.scrolled``."""
        if self.gpu is None:
            return super().scrolled(lines)
        return replace(self, top_on_gpu=self.top_on_gpu + lines)


_SHIFT_CELLS = 8


# -- the cursor and scrolling ------------------------------------------------------------------


def move(view: View, layout: Layout, lines: int) -> View:
    """Move the cursor by lines; the table follows the last GPU."""
    last = layout.gpus[-1].uuid if layout.gpus else None
    if view.gpu is not None:
        if lines < 0 or view.gpu != last:
            return _move_gpu(view, layout, lines)
        return leave_gpus(view, layout) if view.cursor is None else point_at_gpu(view, None)
    if lines < 0 and layout.index_of(view.cursor) == 0:
        return point_at_gpu(view, _narrowed_gpu(layout) or last)
    return list_view.move(view, layout, lines)


def page(view: View, layout: Layout, pages: int) -> View:
    """Move the cursor by the height of the table."""
    if view.gpu is not None:
        return _move_gpu(view, layout, pages * max(1, layout.room))
    return list_view.page(view, layout, pages)


def move_to_end(view: View, layout: Layout, end: int) -> View:
    """Move the cursor to the first or last line."""
    if view.gpu is not None:
        return _move_gpu(view, layout, end * len(layout.gpus))
    return list_view.move_to_end(view, layout, end)


def _move_gpu(view: View, layout: Layout, step: int) -> View:
    uuids = [gpu.uuid for gpu in layout.gpus]
    if view.gpu not in uuids:
        return clear_message(view)
    at = uuids.index(view.gpu) + step
    return point_at_gpu(view, uuids[max(0, min(at, len(uuids) - 1))])


def point_at_gpu(view: View, uuid: str | None) -> View:
    """Move the cursor to a GPU; ``None`` moves it back to its line of the table.

    A table that shows the processes of one GPU alone goes on with this GPU.
    """
    if uuid is not None and view.narrowing.gpu is not None and view.narrowing.gpu != uuid:
        view = narrow(view, replace(view.narrowing, gpu=uuid))
    return clear_message(replace(view, gpu=uuid, top_on_gpu=0))


def change_side(view: View, layout: Layout) -> View:
    """Move the cursor from a process to its GPU, or from a GPU to its first process."""
    if view.gpu is not None:
        return leave_gpus(view, layout)
    first = layout.gpus[0].uuid if layout.gpus else None
    return point_at_gpu(view, _narrowed_gpu(layout) or _gpu_of_entry(layout) or first)


def leave_gpus(view: View, layout: Layout) -> View:
    """Move the cursor from a GPU to its process, or to its first one if it has several.

    If the cursor was on one of them before, it returns there.
    """
    gpu = layout.gpu
    on_gpu = [e.key for e in layout.entries if gpu is not None and gpu.index in e.gpus]
    cursor = on_gpu[0] if on_gpu and view.cursor not in on_gpu else view.cursor
    return replace(point_at_gpu(view, None), cursor=cursor, follows_cursor=True)


def _narrowed_gpu(layout: Layout) -> str | None:
    """UUID of the GPU whose processes alone are shown, if it is there."""
    wanted = layout.view.narrowing.gpu
    return next((gpu.uuid for gpu in layout.gpus if gpu.uuid == wanted), None)


def _gpu_of_entry(layout: Layout) -> str | None:
    """UUID of the first GPU of the line under the cursor."""
    indices = () if layout.entry is None else layout.entry.gpus
    return next((gpu.uuid for gpu in layout.gpus if gpu.index in indices), None)


def fold_or_scroll(view: View, layout: Layout, step: int) -> View:
    """Fold or unfold the lines below the cursor's, or scroll the commands sideways.

    If GPUs are listed side by side and the cursor is on one, it moves to the one beside it.
    """
    if view.gpu is not None and layout.shape is not None and layout.shape.gpus.columns > 1:
        return _move_beside(view, layout.gpus, layout.shape.gpus, step)
    entry = layout.entry
    if view.listing in {Listing.TREE, Listing.JOBS} and entry is not None and entry.below:
        folds = entry.folded == (step > 0)
        return replace(view, toggled=view.toggled ^ {entry.key}) if folds else view
    return replace(view, shift=max(0, view.shift + step * _SHIFT_CELLS))


def _move_beside(view: View, gpus: Sequence[Gpu], shape: GpusShape, step: int) -> View:
    lines = [line.gpu.uuid for line in lines_of(gpus)]
    if view.gpu not in lines:
        return view
    line = lines.index(view.gpu) + step * (shape.rows - 1)
    visible = lines[view.gpus_top : view.gpus_top + shape.in_sight]
    beside = line - view.gpus_top
    return point_at_gpu(view, visible[beside]) if 0 <= beside < len(visible) else view


def scroll_gpus(view: View, layout: Layout, lines: int) -> View:
    """Scroll the GPUs, away from the cursor if it is on one."""
    gpu = None if layout.hidden_gpus else view.gpu
    return replace(view, gpus_top=view.gpus_top + lines, gpu=gpu)


def clear_choice(view: View) -> View:
    """Clear one choice; return the same view if there is none.

    The order is tags, filters, the cursor on GPUs, the list of users, jobs or the tree, the cursor.
    """
    asked = ProcessFilter(user=view.narrowing.user)
    if view.tags or view.gpu_tags:
        return replace(view, tags=frozenset(), gpu_tags=frozenset())
    if view.narrowing != asked:
        return replace(view, narrowing=asked)
    if view.gpu is not None:
        return point_at_gpu(view, None)
    if view.listing is not Listing.PROCESSES:
        return show_list(view, Listing.PROCESSES)
    if view.cursor is not None or view.top or view.shift:
        return replace(view, cursor=None, top=0, shift=0)
    return view


# -- what is listed ----------------------------------------------------------------------------


def switch_listing(view: View, _: Layout, name: str) -> View:
    """List a tree, users or jobs; the current listing's name switches back to processes."""
    wanted = Listing(name)
    return show_list(view, Listing.PROCESSES if view.listing is wanted else wanted)


def show_list(view: View, listing: Listing) -> View:
    """Show another list; users have an order of their own."""
    if (listing is Listing.USERS) != (view.listing is Listing.USERS):
        view = replace(view, sort=view.other_sort, other_sort=view.sort)
    return replace(view, listing=listing, follows_cursor=True)


def narrow(view: View, narrowing: ProcessFilter) -> View:
    """Change the filter and scroll to the first line."""
    return replace(view, narrowing=narrowing, top=0, top_on_gpu=0, follows_cursor=True)


def toggle_only_gpu(view: View, layout: Layout) -> View | tuple[View, str]:
    """Show only the processes of the GPU under the cursor, or of all GPUs again.

    In the table it is the GPU of the process under the cursor.
    """
    gpu = None
    if view.narrowing.gpu is None:
        gpu = view.gpu or _gpu_of_entry(layout)
        if gpu is None:
            return view, f"choose a GPU first: {keycap('change_side')}"
    return clear_message(narrow(view, replace(view.narrowing, gpu=gpu)))


def cycle_kind(view: View, _: Layout) -> View:
    """Show compute processes only, then graphics processes only, then both."""
    after = {None: "C", "C": "G", "G": None}[view.narrowing.kind]
    return narrow(view, replace(view.narrowing, kind=after))


def toggle_mine(view: View, user: str) -> View:
    """Show only the current user's processes, or everybody's again."""
    mine = None if view.narrowing.mine else user
    return narrow(view, replace(view.narrowing, mine=mine, only_user=None))


def point_at_own(view: View, layout: Layout, user: str) -> View:
    """Move the cursor to the user's first line, once only these are shown and it is on none."""
    if view.narrowing.mine is None or not view.in_list or layout.entry is not None:
        return view
    first = next((entry.key for entry in layout.entries if user in entry.users), None)
    return view if first is None else view.at(first)


def toggle_only_user(
    view: View, layout: Layout, processes: Sequence[GpuProcess]
) -> View | tuple[View, str]:
    """Show only the processes of one user, or of all users again.

    It is the user of the line under the cursor, or who holds most memory of the GPU under it, of
    all processes, unfiltered.
    """
    if view.narrowing.only_user is not None:
        return clear_message(narrow(view, replace(view.narrowing, only_user=None)))
    entry, gpu = layout.entry, layout.gpu
    if gpu is not None:
        users: Sequence[str | None] = users_of_gpu(processes, gpu.uuid)
    elif entry is not None:
        users = entry.users
    else:
        return view, choose_any()
    if not users:
        return view, "no process is listed here"
    return narrow_to_user(view, users[0])


def narrow_to_user(view: View, user: str | None) -> View | tuple[View, str]:
    """Show only the processes of a user; ``None`` is an unknown user."""
    if user is None:
        return view, "the owner of these is not visible here"
    return clear_message(narrow(view, replace(view.narrowing, mine=None, only_user=user)))


def open_user(view: View, user: str | None) -> View | tuple[View, str]:
    """List the processes of a user of the list of users."""
    return narrow_to_user(show_list(view, Listing.PROCESSES), user)


# -- tags --------------------------------------------------------------------------------------


def tag(view: View, layout: Layout) -> View | tuple[View, str]:
    """Tag or untag the GPU or the processes under the cursor, and move to the next line."""
    if view.gpu is not None:
        return _move_gpu(replace(view, gpu_tags=view.gpu_tags ^ {view.gpu}), layout, 1)
    entry = layout.entry
    if entry is None or not entry.processes:
        return view, no_process(view, layout)
    members = frozenset(process.id for process in entry.processes)
    tags = view.tags - members if members <= view.tags else view.tags | members
    return move(replace(view, tags=tags), layout, 1)


def tag_all(view: View, layout: Layout) -> View:
    """Tag all GPU processes that are shown, or untag them if all are tagged."""
    shown = frozenset(
        process.id for entry in layout.entries for process in entry.processes if process.uses
    )
    return replace(view, tags=view.tags - shown if shown <= view.tags else view.tags | shown)


def no_process(view: View, layout: Layout) -> str:
    """Explain why there is no process under the cursor, and how to select one."""
    side = keycap("change_side")
    if view.gpu is not None and view.gpu_tags:
        return f"only processes can be ended, and only GPUs are tagged: {side} goes to processes"
    if view.gpu is not None:
        return f"the cursor is on a GPU, not on a process: {side} goes back to the processes"
    if not layout.entries:
        return "no process is listed"
    if layout.entry is not None and layout.entry.job is not None:
        return no_process_of(layout.entry.job)
    if layout.entry is not None:
        return "choose a process first: Enter shows this user's"
    return f"{choose_first()}, or tag several: {keycap('tag')}"


def no_process_of(job: JobGroup) -> str:
    """Explain that a job has GPUs and no process on them."""
    return f"no process of {job.label} is on a GPU"


def choose_first() -> str:
    """Explain how to select a process."""
    return f"choose a process first: {keycap('previous_line', 'next_line')}"


def choose_any() -> str:
    """Explain how to select a process or a GPU."""
    return f"{choose_first()}, or a GPU: {keycap('change_side')}"


# -- other parts of the screen -----------------------------------------------------------------


def show_next_graph(view: View, layout: Layout) -> tuple[View, str]:
    """Show the next value in the graphs."""
    if not view.graph_fits:
        return view, "at this size there is no room for graphs"
    columns, gpus = layout.line_columns, layout.gpus
    is_small = columns is not None and columns.width_of("spark") > 0
    shown = small_graph(view.graph, gpus) if is_small else large_graph(view.graph)
    graph = next_small_graph(shown.name, gpus)
    about = graph.about
    if not is_small and graph in LOAD_AND_MEMORY:
        # A large chart has both.
        about = "utilisation and memory"
        if shown in LOAD_AND_MEMORY:
            graph = next_small_graph(graph.name, gpus)
            about = graph.about
    return replace(view, graph=graph.name), f"the graphs show {about}"


def show_cost(view: View, _: Layout) -> View:
    """Show or hide gpumon's own cost in the header."""
    return replace(view, show_cost=not view.show_cost)


class StartupOptions(Struct, frozen=True):
    """The initial state of the dashboard."""

    columns: tuple[str, ...] = DEFAULT_COLUMNS  # Keys of the columns.
    sort: Sort = Sort()
    # The keys of each action that has other keys than the default ones, by its id.
    keys: Mapping[str, tuple[str, ...]] = {}
    config_error: str = ""  # The errors in the configuration, shown at start.
    theme: ThemeChoice | None = None  # ``None`` for the default.
    graph: str = AUTO_GRAPH  # Name of the series in the graphs.
    # Whether the host line is shown, unless the user has toggled it before.
    host_strip: bool = False
    # Whether the user only looks on, in a browser: everything else is refused, nothing is saved.
    visitor: bool = False


DEFAULT_OPTIONS = StartupOptions()


def first_view(
    interval: float, narrowing: ProcessFilter, options: StartupOptions, *, readonly: bool
) -> View:
    """The view before the first key; ``readonly`` if every signal is refused."""
    return View(
        interval=interval,
        narrowing=narrowing,
        columns=options.columns,
        sort=options.sort,
        readonly=readonly,
        graph=options.graph,
        host_strip=options.host_strip,
    )
