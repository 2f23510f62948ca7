"""Slurm's short lists of hosts, such as ``gpu-[01-02,07],login``."""

from __future__ import annotations

import re
from itertools import product

MOST_HOSTS = 65536
"""More than Slurm manages in one cluster: its own limit is 64000 nodes."""

_NAME_LENGTH = 253
"""The longest name of a host in DNS."""

_LITERAL = re.compile(r"[A-Za-z0-9._-]*")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def expand_hosts(text: str, most: int = MOST_HOSTS) -> list[str] | None:
    """The names that a list of hosts stands for, in Slurm's order.

    Args:
        text: The list. An item may have several brackets, of which the last counts fastest.
        most: The largest number of names.

    Returns:
        The names; none of an empty text; ``None`` for a malformed list, or for more names.
    """
    if not text:
        return []
    items = split_list(text, "[", "]")
    if items is None:
        return None
    names: list[str] = []
    for item in items:
        parts = _parts(item, most - len(names))
        if parts is None:
            return None
        names += map("".join, product(*parts))
    return names


def split_list(text: str, opening: str, closing: str) -> list[str] | None:
    """The items between the commas outside of brackets.

    Args:
        text: The list.
        opening: The character that opens a bracket.
        closing: The character that closes it.

    Returns:
        The items; ``None`` if a bracket is not closed, or not opened, or inside of another.
    """
    items = []
    begin = 0
    inside = False
    for found in re.finditer(f"[,{re.escape(opening + closing)}]", text):
        if found[0] == ",":
            if not inside:
                items.append(text[begin : found.start()])
                begin = found.end()
        elif (found[0] == opening) is inside:
            return None
        else:
            inside = not inside
    return None if inside else [*items, text[begin:]]


def _parts(item: str, most: int) -> list[list[str]] | None:
    """The texts to choose from for each part of one item: its literals and its brackets."""
    parts: list[list[str]] = []
    length, count = 0, 1
    for place, part in enumerate(re.split(r"[][]", item)):
        # Brackets alternate with what is between them: `split_list` has counted them.
        choices = _numbers(part, most) if place % 2 else _literal(part)
        if choices is None:
            return None
        length += max(map(len, choices))
        count *= len(choices)
        if length > _NAME_LENGTH or count > most:
            return None
        parts.append(choices)
    return parts if length else None


def _literal(text: str) -> list[str] | None:
    return [text] if _LITERAL.fullmatch(text) else None


def ranges_of(text: str) -> list[tuple[str, int, int]] | None:
    """The ranges of a list of numbers such as ``01-03,7``.

    Returns:
        The first number of each range as it is written, and the first and the last; ``None`` for
        any other text. A single number is a range, too. The last number may be smaller.
    """
    found = [_RANGE.fullmatch(item) for item in text.split(",")]
    ranges = [(each[1], int(each[1]), int(each[2] or each[1])) for each in found if each]
    return ranges if len(ranges) == len(found) else None


def _numbers(text: str, most: int) -> list[str] | None:
    """The numbers of a bracket, with their zeros in front."""
    ranges = ranges_of(text)
    if ranges is None:
        return None
    numbers: list[str] = []
    for written, first, last in ranges:
        if last < first or last - first >= most - len(numbers):
            return None
        numbers += (str(number).zfill(len(written)) for number in range(first, last + 1))
    return numbers
