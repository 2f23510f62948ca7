"""Finds in what pytest printed the tests that failed, and what their assertions say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TITLE = re.compile(r"_+ (?:ERROR at (?:setup|teardown) of )?(\S.*?) _+")
_ERROR = re.compile(r"E {3,}(\S.*)")
_DETAIL = re.compile(r"(Left|Right) contains|At index")
"""Begins the line that has what pytest left out of the first one."""
_SUMMARY = re.compile(r"(?:FAILED|ERROR) \S+?::(.+?)(?: - (.*))?")
_PROGRESS = re.compile(r"\S+?::(.+?) (?:FAILED|ERROR)\b.*")
_TOTAL = re.compile(r"=*\s*((?:no tests ran|\d+ [a-z]+(?:, \d+ [a-z]+)*) in [\d.]+s)\b.*")


class Printed(NamedTuple):
    """What pytest printed."""

    failed: dict[str, str]  # Name of a test -> its assertion's line; empty: there is none.
    total: str  # ``2 failed, 5 passed in 3.10s``; empty: pytest did not come to its end.


def printed(lines: Iterable[str]) -> Printed:
    failed: dict[str, str] = {}
    total, title = "", None
    for line in (_COLOUR.sub("", line).rstrip() for line in lines):
        if (found := _TITLE.fullmatch(line)) is not None and found[1].strip("_ "):
            title = found[1]
            failed.setdefault(title, "")
        elif title is not None and (found := _ERROR.fullmatch(line)) is not None:
            failed[title] = _with(failed[title], found[1])
        elif (found := _SUMMARY.fullmatch(line)) is not None:
            title = None
            name = _name(found[1])
            failed[name] = failed.get(name) or found[2] or ""
        elif (found := _PROGRESS.fullmatch(line)) is not None:
            failed.setdefault(_name(found[1]), "")
        elif (found := _TOTAL.fullmatch(line)) is not None:
            total = found[1]
    return Printed(failed, total)


def _with(known: str, line: str) -> str:
    """The first line of an error, with the detail that a later one has."""
    if not known:
        return line
    more = _DETAIL.match(line) and not _DETAIL.search(known)
    return f"{known}; {line}" if more else known


def _name(test: str) -> str:
    """The name of a test in its title: ``TestClass.test_it[a::b]``."""
    before, bracket, parameters = test.partition("[")
    return before.replace("::", ".") + bracket + parameters
