"""A hand that presses, clicks, types, pastes and resizes at random, the same way for a seed.

What it does next never hangs on what is on the screen: so whatever was found is found again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from textual import events
from textual.geometry import Size
from textual.keys import _character_to_key

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from textual.events import Event

_SPECIAL = (
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "enter", "escape"),
    *("tab", "shift+tab", "shift+up", "shift+down", "shift+left", "shift+right", "backspace"),
    *("delete", "f1", "f2", "f9", "ctrl+u", "ctrl+w", "ctrl+a", "ctrl+p", "insert", "f13"),
)
_LETTERS = "jkjkl/[]{}()bn@peEtugdcChmMPUSRL+-<>,.ra yv?T0123456789wwos:xi é€𝄞"
_WIDTHS = (1, 5, 20, 60, 80, 100, 200)
_HEIGHTS = (1, 2, 5, 15, 24, 30, 50)
_ROOMY = Size(100, 30)
_TEXTS = (
    *("user:ann mem>1G", "-5m", "12:00", "mem>", "/[a-z]+(/", "not (gpu:0 or", "23:59:61", "ca"),
    *("\x1b[2J[red]", "名前", "x" * 400, "two\nlines\r\n\ttabs", "9" * 40, "🏳️‍🌈 é", ""),
)
_AWAY = ("escape",) * 4
"""From whatever lies over the dashboard, and out of what is typed or chosen there."""
_ROUTES: tuple[tuple[str, ...], ...] = (
    ("f1",),
    ("T",),
    ("e",),
    ("/", "TEXT", "enter"),
    ("[", "@", "TEXT", "enter"),
    ("ctrl+p", "TEXT", "enter"),
    ("l", "TEXT", "enter"),
    ("tab", "enter"),
    ("tab", "space", "space", "enter"),
    ("down", "enter"),
    ("down", "k"),
    ("down", "enter", "k", "right", "enter"),
    ("down", "down", "space", "up", "k", "right", "enter"),
    ("[", "(", "p", "+", "b"),
    ("tab", "w", "L", "h"),
    ("tab", "down", "d", "down", "tab", "k"),
    ("down", "f", "tab", "f", "f", "u", "f"),
    ("u", "g", "home", "enter"),
    ("u", "g", "home", "k", "right", "enter"),
    ("u", "g", "home", "enter", "k", "right", "enter", "escape", "g"),
    ("q",),
)
"""Ways to every screen and dialog, and to what is hardly ever found by chance.

``u`` before ``g`` lists jobs, whatever is listed before.
"""


class Move(NamedTuple):
    """What is done in one moment.

    Attributes:
        inputs: Key presses, clicks and whatever else comes from a terminal, in their order.
        patient: Whether each is waited for, as by a person; else they come all at once.
    """

    inputs: Sequence[Input]
    patient: bool


class Press(NamedTuple):
    """A key."""

    key: str

    def events(self, _: Size) -> Sequence[Event]:
        """What Textual makes of it."""
        if len(self.key) > 1:
            return [events.Key(self.key, None)]
        name = self.key if self.key.isalnum() else _character_to_key(self.key)
        return [events.Key(name, self.key)]


class Pointer(NamedTuple):
    """The mouse, from a place to another, both as shares of the screen."""

    kind: str
    place: tuple[float, float]
    other: tuple[float, float]

    def events(self, size: Size) -> Sequence[Event]:
        """What Textual makes of it."""

        def made(
            kind: type[events.MouseEvent], button: int = 0, at: tuple[float, float] = self.place
        ) -> events.MouseEvent:
            x, y = int(at[0] * size.width), int(at[1] * size.height)
            return kind(None, x, y, 0, 0, button, False, False, False, screen_x=x, screen_y=y)

        down, up = made(events.MouseDown, 1), made(events.MouseUp, 1)
        return {
            "click": [down, up],
            "double": [down, up] * 2,
            "press": [down],
            "right": [made(events.MouseDown, 3), made(events.MouseUp, 3)],
            "drag": [
                *(down, made(events.MouseMove, 1), made(events.MouseMove, 1, self.other)),
                made(events.MouseUp, 1, self.other),
            ],
            "move": [made(events.MouseMove)],
            "wheel down": [made(events.MouseScrollDown)],
            "wheel up": [made(events.MouseScrollUp)],
        }[self.kind]


class Window(NamedTuple):
    """Another size of the terminal."""

    size: Size

    def events(self, _: Size) -> Sequence[Event]:
        """What Textual makes of it."""
        return [events.Resize(self.size, self.size)]


class Paste(NamedTuple):
    """Text that a terminal pastes."""

    text: str

    def events(self, _: Size) -> Sequence[Event]:
        """What Textual makes of it."""
        return [events.Paste(self.text)]


class Focus(NamedTuple):
    """The terminal's window is looked at, or no longer."""

    gained: bool

    def events(self, _: Size) -> Sequence[Event]:
        """What Textual makes of it."""
        return [events.AppFocus() if self.gained else events.AppBlur()]


Input = Press | Pointer | Window | Paste | Focus


class Hand:
    """Makes one move after the other.

    Args:
        chance: Decides; its own, so that the moves are the same whoever else draws.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._routes: list[tuple[str, ...]] = []

    def move(self) -> Move:
        """What is done next."""
        chance = self._chance
        kind = chance.random()
        patient = chance.random() < 0.6
        if kind < 0.4:
            return Move(self._route(), patient=True)
        if kind < 0.45:
            size = Size(chance.choice(_WIDTHS), chance.choice(_HEIGHTS))
            return Move([Window(size)], patient)
        if kind < 0.62:
            return Move([self._pointer() for _ in range(chance.choice((1, 1, 2)))], patient)
        if kind < 0.65:
            return Move([Paste(chance.choice(_TEXTS))], patient)
        if kind < 0.67:
            return Move([Focus(chance.random() < 0.5)], patient)
        return Move([self._press() for _ in range(chance.choice((1, 1, 2, 5)))], patient)

    def _route(self) -> list[Input]:
        """The next of the known ways; none comes again before all were gone."""
        if not self._routes:
            self._routes = self._chance.sample(_ROUTES, len(_ROUTES))
        inputs: list[Input] = [Press(key) for key in _AWAY]
        if self._chance.random() < 0.7:
            inputs.append(Window(_ROOMY))
        for word in self._routes.pop():
            text = self._chance.choice(_TEXTS)
            inputs += [Paste(text)] if word == "TEXT" else [Press(word)]
        return inputs

    def _press(self) -> Press:
        return Press(self._chance.choice(_SPECIAL if self._chance.random() < 0.4 else _LETTERS))

    def _pointer(self) -> Pointer:
        kinds = ("click", "click", "double", "press", "right", "drag", "move")
        kind = self._chance.choice((*kinds, "wheel down", "wheel up"))
        return Pointer(kind, self._place(), self._place())

    def _place(self) -> tuple[float, float]:
        return self._chance.random(), self._chance.random()
