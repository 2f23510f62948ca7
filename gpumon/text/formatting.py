"""Formatting: untrusted text made safe to print, and text widths in terminal cells.

Process names, command lines, user and GPU names are hostile input: an escape sequence in one could
move the cursor, retitle the terminal or fake a row. Everything on screen passes ``printable``.
"""

from __future__ import annotations

import math
import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

from gpumon.text.units import degrees, memory_units

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ELLIPSIS = "…"
_SHORT_ELLIPSIS, _LEAST_FOR_DOTS = "~", 8
"""What stands for the ellipsis in few cells where it is written as three dots."""
UNKNOWN = "–"
"""Shown for an unknown value."""

# The second four are the wide forms that some spreadsheets treat the same.
_FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

CACHED_CHARACTERS = 256
"""Longer texts, such as command lines, are cached in far fewer places: a command line of each of
thousands of processes that came and went would fill these caches with megabytes."""
_CACHED_TEXTS, _CACHED_LONG_TEXTS = 4096, 128

_NARROW = re.compile(
    r"[ -~\xa1-\xac\xae-\u02ff\u2010-\u2027\u2190-\u22ff"
    r"\u2500-\u25fc\u2713-\u2716\u275a\u2800-\u28ff\ufffd]*"
)
"""Latin letters, punctuation, arrows, lines, blocks, shapes, marks and braille: one cell each in
every table. Text of these needs none, and the screen's takes 5 ms to import."""


def printable(text: str) -> str:
    """The text with everything that is not a visible character replaced.

    Control, format (bidirectional overrides, zero-width joiners), private and unassigned characters
    and lone surrogates each become one replacement character, tabs and line breaks a space, and
    combining marks and whatever else takes no cell of its own go, so that a cell on screen is a
    character in the string or half of a wide one.
    """
    if text.isascii() and text.isprintable():
        return text
    return (_printable if len(text) <= CACHED_CHARACTERS else _printable_long)(text)


def _find_printable(text: str) -> str:
    text = unicodedata.normalize("NFC", text)
    if _NARROW.fullmatch(text):
        # All of these are visible; one by one, a long command line takes a millisecond.
        return text
    kept: list[str] = []
    for character in text:
        if character.isspace():
            kept.append(" ")
            continue
        category = unicodedata.category(character)
        if category[0] == "C":
            kept.append(_REPLACEMENT)
        elif category[0] != "M" and cell_width(character):
            kept.append(character)
    return "".join(kept)


_printable = lru_cache(_CACHED_TEXTS)(_find_printable)
_printable_long = lru_cache(_CACHED_LONG_TEXTS)(_find_printable)


def spreadsheet_safe(text: str) -> str:
    """Printable text, with an apostrophe in front if a spreadsheet would read it as a formula.

    ``spreadsheet_text`` removes it.
    """
    visible = printable(text)
    return f"'{visible}" if _looks_like_formula(visible) else visible


def spreadsheet_text(cell: str) -> str:
    """The original text of ``spreadsheet_safe``, except unprintable characters."""
    return cell[1:] if cell.startswith("'") and _looks_like_formula(cell[1:]) else cell


def _looks_like_formula(text: str) -> bool:
    # Text that begins with apostrophes gets another, so that the two cases can be distinguished.
    return text.lstrip("' ").startswith(_FORMULA_STARTS)


_spelled_out: dict[str, str] = {}


def spell_out(characters: Mapping[str, str]) -> None:
    """Measure these characters as wide as the ASCII text that is written for them."""
    _spelled_out.clear()
    _spelled_out.update(characters)
    _cell_width.cache_clear()
    _cell_width_long.cache_clear()


def spelled_out(text: str) -> str:
    """The text with the ASCII text that is written for some characters; see ``spell_out``."""
    for character, plain in _spelled_out.items():
        text = text.replace(character, plain)
    return text


def cell_width(text: str) -> int:
    """The width of a printable text in cells: 1 per character, 2 for a wide one."""
    if text.isascii():
        return len(text)
    return (_cell_width if len(text) <= CACHED_CHARACTERS else _cell_width_long)(text)


def _measure(text: str) -> int:
    text = spelled_out(text)
    if _NARROW.fullmatch(text):
        return len(text)
    # The screen uses these same tables; different ones would misalign the columns.
    from rich.cells import cell_len

    return cell_len(text)


_cell_width = lru_cache(_CACHED_TEXTS)(_measure)
_cell_width_long = lru_cache(_CACHED_LONG_TEXTS)(_measure)


def fit(text: str, width: int) -> str:
    """Exactly ``width`` cells: padded on the right, or cut there with an ellipsis."""
    size = len(text) if text.isascii() else cell_width(text)
    if size <= width:
        return text + " " * (width - size)
    return _cut(text, width)


def fit_right(text: str, width: int) -> str:
    """Exactly ``width`` cells: padded on the left, or cut on the right with an ellipsis."""
    size = len(text) if text.isascii() else cell_width(text)
    if size <= width:
        return " " * (width - size) + text
    return _cut(text, width)


def _cut(text: str, width: int) -> str:
    """The beginning of a text that is too long, in exactly ``width`` cells."""
    if width <= 0:
        return ""
    end = _SHORT_ELLIPSIS if ELLIPSIS in _spelled_out and width < _LEAST_FOR_DOTS else ELLIPSIS
    room = width - cell_width(end)
    if text.isascii():
        return text[:room] + end
    kept: list[str] = []
    used = 0
    for character in text:
        size = cell_width(character)
        if used + size > room:
            break
        kept.append(character)
        used += size
    return "".join(kept) + end + " " * (room - used)


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters, with an ellipsis in place of the rest."""
    return text if len(text) <= most else text[: most - 1] + ELLIPSIS


def counted(count: int, noun: str, plural: str = "s") -> str:
    """``1 sample``, ``86,400 samples``."""
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def index_list(indices: Iterable[int]) -> str:
    """Indices as ranges: ``0-3, 5``."""
    spans: list[list[int]] = []
    for index in sorted(set(indices)):
        if spans and spans[-1][1] == index - 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)


def number(value: float | None, unit: str = "") -> str:
    """An integer with its unit, or the placeholder for unknown without it."""
    return UNKNOWN if value is None else f"{value:.0f}{unit}"


def per_second(value: float | None) -> str:
    """A number of events a second in five characters: ``0.4``, ``540``, ``12.3k``."""
    if value is None:
        return UNKNOWN
    if 0 < value < 0.05:
        return "<0.1"
    if value < 9.95:
        return f"{value:.1f}".removesuffix(".0")
    if value < 9999.5:
        return f"{value:.0f}"
    if value < 999_500:
        return f"{value / 1e3:.{1 if value < 99_950 else 0}f}k"
    return f"{value / 1e6:.1f}M"


def duration(seconds: float | None) -> str:
    """A duration in at most seven characters: ``42s``, ``22m``, ``3h12m``, ``5d04h``."""
    if seconds is None:
        return UNKNOWN
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 1:
        return f"{whole}s"
    if hours < 1:
        return f"{minutes}m"
    if days < 1:
        return f"{hours}h{minutes % 60:02d}m"
    return f"{days}d{hours % 24:02d}h"


def longest(seconds: float) -> str:
    """``duration`` for what lasts so long at most: rounded up."""
    step = 1 if seconds < 60 else 60 if seconds < 86400 else 3600
    return duration(math.ceil(seconds / step) * step)


def gibibytes(size: int | None, digits: int = 1) -> str:
    """Bytes as GiB, or GB if configured, without the unit."""
    return UNKNOWN if size is None else f"{size / memory_units().kilo ** 3:.{digits}f}"


def gib() -> str:
    """The unit of ``gibibytes``."""
    return memory_units().giga


def memory_size(size: int | None) -> str:
    """Bytes in a unit that keeps the text short: ``512K``, ``380M``, ``9.1G``, ``1.2T``."""
    if size is None:
        return UNKNOWN
    value, kilo = float(size), memory_units().kilo
    for unit in "BKM":
        if value < 999.5:
            return f"{value:.0f}{unit}"
        value /= kilo
    if value < 999.95:
        return f"{value:.1f}G"
    return f"{value / kilo:.1f}T"


def names_within(names: Sequence[str], width: int) -> str:
    """The names that fit, but at least one, and how many others there are."""
    text = ""
    for shown in range(len(names), 0, -1):
        rest = len(names) - shown
        text = ", ".join(names[:shown]) + (f" +{rest}" if rest else "")
        if cell_width(text) <= width:
            break
    return text


def gpu_list(indices: Sequence[int]) -> str:
    """Ascending GPU indices in a few cells: ``0,1``, ``0-7``."""
    if len(indices) > 2 and indices[-1] - indices[0] == len(indices) - 1:
        return f"{indices[0]}-{indices[-1]}"
    return ",".join(map(str, indices))


def mig_name(gpu: int, device: int | None) -> str:
    """The name of a MIG device: the index of its GPU and its own, ``0:3``."""
    return f"{gpu}:{number(device)}"


def temperature(celsius: float | None, unit: str = "") -> str:
    """A temperature in the configured unit, with the symbol if requested."""
    return UNKNOWN if celsius is None else f"{degrees(celsius):.0f}{unit}"
