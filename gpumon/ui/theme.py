"""Themes on screen: a theme file as Textual's theme, and style names as what is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from gpumon.config.themes import ThemeLibrary, looks
from gpumon.config.themes.styles import PREFIX
from gpumon.ui.colours import shown_as
from gpumon.ui.view.writer import SgrStyle, SgrStyles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.color import ColorSystem

    from gpumon.config.themes import ThemeFile


def load_theme(name: str) -> Theme:
    """Read a theme of gpumon's, or of a person's own.

    Raises:
        ThemeError: It cannot be used.
    """
    return to_textual(ThemeLibrary().read(name))


def to_textual(file: ThemeFile) -> Theme:
    """A theme file as Textual wants it."""
    colours = file.colours
    return Theme(
        name=file.name,
        dark=file.dark,
        primary=colours["primary"],
        secondary=colours["secondary"],
        accent=colours["accent"],
        success=colours["success"],
        warning=colours["warning"],
        error=colours["error"],
        foreground=colours["foreground"],
        background=colours["background"],
        surface=colours["surface"],
        panel=colours["panel"],
        variables={PREFIX + key: value for key, value in file.dashboard.items()},
    )


def colour_of(style: str, variables: Mapping[str, str]) -> str:
    """The colour of a style of ``layout``, as Rich names colours, for text in a dialog.

    Args:
        style: Its name.
        variables: Textual's variables of the theme in force.
    """
    return looks(variables)[style].fore.hex


_REVERSED = {"cursor", "header.alarm"}
"""Without colours, or with too few, these stand out by being reversed."""


class Palette:
    """What each style name of ``layout`` looks like, for Textual and for plain escapes.

    Attributes:
        styles: Style name -> Rich style.
        inks: The same as plain escapes.
    """

    def __init__(self, variables: Mapping[str, str], system: ColorSystem | None) -> None:
        """Make a palette.

        Args:
            variables: Textual's variables of the theme in force.
            system: What the terminal can show; ``None`` is no colour at all.
        """
        self.styles: dict[str, Style] = {}
        inks: dict[str, SgrStyle] = {}
        for name, look in looks(variables).items():
            if system is None:
                reverse = name in _REVERSED
                self.styles[name] = Style(bold=look.bold, reverse=reverse)
                inks[name] = SgrStyle(bold=look.bold, reverse=reverse)
                continue
            fore, back = shown_as(Color(*look.fore), Color(*look.ground), system)
            # Among few colours its ground may be the screen's own.
            reverse = name in _REVERSED and back == self.styles[""].bgcolor
            self.styles[name] = Style(color=fore, bgcolor=back, bold=look.bold, reverse=reverse)
            inks[name] = SgrStyle(
                ";".join(fore.get_ansi_codes(foreground=True)),
                ";".join(back.get_ansi_codes(foreground=False)),
                look.bold,
                reverse,
            )
        self.inks = SgrStyles(inks)
