"""The options that say which cards are wanted: the same for every command that chooses.

Nothing heavy is imported before an option is there to be read.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumon.model.selection import GpuSelection
    from gpumon.scheduling.requirements import Requirements
    from gpumon.text.unit_parsing import Measure

MOST_CARDS = 1024
LOCK_DIR_VARIABLE = "GPUMON_LOCK_DIR"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what is asked of a card, and how many are wanted."""
    asked = parser.add_argument_group("which cards")
    asked.add_argument(
        "-n",
        "--count",
        metavar="NUMBER",
        type=_count,
        default=(1, 1),
        help="how many: 2, or 1-4 for as many as there are (default: 1)",
    )
    asked.add_argument(
        "--free",
        metavar="SIZE",
        type=_size,
        help="at least this much free memory, such as 20G, whoever else is there (default: the "
        "card is empty: nobody computes on it)",
    )
    asked.add_argument(
        "--total", metavar="SIZE", type=_size, help="at least this much memory in all, such as 80G"
    )
    asked.add_argument(
        "--util",
        metavar="PERCENT",
        type=_percent,
        help="at most so much utilisation over the last second",
    )
    asked.add_argument("--temp", metavar="CELSIUS", type=_celsius, help="at most so warm")
    asked.add_argument(
        "--processes",
        metavar="NUMBER",
        type=_number,
        help="at most so many processes that compute on it",
    )
    asked.add_argument(
        "--mine-is-free",
        action="store_true",
        help="count your own processes as if they were not there, and their memory as free",
    )
    asked.add_argument(
        "--model", metavar="NAMES", type=_words, help="parts of the product's name: h100,a100"
    )
    asked.add_argument("--arch", metavar="NAMES", type=_words, help="architectures: hopper,ampere")
    asked.add_argument(
        "--capability",
        metavar="NUMBER",
        type=_capability,
        help="at least this CUDA compute capability, such as 8.0",
    )
    asked.add_argument(
        "--gpus",
        metavar="LIST",
        type=selection,
        default=argparse.SUPPRESS,
        help="only these cards: indices, ranges, UUIDs or their beginnings, such as 0,2-3,GPU-1a2b",
    )
    asked.add_argument(
        "--not", metavar="LIST", type=selection, dest="never", help="none of these cards"
    )
    asked.add_argument("--mig", action="store_true", help="MIG devices in place of whole cards")
    asked.add_argument(
        "--stable",
        metavar="TIME",
        type=_timespan,
        help="and it has been like this for so long, such as 60s: known from --from, else watched",
    )
    asked.add_argument(
        "--from",
        metavar="FILE",
        dest="past",
        help="with --stable: a log that gpumon is writing, to know the past from",
    )
    asked.add_argument(
        "--lock-dir",
        metavar="FOLDER",
        type=_folder,
        default=os.environ.get(LOCK_DIR_VARIABLE) or None,
        help="where all users of this machine keep the locks of gpumon run (default: "
        f"{LOCK_DIR_VARIABLE}, or as docs/run.md says)",
    )
    parser.add_argument(
        "--demo",
        action="store_true",
        default=argparse.SUPPRESS,
        help="a simulated machine with eight cards; needs no GPU",
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="say which cards were chosen, and why"
    )


def requirements(options: argparse.Namespace) -> Requirements:
    """What the options that were read ask for."""
    from gpumon.model.selection import ALL
    from gpumon.scheduling.requirements import Requirements

    least, most = options.count
    return Requirements(
        least=least,
        most=most,
        free=options.free,
        total=options.total,
        utilization=options.util,
        temperature=options.temp,
        processes=options.processes,
        models=options.model or (),
        architectures=options.arch or (),
        capability=options.capability,
        only=getattr(options, "gpus", ALL),
        never=options.never or ALL,
        mig=options.mig,
        mine_is_free=options.mine_is_free,
        stable=options.stable,
    )


def fault(options: argparse.Namespace) -> str | None:
    """What is wrong with the options together, in a sentence."""
    if options.past is not None and options.stable is None:
        return "--from goes with --stable, which says how much of the log counts."
    return None


def selection(text: str) -> GpuSelection:
    """A list of cards, or what is wrong with it."""
    from gpumon.model.selection import SelectionError, parse_selection

    try:
        return parse_selection(text)
    except SelectionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", text)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= least <= MOST_CARDS or most > MOST_CARDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of cards: write 2, or 1-4 for as many as there are"
        )
    if most < least:
        raise argparse.ArgumentTypeError(f"the range {text!r} runs backwards: write {most}-{least}")
    return least, most


def _size(text: str) -> int:
    from gpumon.text.unit_parsing import SIZE

    size = read_amount(text, SIZE)
    if not size < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no size of memory")
    return int(size)


def _percent(text: str) -> float:
    from gpumon.text.unit_parsing import PERCENT

    percent = read_amount(text, PERCENT)
    if not percent <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is more than 100 %")
    return percent


def _timespan(text: str) -> float:
    from gpumon.text.unit_parsing import TIMESPAN

    seconds = read_amount(text, TIMESPAN)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time")
    return seconds


def _celsius(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no temperature in degrees Celsius: write 60")
    return float(text)


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes: write 0, 1 or more")
    return int(text)


def _capability(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,3})(?:\.([0-9]{1,3}))?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no compute capability: write 8.0 or 9")
    return int(match[1]), int(match[2] or 0)


def _folder(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("'' is no folder")
    return text


def _words(text: str) -> tuple[str, ...]:
    words = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    if not words:
        raise argparse.ArgumentTypeError(f"{text!r} names nothing")
    return words


def read_amount(text: str, measure: Measure) -> float:
    """An amount of a kind."""
    from gpumon.text.unit_parsing import QuantityError

    try:
        return measure.read(text)[0]
    except QuantityError as advice:
        raise argparse.ArgumentTypeError(f"cannot read {text!r}: {advice}") from None
