"""The characters that a terminal can show, and substitutes for the others.

Code above this module uses any glyph. This module's handler of encoding errors replaces those that
a stream cannot encode, so no writer has to care, and none can forget it. A substitute has the width
of the original, so rows keep their width. Two are wider, to be read at once: where they are
written, ``formatting.cell_width`` measures the originals as wide as they are.
"""

from __future__ import annotations

import codecs
import io
import os
import re
from typing import TYPE_CHECKING, Protocol

from gpumon.text.formatting import cell_width, spell_out, spelled_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    class ReadableBuffer(Protocol):
        """Bytes to decode."""

        def __buffer__(self, flags: int, /) -> memoryview: ...


UTF_8 = "utf-8"
ASCII = "ascii"
CONSOLE = "gpumon-console"
"""UTF-8, but only the characters of the Linux console's font."""
SUBSTITUTE = "gpumon-substitute"
"""The name of the error handler: a plain character for a glyph, ``?`` for anybody else's text."""

_FONT = "cp437"
"""What the kernel's own console font holds; most others hold it too."""
_UNKNOWN = "?"

SUBSTITUTES = {
    # State, marks, signs.
    "○": "o",
    "●": "*",
    "◐": "+",
    "◆": "&",
    "◈": "$",
    "◎": "=",
    "◌": "z",
    "⊘": "/",
    "◔": "~",
    "△": "i",
    "◉": "@",
    "★": "!",
    "▲": "^",
    "▼": "v",
    "✖": "X",
    "✓": "+",
    "■": "#",
    "±": "*",
    "▸": ">",
    "▶": ">",
    "❚": "|",
    "•": "*",
    "┊": ":",
    # Signs among words and numbers.
    "…": "~",
    "–": "-",
    "—": "-",
    "−": "-",
    "·": ".",
    "°": " ",
    "≥": ">",
    "≤": "<",
    "×": "x",
    "²": "2",
    "µ": "u",
    "‹": "<",
    "›": ">",
    "↑": "^",
    "↓": "v",
    "←": "<",
    "→": ">",
    # Bars, from the left and from below, and shades.
    **dict.fromkeys("▏▎▍▕", "|"),
    **dict.fromkeys("▋▊▉█", "#"),
    "▌": "]",
    "▐": "[",
    **dict(zip("▁▂▃▄▅▆▇", "_.-=+*#", strict=True)),
    "▀": '"',
    "▔": "-",
    "░": ".",
    "▒": ":",
    "▓": "%",
    "▚": "x",
    # The grid of a chart, which would look like a curve.
    "┈": " ",
    # Lines: rules, trees, borders, axes.
    **dict.fromkeys("─━═╌", "-"),
    **dict.fromkeys("│┃║├", "|"),
    **dict.fromkeys("┌┐┘┤┬┴┼╭╮╯╰╔╗╚╝", "+"),
    "└": "`",
    # Textual's command palette.
    "🔎": "> ",
}
"""What stands for a glyph where only ASCII is shown."""

_ON_CONSOLE = {
    **dict.fromkeys("▃▅", "▄"),
    **dict.fromkeys("▆▇", "█"),
    **dict.fromkeys("▏▎▍▋", "▌"),
    **dict.fromkeys("▊▉", "█"),
    **dict(zip("╭╮╰╯━┃", "┌┐└┘─│", strict=True)),
    "▔": "▀",
}
"""Nearer than ASCII, where the font has it."""

_WIDER = {"…": "...", "≥": ">=", "≤": "<="}

_BRAILLE = range(0x2800, 0x2900)
_DOTS_ASCII = " .:==++##"
_DOTS_CONSOLE = " __▄▄▄███"


def codeset_of(environ: Mapping[str, str]) -> str:
    """The encoding of a terminal with this environment.

    Python's own value is no help: it uses UTF-8 for the C locale, whatever the terminal shows. An
    environment without a locale, as in most containers, counts as UTF-8 too.
    """
    if environ.get("GPUMON_ASCII", "0") not in {"", "0"}:
        return ASCII
    known = (environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next(filter(None, known), "")
    codeset = _codeset(locale) if locale else UTF_8
    return CONSOLE if codeset == UTF_8 and environ.get("TERM") == "linux" else codeset


def _codeset(locale: str) -> str:
    """The encoding of a locale, as a codec name; ASCII if it is unknown."""
    name = locale.partition("@")[0].partition(".")[2]
    if not name:
        from locale import normalize

        name = normalize(locale).partition(".")[2]
    try:
        codec = codecs.lookup(name).name
        wide = len("●".encode(codec, "ignore")) > 1
    except (LookupError, ValueError, UnicodeError):
        return ASCII
    # The older encodings of East Asia contain the glyphs at double width.
    return ASCII if wide and codec != UTF_8 else codec


def environment() -> Mapping[str, str]:
    """The original environment: Python itself sets ``LC_CTYPE``, see PEP 538."""
    environ = dict(os.environ)
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - no import for one file
            given = file.read().split(b"\0")
    except OSError:
        return environ
    # An empty variable counts as unset.
    if not any(item.startswith(b"LC_CTYPE=") and item != b"LC_CTYPE=" for item in given):
        environ.pop("LC_CTYPE", None)
    return environ


def take_stream(stream: object, codeset: str) -> None:
    """Make a stream write what the terminal shows, with substitutes for the rest."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding=codeset, errors=SUBSTITUTE)
        if codeset != CONSOLE:
            spell_out({it: plain for it, plain in _WIDER.items() if not _encodes(codeset, it)})


def _encodes(codeset: str, character: str) -> bool:
    return len(character.encode(codeset, "ignore")) > 0


def substitute(text: str) -> str:
    """An ASCII substitute for a text, with exactly the same width."""
    return "".join(map(_substitute, spelled_out(text)))


def _substitute(character: str) -> str:
    if character.isascii():
        return character
    if (code := ord(character)) in _BRAILLE:
        return _DOTS_ASCII[(code & 0xFF).bit_count()]
    return SUBSTITUTES.get(character) or _UNKNOWN * cell_width(character)


_DEGREES = ("C", "F")
_AFTER_ONE_SPACE = re.compile(r"\S °")


def _handle(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text, end = error.object, error.end
    plain = substitute(text[error.start : end])
    unit = text[end : end + 1]
    if unit in _DEGREES and _AFTER_ONE_SPACE.fullmatch(text[max(0, end - 3) : end]):
        # The unit takes the cell of the sign, so that ``86 °C`` does not become ``86  C``.
        return f"{plain[:-1]}{unit} ", end + 1
    return plain, end


class _Shown(dict[int, str]):
    """For ``str.translate``: the console's substitute for a character."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        try:
            character.encode(_FONT)
        except UnicodeEncodeError:
            if code in _BRAILLE:
                character = _DOTS_CONSOLE[(code & 0xFF).bit_count()]
            else:
                character = _ON_CONSOLE.get(character) or _substitute(character)
        self[code] = character
        return character


_SHOWN = _Shown()


def _encode(text: str, errors: str = "strict") -> tuple[bytes, int]:
    shown = text if text.isascii() else text.translate(_SHOWN)
    return shown.encode(UTF_8, errors), len(text)


def _decode(data: ReadableBuffer, errors: str = "strict") -> tuple[str, int]:
    return codecs.utf_8_decode(data, errors, True)


class _Encoder(codecs.IncrementalEncoder):
    def encode(self, text: str, final: bool = False) -> bytes:  # noqa: ARG002 - Python's signature
        return _encode(text, self.errors)[0]


def _find(name: str) -> codecs.CodecInfo | None:
    # Python passes the name in its own spelling.
    if name.replace("_", "-") != CONSOLE:
        return None
    return codecs.CodecInfo(
        _encode,
        _decode,
        name=CONSOLE,
        incrementalencoder=_Encoder,
        incrementaldecoder=codecs.getincrementaldecoder(UTF_8),
    )


codecs.register(_find)
codecs.register_error(SUBSTITUTE, _handle)
