"""Themes as validated files, their folders, and the choice of a theme; without Textual."""

from gpumon.config.settings import DEFAULT_THEME as DEFAULT
from gpumon.config.themes.files import ThemeError, ThemeFile
from gpumon.config.themes.library import (
    TEXTUAL_THEMES,
    ThemeChoice,
    ThemeLibrary,
    UnknownThemeError,
    choose_theme,
    remember,
)
from gpumon.config.themes.styles import StyleColours, resolve_styles

__all__ = [
    "DEFAULT",
    "TEXTUAL_THEMES",
    "StyleColours",
    "ThemeChoice",
    "ThemeError",
    "ThemeFile",
    "ThemeLibrary",
    "UnknownThemeError",
    "choose_theme",
    "remember",
    "resolve_styles",
]
