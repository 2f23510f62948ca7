"""The question before a signal is sent: who, what, how much, and which signal."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import msgspec
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Checkbox, RadioButton, RadioSet, Static

from gpumon.host.signals import signal_name
from gpumon.layout.commands import shorten_command
from gpumon.layout.pages import wrap
from gpumon.layout.processes import card_list
from gpumon.text import cell_width, duration, gib, gibibytes, printable
from gpumon.tui.errand import run_errand
from gpumon.tui.theme import colour_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from textual.app import ComposeResult

    from gpumon.host import Kin, Target
    from gpumon.model import ProcessId

_ABOUT = {
    "INT": "as Ctrl+C does: Python programs stop and may save",
    "TERM": "asks it to end; most programs do",
    "KILL": "ends it at once; nothing is saved",
    "HUP": "as when its terminal closes",
    "QUIT": "ends it with a core dump",
    "STOP": "halts it; it keeps its memory",
    "CONT": "lets a halted one go on",
    "USR1": "means what the program makes of it; many end by it",
    "USR2": "means what the program makes of it; many end by it",
}
"""Those to choose from, the usual ones first, by name: not every system has them."""

_ENDING = {"INT", "TERM", "KILL", "HUP", "QUIT"}

_WHOLE_NAMES = 76
"""Cells of a terminal in which the signals have their whole names."""
_COMMAND = 200
"""Cells of a command, three lines: enough to know it by."""
_INDENT = 2
_ANOTHER_COMMAND = "its command has changed: this is what it runs now"
LOOK_SECONDS = 2.0
"""How long children are waited for: whoever wants a process ended need not wait for ``/proc``."""


class Choice(NamedTuple):
    """What was confirmed.

    Attributes:
        targets: Those named in the dialog, but those of whom it said that they get no signal.
        number: The signal.
        whole_tree: Whether children that they fork from now on are meant too.
    """

    targets: tuple[Target, ...]
    number: int
    whole_tree: bool


class _Signal(RadioButton):
    """A signal to choose; which one is chosen shows without colour too."""

    @property
    def BUTTON_INNER(self) -> str:  # type: ignore[override]  # noqa: N802 - Textual's name, a constant there
        """The dot of the chosen one, nothing in the others."""
        return "●" if self.value else " "


class _Tick(Checkbox):
    """A tick that shows without colour too."""

    @property
    def BUTTON_INNER(self) -> str:  # type: ignore[override]  # noqa: N802 - Textual's name, a constant there
        """The cross, or nothing."""
        return "X" if self.value else " "


class _Signals(RadioSet):
    """The signals: arrows choose among them, and no other way of moving about does."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,right", "choose_next(1)", show=False),
        Binding("up,left", "choose_next(-1)", show=False),
        Binding("enter", "leave", show=False),
        # The chosen one is chosen already.
        Binding("space", "leave", show=False),
    ]

    def action_choose_next(self, step: int) -> None:
        """Choose the next signal, or the one before."""
        signals = list(self.query(RadioButton))
        signals[(self.pressed_index + step) % len(signals)].value = True

    def action_leave(self) -> None:
        """Go on to the buttons."""
        self.screen.set_focus(self.screen.query_one("#cancel", Button))


class EndDialog(ModalScreen[Choice | None]):
    """Names every process that would get the signal. Nothing is sent from here.

    The key that opened it does nothing in it, and the focus begins on Cancel.

    Args:
        targets: The processes asked for; they stay what they are, whatever the list beneath does.
        uid: Number of the user who asks, to say whose processes are another's.
        number: The signal that is proposed.
        now: From when on to count back how long each has run, in seconds since the epoch; the
            machine's own time by default.
        look: Reads the processes asked for anew before the answer is given, on a thread of its own:
            whoever has another command by then is asked about again. ``None``: nobody looks.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "cancel", "Cancel", key_display="Esc"),
        Binding("left", "button('cancel')", show=False),
        Binding("right", "button('send')", show=False),
        Binding("up", "scroll_who('up')", show=False),
        Binding("down", "scroll_who('down')", show=False),
        Binding("i", "choose('INT')", show=False),
        Binding("t", "choose('TERM')", show=False),
        Binding("9", "choose('KILL')", show=False),
        Binding("w", "turn_tree", show=False),
        Binding("pageup", "scroll_who('page_up')", show=False),
        Binding("pagedown", "scroll_who('page_down')", show=False),
        Binding("home", "scroll_who('home')", show=False),
        Binding("end", "scroll_who('end')", show=False),
    ]

    # Before any key is taken: one that comes meanwhile would choose among the signals.
    AUTO_FOCUS = "#cancel"
    CSS_PATH = "end.tcss"

    def __init__(
        self,
        targets: Sequence[Target],
        uid: int | None,
        number: int = signal.SIGTERM,
        now: float | None = None,
        look: Callable[[], Sequence[Kin]] | None = None,
    ) -> None:
        super().__init__()
        self._look = look
        self._answer: Choice | None = None
        self._ended: frozenset[ProcessId] = frozenset()
        self._changed: frozenset[ProcessId] = frozenset()
        self._stack_starts: dict[ProcessId, int | None] = {}
        self._now = time.time() if now is None else now
        self._targets = tuple(targets)
        self._uid = uid
        self._signal = signal_name(number)
        self._children: tuple[Target, ...] | None = ()
        self._protected: frozenset[ProcessId] = frozenset()
        self._looking = True

    def compose(self) -> ComposeResult:
        """The processes, the signal, and the two buttons."""
        with Vertical(id="end"):
            with VerticalScroll(id="who", can_focus=False):
                yield Static(id="named")
            with Vertical(id="what"):
                yield Static(id="sum")
                # Where the whole names do not fit in their grid.
                before = "SIG" if self.app.size.width >= _WHOLE_NAMES else ""
                with _Signals(id="signals", compact=True):
                    for name in _ABOUT:
                        yield _Signal(
                            before + name, value=name == self._signal, id=name, compact=True
                        )
                yield Static(id="about")
                with Horizontal(id="last"):
                    yield _Tick("whole tree", value=True, id="tree", compact=True)
                    yield Button("Cancel", id="cancel", compact=True)
                    yield Button("", id="send", variant="error", compact=True, disabled=True)
                yield Static(id="keys")

    def on_mount(self) -> None:
        """Nothing happens by a key pressed once too often."""
        if not self.query("#send"):
            # Closed in the moment it was opened, it gets none.
            return
        self._describe()
        who = self.query_one("#who", VerticalScroll)
        for attribute in ("scroll_y", "max_scroll_y", "virtual_size"):
            self.watch(who, attribute, self._tell_place)
        self.set_timer(LOOK_SECONDS, lambda: self.add_children(None))

    def on_resize(self) -> None:
        """Other lines for another width."""
        self._describe()
        self.call_after_refresh(self._tell_place)

    def _tell_place(self) -> None:
        """Say which keys work here, and how much of the processes is out of sight."""
        if not self.query("#send"):
            return
        who = self.query_one("#who", VerticalScroll)
        count, room, top = who.virtual_size.height, who.size.height, round(who.scroll_y)
        hidden = count > room > 0
        self.query_one("#end").border_subtitle = (
            f"lines {top + 1}–{min(count, top + room)} of {count}" if hidden else ""
        )
        self.query_one("#keys", Static).update(
            "← → buttons   Tab parts   Enter press   Esc cancel" + "   PgUp PgDn" * hidden
        )

    def add_children(
        self,
        children: Sequence[Target] | None,
        protected: Collection[ProcessId] = (),
        found: Sequence[Kin] | None = None,
    ) -> None:
        """Name the children too, now that they are known; what comes too late changes nothing.

        Args:
            children: Those of all that are asked for but the protected; ``None`` when the look
                failed.
            protected: Those asked for that get no signal, nor do their children.
            found: Those asked for as they are now, among others; ``None`` when that is not known.
        """
        if not self._looking:
            return
        if found is not None:
            self._take_in(found)
        self._looking = False
        self._children = None if children is None else tuple(children)
        self._protected = frozenset(protected)
        if self.is_attached:
            self._describe()

    def _take_in(self, found: Sequence[Kin]) -> bool:
        """Take those asked for as they are now.

        A program may change its command line as often as it likes (setproctitle). Where the kernel
        shows the stack's address, only an exec counts as a change.

        Returns:
            Whether one of them has another command than the dialog names.
        """
        kin = {one.id: one for one in found}
        changed = set()
        for target in self._targets:
            if (now := kin.get(target.id)) is None:
                continue
            before = self._stack_starts.get(target.id)
            if None not in (before, now.stack_start):
                another = before != now.stack_start
            else:
                another = bool(target.command and now.command) and target.command != now.command
            if another:
                changed.add(target.id)
            self._stack_starts[target.id] = now.stack_start
        self._targets = tuple(
            _renewed(target, kin[target.id]) if target.id in changed else target
            for target in self._targets
        )
        self._changed |= changed
        visible = {target.id for target in self._targets if target.id.start_time is not None}
        self._ended = frozenset(visible - kin.keys())
        return bool(changed)

    @property
    def _whole_tree(self) -> bool:
        return bool(self._children) and self.query_one("#tree", Checkbox).value

    @property
    def _meant(self) -> tuple[Target, ...]:
        asked = tuple(target for target in self._targets if target.id not in self._protected)
        return asked + ((self._children or ()) if self._whole_tree else ())

    @property
    def _reached(self) -> tuple[Target, ...]:
        """Those meant whom the signal can reach, as far as that is known beforehand."""
        return tuple(target for target in self._meant if not self._obstacle(target))

    def _obstacle(self, target: Target) -> str:
        """Why it will get no signal, as far as that is known beforehand; else nothing."""
        if target.id in self._protected:
            return "gpumon itself, or what it runs in: neither it nor its children get a signal"
        if target.id.start_time is None:
            return "not visible here: it will be refused; end it from its own container or host"
        if self._is_anothers(target):
            return f"{_owner(target)}'s, not yours: it will not be permitted"
        return "it has ended: no signal reaches it" if target.id in self._ended else ""

    def _is_anothers(self, target: Target) -> bool:
        """Whether it is known to be a user's whose processes are not ours to signal."""
        return self._uid not in {0, None} and target.uid not in {self._uid, None}

    def _describe(self) -> None:
        """Say who, how much, and what the button would do."""
        if not self.query("#send"):
            return
        self.query_one("#named", Static).update(self._named())
        self.query_one("#sum", Static).update(self._sum())
        self.query_one("#about", Static).update(_ABOUT[self._signal])
        tree = self.query_one("#tree", Checkbox)
        tree.display = bool(self._children)
        send = self.query_one("#send", Button)
        many = "" if len(self._meant) == 1 else f" to {len(self._reached)}"
        send.label = f"Send {self._signal}{many}"
        send.disabled = self._looking or not self._reached

    @property
    def _quiet(self) -> str:
        return colour_of("header.dim", self.app.theme_variables)

    @property
    def _alarm(self) -> str:
        return colour_of("panel.state.warning", self.app.theme_variables)

    def _named(self) -> Text:
        text = Text()
        for target in self._targets:
            text.append(f"{target.id.pid}", "bold")
            text.append(f"  {printable(target.user or 'unknown user')}  ")
            text.append(_holds(target))
            if target.started_at is not None:
                text.append(f"  running {duration(self._now - target.started_at)}", self._quiet)
            text.append("\n")
            if obstacle := self._obstacle(target):
                text.append(f"  {obstacle}\n", f"bold {self._alarm}")
            if target.id in self._changed:
                text.append(f"  {_ANOTHER_COMMAND}\n", f"bold {self._alarm}")
            # Before the first layout there is no width yet.
            room = (self._line_width or _COMMAND) - _INDENT
            for line in wrap(_command(target, _COMMAND), room):
                text.append(f"{' ' * _INDENT}{line}\n", self._quiet)
        text.append_text(self._named_children())
        return text

    def _named_children(self) -> Text:
        if self._looking:
            return Text("looking for children …", self._quiet)
        if self._children is None:
            return Text("Its children could not be looked up: they are not signalled.", self._alarm)
        if not self._children:
            return Text("no children" if self._meant else "", self._quiet)
        count = len(self._children)
        text = Text()
        text.append(f"+ {count} {'child' if count == 1 else 'children'}", "bold")
        if not self._whole_tree:
            text.append(", not meant", self._quiet)
        if others := sum(map(bool, map(self._obstacle, self._children))):
            text.append(f", {others} of these will not be permitted", f"bold {self._alarm}")
        room = self._line_width - _INDENT
        for child in self._children:
            who = f"{child.id.pid}  "
            text.append(f"\n{' ' * _INDENT}{who}")
            note = ""
            if self._is_anothers(child):
                note = f"{_owner(child)}'s, not yours  "
            elif self._obstacle(child):
                note = "not visible here  "
            text.append(note, f"bold {self._alarm}")
            text.append(_command(child, room - cell_width(who) - cell_width(note)), self._quiet)
        return text

    @property
    def _line_width(self) -> int:
        """Cells for a line of the processes, less those of a bar to scroll by."""
        who = self.query_one("#who", VerticalScroll)
        return max(0, who.container_size.width - who.styles.scrollbar_size_vertical)

    def _sum(self) -> str:
        if self._meant and all(map(self._is_anothers, self._meant)):
            owners = sorted({_owner(target) for target in self._meant})
            return f"nothing can be sent: not yours but {' and '.join(owners)}'s; ask, or use sudo"
        if self._signal not in _ENDING:
            return "frees no memory"
        reached = self._reached
        if not reached:
            return "frees no memory: none of these may be signalled from here"
        freed: dict[int, int] = {}
        unknown = False
        for use in (use for target in reached for use in target.uses):
            if use.memory_used is None:
                unknown = True
            else:
                freed[use.gpu_index] = freed.get(use.gpu_index, 0) + use.memory_used
        parts = [
            f"{gibibytes(size)} {gib()} on GPU {index}" for index, size in sorted(freed.items())
        ]
        if unknown:
            parts.append("what the driver does not tell")
        return f"will free about {', '.join(parts)}" if parts else "holds no GPU memory"

    def action_button(self, name: str) -> None:
        """Give a button the focus, where it can be pressed."""
        # At once: a key that follows is for this button already.
        self.set_focus(self.query_one(f"#{name}", Button))

    def action_choose(self, name: str) -> None:
        """Take a signal by its key."""
        self.query_one(f"#{name}", RadioButton).value = True

    def action_turn_tree(self) -> None:
        """Mean the children too, or not."""
        if self._children:
            self.query_one("#tree", Checkbox).toggle()

    def action_scroll_who(self, where: str) -> None:
        """Show more of the processes, by a page or to either end."""
        getattr(self.query_one("#who", VerticalScroll), f"scroll_{where}")(animate=False)

    def action_cancel(self) -> None:
        """Nothing is sent."""
        self._answer = None
        self.dismiss(None)

    def on_radio_set_changed(self, event: RadioSet.Changed) -> None:
        """Another signal."""
        self._signal = str(event.pressed.id)
        self._describe()

    def on_checkbox_changed(self) -> None:
        """With or without the children."""
        self._describe()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """The answer, once it is known that it is about what is named here."""
        if event.button.id != "send" or self._looking:
            self.action_cancel()
            return
        if self._answer is not None:
            return  # Pressed twice.
        number = signal.Signals[f"SIG{self._signal}"]
        answer = self._answer = Choice(self._reached, number, self._whole_tree)
        if self._look is None:
            self._give(answer, None)
            return
        run_errand(
            self.app,
            self._look,
            lambda found: self._give(answer, found),
            lambda _: self._give(answer, None),
            name="gpumon-families",
        )
        self.set_timer(LOOK_SECONDS, lambda: self._give(answer, None))

    def _give(self, answer: Choice, found: Sequence[Kin] | None) -> None:
        """Give an answer, unless somebody in it has another command: then ask again."""
        if answer is not self._answer:
            return
        self._answer = None
        if found is not None and self._take_in(found):
            self.action_button("cancel")
            self._describe()
        else:
            self.dismiss(answer)


def _holds(target: Target) -> str:
    """``74.0 GiB on GPU 5``, or that it holds none."""
    if not target.uses:
        return "no card"
    indices = card_list(sorted({use.gpu_index for use in target.uses}))
    sizes = [use.memory_used for use in target.uses]
    if any(size is None for size in sizes):
        return f"on GPU {indices}"
    return f"{gibibytes(sum(filter(None, sizes)))} {gib()} on GPU {indices}"


def _renewed(target: Target, now: Kin) -> Target:
    """The same process with what it runs now."""
    return msgspec.structs.replace(
        target, uid=now.uid, user=now.user, name=now.name, command=now.command
    )


def _owner(target: Target) -> str:
    return printable(target.user or "another user")


def _command(target: Target, cells: int) -> str:
    """What it runs, in at most so many cells, the script's name kept."""
    if target.command:
        return shorten_command(target.command, cells).rstrip()
    return f"[{printable(target.name)}]" if target.name else "(its command is not visible here)"
