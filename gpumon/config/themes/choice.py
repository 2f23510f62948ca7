"""The choice of a theme: command line, environment, saved choice, configuration, default.

The first of these that names a theme wins. The choice made with the key ``T`` is saved in its own
file, never in the configuration, which belongs to the user.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.config.themes.files import ThemeError, ThemeFile
from gpumon.config.themes.library import DEFAULT, TEXTUAL_THEMES, ThemeLibrary
from gpumon.system.folders import state_folder
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from gpumon.system.folders import Folder

VARIABLE = "GPUMON_THEME"
_BYTES = "surrogateescape"
"""A theme has the name of its file, which on Linux need not be UTF-8."""
_LONGEST = 255
"""Maximum length of a file name."""


class ThemeChoice(Struct, frozen=True):
    """The initial theme.

    Attributes:
        name: Its name.
        file: The theme file; ``None`` for Textual's own themes.
        sentences: Why a theme with a higher priority is not used, for the user.
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
    library: ThemeLibrary | None = None,
    memory: Folder | None = None,
) -> ThemeChoice:
    """The initial theme: from command line, environment, saved choice, configuration, or default.

    Args:
        asked: The name on the command line.
        configured: The name in the configuration.
        library: The themes.
        memory: The file of the saved choice; by default the one in the state folder.

    Raises:
        UnknownThemeError: ``asked`` is no theme. Unknown names from elsewhere, and invalid files,
            are skipped with a message.
    """
    library = library or ThemeLibrary()
    if asked is not None and asked not in library.names():
        raise UnknownThemeError(f"there is no theme {asked!r}; {library.advice(asked)}")
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
        if name not in library.names():
            hint = library.advice(name)
            sentences.append(printable(f"{where}: there is no theme {name!r}; {hint}."))
            continue
        try:
            return ThemeChoice(name, _read(library, name), tuple(sentences))
        except ThemeError as error:
            sentences.append(error.brief)
    return ThemeChoice(DEFAULT, library.default(), tuple(sentences))


def _read(library: ThemeLibrary, name: str) -> ThemeFile | None:
    if library.path(name) is None and name in TEXTUAL_THEMES:
        return None
    return library.read(name)


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
