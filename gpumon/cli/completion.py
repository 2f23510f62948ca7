"""``gpumon completion``: what a shell needs to complete the command line, made from the parser."""

from __future__ import annotations

import argparse
import re

import shtab

from gpumon.config.themes import ThemeLibrary

_THEMES = {"theme", "name"}
"""What takes the name of a theme: ``--theme``, and ``gpumon theme show``."""


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for a shell that shtab knows."""
    # A name that a shell would have to quote is left to whoever types it.
    themes = [name for name in ThemeLibrary().names() if re.fullmatch(r"[\w.-]+", name)]
    _name_values(parser, themes)
    return f"{shtab.complete(parser, shell=shell).rstrip()}\n"


def _name_values(parser: argparse.ArgumentParser, themes: list[str]) -> None:
    """Tell what is a file's name, and what a theme's, in all commands."""
    for action in parser._actions:  # noqa: SLF001 - argparse lists them nowhere else
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - likewise
            for command in action.choices.values():
                _name_values(command, themes)
        elif action.metavar == "FILE":
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # not in its stub
        elif action.dest in _THEMES:
            action.choices = themes
