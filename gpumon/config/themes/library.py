"""The folders of themes: gpumon's, the user's own, and Textual's by name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import gpumon
from gpumon.config.suggestions import nearest_or_all
from gpumon.config.themes.files import ThemeError, ThemeFile, read_file, theme_error
from gpumon.system.folders import config_folder

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.system.folders import Folder

DEFAULT = "gpumon"
_SUFFIX = ".toml"
_CIRCULAR = ("base", "base leads back to this file; build on gpumon's own themes.")

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


def own_folder() -> str:
    """The folder of the user's own themes."""
    return os.path.join(config_folder(), "themes")


class ThemeLibrary:
    """Finds and reads themes.

    Args:
        own: The folder of the user's own themes.
        shipped: The folder of gpumon's themes.
    """

    def __init__(self, own: Folder | None = None, shipped: Folder | None = None) -> None:
        self._own = own_folder() if own is None else os.fspath(own)
        self._shipped = shipped_folder() if shipped is None else os.fspath(shipped)

    @property
    def folder(self) -> Path:
        """The folder of the user's own themes."""
        from pathlib import Path

        return Path(self._own)

    def shipped(self) -> list[str]:
        """Names of gpumon's themes, the default first."""
        return sorted(_names(self._shipped), key=lambda name: (name != DEFAULT, name))

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

    def is_own(self, name: str) -> bool:
        """Whether a theme is the user's own."""
        return name in self.own()

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
        return self.read_path(os.path.join(self._shipped, DEFAULT + _SUFFIX))

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
