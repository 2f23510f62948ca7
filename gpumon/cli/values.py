"""The values of options: read, or refused in a sentence. Nothing is imported before it is used."""

from __future__ import annotations

import argparse
import math
import re
from typing import TYPE_CHECKING

from gpumon.cli.plain import LEAST_INTERVAL, LONGEST_INTERVAL, seconds

if TYPE_CHECKING:
    from gpumon.filters import Filter
    from gpumon.quantity import Measure
    from gpumon.selection import GpuSelection

LEAST_ROTATION = 2**16


def interval(text: str) -> float:
    """Seconds between samples, as ``watch -n`` takes them."""
    value = seconds(text)
    if value is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds from {LEAST_INTERVAL:g} to {LONGEST_INTERVAL:g}"
        )
    return value


def speed(text: str) -> float:
    """How many times as fast as it happened."""
    value = float(text) if re.fullmatch(r"\d+\.?\d*|\.\d+", text, re.ASCII) else math.nan
    if not 0.1 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a speed from 0.1 to 1000")
    return value


def timespan(text: str) -> float:
    """A length of time, in seconds."""
    from gpumon.quantity import TIMESPAN

    seconds = _amount(text, TIMESPAN)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time to log for")
    return seconds


def rotation(text: str) -> int:
    """The size of a file, in bytes."""
    from gpumon.quantity import SIZE

    size = _amount(text, SIZE)
    if not LEAST_ROTATION <= size < math.inf:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no size for a file: give {LEAST_ROTATION // 1024}K at least, or 100M"
        )
    return int(size)


def _amount(text: str, measure: Measure) -> float:
    from gpumon.quantity import QuantityError

    try:
        return measure.read(text)[0]
    except QuantityError as advice:
        raise argparse.ArgumentTypeError(f"cannot read {text!r}: {advice}") from None


def keep(text: str) -> int:
    """A number of files."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of files to keep, from 1")
    return int(text)


def user(text: str) -> str:
    """A user's name."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is no user's name")
    return text


def filter_terms(text: str) -> Filter:
    """Terms of a filter."""
    from gpumon.filters import FilterError, parse_filter

    try:
        return parse_filter(text)
    except FilterError as error:
        raise argparse.ArgumentTypeError(error.sentence) from None


def columns(text: str) -> tuple[str, ...]:
    """Keys of the process table's columns, the command always among them."""
    from gpumon.layout.processes import COLUMN, with_command

    keys = [key.strip() for key in text.split(",") if key.strip()]
    if not keys:
        raise argparse.ArgumentTypeError(f"{text!r} names no column; there are {', '.join(COLUMN)}")
    for key in keys:
        if key not in COLUMN:
            from gpumon.config.table import meant

            raise argparse.ArgumentTypeError(
                f"{key!r} is no column{meant(key, COLUMN)}; there are {', '.join(COLUMN)}"
            )
    return with_command(keys)


def selection(text: str) -> GpuSelection:
    """Which cards."""
    from gpumon.selection import SelectionError, parse_selection

    try:
        return parse_selection(text)
    except SelectionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
