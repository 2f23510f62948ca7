"""Converts theme files to Textual's themes, and style names to Rich styles and escapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from gpumon.config.themes import resolve_styles
from gpumon.config.themes.styles import PREFIX, resolve_style
from gpumon.ui.colours import shown_as
from gpumon.ui.view.cell_writer import SgrStyle, SgrStyles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.color import ColorSystem

    from gpumon.config.themes import ThemeFile


def to_textual(file: ThemeFile) -> Theme:
    """Convert a theme file to Textual's theme."""
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
    """The colour of a style, as Rich names colours, for text in a dialog.

    Args:
        style: Name of the style.
        variables: Textual's variables of the current theme.
    """
    return resolve_style(style, variables).fore.hex


_REVERSED = {"cursor", "header.alarm", "footer.on"}
"""Styles that are reversed if the terminal has no or too few colours."""


class Palette:
    """The looks of all styles, for Textual and as escape sequences.

    Attributes:
        styles: Rich styles by style name.
        sgr_styles: The same as escape sequences.
    """

    def __init__(self, variables: Mapping[str, str], system: ColorSystem | None) -> None:
        """Make a palette.

        Args:
            variables: Textual's variables of the current theme.
            system: The terminal's colour system; ``None`` means no colours.
        """
        self.styles: dict[str, Style] = {}
        sgr_styles: dict[str, SgrStyle] = {}
        for name, look in resolve_styles(variables).items():
            if system is None:
                reverse = name in _REVERSED
                self.styles[name] = Style(bold=look.bold, reverse=reverse)
                sgr_styles[name] = SgrStyle(bold=look.bold, reverse=reverse)
                continue
            fore, back = shown_as(Color(*look.fore), Color(*look.ground), system)
            # With few colours its background may be the same as the screen's.
            reverse = name in _REVERSED and back == self.styles[""].bgcolor
            self.styles[name] = Style(color=fore, bgcolor=back, bold=look.bold, reverse=reverse)
            sgr_styles[name] = SgrStyle(
                ";".join(fore.get_ansi_codes(foreground=True)),
                ";".join(back.get_ansi_codes(foreground=False)),
                look.bold,
                reverse,
            )
        self.sgr_styles = SgrStyles(sgr_styles)
