"""The language of the ``/`` line and of ``--filter``, which selects processes.

A filter is words and terms with spaces between them, and a process has to meet all of them:
``ann !sm>5 mem>10G "my project"``. A word is looked for in everything that names a process. A term
is a key, a sign and a value; ``TERMS`` lists them, for the parser and for the help. ``not`` and
``!`` turn the next one round. Quotes hold spaces and signs, and ``""`` within them is a quote.

What a process does not tell

- meets no comparison and no negated one: unknown memory is neither over 1G nor not over 1G;
- is no text at all: ``user:ann`` leaves out a process of an unknown user and ``!user:ann`` keeps
  it, because who hides ann's processes wants to see all others;
- never calls it idle: ``idle>10m`` means those that were seen to be, ``!idle>10m`` all others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.filters.terms import TERM, TERMS, Facts, Term, Test, Wrong, names, said

if TYPE_CHECKING:
    from gpumon.model.snapshot import GpuProcess

__all__ = ("TERMS", "Facts", "Filter", "FilterError", "Term", "parse_filter")


class FilterError(ValueError):
    """The filter cannot be parsed.

    Attributes:
        sentence: What is wrong and what is valid, for the user.
        start: Start of the wrong part of the text.
        end: End of the wrong part; it has at least one character.
    """

    def __init__(self, sentence: str, start: int, end: int) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.start = start
        self.end = end


class Filter(Struct, frozen=True, eq=False):
    """Selects processes; created by ``parse_filter``. Equal if the text is equal.

    Attributes:
        text: The text of the filter.
        tests: The tests; a process must pass all of them.
    """

    text: str
    tests: tuple[Test, ...]

    def matches(self, process: GpuProcess, facts: Facts) -> bool:
        """Whether the process meets every term."""
        for test in self.tests:  # noqa: SIM110 - a generator doubles what a short filter costs
            if not test(process, facts):
                return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self.text == other.text

    def __ne__(self, other: object) -> bool:
        # Struct has its own __ne__, which does not call __eq__.
        return not self == other

    def __hash__(self) -> int:
        return hash(self.text)


# An open quote extends to the end of the text.
_TOKEN = re.compile(r'(?P<not>!|not(?=\s|$))|(?:[^\s"]|"(?:[^"]|"")*"?)+', re.IGNORECASE)
_QUOTED = re.compile(r'"((?:[^"]|"")*)("?)')
_TERM = re.compile(r"([a-z][\w-]*)(:?[<>]=?|!=|[:=])", re.IGNORECASE | re.ASCII)


def parse_filter(text: str) -> Filter:
    """Parse a filter; an empty one selects every process.

    Raises:
        FilterError: The filter is invalid; has a message and the position.
    """
    tests: list[Test] = []
    words: list[tuple[str, bool]] = []
    negation: re.Match[str] | None = None
    negated = False
    for token in _TOKEN.finditer(text):
        if token["not"]:
            negation = token
            negated = not negated
            continue
        term = _TERM.match(token[0])
        if term is None:
            words.append((_word(token[0], token.start()), negated))
        else:
            test = _test(term, token.start())
            tests.append(_negation(test) if negated else test)
        negation = None
        negated = False
    if negation is not None:
        example = "!user:ann" if negation[0] == "!" else f"{negation[0]} user:ann"
        raise FilterError(f"{negation[0]} what? such as {example}", *negation.span())
    if words:
        tests.append(_search(words))
    return Filter(text, tuple(tests))


def _word(raw: str, at: int) -> str:
    if raw[0] in "<>=":
        raise FilterError(
            f"a term has no spaces in it, such as mem>10G: to look for {said(raw)}, quote it",
            at,
            at + len(raw),
        )
    return _unquoted(raw, at)


def _test(match: re.Match[str], at: int) -> Test:
    """The test of a term that begins at ``at``."""
    key, sign = match.groups()
    term = TERM.get(key.lower())
    if term is None:
        raise FilterError(_unknown_key(key, match.string), at, at + len(key))
    sign_span = at + match.start(2), at + match.end(2)
    raw = match.string[match.end() :]
    if sign.lstrip(":") in {"<", "<=", ">", ">="}:
        sign = sign.lstrip(":")
    if sign not in term.signs:
        signs = " or ".join(term.signs)
        raise FilterError(f"{term.name} takes {signs}, such as {term.example}", *sign_span)
    value = _unquoted(raw, sign_span[1])
    if not value:
        raise FilterError(f"{key}{sign} what? such as {term.example}", *sign_span)
    try:
        if sign == "!=":
            return _negation(term.read("=", value))
        return term.read(sign, value)
    except Wrong as wrong:
        raise FilterError(str(wrong), sign_span[1], sign_span[1] + len(raw)) from None


def _unknown_key(key: str, whole: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key.lower(), TERM, 1)
    if near:
        return f"no term {said(key)}: did you mean {near[0]}? To look for the text, quote it"
    return f"no term {said(key)}: to look for the text, quote it, {said(whole)}"


def _unquoted(raw: str, at: int) -> str:
    """The text without its quotes."""

    def inside(quoted: re.Match[str]) -> str:
        if not quoted[2]:
            where = at + quoted.start(), at + len(raw)
            raise FilterError('the quote is still open: end it with "', *where)
        return quoted[1].replace('""', '"')

    return _QUOTED.sub(inside, raw)


def _negation(test: Test) -> Test:
    def negated(process: GpuProcess, facts: Facts) -> bool | None:
        met = test(process, facts)
        return None if met is None else not met

    return negated


def _search(words: list[tuple[str, bool]]) -> Test:
    """The test of all words together, each with whether it is negated."""
    sought = [(word.casefold(), word, negated) for word, negated in words]

    def search(process: GpuProcess, _: Facts) -> bool:
        text = names(process)
        pid = str(process.id.pid)
        return all((folded in text or word == pid) != negated for folded, word, negated in sought)

    return search
