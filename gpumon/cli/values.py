"""Values of options that several commands have: parsed, or refused in a sentence.

Nothing heavy is imported before an option is given.
"""

from __future__ import annotations

import argparse
import math
import re
from typing import TYPE_CHECKING

from gpumon.cli.plain import seconds
from gpumon.model.interval import MAX_INTERVAL, MIN_INTERVAL

if TYPE_CHECKING:
    from gpumon.filters.language import Filter
    from gpumon.model.selection import GpuSelection
    from gpumon.text.unit_parsing import Measure

MOST_GPUS = 1024


def interval(text: str) -> float:
    """Seconds between samples, as in ``watch -n``."""
    value = seconds(text)
    if value is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds from {MIN_INTERVAL:g} to {MAX_INTERVAL:g}"
        )
    return value


def timespan(text: str) -> float:
    """A length of time, in seconds."""
    from gpumon.text.unit_parsing import TIMESPAN

    seconds = amount(text, TIMESPAN)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time")
    return seconds


def amount(text: str, measure: Measure) -> float:
    """An amount of a measure, in its base unit."""
    from gpumon.text.unit_parsing import QuantityError

    try:
        return measure.read(text)[0]
    except QuantityError as advice:
        raise argparse.ArgumentTypeError(f"cannot read {text!r}: {advice}") from None


def user(text: str) -> str:
    """A user's name."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not a user name")
    return text


def filter_terms(text: str) -> Filter:
    """Terms of a filter."""
    from gpumon.filters.language import FilterError, parse_filter

    try:
        return parse_filter(text)
    except FilterError as error:
        raise argparse.ArgumentTypeError(error.sentence) from None


def selection(text: str) -> GpuSelection:
    """Which GPUs."""
    from gpumon.model.selection import SelectionError, parse_selection

    try:
        return parse_selection(text)
    except SelectionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def count(text: str) -> tuple[int, int]:
    """A number of GPUs, or a range of it."""
    match = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", text)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= least <= MOST_GPUS or most > MOST_GPUS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of GPUs: write 2, or 1-4 for one to four"
        )
    if most < least:
        raise argparse.ArgumentTypeError(f"the range {text!r} runs backwards: write {most}-{least}")
    return least, most


def size(text: str) -> int:
    """An amount of memory, in bytes."""
    from gpumon.text.unit_parsing import SIZE

    size = amount(text, SIZE)
    if not size < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size of memory")
    return int(size)


def percent(text: str) -> float:
    """A percentage."""
    from gpumon.text.unit_parsing import PERCENT

    percent = amount(text, PERCENT)
    if not percent <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is more than 100 %")
    return percent


def celsius(text: str) -> float:
    """A temperature."""
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]+)?", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a temperature in degrees Celsius, such as 60"
        )
    return float(text)


def number(text: str) -> int:
    """A number of processes."""
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of processes: write 0, 1 or more"
        )
    return int(text)


def capability(text: str) -> tuple[int, int]:
    """A CUDA compute capability."""
    match = re.fullmatch(r"([0-9]{1,3})(?:\.([0-9]{1,3}))?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a compute capability, such as 8.0 or 9")
    return int(match[1]), int(match[2] or 0)


def folder(text: str) -> str:
    """The path of a folder."""
    if not text:
        raise argparse.ArgumentTypeError("'' is not a folder")
    return text


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas, lower case."""
    words = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    if not words:
        raise argparse.ArgumentTypeError(f"{text!r} contains no name")
    return words


def columns(text: str) -> tuple[str, ...]:
    """Keys of columns, always including the command."""
    from gpumon.config.columns import COLUMN, GPU_COLUMN
    from gpumon.config.table import InvalidValue, read_columns

    keys = [key.strip() for key in text.split(",") if key.strip()]
    if not keys:
        raise argparse.ArgumentTypeError(
            f"{text!r} names no column; columns are {', '.join((*COLUMN, *GPU_COLUMN))}"
        )
    try:
        return read_columns(keys)
    except InvalidValue as error:
        raise argparse.ArgumentTypeError(str(error)) from None
