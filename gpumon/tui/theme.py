"""Themes: colours from ``themes/*.toml``, and what they make of the style names of ``layout``.

A theme file gives Textual's own colours and the dashboard's. Themes that know nothing of gpumon,
Textual's built-in ones, get the dashboard's colours derived from theirs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from gpumon.layout.cells import Ink, Inks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.color import Color as RichColor
    from rich.color import ColorSystem

_PREFIX = "gpumon-"


class _Colours(msgspec.Struct, forbid_unknown_fields=True):
    """Textual's colours."""

    primary: str
    secondary: str
    accent: str
    success: str
    warning: str
    error: str
    foreground: str
    background: str
    surface: str
    panel: str


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """What stands in a theme file."""

    name: str
    dark: bool
    colours: _Colours
    dashboard: dict[str, str]


def themes_folder() -> Path:
    """Where the themes are: beside the package in a checkout, inside it when installed."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "themes"
    return installed if installed.is_dir() else package.parent / "themes"


def load_theme(name: str) -> Theme:
    """Read one of the themes that come with gpumon."""
    text = (themes_folder() / f"{name}.toml").read_bytes()
    file = msgspec.toml.decode(text, type=_File)
    colours = file.colours
    return Theme(
        name=file.name,
        dark=file.dark,
        primary=colours.primary,
        secondary=colours.secondary,
        accent=colours.accent,
        success=colours.success,
        warning=colours.warning,
        error=colours.error,
        foreground=colours.foreground,
        background=colours.background,
        surface=colours.surface,
        panel=colours.panel,
        variables={_PREFIX + key: value for key, value in file.dashboard.items()},
    )


# Style name -> (colour, ground, bold). A ground of "" is the screen's own.
_STYLES: dict[str, tuple[str, str, bool]] = {
    "": ("foreground", "", False),
    "strong": ("foreground", "", True),
    "dim": ("dim", "", False),
    "stale": ("stale", "", False),
    "user": ("user", "", False),
    "rule": ("faint", "", False),
    "heading": ("dim", "", False),
    "heading.sorted": ("foreground", "", True),
    "header": ("foreground", "header", False),
    "header.dim": ("dim", "header", False),
    "header.title": ("title", "header", True),
    "header.mark": ("mark", "header", True),
    "header.alarm": ("critical", "header", True),
    "footer": ("dim", "header", False),
    "footer.key": ("title", "header", True),
    "footer.message": ("foreground", "header", True),
    "bar.memory": ("memory", "trough", False),
    "bar.util": ("utilization", "trough", False),
    "bar.other": ("other", "trough", False),
    "bar.stale": ("faint", "trough", False),
    "graph.util": ("utilization", "", False),
    "graph.memory": ("memory", "", False),
    "state.good": ("good", "", False),
    "state.quiet": ("dim", "", False),
    "state.note": ("note", "", False),
    "state.warning": ("warning", "", True),
    "state.critical": ("critical", "", True),
    "panel.title": ("title", "header", True),
    "panel.users": ("dim", "header", False),
    "panel.state.good": ("good", "header", True),
    "panel.state.quiet": ("dim", "header", False),
    "panel.state.note": ("note", "header", True),
    "panel.state.warning": ("warning", "header", True),
    "panel.state.critical": ("critical", "header", True),
    "cursor": ("title", "cursor", False),
}

# What a theme that says nothing of the dashboard gets: (first, second, share of the second).
_DERIVED: dict[str, tuple[str, str, float]] = {
    "dim": ("foreground", "background", 0.45),
    "faint": ("foreground", "background", 0.75),
    "stale": ("foreground", "background", 0.6),
    "trough": ("foreground", "background", 0.88),
    "header": ("foreground", "background", 0.9),
    "cursor": ("primary", "background", 0.55),
    "title": ("foreground", "foreground", 0.0),
    "user": ("foreground", "warning", 0.3),
    "memory": ("primary", "primary", 0.0),
    "utilization": ("success", "success", 0.0),
    "other": ("accent", "accent", 0.0),
    "good": ("success", "success", 0.0),
    "note": ("warning", "foreground", 0.3),
    "warning": ("warning", "warning", 0.0),
    "critical": ("error", "error", 0.0),
    "mark": ("warning", "warning", 0.0),
}


_REVERSED = {"cursor", "header.alarm"}
"""Without colour these stand out by being reversed."""


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
        inks: dict[str, Ink] = {}
        for name, (colour, ground, bold) in _STYLES.items():
            if system is None:
                reverse = name in _REVERSED
                self.styles[name] = Style(bold=bold, reverse=reverse)
                inks[name] = Ink(bold=bold, reverse=reverse)
                continue
            fore = _resolve(colour, variables)
            back = _resolve(ground or "background", variables)
            self.styles[name] = Style(color=fore, bgcolor=back, bold=bold)
            inks[name] = Ink(
                ";".join(fore.downgrade(system).get_ansi_codes(foreground=True)),
                ";".join(back.downgrade(system).get_ansi_codes(foreground=False)),
                bold,
            )
        self.inks = Inks(inks)


def _resolve(name: str, variables: Mapping[str, str]) -> RichColor:
    text = variables.get(_PREFIX + name)
    if text is None and name in _DERIVED:
        first, second, share = _DERIVED[name]
        one, two = Color.parse(variables[first]), Color.parse(variables[second])
        return one.blend(two, share).rich_color
    return Color.parse(text if text is not None else variables[name]).rich_color
