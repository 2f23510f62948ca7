"""One action of the keymap, and functions that make the lines of its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal, TypeAlias

    from gpumon.config.settings import Preset

    Place: TypeAlias = Literal[
        "app",
        "dashboard",
        "fleet",
        "page",
        "gpu",
        "process",
        "job",
        "alerts",
        "help",
        "themes",
        "columns",
        "moment",
        "end",
        "signals",
    ]
    """Where a key works: everywhere, on a screen, on all pages, in a dialog or in a part of it."""


class KeyAction(Struct, frozen=True):
    """An action on one or several screens, and its keys."""

    name: str  # In the configuration.
    keys: tuple[str, ...]
    action: str  # The method of the screens, with its arguments, as Textual writes it.
    on: Mapping[Place, str]  # Its description on each screen; the help page omits an empty one.
    label: str = ""  # In a footer.
    # Its keys with the preset ``vim``; empty if they are the default ones.
    vim: tuple[str, ...] = ()
    group: str = ""  # On the help page and in the command palette.
    fixed: bool = False  # Its keys cannot be changed.
    priority: bool = False  # It takes precedence over the keys of the focused widget.
    beyond_looking: bool = False  # Visitors in a browser (``gpumon serve``) do not have it.

    @property
    def id(self) -> str:
        """Its unique name, for actions of dialogs too, which have no name."""
        return self.name or f"{next(iter(self.on))}.{self.action}"

    @property
    def method(self) -> str:
        """The action without its arguments."""
        return self.action.partition("(")[0]

    def usual_keys(self, preset: Preset) -> tuple[str, ...]:
        """Its keys with a preset."""
        return self.vim if self.vim and preset == "vim" else self.keys


def changeable(
    name: str,
    keys: str,
    action: str,
    about: str,
    label: str = "",
    place: Place = "dashboard",
    vim: str = "",
    fleet: str = "",
) -> KeyAction:
    """Configurable keys of one screen, and of that of many hosts if they are described for it."""
    on = {place: about} | ({"fleet": fleet} if fleet else {})
    return KeyAction(name, tuple(keys.split()), action, on, label, tuple(vim.split()))


def fixed(
    place: Place,
    keys: str,
    action: str,
    about: str = "",
    name: str = "",
    *,
    vim: str = "",
    priority: bool = False,
    fleet: str = "",
) -> KeyAction:
    """Keys that cannot be changed; without a name no footer offers them."""
    return KeyAction(
        name,
        tuple(keys.split()),
        action,
        {place: about} | ({"fleet": fleet} if fleet else {}),
        name,
        tuple(vim.split()),
        fixed=True,
        priority=priority,
    )


def in_group(group: str, *actions: KeyAction) -> tuple[KeyAction, ...]:
    """Actions in the order in which the help page and the command palette list them."""
    return tuple(replace(action, group=group) for action in actions)


def beyond_looking(*actions: KeyAction) -> tuple[KeyAction, ...]:
    """Actions that visitors in a browser do not have."""
    return tuple(replace(action, beyond_looking=True) for action in actions)


def also_on_fleet(*actions: KeyAction) -> tuple[KeyAction, ...]:
    """Actions that the screen of many hosts has too, with the same description."""
    return tuple(
        replace(action, on={**action.on, "fleet": action.on["dashboard"]}) for action in actions
    )
