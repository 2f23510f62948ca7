"""Applies themes to Textual, and reloads the current one when its file is edited."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias

from textual.theme import Theme

from gpumon.config.themes import TEXTUAL_THEMES, ThemeError, ThemeLibrary
from gpumon.config.themes.styles import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from textual.app import App

    from gpumon.config.themes import ThemeChoice, ThemeFile

_FileStamp: TypeAlias = tuple[int, int, int]

RELOAD_SECONDS = 1.0
"""Seconds between two checks whether the user's theme file was saved."""


class ThemeController:
    """Changes an application's theme.

    Args:
        app: The application.
        report: Shows an error message.
        library: The themes.
    """

    def __init__(
        self, app: App[int], report: Callable[[str], None], library: ThemeLibrary | None = None
    ) -> None:
        self.library = library or ThemeLibrary()
        self._app = app
        self._report = report
        self._watched: tuple[str, ...] = ()
        self._seen: tuple[_FileStamp | None, ...] = ()

    def start(self, choice: ThemeChoice) -> None:
        """Apply the initial theme."""
        if choice.file is not None:
            self._app.register_theme(to_textual(choice.file))
        self._app.theme = choice.name
        self._watch(choice.name, () if choice.file is None else choice.file.paths)
        # The file was read earlier, for the first picture, and may have changed since.
        self._seen = ()

    def use(self, name: str) -> str | None:
        """Apply another theme.

        Returns:
            Why it cannot be used, for the user, and the current theme stays; ``None`` if applied.
        """
        paths: tuple[str, ...] = ()
        if not (self.library.path(name) is None and name in TEXTUAL_THEMES):
            try:
                file = self.library.read(name)
            except ThemeError as error:
                return error.brief
            theme, paths = to_textual(file), file.paths
            anew = name == self._app.theme and theme != self._app.current_theme
            self._app.register_theme(theme)
            if anew:
                # Textual reacts only to a changed name.
                self._app.set_reactive(type(self._app).theme, "")
        self._app.theme = name
        self._watch(name, paths)
        return None

    def reload_if_changed(self) -> None:
        """Reload the current theme if its file or a base theme's was saved."""
        stamps = _stamps(self._watched)
        # A missing file is just being saved by an editor that replaces it.
        if stamps == self._seen or None in stamps:
            return
        self._seen = stamps
        fault = self.use(self._app.theme)
        if fault is not None:
            self._report(fault)

    def _watch(self, name: str, paths: tuple[str, ...]) -> None:
        """Watch a theme's files; those shipped with gpumon do not change."""
        self._watched = paths if name in self.library.own() else ()
        self._seen = _stamps(self._watched)


def _stamps(paths: tuple[str, ...]) -> tuple[_FileStamp | None, ...]:
    """Time, size and inode of each file; ``None`` for a missing file."""
    return tuple(_stamp(path) for path in paths)


def _stamp(path: str) -> _FileStamp | None:
    try:
        about = os.stat(path)  # noqa: PTH116 - a theme's path is a text
    except OSError:
        return None
    # Two saves may fall into one tick of the file system's clock.
    return about.st_mtime_ns, about.st_size, about.st_ino


def to_textual(file: ThemeFile) -> Theme:
    """Convert a theme file to Textual's theme."""
    variables = {PREFIX + key: value for key, value in file.dashboard.items()}
    # By Textual's own names.
    colours: Mapping[str, Any] = file.colours
    return Theme(name=file.name, dark=file.dark, variables=variables, **colours)
