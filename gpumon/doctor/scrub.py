"""Removes private names from a report, for public issues."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.doctor.result import Result

_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-f][0-9a-f/-]{3,}", re.IGNORECASE)
_HOMES = re.compile(r"(/(?:home|Users|data/home|scratch|users)/)[^/\s:;,]+")
_CREDENTIALS = re.compile(r"(//)[^/\s@]+@")
_SHORTEST = 2
"""A name of one letter is in every word."""


class Scrubber:
    """Removes names from texts.

    Home folders become ``~``, other people's ``/home/USER``; users, the machine and GPUs
    lose their names. Versions, numbers and the rest of a path stay: they are what a
    report is for.

    Args:
        home: The home folder.
        users: Names of users.
        hosts: Names of the machine.
    """

    def __init__(self, home: str, users: Iterable[str], hosts: Iterable[str]) -> None:
        self._home = home.rstrip("/")
        names = dict.fromkeys(users, "USER") | dict.fromkeys(hosts, "HOST")
        # Longer names first: `ada-07.example.org` contains `ada-07`.
        self._names = [
            (re.compile(rf"(?<![\w]){re.escape(name)}(?![\w])"), word)
            for name, word in sorted(names.items(), key=lambda item: -len(item[0]))
            if len(name) >= _SHORTEST and name not in {"root", "localhost"}
        ]

    def text(self, text: str) -> str:
        """A text without names."""
        if self._home not in {"", "/"}:
            text = re.sub(rf"{re.escape(self._home)}(?=/|\b)", "~", text)
        text = _CREDENTIALS.sub(r"\1", text)
        text = _HOMES.sub(r"\1USER", text)
        text = _UUID.sub(r"\1-…", text)
        for pattern, word in self._names:
            text = pattern.sub(word, text)
        return text

    def result(self, result: Result) -> Result:
        """A result without names."""
        return msgspec.structs.replace(
            result,
            found=self.text(result.found),
            todo=self.text(result.todo),
            details=tuple(map(self.text, result.details)),
        )
