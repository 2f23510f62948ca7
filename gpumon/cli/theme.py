"""``gpumon theme``: list themes, show one, check a theme file."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from gpumon.cli.commands import Command
from gpumon.cli.output import EXIT_FAILED, EXIT_USAGE, configure_output, fail, say

if TYPE_CHECKING:
    import argparse

    from gpumon.cli.parser import Parser
    from gpumon.config.themes import ThemeFile

_NAME_WIDTH = 22


class ThemeCommand(Command):
    description = (
        "Themes: gpumon's own, Textual's, and yours, which are TOML files. docs/themes.md "
        "describes them."
    )

    def add_options(self, parser: Parser) -> None:
        actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
        actions.add_parser("list", help="print the name of every theme")
        show = actions.add_parser(
            "show",
            help="on a terminal, print a sample in its colours; otherwise print the theme file",
        )
        show.add_argument("name", metavar="NAME")
        check = actions.add_parser(
            "check",
            help="report mistakes in a theme file; the exit status is 0 if it is valid, 1 if not, "
            "2 if there is no such file",
        )
        check.add_argument("file", metavar="FILE")

    def run(self, options: argparse.Namespace) -> int:
        configure_output(options, "toml" if options.action == "show" else "table")
        if options.action == "list":
            _list()
            return 0
        if options.action == "check":
            return _check(options.file)
        from rich.console import Console

        from gpumon.ui.view.theme_sample import show_theme

        system = Console(file=sys.stdout).color_system
        fault = show_theme(options.name, sys.stdout, system)
        return fail(fault, EXIT_USAGE) if fault else 0


def _list() -> None:
    """Print every theme's name, and its file or description."""
    from gpumon.config.themes import DEFAULT, TEXTUAL_THEMES, ThemeLibrary
    from gpumon.text.formatting import printable

    out, library = sys.stdout, ThemeLibrary()
    own = library.own()
    out.writelines(
        f"{printable(name):<{_NAME_WIDTH}}  {printable(str(library.path(name)))}\n" for name in own
    )
    for name in library.shipped():
        if name not in own:
            about = library.read(name).about
            out.write(f"{name:<{_NAME_WIDTH}}  {about}\n")
    for name in TEXTUAL_THEMES:
        if name not in own:
            out.write(f"{name:<{_NAME_WIDTH}}  Textual's\n")
    if not own:
        out.write(
            f"Put your own into {library.folder}; gpumon theme show {DEFAULT} prints an example.\n"
        )


def _check(path: str) -> int:
    """Report mistakes in a theme file, or print that it is valid; the exit status."""
    from gpumon.config.themes import ThemeError, ThemeLibrary
    from gpumon.system.folders import is_absent
    from gpumon.text.formatting import printable

    if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises without permission
        why = "no such file" if is_absent(path) else "it cannot be read"
        return fail(f"{path}: {why}; gpumon theme check takes a theme file.", EXIT_USAGE)
    try:
        theme = ThemeLibrary().read_path(path)
    except ThemeError as error:
        for sentence in error.sentences:
            say(sentence)
        return EXIT_FAILED
    faint = _hard_to_read(theme)
    for sentence in faint:
        say(f"{path}: {sentence}")
    if not faint:
        sys.stdout.write(f"{printable(path)} is a valid theme; the key T selects it.\n")
    return 0


def _hard_to_read(theme: ThemeFile) -> list[str]:
    """Styles with too little contrast, which is allowed: the theme stays valid."""
    from gpumon.config.themes import resolve_styles
    from gpumon.config.themes.styles import DRAWN, LEAST_CONTRAST, contrast

    return [
        f"the style {style} has a contrast of {ratio:.1f}; text is readable from "
        f"{LEAST_CONTRAST:g} on."
        for style, look in resolve_styles(theme.variables).items()
        if not style.startswith(DRAWN)
        and (ratio := contrast(look.fore, look.ground)) < LEAST_CONTRAST
    ]
