"""TOML as text: writes values, and finds the lines of keys, which a parser does not report."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date, time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_MOST_WHOLE = 1e15
"""Below this, a number without a fraction is written as an integer."""


def toml(value: object) -> str:
    """A value in TOML syntax, which reads back as an equal value.

    Raises:
        RecursionError: It is nested too deeply.
    """
    match value:
        case bool():
            return str(value).lower()
        case int():
            return _integer(value)
        case float():
            return _float(value)
        case date() | time():
            return value.isoformat()
        case list() | tuple():
            return f"[{', '.join([toml(item) for item in value])}]"
        case dict():
            pairs = [f"{toml_key(key)} = {toml(item)}" for key, item in value.items()]
            return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
        case _:
            return _quoted(str(value))


def toml_key(key: str) -> str:
    """A key in TOML syntax."""
    return key if _BARE.fullmatch(key) else _quoted(key)


def _integer(value: int) -> str:
    try:
        return str(value)
    except ValueError:
        # Python converts only so many digits; a longer number was not decimal in the file either.
        return hex(value)


def _float(value: float) -> str:
    # Python writes nan, inf, exponents and the sign of zero as TOML does.
    text = repr(value)
    return text.removesuffix(".0") if abs(value) < _MOST_WHOLE and text != "-0.0" else text


def _quoted(text: str) -> str:
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    """A character in quotes. Control characters are invalid in TOML, and terminals obey them."""
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_PART = r"""(?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_PARTS = re.compile(_PART)
_DOTTED = rf"({_PART}(?:[ \t]*\.[ \t]*{_PART})*)"
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_HEADER = re.compile(rf"(\[\[?)[ \t]*{_DOTTED}[^\n]*")
_KEY = re.compile(rf"{_DOTTED}[ \t]*=")
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""|'
    r"'''.*?'''|"
    r'"(?:\\.|[^"\\\n])*"|'
    r"'[^'\n]*'|"
    r"#[^\n]*|"
    r"[\[\]{}\n]",
    re.DOTALL,
)
"""What matters for the end of a value: texts, comments, brackets, and the end of a line."""


def lines_of(text: str) -> dict[str, int]:
    """The line of the first occurrence of each key and table in a valid file.

    A key is its dotted path. The tables of a list are ``name[0]``, ``name[1]`` and so on.
    """
    lines: dict[str, int] = {}
    table: list[str] = []
    listed: Counter[str] = Counter()
    for number, is_header, opening, parts in _statements(text):
        path = [*table, *parts]
        if is_header:
            # A table below a list belongs to its last table.
            in_list = len(parts) > 1 and parts[0] in listed
            table = [f"{parts[0]}[{listed[parts[0]] - 1}]", *parts[1:]] if in_list else parts
            if opening == "[[":
                name = ".".join(table)
                lines.setdefault(name, number)
                table = [f"{name}[{listed[name]}]"]
                listed[name] += 1
            path = table
        for length in range(1, len(path) + 1):
            lines.setdefault(".".join(path[:length]), number)
    return lines


def line_of(name: str, lines: Mapping[str, int]) -> int | None:
    """The line of a key; for a key inside a value, the line of the value."""
    while name and name not in lines:
        name = name[: max(name.rfind("."), name.rfind("["), 0)]
    return lines.get(name)


def _statements(text: str) -> Iterator[tuple[int, bool, str, list[str]]]:
    """Each header and key: its line, whether it is a header, its bracket, and its path."""
    at, number, counted = 0, 1, 0
    while (blank := _BLANK.match(text, at)) is not None and blank.end() < len(text):
        at = blank.end()
        number, counted = number + text.count("\n", counted, at), at
        if header := _HEADER.match(text, at):
            yield number, True, header[1], _path(header[2])
            at = header.end()
        elif key := _KEY.match(text, at):
            yield number, False, "", _path(key[1])
            at = _end_of_value(text, key.end())
        else:
            return


def _path(dotted: str) -> list[str]:
    return [_name(part) for part in _PARTS.findall(dotted)]


def _name(part: str) -> str:
    if part[0] not in "\"'":
        return part
    if "\\" not in part or part[0] == "'":
        return part[1:-1]
    from msgspec import toml as reader

    name: str = next(iter(reader.decode(f"{part} = 0")))
    return name


def _end_of_value(text: str, at: int) -> int:
    """The end of the line on which a value ends."""
    depth = 0
    for token in _TOKEN.finditer(text, at):
        if token[0] in {"[", "{"}:
            depth += 1
        elif token[0] in {"]", "}"}:
            depth -= 1
        elif token[0] == "\n" and not depth:
            return token.end()
    return len(text)
