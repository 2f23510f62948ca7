"""Themes as data: files checked before use, where they lie, which one is wanted; no Textual."""

from gpumon.config.themes.choice import ThemeChoice, UnknownThemeError, choose_theme, remember
from gpumon.config.themes.files import ThemeError, ThemeFile
from gpumon.config.themes.library import DEFAULT, TEXTUAL_THEMES, ThemeLibrary
from gpumon.config.themes.styles import Look, looks

__all__ = [
    "DEFAULT",
    "TEXTUAL_THEMES",
    "Look",
    "ThemeChoice",
    "ThemeError",
    "ThemeFile",
    "ThemeLibrary",
    "UnknownThemeError",
    "choose_theme",
    "looks",
    "remember",
]
