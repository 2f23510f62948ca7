"""Puts a theme on the screen, and keeps it in step with its file while that is edited."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

from gpumon.config.themes import TEXTUAL_THEMES, ThemeError, ThemeLibrary
from gpumon.ui.theme import to_textual

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App

    from gpumon.config.themes import ThemeChoice

_Mark: TypeAlias = tuple[int, int, int]

LOOK_SECONDS = 1.0
"""Seconds between two looks at whether a theme of one's own was saved anew."""


class ThemeController:
    """Changes an application's theme.

    Args:
        app: Whose theme it is.
        tell: Takes sentences for the person.
        shelf: Where themes are.
    """

    def __init__(
        self, app: App[int], tell: Callable[[str], None], shelf: ThemeLibrary | None = None
    ) -> None:
        self.shelf = shelf or ThemeLibrary()
        self._app = app
        self._tell = tell
        self._watched: tuple[str, ...] = ()
        self._seen: tuple[_Mark | None, ...] = ()

    def begin(self, choice: ThemeChoice) -> None:
        """Take the theme to begin with."""
        if choice.file is not None:
            self._app.register_theme(to_textual(choice.file))
        self._app.theme = choice.name
        self._watch(choice.name, () if choice.file is None else choice.file.paths)
        # It was read a while ago, for the first picture.
        self._seen = ()

    def use(self, name: str) -> str | None:
        """Take another theme.

        Returns:
            What is wrong with it, for a person; then the one in force stays.
        """
        paths: tuple[str, ...] = ()
        if not (self.shelf.path(name) is None and name in TEXTUAL_THEMES):
            try:
                file = self.shelf.read(name)
            except ThemeError as error:
                return error.brief
            theme, paths = to_textual(file), file.paths
            anew = name == self._app.theme and theme != self._app.current_theme
            self._app.register_theme(theme)
            if anew:
                # Textual sees a change of name alone.
                self._app.set_reactive(type(self._app).theme, "")
        self._app.theme = name
        self._watch(name, paths)
        return None

    def look(self) -> None:
        """Take the theme in force anew if its file, or one that it builds on, was saved."""
        marks = _marks(self._watched)
        # A file that is not there is being saved, by an editor that puts a new one in its place.
        if marks == self._seen or None in marks:
            return
        self._seen = marks
        fault = self.use(self._app.theme)
        if fault is not None:
            self._tell(fault)

    def _watch(self, name: str, paths: tuple[str, ...]) -> None:
        """Gpumon's own files change with gpumon alone."""
        self._watched = paths if self.shelf.is_own(name) else ()
        self._seen = _marks(self._watched)


def _marks(paths: tuple[str, ...]) -> tuple[_Mark | None, ...]:
    """What changes of each file when it is saved; ``None`` for one that is not there."""
    return tuple(_mark(path) for path in paths)


def _mark(path: str) -> _Mark | None:
    try:
        about = os.stat(path)  # noqa: PTH116 - a theme's path is a text
    except OSError:
        return None
    # Two savings may fall into one tick of the file system's clock.
    return about.st_mtime_ns, about.st_size, about.st_ino
