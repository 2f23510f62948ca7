"""The filter language of the ``/`` line and of ``--filter``; its subjects are mostly processes.

A filter consists of words and terms, separated by spaces; a process must match all of them:
``ann !sm>5 mem>10G "my project"``. A word is searched in every name of a process. A term is a key,
a sign and a value; a ``Language`` lists them for the parser and the help. ``not`` and ``!`` negate
the next one. Quotes allow spaces and signs; ``""`` inside them is a quote.
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from gpumon.model.selection import SelectionError, parse_selection
from gpumon.text.formatting import cell_width, fit, printable
from gpumon.text.unit_parsing import Measure, QuantityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpumon.model.selection import GpuSelection

S = TypeVar("S")
"""What a filter selects."""
C = TypeVar("C")
"""What a test needs in addition."""

Test: TypeAlias = "Callable[[S, C], bool | None]"
"""Whether a subject matches a term; ``None``, also for the negated term, if that is unknown."""


class Term(Struct, Generic[S, C], frozen=True):
    """A key of a language."""

    name: str
    example: str
    about: str
    signs: tuple[str, ...]
    read: Callable[[str, str], Test[S, C]]
    """Creates the test from a sign and a value; raises ``Wrong`` for an invalid value."""


class Wrong(Exception):  # noqa: N818 - becomes a FilterError once its position is known
    """A value is invalid; the text is the message."""


IS = (":", "=", "!=")
"""The signs of a term that does not compare."""
COMPARES = ("<", "<=", ">", ">=", *IS)
"""The signs of a term that compares."""

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def said(text: str) -> str:
    """The typed text, safe to print in a sentence."""
    shown = printable(text).strip('"')
    return f'"{shown if cell_width(shown) <= 24 else fit(shown, 24)}"'


def text_term(parts: Callable[[S], Iterable[str | None]]) -> Callable[[str, str], Test[S, object]]:
    """A term that tests texts: ``:`` for a part of one, ``=`` for the whole text."""

    def read(sign: str, value: str) -> Test[S, object]:
        wanted = value.casefold()
        if sign == "=":
            return lambda subject, _: any(
                part is not None and part.casefold() == wanted for part in parts(subject)
            )
        return lambda subject, _: any(
            part is not None and wanted in part.casefold() for part in parts(subject)
        )

    return read


def index_term(
    includes: Callable[[S, GpuSelection], bool],
) -> Callable[[str, str], Test[S, object]]:
    """A term that tests GPUs, by index or UUID."""

    def read(_: str, value: str) -> Test[S, object]:
        try:
            gpus = parse_selection(value)
        except SelectionError as wrong:
            raise Wrong(printable(str(wrong))) from None
        return lambda subject, _: includes(subject, gpus)

    return read


def number_term(
    measure: Measure, value: Callable[[S, C], float | None]
) -> Callable[[str, str], Test[S, C]]:
    """A term that compares; ``=`` and ``:`` match a value that shows the typed digits."""

    def read(sign: str, text: str) -> Test[S, C]:
        try:
            wanted, slack = measure.read(text)
        except QuantityError as advice:
            raise Wrong(f"cannot read {said(text)}: {advice}") from None
        compare = _COMPARISONS.get(sign)

        def compared(subject: S, context: C) -> bool | None:
            known = value(subject, context)
            if known is None:
                return None
            return abs(known - wanted) <= slack if compare is None else compare(known, wanted)

        return compared

    return read


class Language(Struct, Generic[S, C], frozen=True):
    """The terms and words of a filter."""

    terms: tuple[Term[S, C], ...]
    names: Callable[[S, C], str]
    """The text of a subject that words are searched in, case-folded."""
    is_number: Callable[[S, str], bool] = lambda _, __: False
    """Whether a word is the number of a subject, which must match as a whole."""

    def term(self, name: str) -> Term[S, C] | None:
        """The term with this name."""
        return next((term for term in self.terms if term.name == name), None)


class FilterError(ValueError):
    """The filter cannot be parsed; from ``start`` to ``end`` is the wrong part of the text."""

    def __init__(self, sentence: str, start: int, end: int) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        """What is wrong and what is valid, for the user."""
        self.start = start
        self.end = end
        """After the start: the part has at least one character."""


class Selection(Struct, Generic[S, C], frozen=True, eq=False):
    """Selects subjects; created by ``parse``. Equal if the text is equal."""

    text: str
    tests: tuple[Test[S, C], ...]

    def matches(self, subject: S, context: C) -> bool:
        """Whether the subject meets every term."""
        for test in self.tests:  # noqa: SIM110 - a generator doubles what a short filter costs
            if not test(subject, context):
                return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selection) and self.text == other.text

    def __ne__(self, other: object) -> bool:
        # Struct has its own __ne__, which does not call __eq__.
        return not self == other

    def __hash__(self) -> int:
        return hash(self.text)


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


def parse(text: str, language: Language[S, C]) -> Selection[S, C]:
    """Parse a filter; an empty one selects every subject.

    Raises:
        FilterError: The filter is invalid; has a message and the position.
    """
    tests: list[Test[S, C]] = []
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


def _test(language: Language[S, C], match: re.Match[str], at: int) -> Test[S, C]:
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


def _negation(test: Test[S, C]) -> Test[S, C]:
    def negated(subject: S, context: C) -> bool | None:
        met = test(subject, context)
        return None if met is None else not met

    return negated


def _search(language: Language[S, C], words: list[tuple[str, bool]]) -> Test[S, C]:
    """The test of all words together, each with whether it is negated."""
    sought = [(word.casefold(), word, negated) for word, negated in words]

    def search(subject: S, context: C) -> bool:
        text = language.names(subject, context)
        return all(
            (folded in text or language.is_number(subject, word)) != negated
            for folded, word, negated in sought
        )

    return search
