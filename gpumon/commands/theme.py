"""``gpumon theme``: which themes there are, what one looks like, whether a file is one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.color import Color, ColorSystem

from gpumon.layout.cells import bar, bar_style, fill
from gpumon.layout.writer import CellWriter, Ink, Inks
from gpumon.text import printable
from gpumon.theming import DEFAULT, TEXTUAL_THEMES, Shelf, ThemeError, looks
from gpumon.theming.colours import contrast
from gpumon.theming.files import nearest
from gpumon.theming.styles import DRAWN, LEAST_CONTRAST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO

    from gpumon.layout.cells import Row
    from gpumon.theming import Look, ThemeFile

EXIT_FAULTY = 1
EXIT_USAGE = 2

_NAME = 22
_BAR = 24
_WIDTH = 92
_WHOLE = {"header.dim", "footer", "cursor"}
"""Styles that go on to the end of their row."""
_STATES = (
    ("good", "free"),
    ("quiet", "working"),
    ("note", "idle 3h12m"),
    ("warning", "hot: SW thermal 4m"),
    ("critical", "lost since 13:58"),
)
_SYSTEMS = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
}


def list_themes(out: TextIO, shelf: Shelf | None = None) -> None:
    """Print every theme's name, and where it comes from or what it is."""
    shelf = shelf or Shelf()
    own = shelf.own()
    out.writelines(
        f"{printable(name):<{_NAME}}  {printable(str(shelf.path(name)))}\n" for name in own
    )
    for name in shelf.shipped():
        if name not in own:
            about = shelf.read(name).about
            out.write(f"{name:<{_NAME}}  {about}\n")
    for name in TEXTUAL_THEMES:
        if name not in own:
            out.write(f"{name:<{_NAME}}  Textual's\n")
    if not own:
        out.write(f"Your own go to {shelf.folder}; gpumon theme show {DEFAULT} prints one.\n")


def show_theme(name: str, out: TextIO, system: str | None, shelf: Shelf | None = None) -> str:
    """Print a theme: a sample in its colours, or its file where nothing shows colours.

    Args:
        name: The theme.
        out: Where to.
        system: Rich's name of what the terminal can show; ``None`` where nothing can.
        shelf: Where themes are.

    Returns:
        What is wrong, for a person; empty when nothing is.
    """
    shelf = shelf or Shelf()
    if name not in shelf.names():
        return f"there is no theme {name!r}; {nearest(name, shelf.names())}."
    if shelf.path(name) is None:
        return f"{name} is Textual's own and no file: gpumon --demo --theme {name} shows it."
    try:
        file = shelf.read(name)
    except ThemeError as error:
        return error.brief
    if system is None:
        out.write(_as_file(file))
        return ""
    found = looks(file.variables)
    writer = CellWriter(Inks({style: _ink(look, system) for style, look in found.items()}))
    for row in _sample(file):
        writer.row(row)
        out.write(f"{writer.take()}\n")
    return ""


def check_theme(path: str, out: TextIO, say: Callable[[str], None]) -> int:
    """Say what is wrong with a theme file, or print that nothing is.

    Args:
        path: The file.
        out: Where to print.
        say: Says a sentence on standard error.

    Returns:
        The exit status: 0 for a theme that can be used, 1 for one that cannot, 2 when there is no
        such file.
    """
    file = Path(path)
    if not file.is_file():
        say(f"{path}: no such file; gpumon theme check takes a theme's file.")
        return EXIT_USAGE
    try:
        theme = Shelf().read_path(file)
    except ThemeError as error:
        for sentence in error.sentences:
            say(sentence)
        return EXIT_FAULTY
    faint = _hard_to_read(theme)
    for sentence in faint:
        say(f"{path}: {sentence}")
    if not faint:
        out.write(f"{printable(path)}: a theme that can be used; T chooses it.\n")
    return 0


def _hard_to_read(theme: ThemeFile) -> list[str]:
    """Texts of less contrast than they should have: a matter of taste, so no fault."""
    return [
        f"the style {style} has a contrast of {ratio:.1f}; text is read well from "
        f"{LEAST_CONTRAST:g} on."
        for style, look in looks(theme.variables).items()
        if not style.startswith(DRAWN)
        and (ratio := contrast(look.fore, look.ground)) < LEAST_CONTRAST
    ]


def _as_file(theme: ThemeFile) -> str:
    """A file that makes the same theme."""
    about = theme.about.replace("\\", "\\\\").replace('"', '\\"')
    tables = (_table("colours", theme.colours), _table("dashboard", theme.dashboard))
    return "\n".join((f'about = "{about}"\n', *tables))


def _table(name: str, colours: Mapping[str, str]) -> str:
    return f"[{name}]\n" + "".join(f'{key} = "{value}"\n' for key, value in colours.items())


def _ink(look: Look, system: str) -> Ink:
    fore, ground = (
        Color.from_rgb(*colour).downgrade(_SYSTEMS.get(system, ColorSystem.STANDARD))
        for colour in (look.fore, look.ground)
    )
    return Ink(
        ";".join(fore.get_ansi_codes(foreground=True)),
        ";".join(ground.get_ansi_codes(foreground=False)),
        look.bold,
    )


def _sample(theme: ThemeFile) -> list[Row]:
    """A few lines with all that a theme tells apart."""
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
