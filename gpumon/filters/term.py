"""The terms of a filter language: their structure, and the tests that most of them consist of."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from msgspec import Struct

from gpumon.model.selection import SelectionError, parse_selection
from gpumon.text.formatting import cell_width, fit, printable
from gpumon.text.unit_parsing import Measure, QuantityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpumon.model.selection import GpuSelection

S = TypeVar("S")
"""What a filter selects."""
F = TypeVar("F")
"""The facts that a test needs in addition."""

Test: TypeAlias = "Callable[[S, F], bool | None]"
"""Whether a subject matches a term; ``None``, also for the negated term, if that is unknown."""


class Term(Struct, Generic[S, F], frozen=True):
    """A key of a language.

    Attributes:
        name: The key.
        example: A whole term with it.
        about: The subjects that it selects, for the help page.
        signs: The allowed signs between the key and its value.
        read: Creates the test from a sign and a value; raises ``Wrong`` for an invalid value.
    """

    name: str
    example: str
    about: str
    signs: tuple[str, ...]
    read: Callable[[str, str], Test[S, F]]


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
    measure: Measure, value: Callable[[S, F], float | None]
) -> Callable[[str, str], Test[S, F]]:
    """A term that compares; ``=`` and ``:`` match a value that shows the typed digits."""

    def read(sign: str, text: str) -> Test[S, F]:
        try:
            wanted, slack = measure.read(text)
        except QuantityError as advice:
            raise Wrong(f"cannot read {said(text)}: {advice}") from None
        compare = _COMPARISONS.get(sign)

        def compared(subject: S, facts: F) -> bool | None:
            known = value(subject, facts)
            if known is None:
                return None
            return abs(known - wanted) <= slack if compare is None else compare(known, wanted)

        return compared

    return read
