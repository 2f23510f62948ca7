"""The dashboard: what it shows, and the actions of its keys and of the mouse."""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from gpumon.config.ui_state import UiState, load, store
from gpumon.filters.terms import PROCESSES
from gpumon.findings import gpu_findings
from gpumon.findings.groups import allocated_jobs, job_with_key
from gpumon.host.process_host import target_of, target_of_relative
from gpumon.makers.visible_devices import assignment_line
from gpumon.model.processes import GpuProcess
from gpumon.ui.background import call_soon, run_in_thread
from gpumon.ui.keys import bindings_of
from gpumon.ui.kill_controller import targets_of_job
from gpumon.ui.screens.list_screen import ListScreen, updating
from gpumon.ui.terminal.desktop import NO_PID_OF_THE_PAST, copy, copy_kill
from gpumon.ui.view import dashboard_view
from gpumon.ui.view.dashboard_layout import TOO_SMALL, Layout, is_tiny
from gpumon.ui.view.dashboard_rows import Dashboard, Parts
from gpumon.ui.view.dashboard_view import View, first_view
from gpumon.ui.view.gpu_table import gpu_at
from gpumon.ui.view.gpu_tiles import tile_at
from gpumon.ui.view.header_footer import interval_text
from gpumon.ui.view.help_page import process_sections, state_sections
from gpumon.ui.view.key_names import footer_keys, keycap
from gpumon.ui.view.list_view import clear_message
from gpumon.ui.view.process_table import Listing
from gpumon.ui.view.timeline import time_at
from gpumon.ui.viewed_time import NOTHING_RECORDED, next_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual import events
    from textual.binding import BindingType

    from gpumon.filters.language import Language
    from gpumon.filters.terms import Filter
    from gpumon.host.process_host import Target
    from gpumon.model.processes import ProcessId
    from gpumon.model.snapshot import Gpu
    from gpumon.system.folders import Folder
    from gpumon.ui.alert_controller import Subject
    from gpumon.ui.view.dashboard_view import StartupOptions, Watched
    from gpumon.ui.view.help_page import HelpSection
    from gpumon.ui.view.key_names import FooterKey
    from gpumon.ui.view.process_filter import ProcessFilter
    from gpumon.ui.workspace import Workspace

INTERVALS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""The steps of ``+`` and ``-``, seconds."""

_WITHOUT_TABLE = {
    *("release", "pause", "pace", "own_cost", "log", "log_for"),
    *("step", "jump", "event", "go_to", "edge"),
}
"""Actions that work on a terminal too small for a table."""


class DashboardScreen(ListScreen[View, Layout]):
    """The screen of ``gpumon``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("dashboard")

    _state_folder: Folder | None = None
    _remembering: ClassVar = Lock()

    parts = Parts.__struct_fields__[1:]
    list_part = "processes"

    def __init__(
        self, workspace: Workspace, narrowing: ProcessFilter, options: StartupOptions
    ) -> None:
        """Make the screen, with the initial process filter and order."""
        session = workspace.session
        view = first_view(
            session.collector.interval,
            narrowing,
            options,
            readonly=session.machine.processes.readonly,
        )
        view = replace(view, message=options.config_error)
        super().__init__(workspace.renderer, view, Layout(view=view))
        self._workspace = workspace
        self._session = session
        self._viewed_time = workspace.viewed_time
        self._kill_controller = workspace.kill_controller
        self._dashboard = Dashboard(self._viewed_time.history)
        self._snapshot = self._viewed_time.history.latest
        self._shown_trouble = ""

    # -- what is shown ---------------------------------------------------------------------------

    def show_newest(self) -> None:
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
            window=self._workspace.window,
        )
        if self._viewed_time.history.latest is not None:
            self._dashboard.use_history(self._viewed_time.history)
        parts = self._dashboard.rows(self._snapshot, view, width, height)
        self._layout, self._view = parts.layout, parts.layout.view
        return parts

    # -- movement --------------------------------------------------------------------------------

    action_move = updating(dashboard_view.move)
    action_page = updating(dashboard_view.page)
    action_aside = updating(dashboard_view.fold_or_scroll)
    action_change_side = updating(dashboard_view.change_side)
    action_gpus = updating(dashboard_view.scroll_gpus)

    def action_edge(self, end: int) -> None:
        """Move the cursor to the first or last line; in the past move to its start or end."""
        if self._viewed_time.go_to_edge(end):
            self._show_time()
        else:
            self._show(dashboard_view.move_to_end(self._view, self._layout, end))

    def _clear_choice(self) -> None:
        """Clear the most recent of reports, tags, filter, list and selection, or the past."""
        view = self._view
        if not self._kill_controller.dismiss():
            self._view = dashboard_view.clear_choice(view)
            self._want_relatives()
            if self._viewed_time.is_live and self._view is view:
                if self._viewed_time.go_to_edge(1):
                    self._show_time()
                else:
                    self._workspace.leave()
        self._show(clear_message(self._view))

    # -- time ------------------------------------------------------------------------------------

    def _show_time(self, message: str = "") -> None:
        """Show the viewed time, without the message about the previous one."""
        self._view = clear_message(self._view)
        self.show_newest()
        if message:
            self.say(message)

    def action_step(self, samples: int) -> None:
        """Move by samples."""
        self._show_time(self._viewed_time.step(samples))

    def action_jump(self, seconds: int) -> None:
        """Move by seconds."""
        self._show_time(self._viewed_time.jump(seconds))

    def action_event(self, direction: int) -> None:
        """Move to the next or previous event."""
        self._show_time(self._viewed_time.go_to_event(direction))

    def action_go_to(self) -> None:
        """Open the dialog for a time, and go there."""
        from gpumon.ui.dialogs.choices import MomentDialog

        was_present = self._viewed_time.player is None
        player = self._viewed_time.rewind()
        if player is None:
            self.say(NOTHING_RECORDED)
            return

        def go(time: float | None) -> None:
            if time is not None:
                player.source.seek(time)
            elif was_present:
                self._viewed_time.go_to_edge(1)
            self._show_time()

        self.app.push_screen(MomentDialog(player.playing), go)

    def action_pause(self) -> None:
        """Pause the view, or continue with the newest snapshot. Sampling continues meanwhile."""
        if self._viewed_time.play_or_pause():
            self.show_newest()
            return
        self._view = replace(self._view, paused=not self._view.paused)
        if not self._view.paused:
            self._snapshot = self._viewed_time.history.latest
        self.say(f"paused; {keycap('pause')} resumes" if self._view.paused else "")

    def action_pace(self, step: int) -> None:
        """Use the next longer or shorter interval; in the past play faster or slower."""
        message = self._viewed_time.change_speed(step)
        if not message:
            collector = self._session.collector
            collector.interval = next_of(INTERVALS, collector.interval, step)
            self._view = replace(self._view, interval=collector.interval)
            message = f"a sample every {interval_text(self._view.interval)}"
        self.say(message)

    # -- the table -------------------------------------------------------------------------------

    action_only_gpu = updating(dashboard_view.toggle_only_gpu)
    action_kind = updating(dashboard_view.cycle_kind)

    def action_listing(self, name: str) -> None:
        """List the tree, users or jobs; pressed again: processes."""
        self._view = dashboard_view.switch_listing(self._view, self._layout, name)
        self._want_relatives()
        if self._view.listing is Listing.TREE and self._viewed_time.is_past:
            self.say("parents and children are not recorded: the past has GPU processes only")
        self.draw()

    def _want_relatives(self) -> None:
        """Look up the relatives of processes only while the tree shows them."""
        self._session.lookup.want_relatives(self._view.listing is Listing.TREE)

    def action_mine(self) -> None:
        """Show only the user's own processes, or all again."""
        me = self._session.machine.processes.user
        if me is None:
            self.say("nobody is logged in on this machine")
        else:
            self._show(dashboard_view.toggle_mine(self._view, me))
            self._show(dashboard_view.point_at_own(self._view, self._layout, me))

    def action_only_user(self) -> None:
        """Show only the processes of the user under the cursor, or of all again."""
        processes = () if self._snapshot is None else self._snapshot.processes
        self._show(dashboard_view.toggle_only_user(self._view, self._layout, processes))

    @property
    def _filter(self) -> tuple[str, Language[Any, Any]]:
        known = self._view.narrowing.filter
        return "" if known is None else known.text, PROCESSES

    def _narrowed(self, chosen: Filter) -> View:
        return dashboard_view.narrow(self._view, replace(self._view.narrowing, filter=chosen))

    def _unfiltered(self) -> View:
        return replace(self._view, narrowing=replace(self._view.narrowing, filter=None))

    def accept_key(self, event: events.Key) -> bool:
        """See ``PaintedScreen``; also refuse a key that needs more room."""
        if self._view.editing:
            return super().accept_key(event)
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
        from gpumon.ui.dialogs.choices import ColumnsDialog

        def show(columns: tuple[str, ...] | None) -> None:
            if columns is not None:
                self._show(replace(self._view, columns=columns))

        self.app.push_screen(ColumnsDialog(self._view.columns), show)

    # -- actions on processes and GPUs -----------------------------------------------------------

    action_tag = updating(dashboard_view.tag)
    action_tag_all = updating(dashboard_view.tag_all)

    def _open(self) -> None:
        entry = self._layout.entry
        if self._view.compares:
            self._workspace.open_comparison(self._tagged_gpus)
        elif self._view.gpu is not None:
            self._workspace.open_page(self._view.gpu)
        elif entry is None:
            self.say(dashboard_view.choose_any())
        elif entry.user is not None:
            self._show(dashboard_view.open_user(self._view, entry.user.user))
        elif entry.job is not None:
            self._workspace.open_page(entry.job)
        elif entry.process is not None:
            self._workspace.open_page(entry.process.id)

    @property
    def _tagged_gpus(self) -> list[str]:
        """The UUIDs of the tagged GPUs, in the order of the dashboard."""
        return [gpu.uuid for gpu in self._layout.gpus if gpu.uuid in self._view.gpu_tags]

    def action_copy(self) -> None:
        """Copy a line to the clipboard, and show it."""
        if self._view.gpu is not None:
            chosen = self._tagged_gpus or [self._view.gpu]
            self.say(copy(self.app, assignment_line(chosen, self._layout.gpus)))
        elif self._viewed_time.is_past:
            self.say(NO_PID_OF_THE_PAST)
        elif (entry := self._layout.entry) is not None and entry.process is not None:
            self.say(copy_kill(self.app, entry.process.id, self._session.machine.name))
        elif entry is not None and entry.job is not None and not entry.processes:
            self.say(dashboard_view.no_process_of(entry.job))
        else:
            self.say(dashboard_view.choose_any())

    def action_watch(self) -> None:
        """Notify when the GPU under the cursor is free, or the process or job ends (toggle)."""
        gpu, entry = self._layout.gpu, self._layout.entry
        subject: Subject | None = gpu
        if gpu is None and entry is not None:
            subject = entry.job or (entry.process if entry.processes else None)
        if self._viewed_time.player is not None:
            self.say("this is the past: nothing becomes free or ends in it")
        elif subject is not None and not (isinstance(subject, GpuProcess) and not subject.uses):
            self._workspace.watch(subject)
        elif entry is not None and entry.user is not None:
            self.say("choose a process first: Enter shows this user's")
        else:
            self.say(dashboard_view.choose_any())

    def action_alerts(self) -> None:
        """Open the page of alerts."""
        self._workspace.open_alerts()

    def action_accidents(self) -> None:
        """Open the page of accidents."""
        self._workspace.open_accidents()

    def point_at(self, process: ProcessId) -> None:
        """Move the cursor to a process, also before the first snapshot."""
        self._view = self._view.at(process)

    def follow_gpu(self, uuid: str) -> None:
        """Move the cursor to the GPU whose page is shown, if it is on a GPU."""
        if self._view.gpu is not None:
            self._view = dashboard_view.point_at_gpu(self._view, uuid)

    def action_topology(self) -> None:
        """Open the page of the topology."""
        self._workspace.open_topology()

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
            self.say(dashboard_view.no_process(self._view, self._layout))
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
            allocated = allocated_jobs(snapshot, self._viewed_time.history)
            job = job_with_key(snapshot.processes, entry.job.key, allocated) or entry.job
            return targets_of_job(job), f"job {job.label}"
        return [target_of(process) for process in entry.processes] if entry else (), ""

    def action_log(self) -> None:
        """Start to log, or stop."""
        self._change_log(self._session.logbook.toggle)

    def action_log_for(self) -> None:
        """Ask for a length of time, and log for it."""
        from gpumon.ui.dialogs.choices import TimespanDialog

        def ended(message: str) -> None:
            call_soon(self.app, partial(self.say, lasting=True), message)

        def start(seconds: float | None) -> None:
            if seconds is not None:
                self._change_log(partial(self._session.logbook.log_for, seconds, ended))

        self.app.push_screen(TimespanDialog("Log to a file for a length of time", "log"), start)

    def _change_log(self, change: Callable[[], str]) -> None:
        # Opening and closing a file may block on the disk.
        def failed(error: Exception) -> None:
            if not isinstance(error, OSError):
                raise error
            self.say(f"no log can be started or stopped now: {error.strerror}", lasting=True)

        said = partial(self.say, lasting=True)
        run_in_thread(self.app, change, said, failed, name="gpumon-logbook")

    def action_window(self, key: str) -> None:
        """Show another window in all charts."""
        self._workspace.show_window(key)
        title = self._workspace.window.title
        self.say(f"charts: {title[0].lower()}{title[1:]}")

    action_next_graph = updating(dashboard_view.show_next_graph)
    action_own_cost = updating(dashboard_view.show_cost)

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

    def _click(self, part: str, x: int, y: int, *, again: bool) -> None:
        """See ``ListScreen``; a click also selects a GPU or a time."""
        if part in {"gpus", "graphs"}:
            self._click_gpu(part, x, y, again=again)
        elif part == "timeline":
            # Below the bar is the text of an event.
            if y == 0:
                self._click_time(x)
        else:
            super()._click(part, x, y, again=again)

    def _click_gpu(self, part: str, x: int, y: int, *, again: bool) -> None:
        snapshot, shape, width = self._snapshot, self._layout.shape, self.size.width
        gpu: Gpu | None = None
        if snapshot is not None and shape is not None:
            if part == "gpus":
                gpu = gpu_at(snapshot, shape.gpus, width, self._view.gpus_top, x, y)
            else:
                gpu = tile_at(self._layout.charted, shape.tiles, width, x, y)
        if gpu is not None and again:
            self.action_open()
        elif gpu is not None:
            self._show(dashboard_view.point_at_gpu(self._view, gpu.uuid))

    @property
    def footer_keys(self) -> Sequence[FooterKey]:
        """See ``PaintedScreen.footer_keys``."""
        return footer_keys(self._view, self._layout.entry)

    def _click_time(self, x: int) -> None:
        player, drawn = self._viewed_time.player, self._view.timeline
        if player is None or drawn is None:
            return
        time = time_at(x, drawn, self.size.width)
        if time is not None:
            player.source.seek(time)
            self._show_time()

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
            super()._scroll(event, rows)
