"""Values of options: parsed, or refused in a sentence.

Nothing is imported before an option is given: plain ``gpumon`` does without argparse.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NoReturn

from gpumon.model.interval import MAX_INTERVAL, MIN_INTERVAL

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from gpumon.filters.terms import Filter
    from gpumon.model.selection import GpuSelection
    from gpumon.text.unit_parsing import Measure


def refuse(sentence: str) -> NoReturn:
    """Refuse a value, for the reason in the sentence."""
    from argparse import ArgumentTypeError

    raise ArgumentTypeError(sentence) from None


def number(least: int, most: int, what: str) -> Callable[[str], int]:
    """Reads a whole number.

    Args:
        least: The smallest valid one.
        most: The largest.
        what: What a text that is not valid is not, such as ``a port``.
    """

    def read(text: str) -> int:
        known = text.isascii() and text.isdecimal() and len(text) <= len(str(most))
        if not (known and least <= int(text) <= most):
            refuse(f"{text!r} is not {what}")
        return int(text)

    return read


def match(pattern: str, text: str) -> re.Match[str] | None:
    """The match of a whole text."""
    import re

    return re.fullmatch(pattern, text)


def seconds(text: str) -> float | None:
    """Seconds between samples, as in ``watch -n``; ``None`` if the text is not valid."""
    digits = text.replace(".", "", 1)
    if not (digits.isascii() and digits.isdecimal()):
        return None
    value = float(text)
    return value if MIN_INTERVAL <= value <= MAX_INTERVAL else None


def interval(text: str) -> float:
    """Seconds between samples, as in ``watch -n``."""
    value = seconds(text)
    if value is None:
        refuse(f"{text!r} is not a number of seconds from {MIN_INTERVAL:g} to {MAX_INTERVAL:g}")
    return value


def timespan(text: str) -> float:
    """A length of time, in seconds."""
    from gpumon.text.unit_parsing import TIMESPAN

    seconds = amount(text, TIMESPAN)
    if not 0 < seconds < math.inf:
        refuse(f"{text!r} is not a length of time")
    return seconds


def amount(text: str, measure: Measure) -> float:
    """An amount of a measure, in its base unit."""
    from gpumon.text.unit_parsing import QuantityError

    try:
        return measure.read(text)[0]
    except QuantityError as advice:
        refuse(f"cannot read {text!r}: {advice}")


def user(text: str) -> str:
    """A user's name."""
    if not text.strip():
        refuse(f"{text!r} is not a user name")
    return text


def filter_terms(text: str) -> Filter:
    """Terms of a filter."""
    from gpumon.filters.language import FilterError
    from gpumon.filters.terms import parse_filter

    try:
        return parse_filter(text)
    except FilterError as error:
        refuse(error.sentence)


def selection(text: str) -> GpuSelection:
    """Which GPUs."""
    from gpumon.model.selection import SelectionError, parse_selection

    try:
        return parse_selection(text)
    except SelectionError as error:
        refuse(str(error))


def columns(text: str) -> tuple[str, ...]:
    """Keys of columns, always including the command."""
    from gpumon.config.columns import COLUMN, GPU_COLUMN
    from gpumon.config.table import InvalidValue, read_columns

    keys = [key.strip() for key in text.split(",") if key.strip()]
    if not keys:
        refuse(f"{text!r} names no column; columns are {', '.join((*COLUMN, *GPU_COLUMN))}")
    try:
        return read_columns(keys)
    except InvalidValue as error:
        refuse(str(error))
