"""The choice of a theme: command line, environment, saved choice, configuration, default.

The first of these that names a theme wins. The choice made with the key ``T`` is saved in its own
file, never in the configuration, which belongs to the user.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.config.themes.files import ThemeError, ThemeFile, nearest
from gpumon.config.themes.library import DEFAULT, TEXTUAL_THEMES, ThemeLibrary
from gpumon.system.folders import state_folder
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from gpumon.system.folders import Folder

VARIABLE = "GPUMON_THEME"
_BYTES = "surrogateescape"
"""A theme is called as its file is, and on Linux that need not be UTF-8."""
_LONGEST = 255
"""Characters: no file has a longer name."""


class ThemeChoice(Struct, frozen=True):
    """The initial theme.

    Attributes:
        name: Its name.
        file: What it is; ``None`` for Textual's own.
        sentences: Why it is not the one that was wanted, for a person.
    """

    name: str
    file: ThemeFile | None
    sentences: tuple[str, ...] = ()


class UnknownThemeError(Exception):
    """The command line names an unknown theme; the text is for the user."""


def choose_theme(
    asked: str | None,
    configured: str | None = None,
    *,
    shelf: ThemeLibrary | None = None,
    memory: Folder | None = None,
) -> ThemeChoice:
    """The theme to begin with: command line, environment, remembered, configuration, default.

    Args:
        asked: The name on the command line.
        configured: The name in the configuration.
        shelf: Where themes are.
        memory: The file in which a choice is remembered; the one in the state folder by default.

    Raises:
        UnknownThemeError: ``asked`` is no theme's name. Names from elsewhere that are none are
            passed over with a sentence, and so is a file that cannot be used.
    """
    shelf = shelf or ThemeLibrary()
    if asked is not None and asked not in shelf.names():
        raise UnknownThemeError(f"there is no theme {asked!r}; {nearest(asked, shelf.names())}")
    variable = os.environ.get(VARIABLE) or None
    if configured == variable:
        # The configuration includes the variable: do not report it twice.
        configured = None
    wanted = (
        (asked, "--theme"),
        (variable, VARIABLE),
        (remembered(memory), "the theme remembered"),
        (configured, "the configuration's theme"),
        # The user may have a theme of the same name.
        (DEFAULT, "the default"),
    )
    sentences: list[str] = []
    for name, where in wanted:
        if name is None:
            continue
        if name not in shelf.names():
            hint = nearest(name, shelf.names())
            sentences.append(printable(f"{where}: there is no theme {name!r}; {hint}."))
            continue
        try:
            return ThemeChoice(name, _read(shelf, name), tuple(sentences))
        except ThemeError as error:
            sentences.append(error.brief)
    return ThemeChoice(DEFAULT, shelf.default(), tuple(sentences))


def _read(shelf: ThemeLibrary, name: str) -> ThemeFile | None:
    if shelf.path(name) is None and name in TEXTUAL_THEMES:
        return None
    return shelf.read(name)


def memory_path() -> str:
    """The path of the saved choice."""
    return os.path.join(state_folder(), "theme")


def remembered(memory: Folder | None = None) -> str | None:
    """The saved choice; ``None`` if there is none or it cannot be read."""
    try:
        path = memory or memory_path()
        with open(path, encoding="utf-8", errors=_BYTES, opener=_open_at_once) as file:
            name = file.read(_LONGEST).strip()
    except OSError:
        return None
    return name or None


def remember(name: str, memory: Folder | None = None) -> str | None:
    """Save a choice; returns why that failed, for the user."""
    from pathlib import Path

    path = Path(memory or memory_path())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8", errors=_BYTES, opener=_open_at_once) as file:
            file.write(f"{name}\n")
    except OSError as error:
        return f"The theme is not remembered: {path} cannot be written: {error.strerror}."
    return None


def _open_at_once(path: str, flags: int) -> int:
    """Opens without blocking, because the file may be a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
