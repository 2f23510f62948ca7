"""The folders of themes (gpumon's, the user's own, Textual's by name) and the choice of a theme.

The first of command line, environment, saved choice, configuration and default that names a theme
wins. The choice made with the key ``T`` is saved in its own file, never in the configuration, which
belongs to the user.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

import gpumon
from gpumon.config.settings import DEFAULT_THEME, LIGHT_THEME
from gpumon.config.suggestions import nearest_or_all
from gpumon.config.themes.files import ThemeError, ThemeFile, read_file, theme_error
from gpumon.system.files import beginning
from gpumon.system.folders import config_folder, state_folder
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.system.folders import Folder

_SUFFIX = ".toml"
VARIABLE = "GPUMON_THEME"
_BYTES = "surrogateescape"
"""A theme has the name of its file, which on Linux need not be UTF-8."""
_LONGEST = 255
"""Maximum length of a file name."""
_CIRCULAR = ("base", "base refers back to this file; use one of gpumon's themes as base.")

TEXTUAL_THEMES = (
    *("textual-dark", "textual-light", "nord", "gruvbox", "dracula", "tokyo-night", "monokai"),
    *("flexoki", "catppuccin-mocha", "catppuccin-latte", "catppuccin-frappe"),
    *("catppuccin-macchiato", "rose-pine", "rose-pine-moon", "rose-pine-dawn"),
    *("atom-one-dark", "atom-one-light"),
)
"""Textual's themes, without those that use the terminal's own colours, from which none can be
derived, and without the Solarized pair, which gpumon has itself."""


def shipped_folder() -> str:
    """The folder of gpumon's themes: beside the package in a checkout, inside it when installed."""
    package = os.path.dirname(gpumon.__file__)
    installed = os.path.join(package, "themes")
    return installed if os.path.isdir(installed) else os.path.join(package, "..", "themes")


class ThemeLibrary:
    """Finds and reads themes."""

    def __init__(self, own: Folder | None = None, shipped: Folder | None = None) -> None:
        self._own = os.fspath(own or os.path.join(config_folder(), "themes"))
        self._shipped = os.fspath(shipped or shipped_folder())

    @property
    def folder(self) -> Path:
        """The folder of the user's own themes."""
        from pathlib import Path

        return Path(self._own)

    def shipped(self) -> list[str]:
        """Names of gpumon's themes, the default first."""
        return sorted(_names(self._shipped), key=lambda name: (name != DEFAULT_THEME, name))

    def own(self) -> list[str]:
        """Names of the user's own themes, valid or not."""
        return sorted(_names(self._own))

    def names(self) -> list[str]:
        """Names of all themes: the user's own, gpumon's, Textual's."""
        return list(dict.fromkeys((*self.own(), *self.shipped(), *TEXTUAL_THEMES)))

    def advice(self, name: str) -> str:
        """What to do about a name that no theme has, as part of a sentence."""
        try:
            os.listdir(self._own)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            return f"{self._own} cannot be read: {error.strerror}"
        return nearest_or_all(name, self.names())

    def path(self, name: str) -> str | None:
        """The file of a theme, the user's own before gpumon's; ``None`` for Textual's."""
        for folder in (self._own, self._shipped):
            # A name is not a path: it comes from the environment, and from untrusted files.
            if name in _names(folder):
                return os.path.join(folder, name + _SUFFIX)
        return None

    def read(self, name: str) -> ThemeFile:
        """Read a theme and its base themes.

        Raises:
            ThemeError: There is no such file, or something is wrong in one of them.
        """
        path = self.path(name)
        if path is None:
            raise ThemeError(f"There is no theme {name!r}; {self.advice(name)}.")
        return self.read_path(path)

    def default(self) -> ThemeFile:
        """Gpumon's own default, even if the user has a theme of that name."""
        return self.read_path(os.path.join(self._shipped, DEFAULT_THEME + _SUFFIX))

    def read_path(self, path: Folder) -> ThemeFile:
        """Read a theme file at any path, and its base themes."""
        return self._read(os.fspath(path), ())

    def _read(self, path: str, above: tuple[str, ...]) -> ThemeFile:
        if path in above:
            raise theme_error(path, [_CIRCULAR])
        written = read_file(path)
        colours, dashboard = dict(written.colours), dict(written.dashboard)
        paths: tuple[str, ...] = (path,)
        if written.base is not None:
            below = self._base(path, written.base)
            base = self._read(below, (*above, path))
            colours = {**base.colours, **colours}
            dashboard = {**base.dashboard, **dashboard}
            paths += base.paths
        return ThemeFile(_name(path), written.about, colours, dashboard, paths)

    def _base(self, path: str, name: str) -> str:
        """The file of a base theme: a theme may build on gpumon's theme of the same name."""
        for folder in (self._own, self._shipped):
            below = os.path.join(folder, name + _SUFFIX)
            if name in _names(folder) and below != path:
                return below
        if name == _name(path) and name in self.own():
            raise theme_error(path, [_CIRCULAR])
        usable = list(dict.fromkeys((*self.own(), *self.shipped())))
        what = f"base is {name!r}, which is no theme file; {nearest_or_all(name, usable)}."
        raise theme_error(path, [("base", what)])


def _names(folder: str) -> list[str]:
    try:
        files = os.listdir(folder)
    except OSError:
        # The folder does not exist: the usual case.
        return []
    return [_name(file) for file in files if file.endswith(_SUFFIX) and file != _SUFFIX]


def _name(path: str) -> str:
    return os.path.basename(path).removesuffix(_SUFFIX)


class ThemeChoice(Struct, frozen=True):
    """The initial theme."""

    name: str
    file: ThemeFile | None  # ``None`` for Textual's own themes.
    sentences: tuple[str, ...] = ()  # Why a theme with a higher priority is not used, for the user.
    is_default: bool = False  # Whether the user chose none.

    def on_background(self, *, is_light: bool, library: ThemeLibrary | None = None) -> ThemeChoice:
        """The default theme for a terminal's background; a chosen theme stays."""
        name = LIGHT_THEME if is_light else DEFAULT_THEME
        if not self.is_default or name == self.name:
            return self
        try:
            file = (library or ThemeLibrary()).read(name)
        except ThemeError as error:
            # The user may have a theme of the same name.
            return replace(self, sentences=(*self.sentences, error.brief))
        return replace(self, name=name, file=file)


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
        (remembered(memory), "the saved theme"),
        (configured, "the configuration's theme"),
        # The user may have a theme of the same name.
        (DEFAULT_THEME, "the default"),
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
            is_textual = library.path(name) is None and name in TEXTUAL_THEMES
            file = None if is_textual else library.read(name)
            is_default = (name, where) == wanted[-1] and name not in library.own()
            return ThemeChoice(name, file, tuple(sentences), is_default)
        except ThemeError as error:
            sentences.append(error.brief)
    return ThemeChoice(DEFAULT_THEME, library.default(), tuple(sentences), is_default=True)


def memory_path() -> str:
    """The path of the saved choice."""
    return os.path.join(state_folder(), "theme")


def remembered(memory: Folder | None = None) -> str | None:
    """The saved choice; ``None`` if there is none or it cannot be read."""
    try:
        name = beginning(memory or memory_path(), _LONGEST).decode(errors=_BYTES)
    except OSError:
        return None
    return name.strip() or None


def remember(name: str, memory: Folder | None = None) -> str | None:
    """Save a choice; returns why that failed, for the user."""
    from pathlib import Path

    path = Path(memory or memory_path())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8", errors=_BYTES, opener=_open_at_once) as file:
            file.write(f"{name}\n")
    except OSError as error:
        return f"The theme is not saved: {path} cannot be written: {error.strerror}."
    return None


def _open_at_once(path: str, flags: int) -> int:
    """Open without blocking, because the file may be a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
