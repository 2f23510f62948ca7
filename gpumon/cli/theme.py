"""``gpumon theme``: list themes, show one, check a theme file."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from gpumon.cli.commands import Command
from gpumon.cli.output import EXIT_FAILED, EXIT_USAGE, configure_output, fail, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from gpumon.cli.parser import Parser
    from gpumon.config.themes import ThemeFile
    from gpumon.text.cells import Row

_NAME_WIDTH = 22

_BAR = 24
_WIDTH = 92
_WHOLE = {"header.dim", "footer", "cursor"}
"""Styles that fill the rest of their row."""
_STATES = (
    ("good", "free"),
    ("quiet", "working"),
    ("note", "idle 3h12m"),
    ("warning", "hot: SW thermal 4m"),
    ("critical", "lost since 13:58"),
)


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
        fault = _show(options.name)
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


def _show(name: str) -> str:
    """Print a theme: a sample in its colours, or its file if the output has no colours.

    Returns:
        An error message; empty on success.
    """
    from rich.console import Console

    from gpumon.config.themes import ThemeError, ThemeLibrary, resolve_styles
    from gpumon.ui.terminal.cell_writer import CellWriter
    from gpumon.ui.terminal.styles import sgr_styles

    library, out = ThemeLibrary(), sys.stdout
    if name not in library.names():
        return f"there is no theme {name!r}; {library.advice(name)}."
    if library.path(name) is None:
        return f"{name} is Textual's own and no file: gpumon --demo --theme {name} shows it."
    try:
        file = library.read(name)
    except ThemeError as error:
        return error.brief
    system = Console(file=out).color_system
    if system is None:
        out.write(_as_file(file))
        return ""
    writer = CellWriter(sgr_styles(resolve_styles(file.variables), system))
    for row in _sample(file):
        writer.row(row)
        out.write(f"{writer.take()}\n")
    return ""


def _as_file(theme: ThemeFile) -> str:
    """The theme as the text of a theme file."""
    about = theme.about.replace("\\", "\\\\").replace('"', '\\"')
    tables = (_table("colours", theme.colours), _table("dashboard", theme.dashboard))
    return "\n".join((f'about = "{about}"\n', *tables))


def _table(name: str, colours: Mapping[str, str]) -> str:
    return f"[{name}]\n" + "".join(f'{key} = "{value}"\n' for key, value in colours.items())


def _sample(theme: ThemeFile) -> list[Row]:
    """A few lines with all styles of a theme."""
    from gpumon.text.cells import bar, bar_style, fill

    rows: list[Row] = [
        ((f" {theme.name}", "header.title"), (f"  {theme.about}", "header.dim")),
        (
            ("  GPU", "heading"),
            (f"  {'memory':<{_BAR + 6}}", "heading"),
            ("util▼", "heading.sorted"),
        ),
    ]
    for index, (fraction, busy) in enumerate(((0.3, 0.2), (0.7, 0.6), (0.97, 1.0))):
        rows.append(
            (
                (f"  {index}    ", ""),
                (bar(fraction, _BAR), bar_style("bar.memory", fraction)),
                (f"{fraction:>5.0%} ", ""),
                (bar(busy, _BAR), bar_style("bar.util", busy)),
                (f"{busy:>5.0%}", ""),
            )
        )
    rows += [
        ((" ▸41233 ann   74.0G  python train.py", "cursor"),),
        ((" ●41234 ann   12.0G  python eval.py", "tagged"),),
        (("  51022 ", ""), ("bo    ", "user"), ("31.0G", ""), ("  not visible here", "stale")),
        (("  ", ""), *((f"{words}   ", f"state.{state}") for state, words in _STATES)),
        (("  ", ""), *((f"━━ series{n}  ", f"series.{n}") for n in range(1, 7))),
        ((" k", "footer.key"), (" end   ", "footer"), ("?", "footer.key"), (" help", "footer")),
    ]
    return [fill(row, _WIDTH, row[-1][1] if row[-1][1] in _WHOLE else "") for row in rows]


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
        f"the style {style} has a contrast of {ratio:.1f}; readable text needs at least "
        f"{LEAST_CONTRAST:g}."
        for style, look in resolve_styles(theme.variables).items()
        if not style.startswith(DRAWN)
        and (ratio := contrast(look.fore, look.ground)) < LEAST_CONTRAST
    ]
