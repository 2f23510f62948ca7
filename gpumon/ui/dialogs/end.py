"""The confirmation before a signal is sent: processes, their memory, and the signal."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import msgspec
from rich.text import Text
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Button, Checkbox, RadioButton, RadioSet, Static

from gpumon.config.themes.styles import resolve_style
from gpumon.host.refusals import signal_name
from gpumon.text.command_lines import shorten_command
from gpumon.text.formatting import (
    cell_width,
    counted,
    duration,
    gib,
    gibibytes,
    gpu_list,
    printable,
    spelled_out,
)
from gpumon.ui.background import run_in_thread
from gpumon.ui.dialogs.confirm import ConfirmDialog
from gpumon.ui.keys import bindings_of
from gpumon.ui.view.dashboard_layout import is_tiny
from gpumon.ui.view.page_layout import wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.events import Resize
    from textual.widget import Widget

    from gpumon.host.process_host import RelatedProcess, Target
    from gpumon.model.processes import ProcessId

_ABOUT = {
    "INT": "as Ctrl+C does: Python programs stop and may save",
    "TERM": "asks it to end; most programs do",
    "KILL": "ends it at once; nothing is saved",
    "HUP": "as when its terminal closes",
    "QUIT": "ends it with a core dump",
    "STOP": "stops it; it keeps its memory",
    "CONT": "continues a stopped process",
    "USR1": "the program defines its meaning; many end",
    "USR2": "the program defines its meaning; many end",
}
"""The signals, most usual first, by name, because not every system has all of them."""

_ENDING = {"INT", "TERM", "KILL", "HUP", "QUIT"}

_WHOLE_NAMES = 76
"""Minimum width of the terminal for the full names of the signals."""
_COMMAND = 200
"""Maximum cells of a command: three lines identify it."""
_INDENT = 2
_SUM_LINES = 2
"""Maximum lines for the memory of each GPU; more would take the room of the processes."""
_MOST_INDICES = 20
"""Maximum cells of the GPUs that a total names."""
_ANOTHER_COMMAND = "its command has changed: this is what it runs now"
_KEYS = "← → buttons   Tab parts   Enter press   Esc cancel"
_IGNORED = "Keys typed before this was shown are ignored."
LOOK_SECONDS = 2.0
"""Seconds to wait for the children: a hung ``/proc`` must not prevent the signal."""


class SignalChoice(NamedTuple):
    """The confirmed choice."""

    # The processes named in the dialog, without those marked to get no signal.
    targets: tuple[Target, ...]
    number: int  # The signal.
    whole_tree: bool  # Whether to include children that they fork from now on.
    name: str = ""  # What they are together, such as a job; may be empty.


class _Signal(RadioButton):
    """A signal option; the chosen one is visible without colour too."""

    @property
    def BUTTON_INNER(self) -> str:  # type: ignore[override]  # noqa: N802 - Textual's name, a constant there
        """The dot of the chosen option, otherwise empty."""
        return "●" if self.value else " "


class _Tick(Checkbox):
    """A check box whose state is visible without colour too."""

    @property
    def BUTTON_INNER(self) -> str:  # type: ignore[override]  # noqa: N802 - Textual's name, a constant there
        """The cross, or nothing."""
        return "X" if self.value else " "


class SignalOptions(RadioSet):
    """The signal options: arrow keys choose, and nothing else moves the choice."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("signals")

    def action_choose_next(self, step: int) -> None:
        """Choose the next or previous signal."""
        signals = list(self.query(RadioButton))
        signals[(self.pressed_index + step) % len(signals)].value = True

    def action_leave(self) -> None:
        """Move the focus to the buttons: the chosen option is highlighted already."""
        self.screen.set_focus(self.screen.query_one("#cancel", Button))


class EndDialog(ConfirmDialog[SignalChoice | None]):
    """Names every process that would get the signal. It sends nothing itself.

    The key that opened it has no effect in it, and the focus starts on Cancel.

    Args:
        targets: The selected processes; later changes of the list beneath do not affect them.
        uid: The user id of the caller, to mark other users' processes.
        number: The signal that is proposed.
        now: The reference time for run times, in seconds since the epoch; the system clock by
            default.
        look: Reads the selected processes again before the answer, on another thread: a process
            with another command must be confirmed again. ``None`` skips that.
        name: What the processes are together, such as a job, for the title.
        unattributed: Bytes that no listed process holds, by the index of the GPU.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings_of("end")

    # Before any key is handled: an early key would choose among the signals.
    AUTO_FOCUS = "#cancel"
    CSS_PATH = "end.tcss"
    # Blank lines give way to the processes.
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-tall")]  # noqa: RUF012 - as Textual declares it

    def __init__(
        self,
        targets: Sequence[Target],
        uid: int | None,
        number: int = signal.SIGTERM,
        now: float | None = None,
        look: Callable[[], Sequence[RelatedProcess]] | None = None,
        name: str = "",
        unattributed: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__()
        self._unattributed = unattributed or {}
        self._name_of_all = name
        self._look = look
        self._answer: SignalChoice | None = None
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
        self._ignored = False
        self._terminal_size = Size(0, 0)

    def compose(self) -> ComposeResult:
        """Compose the processes, the signals, and the two buttons."""
        with Vertical(id="end"):
            with VerticalScroll(id="who", can_focus=False):
                yield Static(id="named")
            with Vertical(id="what"):
                yield Static(id="sum")
                with SignalOptions(id="signals", compact=True):
                    for name in _ABOUT:
                        yield _Signal(name, value=name == self._signal, id=name, compact=True)
                yield Static(id="about")
                with Horizontal(id="last"):
                    yield _Tick("whole tree", value=True, id="tree", compact=True)
                    yield Button("Cancel", id="cancel", compact=True)
                    yield Button("", id="send", variant="error", compact=True, disabled=True)
                yield Static(id="keys")

    def on_mount(self) -> None:
        """Set the focus so that a key pressed once too often has no effect."""
        if not self.query("#send"):
            # If it was closed as soon as it was opened, it has no widgets.
            return
        self._terminal_size = self.app.size
        self._describe()
        self.rebuild()
        if self._name_of_all:
            count = counted(len(self._targets), "process", "es")
            title = Content(f"End {self._name_of_all}: {count}")
            self.query_one("#end").border_title = title
        who = self.query_one("#who", VerticalScroll)
        for attribute in ("scroll_y", "max_scroll_y", "virtual_size"):
            self.watch(who, attribute, self._show_scroll_position)
        self.set_timer(LOOK_SECONDS, lambda: self.add_children(None))

    def on_resize(self, event: Resize) -> None:
        """Wrap the lines for the new width; close if there is no room to name the processes."""
        if is_tiny(*event.size):
            self.action_cancel()
            return
        self._describe()
        if event.size != self._terminal_size:
            self._terminal_size = event.size
            self.rebuild()
        self.call_after_refresh(self._show_scroll_position)

    def _show_scroll_position(self) -> None:
        """Show the active keys, and how many processes are out of sight."""
        if not self.query("#send"):
            return
        who = self.query_one("#who", VerticalScroll)
        count, room, top = who.virtual_size.height, who.size.height, round(who.scroll_y)
        self.query_one("#end").border_subtitle = (
            # In the border, because another line would take room from the processes.
            f"lines {top + 1}–{min(count, top + room)} of {count} · PgUp PgDn"
            if count > room
            else ""
        )
        self.query_one("#keys", Static).update(_IGNORED if self._ignored else _KEYS)

    @property
    def confirms(self) -> tuple[Widget, ...]:
        """See ``ConfirmDialog.confirms``."""
        return tuple(self.query("#named, #sum, #send"))

    def show_ignored(self, ignored: bool) -> None:
        """See ``ConfirmDialog.show_ignored``."""
        if ignored != self._ignored:
            self._ignored = ignored
            self._show_scroll_position()

    def add_children(
        self,
        children: Sequence[Target] | None,
        protected: Collection[ProcessId] = (),
        found: Sequence[RelatedProcess] | None = None,
    ) -> None:
        """Name the children once they are known; a late result changes nothing.

        Args:
            children: The children of the selected processes that are not protected; ``None`` if
                they could not be read.
            protected: Selected processes that get no signal, like their children.
            found: The current state of the selected processes, among others; ``None`` if unknown.
        """
        if not self._looking:
            return
        composed = self.is_attached and bool(self.query("#send"))
        before = {target.id for target in self._reachable} if composed else set()
        another = found is not None and self._take_in(found)
        self._looking = False
        self._children = None if children is None else tuple(children)
        self._protected = frozenset(protected)
        if not composed:
            return
        self._describe()
        if another or children is None or {target.id for target in self._reachable} != before:
            self.rebuild()
        else:
            self.completed()

    @property
    def is_complete(self) -> bool:
        """See ``ConfirmDialog.is_complete``."""
        return not self._looking

    def _take_in(self, found: Sequence[RelatedProcess]) -> bool:
        """Update the selected processes to their current state.

        A program may change its command line at any time (setproctitle). If the kernel shows the
        stack's address, only an exec counts as a change.

        Returns:
            Whether one of them has a command other than the one shown.
        """
        relatives = {relative.id: relative for relative in found}
        changed = set()
        for target in self._targets:
            if (now := relatives.get(target.id)) is None:
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
            _renewed(target, relatives[target.id])
            if target.id in changed or (target.id in relatives and not target.command)
            else target
            for target in self._targets
        )
        self._changed |= changed
        visible = {target.id for target in self._targets if target.id.start_time is not None}
        self._ended = frozenset(visible - relatives.keys())
        return bool(changed)

    @property
    def _whole_tree(self) -> bool:
        return bool(self._children) and self.query_one("#tree", Checkbox).value

    @property
    def _selected(self) -> tuple[Target, ...]:
        asked = tuple(target for target in self._targets if target.id not in self._protected)
        return asked + ((self._children or ()) if self._whole_tree else ())

    @property
    def _reachable(self) -> tuple[Target, ...]:
        """The processes that the signal can reach, as far as known beforehand."""
        return tuple(target for target in self._selected if not self._obstacle(target))

    def _obstacle(self, target: Target) -> str:
        """Why a process will get no signal, as far as known beforehand; otherwise empty."""
        if target.id in self._protected:
            return "gpumon, or a process that it runs in: it and its children get no signal"
        if target.ended or target.id in self._ended:
            return "it has ended: no signal reaches it"
        if target.id.start_time is None:
            return "not visible here: it gets no signal; end it from its own container or host"
        if self._is_anothers(target):
            return f"it belongs to {_owner(target)}: you may not signal it"
        return ""

    def _is_anothers(self, target: Target) -> bool:
        """Whether it is known to belong to a user whose processes we may not signal."""
        return self._uid not in {0, None} and target.uid not in {self._uid, None}

    def _describe(self) -> None:
        """Show the processes, their memory, and what the button would do."""
        if not self.query("#send"):
            return
        self.query_one("#named", Static).update(self._named())
        self.query_one("#sum", Static).update(self._sum())
        self.query_one("#about", Static).update(_ABOUT[self._signal])
        # The full names need a wide grid.
        before = "SIG" if self.app.size.width >= _WHOLE_NAMES else ""
        for button in self.query(_Signal):
            button.label = f"{before}{button.id}"
        tree = self.query_one("#tree", Checkbox)
        tree.display = bool(self._children)
        send = self.query_one("#send", Button)
        many = "" if len(self._selected) == 1 else f" to {len(self._reachable)}"
        send.label = f"Send {self._signal}{many}"
        send.disabled = self._looking or not self._reachable

    @property
    def _quiet(self) -> str:
        return resolve_style("header.dim", self.app.theme_variables).fore.hex

    @property
    def _alarm(self) -> str:
        return resolve_style("panel.state.warning", self.app.theme_variables).fore.hex

    def _named(self) -> Text:
        text = Text()
        for target in self._targets:
            text.append(f"{target.id.pid}", "bold")
            text.append(f"  {printable(target.user or 'unknown user')}  ")
            text.append(self._holds(target))
            if target.started_at is not None:
                text.append(f"  running {duration(self._now - target.started_at)}", self._quiet)
            text.append("\n")
            if obstacle := self._obstacle(target):
                text.append(f"  {obstacle}\n", f"bold {self._alarm}")
            # Before the first layout there is no width.
            room = (self._line_width or _COMMAND) - _INDENT
            if target.id in self._changed:
                text.append(f"  {_ANOTHER_COMMAND}\n", f"bold {self._alarm}")
            for line in wrap(_command(target, _COMMAND), room):
                text.append(f"{' ' * _INDENT}{line}\n", self._quiet)
            for line in wrap(_still_holds(target), room) if target.unlisted else ():
                text.append(f"{' ' * _INDENT}{line}\n")
        text.append_text(self._named_children())
        return text

    def _holds(self, target: Target) -> str:
        """``74.0 GiB on GPU 5``, or that it holds no memory."""
        if not target.uses:
            return "no GPU"
        indices = sorted({use.gpu_index for use in target.uses})
        where = f"on GPU {gpu_list(indices)}"
        sizes = [use.memory_used for use in target.uses]
        if all(size is not None for size in sizes):
            return f"{gibibytes(sum(filter(None, sizes)))} {gib()} {where}"
        if all(size is None for size in sizes) and self._unattributed.keys() >= {*indices}:
            most = sum(self._unattributed[index] for index in indices)
            return f"up to {gibibytes(most)} {gib()} {where}"
        return f"an unknown amount {where}"

    def _named_children(self) -> Text:
        if self._looking:
            return Text(spelled_out("looking for children …"), self._quiet)
        if self._children is None:
            return Text("Its children could not be looked up: they are not signalled.", self._alarm)
        if not self._children:
            return Text("no children" if self._selected else "", self._quiet)
        count = len(self._children)
        text = Text()
        text.append(f"+ {count} {'child' if count == 1 else 'children'}", "bold")
        if not self._whole_tree:
            text.append(", not selected", self._quiet)
        if others := sum(map(bool, map(self._obstacle, self._children))):
            text.append(f", {others} of these get no signal", f"bold {self._alarm}")
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
        """Cells for a line of the processes, without the scroll bar."""
        who = self.query_one("#who", VerticalScroll)
        return max(0, who.container_size.width - who.styles.scrollbar_size_vertical)

    def _sum(self) -> str:
        if self._selected and all(map(self._is_anothers, self._selected)):
            owners = sorted({_owner(target) for target in self._selected})
            return f"no signal can be sent: owned by {' and '.join(owners)}; ask them, or use sudo"
        if self._signal not in _ENDING:
            return "frees no memory"
        reached = self._reachable
        if not reached:
            return "frees no memory: none of these may be signalled from here"
        freed: dict[int, int] = {}
        unknown: set[int] = set()
        for use in (use for target in reached for use in target.uses):
            if use.memory_used is None:
                unknown.add(use.gpu_index)
            else:
                freed[use.gpu_index] = freed.get(use.gpu_index, 0) + use.memory_used
        most = {index: self._unattributed[index] for index in unknown & self._unattributed.keys()}
        rest = sorted(unknown - most.keys())
        if not freed and not unknown:
            return "holds no GPU memory"

        def sentence(amounts: Callable[[Mapping[int, int]], str]) -> str:
            parts = [f"about {amounts(freed)}"] if freed else []
            parts += [f"up to {amounts(most)}"] if most else []
            parts += [f"an unknown amount on GPU {gpu_list(rest)}"] if rest else []
            return f"will free {', '.join(parts)}"

        each = sentence(_amounts)
        # Before the first layout there is no width.
        fits = len(wrap(each, self._line_width or _COMMAND)) <= _SUM_LINES
        return each if fits else sentence(_total)

    def action_button(self, name: str) -> None:
        """Focus a button, if it can be pressed."""
        # At once, because the next key is for this button already.
        self.set_focus(self.query_one(f"#{name}", Button))

    def action_choose(self, name: str) -> None:
        """Choose a signal by its key."""
        self.query_one(f"#{name}", RadioButton).value = True

    def action_turn_tree(self) -> None:
        """Include the children, or exclude them."""
        if self._children:
            self.query_one("#tree", Checkbox).toggle()

    def action_scroll_who(self, where: str) -> None:
        """Scroll the processes by a page, or to either end."""
        getattr(self.query_one("#who", VerticalScroll), f"scroll_{where}")(animate=False)

    def action_cancel(self) -> None:
        """Close without sending anything."""
        self._answer = None
        self.dismiss(None)

    def on_radio_set_changed(self, event: RadioSet.Changed) -> None:
        """Another signal was chosen."""
        self._signal = str(event.pressed.id)
        self._describe()

    def on_checkbox_changed(self) -> None:
        """The children were included or excluded."""
        self._describe()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer, once it is verified that the shown commands are current."""
        if event.button.id != "send" or self._looking:
            self.action_cancel()
            return
        if self._answer is not None:
            return  # Pressed twice.
        number = signal.Signals[f"SIG{self._signal}"]
        reached, tree = self._reachable, self._whole_tree
        answer = self._answer = SignalChoice(reached, number, tree, self._name_of_all)
        if self._look is None:
            self._give(answer, None)
            return
        run_in_thread(
            self.app,
            self._look,
            lambda found: self._give(answer, found),
            lambda _: self._give(answer, None),
            name="gpumon-relatives",
        )
        self.set_timer(LOOK_SECONDS, lambda: self._give(answer, None))

    def _give(self, answer: SignalChoice, found: Sequence[RelatedProcess] | None) -> None:
        """Answer, unless a process has another command: then ask again."""
        if answer is not self._answer:
            return
        self._answer = None
        if found is not None and self._take_in(found):
            self.action_button("cancel")
            self._describe()
            self.rebuild()
        else:
            self.dismiss(answer)


def _renewed(target: Target, now: RelatedProcess) -> Target:
    """The same process as it is now."""
    return msgspec.structs.replace(
        target,
        uid=now.uid,
        user=now.user,
        name=now.name,
        command=now.command,
        started_at=now.started_at,
        parent=now.parent,
    )


def _amounts(sizes: Mapping[int, int]) -> str:
    """The memory of each GPU, equal amounts together."""
    gpus: dict[str, list[int]] = {}
    for index, size in sorted(sizes.items()):
        gpus.setdefault(gibibytes(size), []).append(index)
    return ", ".join(
        f"{amount} {gib()} on {'each of ' * (len(indices) > 1)}GPU {gpu_list(indices)}"
        for amount, indices in gpus.items()
    )


def _total(sizes: Mapping[int, int]) -> str:
    """The memory of all GPUs together; many indices with gaps are only counted."""
    indices = sorted(sizes)
    where = f"GPU {gpu_list(indices)}"
    if len(where) > _MOST_INDICES:
        where = f"{len(indices)} GPUs"
    return f"{gibibytes(sum(sizes.values()))} {gib()} on {where}"


def _still_holds(target: Target) -> str:
    """What a process holds that the driver does not list, and why it is thought to be left over."""
    indices = sorted({use.gpu_index for use in target.uses})
    which = "file" if len(indices) == 1 else "files"
    held = f"still holds the device {which} of GPU {gpu_list(indices)}, unlisted by the driver"
    return f"{held}: {target.unlisted}"


def _owner(target: Target) -> str:
    return printable(target.user or "another user")


def _command(target: Target, cells: int) -> str:
    """The command in at most that many cells, with the script's name kept."""
    if target.command:
        return spelled_out(shorten_command(target.command, cells).rstrip())
    return f"[{printable(target.name)}]" if target.name else "(its command is not visible here)"
