"""The help page: made from the bindings and the metric table, so that it cannot go stale."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.table import Table
from rich.text import Text
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from gpumon import __version__
from gpumon.config.columns import COLUMNS
from gpumon.config.keymap import display
from gpumon.filters import TERMS
from gpumon.findings import Severity
from gpumon.model.metrics import GPU_METRICS
from gpumon.ui.keys import bindings_of
from gpumon.ui.view.grouped import USER_COLUMNS
from gpumon.ui.view.header_footer import own_cost_sentence
from gpumon.ui.view.key_names import keycap, keys_of
from gpumon.ui.view.messages import GLYPHS
from gpumon.ui.view.timeline import SIGNS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from gpumon.config.keymap import KeyAction
    from gpumon.recording.history import History

_STATES = {
    Severity.GOOD: "free",
    Severity.QUIET: "working, nothing to say",
    Severity.NOTE: "worth knowing: idle while memory is held, full, asleep",
    Severity.WARNING: "look: hot, slowed down, perhaps stuck, stray memory",
    Severity.CRITICAL: "the card does not answer, or is lost",
}


_SIGNS = (
    ("–", "unknown, never zero"),
    ("≥", "at least: it held already when gpumon began to look"),
    ("?", "a guess from the evidence, such as stuck? for a job that computes at hardly any power"),
    ("▸", "the line under the cursor; it stays on that process, however the list moves"),
    ("●", "tagged; ◉ tagged and under the cursor"),
    ("▼ ▲", "sorted by this column, largest or smallest first"),
    ("0,1", "a process on several cards is one row"),
    ("0/7", "GPU instance 7 of card 0, under MIG"),
    (
        "31G stray",
        "memory in use, held by no process in the driver's list; after it who may hold it unlisted",
    ),
    (
        "busy, by …",
        "kernels run, but the driver lists no process: it may be in another container",
    ),
    ("orphan", "a process whose parent has ended, such as a data loader that outlived its run"),
    ("grey row", "not visible here: a process of another container, or of a hidden /proc"),
    ("└ 0/7", "an instance, under its card"),
    ("‹", "commands are scrolled to the side; what stands before is cut off"),
    ("✓ …", "processes being ended: settled; still waited for"),
    ("PAUSED", "the picture is held; sampling goes on"),
    ("DEMO", "a machine that does not exist"),
    ("REWIND", "a moment of the past"),
    ("REPLAY", "a log is shown, no machine; nothing can be ended in it"),
    ("● 12 MB 5m", "a log is being written: how much, how long; in red: samples are being lost"),
    ("no answer", "so long a card has said nothing: its numbers are of then"),
)
_CARD_COLUMNS = (
    ("power", "draw and the cap in force"),
    ("memory", "used by processes, of all there is; what the driver reserves is left out"),
    ("util", "share of time in which any kernel ran; says nothing of how full the chip was"),
    (
        "last 60 s",
        "the same, over a second a column, or memory, power by its cap, heat by its slowdown point",
    ),
    ("SM MHz", "clock of the multiprocessors"),
    ("PCIe rx tx/s", "into and out of the card"),
    ("users", "who is on the card, who holds most first"),
)


class HelpScreen(Screen[None]):
    """Keys, signs, columns and metrics, and what gpumon itself costs."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("help")

    CSS_PATH = "help.tcss"

    def __init__(
        self,
        keys: Iterable[tuple[KeyAction, str]],
        history: History,
        here: tuple[str, Iterable[tuple[KeyAction, str]]] | None = None,
    ) -> None:
        """Make the page.

        Args:
            keys: What keys do everywhere and on the dashboard.
            history: For the own cost in the newest snapshot.
            here: What the page is that it was opened from, and its keys, if it has its own.
        """
        super().__init__()
        self._explained = list(keys)
        self._here = here
        self._history = history

    def compose(self) -> ComposeResult:
        """One long page, to scroll with the arrow keys."""
        with VerticalScroll():
            yield Static(f"gpumon {__version__}    ↑↓ scroll   Esc back", classes="title")
            yield Static(self._cost(), id="cost")
            if self._here is not None:
                name, keys = self._here
                yield Static(f"Keys on this page: {name}", classes="title")
                yield Static(_keys(keys))
            yield Static("Keys" if self._here is None else "Keys on the dashboard", classes="title")
            yield Static(_keys(self._explained))
            yield Static(
                "A click on a heading sorts, a click on a "
                "row or card selects, a double click opens it, the wheel scrolls what is under it; "
                "a click on a word of the last line does what its key does."
            )
            yield Static("The filter", classes="title")
            yield Static(
                "Words match user, command, container and job; all words and terms must match; "
                "! or not before one turns it round."
            )
            yield Static(_pairs((term.example, term.about) for term in TERMS))
            yield Static("Signs", classes="title")
            yield Static(_pairs((GLYPHS[severity], words) for severity, words in _STATES.items()))
            yield Static(_pairs(_SIGNS))
            yield Static(f"On the bar of time ({keycap('step_back', 'step_on')})", classes="title")
            yield Static(_pairs(SIGNS))
            yield Static("Memory", classes="title")
            yield Static(
                "The sum of the processes is less than the memory used: the driver and the "
                "contexts of its clients take some."
            )
            yield Static("Columns of a card", classes="title")
            yield Static(_pairs(_CARD_COLUMNS))
            yield Static("Process columns", classes="title")
            yield Static(_pairs((column.label, column.about) for column in COLUMNS))
            yield Static(f"User columns ({keycap('users')})", classes="title")
            yield Static(_pairs((column.label, column.about) for column in USER_COLUMNS))
            yield Static("Metrics", classes="title")
            yield Static(_pairs((metric.label, metric.about) for metric in GPU_METRICS))

    def on_mount(self) -> None:
        """Keep the cost fresh."""
        if not self.query("#cost"):
            # Closed in the moment it was opened, it gets none.
            return
        self.query_one(VerticalScroll).focus()
        self.set_interval(1.0, self._update_cost)

    def action_close(self) -> None:
        """Back to the dashboard."""
        self.dismiss()

    def _update_cost(self) -> None:
        cost = self.query_one("#cost", Static)
        # Only in sight: a new layout at the end of a scroll made Textual leave out its last frame.
        if self.query_one(VerticalScroll).scroll_y < cost.virtual_region.bottom:
            cost.update(self._cost())

    def _cost(self) -> str:
        latest = self._history.latest
        return own_cost_sentence(None if latest is None else latest.cost)


def _keys(explained: Iterable[tuple[KeyAction, str]]) -> Table:
    return _pairs((display(keys_of(action.name)), about) for action, about in explained)


def _pairs(rows: Iterable[tuple[str, str]]) -> Table:
    """Two columns: a word, and what it means."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for word, meaning in rows:
        table.add_row(Text(word), Text(meaning))
    return table
