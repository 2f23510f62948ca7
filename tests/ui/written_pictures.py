"""Pictures of what is written to a terminal: in each theme, with few colours or characters."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from textual.theme import BUILTIN_THEMES

from gpumon.config.keymap import DEFAULT_WINDOW
from gpumon.config.themes import TEXTUAL_THEMES, ThemeLibrary, resolve_styles
from gpumon.config.themes.styles import STYLES
from gpumon.text.charset import ASCII, CONSOLE, UTF_8, take_stream
from gpumon.ui.startup import first_styles
from gpumon.ui.terminal.cell_writer import CellWriter
from gpumon.ui.terminal.styles import COLOURS_16, COLOURS_256, TRUE_COLOUR, sgr_styles
from gpumon.ui.terminal.widget_output import rich_style
from gpumon.ui.theme_controller import to_textual
from gpumon.ui.view.dashboard_rows import Dashboard
from gpumon.ui.view.dashboard_view import View
from gpumon.ui.view.frame import Memo
from gpumon.ui.view.gpu_page import gpu_rows
from gpumon.ui.view.process_table import Listing
from tests.absent import ABSENT
from tests.build import recording_of
from tests.known import known
from tests.ui.view.drawing import demo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from textual.theme import Theme

    from gpumon.text.cells import Row
    from gpumon.ui.terminal.styles import SgrStyles

_SYSTEMS = {
    "true colours": TRUE_COLOUR,
    "256 colours": COLOURS_256,
    "16 colours": COLOURS_16,
    "no colours": None,
}
_SIZES = ((120, 40), (80, 24))
_FIRST_TERMINALS = {
    "true colours": {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
    "256 colours": {"TERM": "xterm-256color"},
}


def theme_pictures() -> Iterator[tuple[str, list[str]]]:
    """The codes of each style in each theme, and rows in the colours of the default theme."""
    library = ThemeLibrary(own=ABSENT)
    files = {name: library.read(name) for name in library.shipped()}
    themes = {name: to_textual(file) for name, file in files.items()}
    themes |= {name: BUILTIN_THEMES[name] for name in TEXTUAL_THEMES}
    for name, theme in themes.items():
        for colours, system in _SYSTEMS.items():
            styles = _styles(theme, system)
            codes = [_written(styles, [((style, style),)]) for style in STYLES]
            rich = [str(rich_style(style)) for style in styles.by_name.values()]
            yield f"styles, {colours}: {name}", [*codes, *rich]
    for name, file in files.items():
        for colours, environ in _FIRST_TERMINALS.items():
            writer = CellWriter(known(first_styles(file, environ)))
            codes = []
            for style in STYLES:
                writer.row(((style, style),))
                codes.append(writer.take())
            yield f"styles of the first picture, {colours}: {name}", codes
    for colours, system in _SYSTEMS.items():
        styles = _styles(themes[library.default().name], system)
        before: list[Row] = []
        for name, rows in _rows():
            yield f"written, {colours}: {name}", [_written(styles, [row]) for row in rows]
            if len(before) == len(rows):
                yield f"written, {colours}: changed to {name}", _changed(styles, before, rows)
            before = rows


def _styles(theme: Theme, system: str | None) -> SgrStyles:
    variables = {**theme.to_color_system().generate(), **theme.variables}
    return sgr_styles(resolve_styles(variables), system)


def _written(styles: SgrStyles, rows: Sequence[Row]) -> str:
    writer = CellWriter(styles)
    for row in rows:
        writer.row(row)
    return writer.take()


def _changed(styles: SgrStyles, before: Sequence[Row], after: Sequence[Row]) -> list[str]:
    """What is written to change a picture to another one."""
    writer = CellWriter(styles)
    for y, (old, row) in enumerate(zip(before, after, strict=True)):
        writer.change(old, row, 0, y)
    return [writer.take()]


def _rows() -> Iterator[tuple[str, list[Row]]]:
    shown, history = demo()
    ids = [process.id for process in shown.processes]
    for width, height in _SIZES:
        dashboard = Dashboard(history)
        views = (
            View(interval=0.5, listing=Listing.TREE, cursor=ids[0]),
            View(interval=0.5, cursor=ids[0]),
            View(interval=0.5, cursor=ids[1], tags=frozenset([ids[3]])),
            View(interval=0.5, gpu=shown.gpus[1].uuid, host_strip=True, message="sorted by AGE"),
        )
        for number, view in enumerate(views):
            rows = dashboard.rows(shown, view, width, height).all()
            yield f"dashboard, {width}x{height}, {number}", rows
        for gpu in shown.gpus[:2]:
            recording = recording_of()
            rows = gpu_rows(Memo(), gpu, history, shown, DEFAULT_WINDOW, recording, width, height)
            yield f"page of GPU {gpu.index}, {width}x{height}", rows


def plain_pictures() -> Iterator[tuple[str, list[str]]]:
    """Rows as terminals show them that have ASCII only, or the characters of the console."""
    stream = io.TextIOWrapper(io.BytesIO(), UTF_8)
    try:
        for characters, codeset in (("ASCII", ASCII), ("the console's", CONSOLE)):
            take_stream(stream, codeset)
            for name, rows in _rows():
                lines = ("".join(text for text, _ in row) for row in rows)
                shown = [line.encode(codeset, stream.errors or "").decode() for line in lines]
                yield f"characters, {characters}: {name}", shown
    finally:
        take_stream(stream, UTF_8)
