"""Prints a theme: a sample in its colours, or its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.color import Color
from rich.console import COLOR_SYSTEMS

from gpumon.config.themes import ThemeError, ThemeLibrary, resolve_styles
from gpumon.text.cells import bar, bar_style, fill
from gpumon.ui.view.cell_writer import CellWriter, SgrStyle, SgrStyles

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from gpumon.config.themes import StyleColours, ThemeFile
    from gpumon.text.cells import Row

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


def show_theme(name: str, out: TextIO, system: str | None) -> str:
    """Print a theme: a sample in its colours, or its file if the output has no colours.

    Args:
        name: The theme.
        out: The output.
        system: Rich's name of the terminal's colour system; ``None`` if it has no colours.

    Returns:
        An error message; empty on success.
    """
    library = ThemeLibrary()
    if name not in library.names():
        return f"there is no theme {name!r}; {library.advice(name)}."
    if library.path(name) is None:
        return f"{name} is Textual's own and no file: gpumon --demo --theme {name} shows it."
    try:
        file = library.read(name)
    except ThemeError as error:
        return error.brief
    if system is None:
        out.write(_as_file(file))
        return ""
    found = resolve_styles(file.variables)
    writer = CellWriter(
        SgrStyles({style: _sgr_style(look, system) for style, look in found.items()})
    )
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


def _sgr_style(look: StyleColours, system: str) -> SgrStyle:
    fore, ground = (
        Color.from_rgb(*colour).downgrade(COLOR_SYSTEMS[system])
        for colour in (look.fore, look.ground)
    )
    return SgrStyle(
        ";".join(fore.get_ansi_codes(foreground=True)),
        ";".join(ground.get_ansi_codes(foreground=False)),
        look.bold,
    )


def _sample(theme: ThemeFile) -> list[Row]:
    """A few lines with all styles of a theme."""
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
