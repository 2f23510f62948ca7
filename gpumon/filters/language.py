"""The filter language of the ``/`` line and of ``--filter``; its subjects are mostly processes.

A filter consists of words and terms, separated by spaces; a process must match all of them:
``ann !sm>5 mem>10G "my project"``. A word is searched in every name of a process. A term is a key,
a sign and a value; a ``Language`` lists them for the parser and the help, that of processes in
``TERMS``. ``not`` and ``!`` negate the next one. Quotes allow spaces and signs; ``""`` inside them
is a quote.

Unknown values of a process

- match no comparison and no negated one: unknown memory is neither over 1G nor not over 1G;
- match no text: ``user:ann`` leaves out a process of an unknown user and ``!user:ann`` keeps it,
  because a user who hides ann's processes wants to see all others;
- never mean idle: ``idle>10m`` selects processes seen idle, ``!idle>10m`` all others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias

from msgspec import Struct

from gpumon.filters.term import F, S, Term, Test, Wrong, said
from gpumon.filters.terms import TERMS, Facts, names

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.model.processes import GpuProcess

__all__ = (
    "PROCESSES",
    "TERMS",
    "Facts",
    "Filter",
    "FilterError",
    "Language",
    "Selection",
    "Term",
    "Token",
    "names",
    "parse",
    "parse_filter",
    "tokens",
)


class Language(Struct, Generic[S, F], frozen=True):
    """The terms and words of a filter.

    Attributes:
        terms: The terms, in the order of the help.
        names: The text of a subject that words are searched in, case-folded.
        is_number: Whether a word is the number of a subject, which must match as a whole.
    """

    terms: tuple[Term[S, F], ...]
    names: Callable[[S, F], str]
    is_number: Callable[[S, str], bool] = lambda _, __: False

    def term(self, name: str) -> Term[S, F] | None:
        """The term with this name."""
        return next((term for term in self.terms if term.name == name), None)


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


class Selection(Struct, Generic[S, F], frozen=True, eq=False):
    """Selects subjects; created by ``parse``. Equal if the text is equal.

    Attributes:
        text: The text of the filter.
        tests: The tests; a subject must pass all of them.
    """

    text: str
    tests: tuple[Test[S, F], ...]

    def matches(self, subject: S, facts: F) -> bool:
        """Whether the subject meets every term."""
        for test in self.tests:  # noqa: SIM110 - a generator doubles what a short filter costs
            if not test(subject, facts):
                return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selection) and self.text == other.text

    def __ne__(self, other: object) -> bool:
        # Struct has its own __ne__, which does not call __eq__.
        return not self == other

    def __hash__(self) -> int:
        return hash(self.text)


Filter: TypeAlias = "Selection[GpuProcess, Facts]"
"""Selects processes."""

PROCESSES: Language[GpuProcess, Facts] = Language(
    TERMS, lambda process, _: names(process), lambda process, word: word == str(process.id.pid)
)
"""The language of processes."""


# An open quote extends to the end of the text.
_TOKEN = re.compile(r'(?P<not>!|not(?=\s|$))|(?:[^\s"]|"(?:[^"]|"")*"?)+', re.IGNORECASE)
_QUOTED = re.compile(r'"((?:[^"]|"")*)("?)')
_TERM = re.compile(r"([a-z][\w-]*)(:?[<>]=?|!=|[:=])", re.IGNORECASE | re.ASCII)


class Token(NamedTuple):
    """A part of a filter: a negation, a word or a term."""

    text: str
    """The part as it was typed, with its quotes."""
    start: int
    """Its position in the filter."""
    negates: bool
    """Whether it is ``!`` or ``not``, which negates the next token."""

    @property
    def key(self) -> str | None:
        """The key of a term, in small letters; ``None`` for other tokens."""
        term = _TERM.match(self.text)
        return None if term is None else term[1].lower()


def tokens(text: str) -> list[Token]:
    """The tokens of a filter, valid or not."""
    found = _TOKEN.finditer(text)
    return [Token(match[0], match.start(), match["not"] is not None) for match in found]


def parse_filter(text: str) -> Filter:
    """Parse a filter of processes; see ``parse``."""
    return parse(text, PROCESSES)


def parse(text: str, language: Language[S, F]) -> Selection[S, F]:
    """Parse a filter; an empty one selects every subject.

    Raises:
        FilterError: The filter is invalid; has a message and the position.
    """
    tests: list[Test[S, F]] = []
    words: list[tuple[str, bool]] = []
    negation: Token | None = None
    negated = False
    for token in tokens(text):
        if token.negates:
            negation = token
            negated = not negated
            continue
        term = _TERM.match(token.text)
        if term is None:
            words.append((_word(token.text, token.start), negated))
        else:
            test = _test(language, term, token.start)
            tests.append(_negation(test) if negated else test)
        negation = None
        negated = False
    if negation is not None:
        sign, start, _ = negation
        example = "!user:ann" if sign == "!" else f"{sign} user:ann"
        raise FilterError(f"{sign} what? such as {example}", start, start + len(sign))
    if words:
        tests.append(_search(language, words))
    return Selection(text, tuple(tests))


def _word(raw: str, at: int) -> str:
    if raw[0] in "<>=":
        raise FilterError(
            f"a term has no spaces in it, such as mem>10G: to look for {said(raw)}, quote it",
            at,
            at + len(raw),
        )
    return _unquoted(raw, at)


def _test(language: Language[S, F], match: re.Match[str], at: int) -> Test[S, F]:
    """The test of a term that begins at ``at``."""
    key, sign = match.groups()
    term = language.term(key.lower())
    if term is None:
        known = [term.name for term in language.terms]
        raise FilterError(_unknown_key(key, known, match.string), at, at + len(key))
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


def _unknown_key(key: str, known: list[str], whole: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key.lower(), known, 1)
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


def _negation(test: Test[S, F]) -> Test[S, F]:
    def negated(subject: S, facts: F) -> bool | None:
        met = test(subject, facts)
        return None if met is None else not met

    return negated


def _search(language: Language[S, F], words: list[tuple[str, bool]]) -> Test[S, F]:
    """The test of all words together, each with whether it is negated."""
    sought = [(word.casefold(), word, negated) for word, negated in words]

    def search(subject: S, facts: F) -> bool:
        text = language.names(subject, facts)
        return all(
            (folded in text or language.is_number(subject, word)) != negated
            for folded, word, negated in sought
        )

    return search
