"""Theme files: reading, checking, and error messages."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gpumon.config.suggestions import nearest_or_all
from gpumon.config.themes.styles import DASHBOARD, PREFIX, is_dark, parse
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

COLOURS = (
    *("primary", "secondary", "accent", "success", "warning", "error"),
    *("foreground", "background", "surface", "panel"),
)
"""Names of Textual's colours in theme files."""

_TABLES = {"colours": COLOURS, "dashboard": DASHBOARD}
_TOP = ("about", "base", *_TABLES)
_MISSING = 'is missing; give it a colour, or build on a theme that has it with base = "gpumon".'
_LARGEST = 100_000
"""Maximum size in bytes; a larger file is no theme."""


class ThemeError(Exception):
    """A theme is invalid."""

    def __init__(self, *sentences: str) -> None:
        # For the user, each with its file and key. File names are untrusted.
        self.sentences = tuple(map(printable, sentences))
        super().__init__(" ".join(self.sentences))

    @property
    def brief(self) -> str:
        """The first message, and how to get the others."""
        more = len(self.sentences) - 1
        rest = f" gpumon theme check reports {more} more." if more else ""
        return self.sentences[0] + rest


class ThemeFile(Struct, frozen=True):
    """A complete theme."""

    name: str  # Of the file, without ``.toml``.
    about: str
    colours: Mapping[str, str]  # Textual's colours by name, ``#rrggbb``.
    dashboard: Mapping[str, str]  # The dashboard's colours, in the same way.
    paths: tuple[str, ...]  # The file and those of its base themes.

    @property
    def dark(self) -> bool:
        """Whether the background is dark."""
        return is_dark(self.colours["background"])

    @property
    def variables(self) -> dict[str, str]:
        """All colours by the names that ``resolve_styles`` knows."""
        own = {PREFIX + key: value for key, value in self.dashboard.items()}
        return {**self.colours, **own}


class ParsedTheme(Struct, frozen=True):
    """The contents of one file."""

    about: str
    base: str | None  # Name of the base theme.
    colours: Mapping[str, str]  # As in ``ThemeFile``; may be incomplete, like ``dashboard``.
    dashboard: Mapping[str, str]


def read_file(path: str) -> ParsedTheme:
    """Read a theme file and check everything that does not depend on its base theme.

    Raises:
        ThemeError: It cannot be read, or something in it is wrong.
    """
    try:
        if not os.path.isfile(path):
            raise ThemeError(f"{path}: no such theme file; gpumon theme list shows what there is.")
        with open(path, "rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise ThemeError(f"{path} cannot be read: {error.strerror}; check its rights.") from None
    if len(content) > _LARGEST:
        raise ThemeError(f"{path} is too long to be a theme; gpumon theme show prints one.")
    read = _plain(content)
    if read is not None:
        return _checked(path, read)
    import msgspec

    try:
        read = msgspec.toml.decode(content)
    except UnicodeDecodeError:
        raise ThemeError(f"{path} is not UTF-8: save it as UTF-8.") from None
    except ValueError as error:  # Also raised for a number with more digits than Python converts.
        raise ThemeError(f"{path} is not TOML: {error}.") from None
    except RecursionError:
        raise ThemeError(f"{path} is nested too deeply to be a theme.") from None
    return _checked(path, read)


def theme_error(path: str, faults: Sequence[tuple[str, str]]) -> ThemeError:
    """The error for faults of a file, each a key and what is wrong, with the lines of the keys."""
    from gpumon.config.toml_text import line_of, lines_of

    lines: dict[str, int] = {}
    # The file may have changed, or gone, since it was read.
    with suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        lines = lines_of(file.read(_LARGEST))
    sentences = []
    for key, what in faults:
        line = line_of(key, lines)
        place = path if line is None else f"{path}, line {line}"
        sentences.append(f"{place}: {what}")
    return ThemeError(*sentences)


_HEADER = re.compile(r"\[(\w+)\]", re.ASCII)
_ENTRY = re.compile(r'(\w+) *= *"([^"\\\x00-\x1f\x7f]*)"', re.ASCII)


def _plain(content: bytes) -> dict[str, Any] | None:
    """A file of nothing but tables, texts, comments and empty lines, as TOML has them.

    Themes are such files, including the default before the first frame, and importing a full TOML
    parser takes longer than reading them.

    Returns:
        ``None`` for any other file, and for one with a table or a key twice.
    """
    try:
        lines = content.decode().replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError:
        return None
    read: dict[str, Any] = {}
    table = read
    for line in (each.strip(" \t") for each in lines):
        if not line or (line.startswith("#") and line.isprintable()):
            continue
        if (header := _HEADER.fullmatch(line)) and header[1] not in read:
            table = read[header[1]] = {}
        elif (entry := _ENTRY.fullmatch(line)) and entry[1] not in table:
            table[entry[1]] = entry[2]
        else:
            return None
    return read


def _checked(path: str, read: dict[str, Any]) -> ParsedTheme:
    faults: list[tuple[str, str]] = []
    for key in read:
        if key not in _TOP:
            # A colour before the first table belongs in one of the tables.
            home = next((name for name, keys in _TABLES.items() if key in keys), None)
            advice = f"write it below [{home}]" if home else nearest_or_all(key, _TOP)
            faults.append((key, f"unknown key {key!r}; {advice}."))
    words: dict[str, str | None] = {"about": None, "base": None}
    for key in words:
        value: Any = read.get(key)
        if value is not None and not isinstance(value, str):
            faults.append((key, f'{key} must be a text, such as {key} = "gpumon".'))
        else:
            words[key] = value
    tables: dict[str, dict[str, str]] = {}
    for name, keys in _TABLES.items():
        table: Any = read.get(name, {})
        if not isinstance(table, dict):
            faults.append((name, f"{name} must be a table; write [{name}] on a line of its own."))
            table = {}
        tables[name] = _colours(name, table, keys, faults)
        if words["base"] is None and "base" not in read:
            faults += [
                (f"{name}.{key}", f"{name}.{key} {_MISSING}") for key in keys if key not in table
            ]
    if faults:
        raise theme_error(path, faults)
    about = printable(words["about"] or "")
    return ParsedTheme(about, words["base"], tables["colours"], tables["dashboard"])


def _colours(
    name: str, table: dict[str, Any], keys: Iterable[str], faults: list[tuple[str, str]]
) -> dict[str, str]:
    """The colours of a table; errors are added to ``faults``, each with its key."""
    found: dict[str, str] = {}
    for key, value in table.items():
        path = f"{name}.{key}"
        if key not in keys:
            advice = nearest_or_all(key, keys)
            faults.append((path, f"unknown key {path!r}; {advice}."))
            continue
        if not isinstance(value, str):
            faults.append((path, f'{path} must be a text, such as {key} = "#5aa9e6".'))
            continue
        try:
            found[key] = parse(value).hex if len(value) != len("#rrggbbaa") else ""
        except ValueError:
            found[key] = ""
        if not found[key]:
            what = f"{path} is {value!r}, which is no colour; write #rrggbb, such as #5aa9e6."
            faults.append((path, what))
    return found
