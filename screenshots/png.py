"""A picture as PNG, drawn by resvg with the font of this folder: the same pixels each time."""

from __future__ import annotations

from pathlib import Path

from screenshots.drawing import FONT

ZOOM = 1.5
"""Sharp on screens with high density; a cell is 15 by 30 whole pixels."""
_FONTS = Path(__file__).parent / "fonts"


class RendererMissingError(Exception):
    """resvg is not installed; the text is for the user."""


def png_of(svg: str) -> bytes:
    """The picture as PNG.

    Raises:
        RendererMissingError: resvg is not installed.
    """
    try:
        import resvg_py
    except ImportError as error:
        raise RendererMissingError(
            "resvg-py draws the PNG files and is missing; install it: pip install -e '.[dev]'"
        ) from error
    return resvg_py.svg_to_bytes(
        svg_string=svg,
        zoom=ZOOM,
        skip_system_fonts=True,
        font_files=sorted(map(str, _FONTS.glob("*.ttf"))),
        font_family=FONT,
        monospace_family=FONT,
    )
