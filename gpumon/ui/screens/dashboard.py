"""The dashboard on screen: rows go to the widgets that send them, keys change what is chosen."""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace
from textual.message import Message

from gpumon.config.columns import COLUMN, COLUMNS
from gpumon.config.ui_state import Remembered, load, store
from gpumon.filters import parse_filter
from gpumon.host import target_of, target_of_kin
from gpumon.ui.background import run_errand
from gpumon.ui.clipboard import PAST_NUMBER, copy, copy_kill, cuda_line
from gpumon.ui.keys import bindings_of, press
from gpumon.ui.screens.timed import TimedScreen
from gpumon.ui.startup_options import USUAL, first_view
from gpumon.ui.view.cards import card_at
from gpumon.ui.view.dashboard import (
    LEAST_HEIGHT,
    LEAST_WIDTH,
    Dashboard,
    footer_keys,
    is_tiny,
)
from gpumon.ui.view.graphs import next_graph
from gpumon.ui.view.grouped import USER_COLUMNS
from gpumon.ui.view.header_footer import interval_text, key_at
from gpumon.ui.view.key_names import keycap
from gpumon.ui.view.listing import Listing, ProcessFilter
from gpumon.ui.view.processes import Sort, column_at
from gpumon.ui.view.tiles import tile_at
from gpumon.ui.view.timeline import time_at
from gpumon.ui.widgets.cell_view import CellView
from gpumon.ui.widgets.filter_bar import FilterBar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.geometry import Size
    from textual.timer import Timer

    from gpumon.host import Target
    from gpumon.model.snapshot import Gpu, ProcessId
    from gpumon.system.folders import Folder
    from gpumon.ui.kill_controller import KillController
    from gpumon.ui.session import Session
    from gpumon.ui.startup_options import StartupOptions
    from gpumon.ui.terminal.renderer import TerminalRenderer
    from gpumon.ui.theme import Palette
    from gpumon.ui.view.dashboard import Parts
    from gpumon.ui.view.listing import Entry, Key
    from gpumon.ui.view.processes import ColumnHeader
    from gpumon.ui.viewed_time import ViewedTime

INTERVALS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""The steps of ``+`` and ``-``, seconds."""

_PARTS = (
    "header",
    "host",
    "cards",
    "graphs",
    "rule",
    "processes",
    "report",
    "timeline",
    "footer",
    "tiny",
)
_BY_URGENCY = (
    "processes",
    "footer",
    *(name for name in _PARTS if name not in {"processes", "footer"}),
)
"""Where a slow terminal has no room for all, keys are obeyed first."""
_MESSAGE_SECONDS = 3.0
_READING_SECONDS = 10.0
_CATCH_UP_SECONDS = 0.1
_BENEATH_SECONDS = 0.5
"""Seconds between two pictures while a dialog lies on top: Textual draws these, at its own cost."""
_BEHIND_SECONDS = 1.0
"""Likewise between two lists that the terminal has no room to show."""
_WHEEL_ROWS = 3
_SHIFT_CELLS = 8
_WITHOUT_TABLE = {
    *("release", "pause", "pace", "own_cost", "log"),
    *("step", "jump", "event", "go_to", "edge"),
}
"""Actions of this screen that do something where there is no room for a table."""


class PageWanted(Message):
    """Somebody wants to see one thing from near.

    Attributes:
        subject: A process, or the UUID of a card.
    """

    def __init__(self, subject: ProcessId | str) -> None:
        super().__init__()
        self.subject = subject


class WordWanted(Message):
    """Somebody wants to be told when a card is free, or no longer.

    Attributes:
        card: Which.
    """

    def __init__(self, card: Gpu) -> None:
        super().__init__()
        self.card = card


class DashboardScreen(TimedScreen):
    """What a person sees after typing ``gpumon``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("dashboard")

    CSS_PATH = "dashboard.tcss"
    AUTO_FOCUS = ""

    def __init__(
        self,
        session: Session,
        stage: ViewedTime,
        cases: KillController,
        pen: TerminalRenderer,
        palette: Palette,
        narrowing: ProcessFilter,
        chosen: StartupOptions = USUAL,
    ) -> None:
        """Make the screen.

        Args:
            session: Whom to ask.
            stage: What to show.
            cases: Ends processes.
            pen: Writes changed cells.
            palette: Colours.
            narrowing: Which of the processes to show at first.
            chosen: What is settled for it: columns, order, keys.
        """
        super().__init__(stage)
        self._session = session
        self._cases = cases
        self._pen = pen
        self._palette = palette
        self._view = first_view(
            session.collector.interval, narrowing, chosen, readonly=session.host.readonly
        )
        self._dashboard = Dashboard(stage.history)
        self._snapshot = stage.history.latest
        self._views: dict[str, CellView] = {}
        self._heights: tuple[int, ...] = ()
        self._bar = FilterBar()
        self._state_folder: Folder | None = None
        self._remembering = Lock()
        self._drawn_beneath = 0.0
        self._listed_behind = 0.0
        self._told_trouble = ""
        self._owed: Timer | None = None
        self._owed_to_key = False
        self._unsaying: Timer | None = None
        self._complaint = chosen.complaint

    def compose(self) -> ComposeResult:
        """The parts from the top down."""
        self._views = {name: CellView(self._pen, self._palette, id=name) for name in _PARTS}
        for name, view in self._views.items():
            if name == "footer":
                yield self._bar
            yield view

    def on_mount(self) -> None:
        """Give the parts their places before the first layout."""
        if self._complaint:
            self.say(self._complaint, lasting=True)
        else:
            self.draw()

    def on_resize(self) -> None:
        """Share the terminal out anew."""
        self.draw()

    def on_screen_resume(self) -> None:
        """Nothing was drawn while another screen lay on top."""
        self._drawn_beneath = 0.0
        self.draw()

    def on_screen_suspend(self) -> None:
        """The keys of the footer do not work under a dialog."""
        self.draw()

    def repaint(self, palette: Palette) -> None:
        """Take other colours."""
        self._palette = palette
        for view in self._views.values():
            view.repaint(palette)

    # -- what is shown ---------------------------------------------------------------------------

    def take(self) -> None:
        """Show the newest snapshot, unless the picture is held or the terminal is behind."""
        self._stage.follow()
        was_past = self._view.timeline is not None
        if self._view.paused and self._stage.player is None and not was_past:
            return
        # A past that is being made has nothing to show yet: what is shown stays until then.
        self._snapshot = self._stage.history.latest or self._snapshot
        self._tell_of_log()
        self.draw()

    def _tell_of_log(self) -> None:
        """Say why a log loses samples, once for each trouble."""
        note = self._session.logbook.note
        trouble = "" if note is None else note.trouble
        if trouble and trouble != self._told_trouble:
            self.say(trouble, lasting=True)
        self._told_trouble = trouble

    def draw(self) -> None:
        """Bring every part up to date; what did not change sends nothing.

        While the terminal has not taken what was written before, nothing is added to it: the frame
        is left out, and its changes come with the one that is drawn when there is room again.
        """
        if not self.is_attached or not self._is_seen():
            return
        # The first frame is due however slow the line: before it Textual draws blank rows.
        behind = bool(self._heights) and self._pen.behind()
        if behind and not self._is_due():
            return
        width, height = self._room()
        self._view.covered = self.app.screen is not self
        self._view.reports = self._cases.reports
        # Without the tree nobody sees its other processes, and so no tag of theirs stays.
        in_tree = self._view.listing is Listing.TREE and self._stage.player is None
        self._view.kin = self._session.lookup.kin if in_tree else ()
        self._view.timeline = self._stage.timeline
        self._view.log = self._session.logbook.note
        if self._stage.history.latest is not None:
            self._dashboard.look_at(self._stage.history)
        # The next key may be about what is listed now, though it cannot be seen yet.
        parts = self._dashboard.rows(self._snapshot, self._view, width, height)
        if behind:
            return
        moved, ready = self._place(parts), self._pen.ready(self.screen)
        for name in _BY_URGENCY:
            self._views[name].show(getattr(parts, name), width, moved=moved, ready=ready)
        self._pen.flush()

    def _room(self) -> Size:
        """Cells there are."""
        size = self.size
        # The screen has no size before its first layout; the terminal has.
        return size if size.width else self.app.size

    def _is_seen(self) -> bool:
        """Whether this screen is the current one, or lies beneath a dialog and may be drawn."""
        # Textual calls the screen right below a page current too.
        if self.app.screen is self:
            return True
        for screen in reversed(self.app.screen_stack):
            if screen is self:
                break
            if not screen.is_modal:
                return False
        now = time.monotonic()
        if now - self._drawn_beneath < _BENEATH_SECONDS:
            return False
        self._drawn_beneath = now
        return True

    def _is_due(self) -> bool:
        """Whether to list anew for a terminal that is behind: for a key, or once in a while."""
        if self._owed is None:
            self._owed = self.set_timer(_CATCH_UP_SECONDS, self._catch_up)
        self._owed_to_key |= not self._pen.leisurely
        now = time.monotonic()
        if self._pen.leisurely and now - self._listed_behind < _BEHIND_SECONDS:
            return False
        self._listed_behind = now
        return True

    def _catch_up(self) -> None:
        self._owed = None
        with nullcontext() if self._owed_to_key else self._pen.at_leisure():
            if self._pen.behind():
                self._owed = self.set_timer(_CATCH_UP_SECONDS, self._catch_up)
            else:
                self._owed_to_key = False
                self.draw()

    def _place(self, parts: Parts) -> bool:
        """Give each part its height; a layout pass only when one changes. Returns whether."""
        heights = (*(len(getattr(parts, name)) for name in _PARTS), int(self._view.editing))
        if heights == self._heights:
            return False
        self._heights = heights
        for name, view in self._views.items():
            height = len(getattr(parts, name))
            view.display = height > 0
            view.styles.height = height
        return True

    # -- moving about ----------------------------------------------------------------------------

    def action_move(self, step: int) -> None:
        """Move the cursor, in the table or among the cards."""
        if self._view.card is not None:
            self._move_card(step)
            return
        index = self._dashboard.index_of(self._view.cursor)
        # The first press only shows where the cursor is.
        self._move_to(self._view.top if index is None else index + step)

    def action_page(self, pages: int) -> None:
        """Move the cursor by what the table shows."""
        self.action_move(pages * max(1, self._dashboard.room))

    def action_edge(self, edge: int) -> None:
        """Move the cursor to the first or last line; in the past go to its ends."""
        if self.go_to_edge(edge):
            pass
        elif self._view.card is not None:
            self._move_card(edge * len(self._gpus))
        else:
            self._move_to(0 if edge < 0 else len(self._dashboard.entries) - 1)

    def action_aside(self, step: int) -> None:
        """Fold or unfold what is below the cursor, or scroll the commands to the side."""
        entry = self._entry
        if self._view.listing in {Listing.TREE, Listing.JOBS} and entry is not None and entry.below:
            if entry.folded == (step > 0):
                self._turn(entry)
            return
        self._view.shift = max(0, self._view.shift + step * _SHIFT_CELLS)
        self.draw()

    def action_change_side(self) -> None:
        """Give the cards the cursor, or take it from them."""
        if self._view.card is not None:
            self._view.card = None
        elif self._gpus:
            self._view.card = self._gpus[0].uuid
        self._hush()
        self.draw()

    def action_cards(self, step: int) -> None:
        """Scroll the cards."""
        self._view.cards_top += step
        self._view.card = None
        self.draw()

    def action_release(self) -> None:
        """Clear the last of what was chosen."""
        view, narrowing = self._view, self._view.narrowing
        asked = ProcessFilter(user=narrowing.user)
        if view.editing:
            self._close_bar()
            view.narrowing = replace(narrowing, filter=None)
        elif self._cases.dismiss():
            pass
        elif view.tags:
            view.tags = frozenset()
        elif narrowing != asked:
            view.narrowing = asked
        elif view.card is not None:
            view.card = None
        elif view.cursor is not None or view.top or view.shift:
            view.cursor = None
            view.top = view.shift = 0
        elif self._stage.is_live:
            self.come_back()
        self._hush()
        self.draw()

    @property
    def _gpus(self) -> Sequence[Gpu]:
        return () if self._snapshot is None else self._snapshot.gpus

    @property
    def _entry(self) -> Entry | None:
        """The line under the cursor."""
        return self._dashboard.entry(self._view.cursor)

    def _move_card(self, step: int) -> None:
        uuids = [gpu.uuid for gpu in self._gpus]
        if self._view.card in uuids:
            at = uuids.index(self._view.card) + step
            self._view.card = uuids[max(0, min(at, len(uuids) - 1))]
        self._hush()
        self.draw()

    def _move_to(self, index: int) -> None:
        entries = self._dashboard.entries
        if not entries:
            return
        self._point_at(entries[max(0, min(index, len(entries) - 1))].key)

    def _point_at(self, key: Key | None) -> None:
        self._view.card = None
        self._view.cursor = key
        self._view.following = True
        self._hush()
        self.draw()

    def _turn(self, entry: Entry) -> None:
        self._view.turned ^= {entry.key}
        self.draw()

    # -- what is listed --------------------------------------------------------------------------

    def action_listing(self, name: str) -> None:
        """List families, users or jobs; the same again: processes."""
        wanted = Listing(name)
        if self._view.listing is wanted:
            wanted = Listing.PROCESSES
        self._view.listing = wanted
        self._view.following = True
        self._session.lookup.want_kin(wanted is Listing.TREE)
        self.draw()

    def action_mine(self) -> None:
        """Show only the processes of whoever looks, or everybody's again."""
        narrowing = self._view.narrowing
        me = self._session.host.user
        if me is None:
            self.say("nobody is logged in on this machine")
            return
        self._narrow(replace(narrowing, mine=None if narrowing.mine else me))

    def action_kind(self) -> None:
        """Compute only, graphics only, both."""
        after = {None: "C", "C": "G", "G": None}[self._view.narrowing.kind]
        self._narrow(replace(self._view.narrowing, kind=after))

    def _narrow(self, narrowing: ProcessFilter) -> None:
        self._view.narrowing = narrowing
        self._view.top = 0
        self._view.following = True
        self.draw()

    def action_filter(self) -> None:
        """Open the filter line."""
        if self._view.editing:
            return
        known = self._view.narrowing.filter
        self._view.editing = True
        self._bar.open("" if known is None else known.text)
        self.draw()

    def on_filter_bar_changed(self, event: FilterBar.Changed) -> None:
        """Filter by what is typed; what is wrong is told, and the last good filter stays."""
        if not self._view.editing:
            return
        if event.filter is not None:
            self._narrow(replace(self._view.narrowing, filter=event.filter))
        self._view.message = event.wrong
        self.draw()

    def take_key(self, event: events.Key) -> bool:
        """Take a key that is no command now: a letter of the filter, or one for what is not there.

        Returns:
            False when it may be a command.
        """
        if self._view.editing:
            if event.is_printable and event.character:
                self._bar.insert(event.character)
                return True
            return False
        bindings = self._bindings.key_to_bindings.get(event.key, ())
        actions = [binding.action.partition("(")[0] for binding in bindings]
        refused = not all(self.check_action(action, ()) for action in actions)
        if refused:
            self.say(f"too small for this: {LEAST_WIDTH}×{LEAST_HEIGHT} at least")
        return refused

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's signature
        """No key acts on a table that a small terminal has no room for."""
        width, height = self._room()
        return self._view.editing or not is_tiny(width, height) or action in _WITHOUT_TABLE

    def _keep_filter(self) -> None:
        """Close the line, and put the cursor where the eye is; stay where something is wrong."""
        read = self._bar.read()
        self.on_filter_bar_changed(read)
        if read.wrong:
            return
        self._close_bar()
        if self._dashboard.index_of(self._view.cursor) is None:
            self._move_to(self._view.top)
        self.draw()

    def _close_bar(self) -> None:
        self._bar.close()
        self._view.editing = False
        self._view.message = ""

    def action_columns(self) -> None:
        """Open the dialog in which columns are chosen."""
        from gpumon.ui.dialogs.columns import ColumnsDialog

        def take(columns: tuple[str, ...] | None) -> None:
            if columns is not None:
                self._view.columns = columns
                self.draw()

        self.app.push_screen(ColumnsDialog(self._view.columns), take)

    def action_sort(self, column: str) -> None:
        """Sort by a column; by the same once more: reverse."""
        listed: Sequence[ColumnHeader] = (
            COLUMNS if self._view.listing is not Listing.USERS else USER_COLUMNS
        )
        chosen = next((one for one in listed if one.key == column), None)
        if chosen is None:
            label, back = COLUMN[column].label, keycap("users")
            self.say(f"{label} is no column of users; {back} goes back to processes")
            return
        before = self._view.order
        descending = not before.descending if column == before.column else chosen.descends
        self._view.order = Sort(column, descending)
        self._view.following = True
        order = "descending" if descending else "ascending"
        self.say(f"sorted by {chosen.label}, {order}")

    def action_sort_step(self, step: int) -> None:
        """Sort by the next column on screen."""
        keys = [column.key for column in self._dashboard.headed]
        if not keys:
            return
        column = self._view.order.column
        at = keys.index(column) if column in keys else -1
        self.action_sort(keys[(at + step) % len(keys)])

    def action_reverse(self) -> None:
        """Turn the order round."""
        self.action_sort(self._view.order.column)

    # -- what is done with it --------------------------------------------------------------------

    def action_tag(self) -> None:
        """Tag what is under the cursor and go on to the next line."""
        entry = self._entry
        if entry is None or not entry.processes or self._view.card is not None:
            self._ask_for_a_process()
            return
        members = frozenset(process.id for process in entry.processes)
        tags = self._view.tags
        self._view.tags = tags - members if members <= tags else tags | members
        self.action_move(1)

    def action_tag_all(self) -> None:
        """Tag every GPU process that is shown, or untag them."""
        shown = frozenset(
            process.id
            for entry in self._dashboard.entries
            for process in entry.processes
            if process.uses
        )
        tags = self._view.tags
        self._view.tags = tags - shown if shown <= tags else tags | shown
        self.draw()

    def action_open(self) -> None:
        """Look at what is under the cursor from near; keep the filter while it is typed."""
        entry = self._entry
        if self._view.editing:
            self._keep_filter()
        elif self._view.card is not None:
            self.post_message(PageWanted(self._view.card))
        elif entry is None:
            self.say(f"{_choose_first()}, or a card: {keycap('change_side')}")
        elif entry.user is not None:
            self._narrow_to_user(entry.user.user)
        elif entry.job is not None:
            self._turn(entry)
        elif entry.process is not None:
            self.post_message(PageWanted(entry.process.id))

    def _narrow_to_user(self, user: str | None) -> None:
        if user is None:
            self.say("whose these are is not visible here")
            return
        self._view.listing = Listing.PROCESSES
        quoted = user.replace('"', '""')
        wanted = parse_filter(f"user={user}" if user.isalnum() else f'user="{quoted}"')
        self._narrow(replace(self._view.narrowing, filter=wanted))

    def action_copy(self) -> None:
        """Copy a line to the clipboard, and show it."""
        if self._view.card is not None:
            self.say(copy(self.app, cuda_line([self._view.card])))
        elif self._stage.is_past:
            self.say(PAST_NUMBER)
        elif (entry := self._entry) is not None and entry.process is not None:
            self.say(copy_kill(self.app, entry.process.id))
        else:
            self.say(f"{_choose_first()}, or a card: {keycap('change_side')}")

    def action_tell_when_free(self) -> None:
        """Have a word when the card under the cursor is free, or no longer."""
        card = next((gpu for gpu in self._gpus if gpu.uuid == self._view.card), None)
        if self._stage.player is not None:
            self.say("this is the past: nothing becomes free in it")
        elif card is None:
            self.say(f"choose a card first: {keycap('change_side')}")
        else:
            self.post_message(WordWanted(card))

    def await_cards(self, cards: frozenset[str]) -> None:
        """Know which cards somebody is to be told of."""
        self._view.awaited = cards

    def action_end(self) -> None:
        """Ask whether to end the tagged processes, or the one under the cursor."""
        chosen = self._chosen()
        if self._stage.player is not None:
            back = f"; {keycap('last_line')} returns to now" if self._stage.is_live else ""
            self.say(f"this is the past: nothing can be ended in it{back}")
        elif self._session.host.readonly:
            self.say("gpumon is read-only here: no signal is sent")
        elif not chosen and self._cases.ask_for_the_rest():
            pass
        elif not chosen:
            self._ask_for_a_process()
        else:
            self._cases.ask(chosen)

    def _ask_for_a_process(self) -> None:
        """Say what brings one under the cursor."""
        if self._view.card is not None:
            self.say(
                "a card has the cursor, and no process: "
                f"{keycap('change_side')} goes back to the processes"
            )
        elif not self._dashboard.entries:
            self.say("no process is listed")
        elif self._entry is not None:
            self.say("choose a process first: Enter shows this user's")
        else:
            self.say(f"{_choose_first()}, or tag several: {keycap('tag')}")

    def _chosen(self) -> list[Target]:
        """The tagged processes, wherever they are; without any the one under the cursor."""
        if self._view.tags and self._snapshot is not None:
            known = {relative.id: target_of_kin(relative) for relative in self._view.kin}
            known |= {process.id: target_of(process) for process in self._snapshot.processes}
            return [known[tag] for tag in sorted(self._view.tags) if tag in known]
        entry = self._entry
        if entry is None or self._view.card is not None:
            return []
        return [target_of(process) for process in entry.processes]

    def action_pause(self) -> None:
        """Hold the picture, or go on with the newest. Sampling goes on all the while."""
        if self.play_or_pause():
            return
        self._view.paused = not self._view.paused
        if not self._view.paused:
            self._snapshot = self._stage.history.latest
        self.say(f"the picture is held; {keycap('pause')} goes on" if self._view.paused else "")

    def action_pace(self, step: int) -> None:
        """Take the next longer or shorter interval; in the past play faster or slower."""
        if self.change_speed(step):
            return
        collector = self._session.collector
        now = collector.interval
        longer = [value for value in INTERVALS if value > now + 1e-9]
        shorter = [value for value in INTERVALS if value < now - 1e-9]
        if step > 0 and longer:
            collector.interval = longer[0]
        elif step < 0 and shorter:
            collector.interval = shorter[-1]
        self._view.interval = collector.interval
        self.say(f"a sample every {interval_text(self._view.interval)}")

    def action_log(self) -> None:
        """Start to log, or stop."""
        # Opening a file may wait for the disk, and closing it does.
        turn = self._session.logbook.turn

        def failed(error: Exception) -> None:
            if not isinstance(error, OSError):
                raise error
            self.say(f"no log can be started or stopped now: {error.strerror}", lasting=True)

        told = partial(self.say, lasting=True)
        run_errand(self.app, turn, told, failed, name="gpumon-logbook")

    def action_next_graph(self) -> None:
        """Show another value over time beside each card."""
        if not self._view.graphed:
            self.say("at this size there is no room for the small graphs")
            return
        graph = next_graph(self._view.graph)
        self._view.graph = graph.key
        self.say(f"the small graph shows {graph.about}")

    def action_host_strip(self) -> None:
        """Show or hide the line of the machine, and keep that for the next time."""
        self._view.host_strip = not self._view.host_strip
        self.draw()
        if self._state_folder is not None:
            # A home directory on a network may hang.
            run_errand(self.app, self._remember, lambda _: None, name="gpumon-remember")

    def remember_in(self, folder: Folder) -> None:
        """Begin as the screen was left, and keep in this folder how it is left."""
        self._state_folder = folder
        remembered = load(folder).host_strip
        if remembered is not None:
            self._view.host_strip = remembered

    def _remember(self) -> None:
        """Of two at once the later one writes what is so by then."""
        assert self._state_folder is not None  # noqa: S101 - asked for only then
        with self._remembering:
            store(self._state_folder, Remembered(host_strip=self._view.host_strip))

    def action_own_cost(self) -> None:
        """Show or hide gpumon's own cost in the header."""
        self._view.show_cost = not self._view.show_cost
        self.draw()

    def say(self, message: str, *, lasting: bool = False) -> None:
        """Put a message in the footer's place for a moment, or for one to read a path in."""
        self._view.message = message
        self.draw()
        if self._unsaying is not None:
            self._unsaying.stop()
        self._unsaying = None
        if message:
            seconds = _READING_SECONDS if lasting else _MESSAGE_SECONDS
            self._unsaying = self.set_timer(seconds, self._unsay)

    def _unsay(self) -> None:
        self._view.message = ""
        self.draw()

    def _hush(self) -> None:
        """Something else is chosen now: what was said of the choice before is over."""
        if not self._view.editing:
            self._view.message = ""

    # -- mouse -----------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """The heading sorts, a row or a card takes the cursor; a double click opens it."""
        view, _ = self.get_widget_at(event.screen_x, event.screen_y)
        line = event.screen_y - view.region.y
        if view is self._views["cards"]:
            self._click_card(event.screen_x, line)
        elif view is self._views["graphs"]:
            self._click_graph(event.screen_x, line)
            line += 1
        elif view is self._views["processes"]:
            self._click_line(event.screen_x, line)
        elif view is self._views["timeline"]:
            self._click_time(event.screen_x)
            return
        elif view is self._views["footer"]:
            self._click_key(event.screen_x)
            return
        else:
            return
        if event.chain == 2 and line > 0:
            self.action_open()

    def _click_card(self, x: int, y: int) -> None:
        shape = self._dashboard.shape
        if self._snapshot is None or shape is None:
            return
        top = self._view.cards_top
        self._point_at_card(card_at(self._snapshot, shape.cards, self.size.width, top, x, y))

    def _click_graph(self, x: int, y: int) -> None:
        shape = self._dashboard.shape
        if self._snapshot is not None and shape is not None and shape.tiles:
            self._point_at_card(tile_at(self._snapshot, self.size.width, shape.tiles, x, y))

    def _point_at_card(self, card: Gpu | None) -> None:
        if card is not None:
            self._view.card = card.uuid
            self._hush()
            self.draw()

    def _click_key(self, x: int) -> None:
        if not self._view.message:
            keys = footer_keys(self._view, self._entry)
            press(self, key_at(keys, self.size.width, x))

    def _click_time(self, x: int) -> None:
        player, drawn = self._stage.player, self._view.timeline
        if player is None or drawn is None:
            return
        time = time_at(x, drawn.playing, drawn.marks, self.size.width)
        if time is not None:
            player.seek(time)
            self._moved()

    def _click_line(self, x: int, line: int) -> None:
        if line > 0:
            if self._view.top + line - 1 < len(self._dashboard.entries):
                self._move_to(self._view.top + line - 1)
        elif (column := column_at(self._dashboard.headed, x)) is not None:
            self.action_sort(column.key)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """The bar of time follows a button that is held down."""
        if event.button and self._stage.player is not None:
            view, _ = self.get_widget_at(event.screen_x, event.screen_y)
            if view is self._views["timeline"]:
                self._click_time(event.screen_x)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll what is under the pointer."""
        self._scroll(event, _WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll what is under the pointer."""
        self._scroll(event, -_WHEEL_ROWS)

    def _scroll(self, event: events.MouseEvent, rows: int) -> None:
        view, _ = self.get_widget_at(event.screen_x, event.screen_y)
        if view is self._views["cards"]:
            self.action_cards(rows)
            return
        if view is self._views["timeline"]:
            self.action_step(rows)
            return
        self._view.top += rows
        self._view.following = False
        self.draw()


def _choose_first() -> str:
    """Say how a process gets the cursor."""
    return f"choose a process first: {keycap('previous_line', 'next_line')}"
