"""The dashboard: what it shows, and the actions of its keys and of the mouse."""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace
from textual.message import Message

from gpumon.config.ui_state import UiState, load, store
from gpumon.findings import gpu_findings
from gpumon.findings.groups import job_with_key
from gpumon.host.process_host import target_of, target_of_relative
from gpumon.makers.visible_devices import assignment_line
from gpumon.model.processes import GpuProcess
from gpumon.text.table import column_at
from gpumon.ui.background import run_in_thread
from gpumon.ui.clipboard import PAST_NUMBER, copy, copy_kill
from gpumon.ui.job_targets import targets_of_job
from gpumon.ui.keys import bindings_of, click_key
from gpumon.ui.screens.list_screen import updating
from gpumon.ui.screens.painted import WatchRequested
from gpumon.ui.screens.timed import TimedScreen, next_of
from gpumon.ui.startup_options import first_view
from gpumon.ui.view import update
from gpumon.ui.view.dashboard_layout import TOO_SMALL, is_tiny
from gpumon.ui.view.dashboard_rows import Dashboard, Parts
from gpumon.ui.view.footer_keys import footer_keys
from gpumon.ui.view.gpu_graphs import tile_at
from gpumon.ui.view.gpu_table_layout import gpu_at
from gpumon.ui.view.header_footer import interval_text, key_at
from gpumon.ui.view.key_names import keycap
from gpumon.ui.view.state_help import process_sections, state_sections
from gpumon.ui.view.table_entries import Listing
from gpumon.ui.view.timeline import time_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual import events
    from textual.binding import BindingType

    from gpumon.filters.terms import Filter
    from gpumon.findings.groups import JobGroup
    from gpumon.host.process_host import Target
    from gpumon.model.processes import ProcessId
    from gpumon.model.snapshot import Gpu
    from gpumon.system.folders import Folder
    from gpumon.ui.kill_controller import KillController
    from gpumon.ui.startup_options import StartupOptions
    from gpumon.ui.terminal.renderer import TerminalRenderer
    from gpumon.ui.view.help_page import HelpSection
    from gpumon.ui.view.table_entries import ProcessFilter
    from gpumon.ui.view.view import View, Watched
    from gpumon.ui.viewed_time import ViewedTime

INTERVALS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""The steps of ``+`` and ``-``, seconds."""

_WITHOUT_TABLE = {
    *("release", "pause", "pace", "own_cost", "log"),
    *("step", "jump", "event", "go_to", "edge"),
}
"""Actions that work on a terminal too small for a table."""


class PageRequested(Message):
    """The user opens the page of a process or GPU.

    Attributes:
        subject: A process, a job, or the UUID of a GPU.
    """

    def __init__(self, subject: ProcessId | JobGroup | str) -> None:
        super().__init__()
        self.subject = subject


class LeaveRequested(Message):
    """The user wants to leave the dashboard, with nothing left on it to clear."""


class AlertsRequested(Message):
    """The user opens the page of alerts."""


class DashboardScreen(TimedScreen):
    """The screen of ``gpumon``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("dashboard")

    _state_folder: Folder | None = None
    _remembering: ClassVar = Lock()

    parts = Parts.__struct_fields__[1:]

    def __init__(
        self,
        viewed_time: ViewedTime,
        kill_controller: KillController,
        renderer: TerminalRenderer,
        narrowing: ProcessFilter,
        options: StartupOptions,
    ) -> None:
        """Make the screen.

        Args:
            viewed_time: The session, and the source of snapshots and history.
            kill_controller: Ends processes.
            renderer: Writes changed cells.
            narrowing: The initial process filter.
            options: Columns, order, keys.
        """
        session = viewed_time.session
        view = first_view(
            session.collector.interval,
            narrowing,
            options,
            readonly=session.machine.processes.readonly,
        )
        super().__init__(viewed_time, renderer, replace(view, message=options.config_error))
        self._session = session
        self._kill_controller = kill_controller
        self._dashboard = Dashboard(viewed_time.history)
        self._snapshot = viewed_time.history.latest
        self._shown_trouble = ""

    # -- what is shown ---------------------------------------------------------------------------

    def take(self) -> None:
        """Show the newest snapshot, unless the view is paused or the terminal is slow."""
        self._viewed_time.follow()
        was_past = self._view.timeline is not None
        if self._view.paused and self._viewed_time.player is None and not was_past:
            return
        # A new player has no snapshot yet: keep the current one until then.
        self._snapshot = self._viewed_time.history.latest or self._snapshot
        self._show_log_trouble()
        self.draw()

    def _show_log_trouble(self) -> None:
        """Show why a log loses samples, or what is damaged of a replayed one: once for each."""
        note = self._session.logbook.note
        trouble = self._session.damage() if note is None else note.trouble
        if trouble and trouble != self._shown_trouble:
            self.say(trouble, lasting=True)
        self._shown_trouble = trouble

    @property
    def _urgent(self) -> tuple[str, ...]:
        in_table = ("processes", "footer")
        return in_table if self._view.gpu is None else ("gpus", *in_table)

    def _draw_rows(self, view: View, width: int, height: int) -> Parts:
        # Relatives are visible, and can be tagged, only in the tree.
        in_tree = view.listing is Listing.TREE and self._viewed_time.player is None
        view = replace(
            view,
            reports=self._kill_controller.reports,
            relatives=self._session.lookup.relatives if in_tree else (),
            timeline=self._viewed_time.timeline,
            log=self._session.logbook.note,
        )
        if self._viewed_time.history.latest is not None:
            self._dashboard.use_history(self._viewed_time.history)
        parts = self._dashboard.rows(self._snapshot, view, width, height)
        self._layout, self._view = parts.layout, parts.layout.view
        return parts

    # -- movement --------------------------------------------------------------------------------

    action_move = updating(update.move)
    action_page = updating(update.page)
    action_aside = updating(update.fold_or_scroll)
    action_change_side = updating(update.change_side)
    action_gpus = updating(update.scroll_gpus)

    def action_edge(self, end: int) -> None:
        """Move the cursor to the first or last line; in the past move to its start or end."""
        if not self.go_to_edge(end):
            self._show(update.move_to_end(self._view, self._layout, end))

    def action_release(self) -> None:
        """Clear the most recent of filter, reports, tags and selection."""
        view = self._view
        if view.editing:
            self._close_bar()
            self._view = replace(self._view, narrowing=replace(view.narrowing, filter=None))
        elif not self._kill_controller.dismiss():
            self._view = update.clear_choice(view)
            returns = self._viewed_time.is_live and self._view is view
            if returns and not self.return_to_present():
                self.post_message(LeaveRequested())
        self._show(update.clear_message(self._view))

    # -- the table -------------------------------------------------------------------------------

    action_only_gpu = updating(update.toggle_only_gpu)
    action_kind = updating(update.cycle_kind)
    action_sort = updating(update.sort)
    action_sort_step = updating(update.sort_step)
    action_reverse = updating(update.reverse)

    def action_listing(self, name: str) -> None:
        """List the tree, users or jobs; pressed again: processes."""
        self._view = update.switch_listing(self._view, self._layout, name)
        self._session.lookup.want_relatives(self._view.listing is Listing.TREE)
        self.draw()

    def action_mine(self) -> None:
        """Show only the user's own processes, or all again."""
        me = self._session.machine.processes.user
        if me is None:
            self.say("nobody is logged in on this machine")
        else:
            self._show(update.toggle_mine(self._view, me))

    def action_only_user(self) -> None:
        """Show only the processes of the user under the cursor, or of all again."""
        processes = () if self._snapshot is None else self._snapshot.processes
        self._show(update.toggle_only_user(self._view, self._layout, processes))

    def action_filter(self) -> None:
        """Open the filter line."""
        if self._view.editing:
            return
        known = self._view.narrowing.filter
        self._view = replace(self._view, editing=True)
        self._bar.open("" if known is None else known.text)
        self.draw()

    def _narrowed(self, chosen: Filter) -> View:
        return update.narrow(self._view, replace(self._view.narrowing, filter=chosen))

    def _point_at_visible(self) -> None:
        if self._layout.entry is None and self._view.gpu is None:
            self._view = update.move_to(self._view, self._layout, self._view.top)

    def take_key(self, event: events.Key) -> bool:
        """Handle a key that is no command now: a letter of the filter, or one that needs more room.

        Returns:
            False when it may be a command.
        """
        if self._view.editing:
            return super().take_key(event)
        bindings = self._bindings.key_to_bindings.get(event.key, ())
        actions = [binding.action.partition("(")[0] for binding in bindings]
        refused = not all(self.check_action(action, ()) for action in actions)
        if refused:
            self.say(TOO_SMALL)
        return refused

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's signature
        """Disable keys for the table if the terminal is too small for it."""
        width, height = self._room
        return self._view.editing or not is_tiny(width, height) or action in _WITHOUT_TABLE

    def action_columns(self) -> None:
        """Open the dialog for columns."""
        from gpumon.ui.dialogs.columns import ColumnsDialog

        def take(columns: tuple[str, ...] | None) -> None:
            if columns is not None:
                self._show(replace(self._view, columns=columns))

        self.app.push_screen(ColumnsDialog(self._view.columns), take)

    # -- actions on processes and GPUs -----------------------------------------------------------

    action_tag = updating(update.tag)
    action_tag_all = updating(update.tag_all)

    def action_open(self) -> None:
        """Open the line under the cursor; while a filter is typed, keep the filter."""
        entry = self._layout.entry
        if self._view.editing:
            self._keep_filter()
        elif self._view.gpu is not None:
            self.post_message(PageRequested(self._view.gpu))
        elif entry is None:
            self.say(update.choose_any())
        elif entry.user is not None:
            self._show(update.open_user(self._view, entry.user.user))
        elif entry.job is not None:
            self.post_message(PageRequested(entry.job))
        elif entry.process is not None:
            self.post_message(PageRequested(entry.process.id))

    def action_copy(self) -> None:
        """Copy a line to the clipboard, and show it."""
        if self._view.gpu is not None:
            self.say(copy(self.app, assignment_line([self._view.gpu], self._layout.gpus)))
        elif self._viewed_time.is_past:
            self.say(PAST_NUMBER)
        elif (entry := self._layout.entry) is not None and entry.process is not None:
            self.say(copy_kill(self.app, entry.process.id, self._session.machine.name))
        else:
            self.say(update.choose_any())

    def action_watch(self) -> None:
        """Notify when the GPU under the cursor is free, or the process or job ends (toggle)."""
        gpu, entry = self._layout.gpu, self._layout.entry
        subject: Gpu | GpuProcess | JobGroup | None = gpu
        if gpu is None and entry is not None:
            subject = entry.job or (entry.process if entry.processes else None)
        if self._viewed_time.player is not None:
            self.say("this is the past: nothing becomes free or ends in it")
        elif subject is not None and not (isinstance(subject, GpuProcess) and not subject.uses):
            self.post_message(WatchRequested(subject))
        elif entry is not None and entry.user is not None:
            self.say("choose a process first: Enter shows this user's")
        else:
            self.say(update.choose_any())

    def action_alerts(self) -> None:
        """Open the page of alerts."""
        self.post_message(AlertsRequested())

    def point_at(self, process: ProcessId) -> None:
        """Move the cursor to a process, also before the first snapshot."""
        self._view = replace(self._view, gpu=None, cursor=process, follows_cursor=True)

    def show_alerts(self, watched: Watched, unread: int) -> None:
        """Show what is watched, and how many notices of alerts have not been seen."""
        self._view = replace(self._view, watched=watched, unread=unread)

    def action_end(self) -> None:
        """Ask whether to end the tagged processes, or the process or job under the cursor."""
        chosen, name = self._chosen()
        if self._viewed_time.player is not None:
            back = f"; {keycap('last_line')} returns to now" if self._viewed_time.is_live else ""
            self.say(f"this is the past: nothing can be ended in it{back}")
        elif not chosen and self._kill_controller.ask_again():
            pass
        elif not chosen:
            self.say(update.no_process(self._view, self._layout))
        else:
            self._kill_controller.ask(chosen, name)

    def _chosen(self) -> tuple[Sequence[Target], str]:
        """The tagged processes, or without any those under the cursor, and a job's name."""
        entry, snapshot = self._layout.entry, self._snapshot
        if snapshot is None:
            return (), ""
        if self._view.tags:
            known = {relative.id: target_of_relative(relative) for relative in self._view.relatives}
            known |= {process.id: target_of(process) for process in snapshot.processes}
            return [known[tag] for tag in sorted(self._view.tags) if tag in known], ""
        if entry is not None and entry.job is not None:
            # A filter hides processes, but a job is ended as a whole.
            job = job_with_key(snapshot.processes, entry.job.key) or entry.job
            return targets_of_job(job), f"job {job.label}"
        return [target_of(process) for process in entry.processes] if entry else (), ""

    def action_pause(self) -> None:
        """Pause the view, or continue with the newest snapshot. Sampling continues meanwhile."""
        if self.play_or_pause():
            return
        self._view = replace(self._view, paused=not self._view.paused)
        if not self._view.paused:
            self._snapshot = self._viewed_time.history.latest
        self.say(f"the picture is held; {keycap('pause')} goes on" if self._view.paused else "")

    def action_pace(self, step: int) -> None:
        """Use the next longer or shorter interval; in the past play faster or slower."""
        if self.change_speed(step):
            return
        collector = self._session.collector
        collector.interval = next_of(INTERVALS, collector.interval, step)
        self._view = replace(self._view, interval=collector.interval)
        self.say(f"a sample every {interval_text(self._view.interval)}")

    def action_log(self) -> None:
        """Start to log, or stop."""
        # Opening and closing a file may block on the disk.
        turn = self._session.logbook.toggle

        def failed(error: Exception) -> None:
            if not isinstance(error, OSError):
                raise error
            self.say(f"no log can be started or stopped now: {error.strerror}", lasting=True)

        told = partial(self.say, lasting=True)
        run_in_thread(self.app, turn, told, failed, name="gpumon-logbook")

    action_next_graph = updating(update.show_next_graph)
    action_own_cost = updating(update.show_cost)

    def action_host_strip(self) -> None:
        """Show or hide the host line, and save that for the next start."""
        self._show(replace(self._view, host_strip=not self._view.host_strip))
        if self._state_folder is not None:
            # A home directory on a network may hang.
            run_in_thread(self.app, self._remember, lambda _: None, name="gpumon-remember")

    def remember_in(self, folder: Folder, *, save: bool = True) -> None:
        """Load the saved state from this folder, and save changes there if they are to be saved."""
        self._state_folder = folder if save else None
        remembered = load(folder).host_strip
        if remembered is not None:
            self._view = replace(self._view, host_strip=remembered)

    def _remember(self) -> None:
        """Save the state; of two parallel calls the later one saves the newest."""
        assert self._state_folder is not None  # noqa: S101 - called only with a folder
        with self._remembering:
            store(self._state_folder, UiState(host_strip=self._view.host_strip))

    def state_help(self) -> list[HelpSection]:
        """See ``PaintedScreen.state_help``."""
        gpu, entry = self._layout.gpu, self._layout.entry
        if self._snapshot is None or (gpu is None and entry is None):
            return []
        # A paused screen shows an earlier moment than the history's.
        history = self._viewed_time.history.as_of(self._snapshot)
        if gpu is not None:
            return state_sections(f"GPU {gpu.index}", history, gpu_findings(history, gpu))
        return [] if entry is None else process_sections(history, entry.processes)

    # -- mouse -----------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """Sort by a clicked header, select a clicked row or GPU; a double click opens it."""
        view, _ = self.get_widget_at(event.screen_x, event.screen_y)
        line = event.screen_y - view.region.y
        views = self._views
        heading = view is not views["graphs"] and line == 0
        lists = (views["gpus"], views["graphs"], views["processes"])
        if event.chain == 2 and view in lists and not heading:
            # The first click has moved the cursor, and with it perhaps the row.
            self.action_open()
        elif view is views["gpus"]:
            self._click_gpu(event.screen_x, line)
        elif view is views["graphs"]:
            self._click_graph(event.screen_x, line)
        elif view is views["processes"]:
            self._click_line(event.screen_x, line)
        elif view is views["timeline"]:
            self._click_time(event.screen_x)
        elif view is views["footer"]:
            self._click_key(event.screen_x)

    def _click_gpu(self, x: int, y: int) -> None:
        shape = self._layout.shape
        if self._snapshot is None or shape is None:
            return
        top = self._view.gpus_top
        self._point_at_gpu(gpu_at(self._snapshot, shape.gpus, self.size.width, top, x, y))

    def _click_graph(self, x: int, y: int) -> None:
        shape = self._layout.shape
        if self._snapshot is not None and shape is not None and shape.tiles:
            self._point_at_gpu(tile_at(self._snapshot, self.size.width, shape.tiles, x, y))

    def _point_at_gpu(self, gpu: Gpu | None) -> None:
        if gpu is not None:
            self._show(update.point_at_gpu(self._view, gpu.uuid))

    def _click_key(self, x: int) -> None:
        if not self._view.message:
            keys = footer_keys(self._view, self._layout.entry)
            click_key(self, key_at(keys, self.size.width, x))

    def _click_time(self, x: int) -> None:
        player, drawn = self._viewed_time.player, self._view.timeline
        if player is None or drawn is None:
            return
        time = time_at(x, drawn, self.size.width)
        if time is not None:
            player.source.seek(time)
            self._moved()

    def _click_line(self, x: int, line: int) -> None:
        at = self._view.table_top + line - 1
        if line > 0:
            if at < len(self._layout.entries):
                self._show(update.move_to(self._view, self._layout, at))
        elif (column := column_at(self._layout.headers, x)) is not None:
            self.action_sort(column.key)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Follow the mouse on the timeline while a button is held down."""
        if event.button and self._viewed_time.player is not None:
            view, _ = self.get_widget_at(event.screen_x, event.screen_y)
            if view is self._views["timeline"]:
                self._click_time(event.screen_x)

    def _scroll(self, event: events.MouseEvent, rows: int) -> None:
        """See ``PaintedScreen``."""
        view, _ = self.get_widget_at(event.screen_x, event.screen_y)
        if view is self._views["gpus"]:
            self.action_gpus(rows)
        elif view is self._views["timeline"]:
            self.action_step(rows)
        else:
            self._show(update.scroll_table(self._view, self._layout, rows))
