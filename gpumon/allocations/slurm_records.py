"""Takes apart the records of ``scontrol show``: a first line, and indented lines of fields.

A record ends where the next one begins, and not at the empty line between them: text of a user may
have empty lines. Nothing that a line says is checked here but its place.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_BYTES = 4 * 2**20
"""How much is parsed at most: some thousand jobs, where one is asked for."""

_KEY = re.compile(r"   ([A-Za-z_]+)=(.*)", re.DOTALL)
_DETAILS = "     Nodes="
"""How a line begins that says what nodes have. It is indented further."""

_LINE_BYTES, _RECORD_BYTES = 16, 256
"""Far less than lines and records have on average: what has more of them is not Slurm's."""

_USERS_TEXT = "JobName"
"""The first field of a first line that users choose; nothing after it is believed."""


class Record:
    """One record.

    Attributes:
        name: What the first field says: the job id, or the name of the node.
        first: The fields of the first line, before the first text that users choose.

    Args:
        lines: Its lines.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        first, _, _ = f"{lines[0]} ".partition(f" {_USERS_TEXT}=")
        self.first = fields_of(first)
        self.name = next(iter(self.first.values()))
        self._lines = lines
        self._places: dict[str, list[int]] = {}
        for place, line in enumerate(lines):
            found = _KEY.match(line)
            if found is not None:
                self._places.setdefault(found[1], []).append(place)

    def values(self, key: str) -> list[str]:
        """What all lines that begin with this key say."""
        skipped = len(f"   {key}=")
        return [self._lines[place][skipped:] for place in self._places.get(key, ())]

    def value(self, key: str, order: Sequence[str]) -> str | None:
        """What the line that begins with this key says, the key left out.

        Args:
            key: The key.
            order: The keys of lines that are read, in Slurm's order.

        Returns:
            It; ``None`` without such a line, with several, or with one in another place.
        """
        places = self._places.get(key, ())
        if len(places) != 1:
            return None
        # Lines that occur several times say nothing about the order.
        order = [each for each in order if len(self._places.get(each, ())) == 1]
        rank = order.index(key)
        if any(
            (self._places[each][0] < places[0]) != (order.index(each) < rank)
            for each in order
            if each != key
        ):
            return None
        return self.values(key)[0]

    def fields(self, key: str, order: Sequence[str]) -> dict[str, str]:
        """The fields of the line that begins with this key, none if it is not believed."""
        value = self.value(key, order)
        return {} if value is None else fields_of(f"{key}={value}")

    def details_between(self, above: str, below: str) -> list[str] | None:
        """The lines about nodes that directly follow one line, if there is one, up to another.

        Args:
            above: The key of the line above them.
            below: The key of the line below them; there is one.

        Returns:
            They; ``None`` if there are others elsewhere.
        """
        found = [place for place, line in enumerate(self._lines) if line.startswith(_DETAILS)]
        end = self._places[below][0]
        begin = end - len(found)
        if found != list(range(begin, end)) or self._places.get(above, [begin - 1]) != [begin - 1]:
            return None
        return [self._lines[place].strip(" ") for place in found]


def records_of(data: bytes, key: str) -> list[Record]:
    """The records of an answer.

    Args:
        data: What was printed. A last line without its end is cut off, and left out.
        key: The key of their first field, which begins a line.

    Returns:
        They, in order; none of an answer that is too long to be read.
    """
    if len(data) > MOST_BYTES or data.count(b"\n") > MOST_BYTES // _LINE_BYTES:
        return []
    records: list[list[str]] = []
    # Not splitlines(), which also divides at characters that names may have in them.
    for line in data.decode(errors="replace").split("\n")[:-1]:
        if line.startswith(f"{key}="):
            if len(records) == MOST_BYTES // _RECORD_BYTES:
                return []
            records.append([])
        if records:
            records[-1].append(line)
    return [Record(lines) for lines in records]


def fields_of(text: str) -> dict[str, str]:
    """The fields of a line whose values have no spaces; of two the first one counts."""
    fields: dict[str, str] = {}
    for word in text.split(" "):
        key, sign, value = word.partition("=")
        if sign:
            fields.setdefault(key, value)
    return fields
