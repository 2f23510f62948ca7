"""Formats results as rows: verdict, name, findings, and what to do."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from gpumon.doctor.result import CheckVerdict
from gpumon.text.formatting import counted, fit, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpumon.doctor.result import Result
    from gpumon.text.cells import Row

WIDEST = 100
"""Cells beyond which a sentence is hard to follow to its next line."""
_NAME = 16
_LEFT = 25
"""Where sentences begin."""
_LEAST_TEXT = 30

_MARKS = {
    CheckVerdict.PASS: ("PASS", "state.good"),
    CheckVerdict.UNKNOWN: (" ?  ", "state.note"),
    CheckVerdict.WARN: ("WARN", "state.warning"),
    CheckVerdict.FAIL: ("FAIL", "state.critical"),
}
_COUNTED = (CheckVerdict.PASS, CheckVerdict.WARN, CheckVerdict.FAIL, CheckVerdict.UNKNOWN)


def title_row(title: str) -> Row:
    """The heading of a section."""
    return ((f" {title}", "strong"),)


def result_rows(result: Result, width: int) -> Iterator[Row]:
    """The result of a check, its details, and what to do.

    Args:
        result: Of the check.
        width: Cells of a line.
    """
    text = max(_LEAST_TEXT, min(width, WIDEST) - _LEFT)
    mark, style = _MARKS[result.verdict]
    first, *more = _wrapped(result.found, text)
    yield (
        (" ", ""),
        (mark, style),
        ("  ", ""),
        (fit(result.check, _NAME), "dim" if result.verdict is CheckVerdict.PASS else "strong"),
        ("  ", ""),
        (first, ""),
    )
    for line in more:
        yield ((" " * _LEFT, ""), (line, ""))
    for detail in result.details:
        for number, line in enumerate(_wrapped(detail, text - 2)):
            yield ((" " * (_LEFT + 2 * (number > 0)), ""), (line, "dim"))
    for number, line in enumerate(_wrapped(result.todo, text)):
        yield ((" " * (_LEFT - 2), ""), ("→ " if number == 0 else "  ", style), (line, ""))


def summary_rows(results: Sequence[Result], width: int) -> Iterator[Row]:
    """The number of each verdict, and where to begin."""
    counts = [
        (sum(result.verdict is verdict for result in results), verdict.value, _MARKS[verdict][1])
        for verdict in _COUNTED
    ]
    fields = [(f" {counted(len(results), 'check')}", "")]
    for count, word, style in counts:
        if count:
            fields += [("  ", ""), (f"{count} {word}", style)]
    yield tuple(fields)
    begin = _where_to_begin(results)
    if begin:
        for line in _wrapped(begin, min(width, WIDEST) - 1):
            yield ((f" {line}", ""),)


def _where_to_begin(results: Iterable[Result]) -> str:
    failing = [result.check for result in results if result.verdict is CheckVerdict.FAIL]
    if len(failing) < 2:
        return ""
    return f"Begin with {failing[0]}: it may cause the failures after it."


def _wrapped(text: str, width: int) -> list[str]:
    """A text wrapped to lines; a longer path or word stays whole, because it may be copied."""
    return textwrap.wrap(printable(text), width, break_long_words=False, break_on_hyphens=False)
