"""Options that say which GPUs and how many; see ``option_groups``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpumon.cli import values
from gpumon.cli.machine_options import GPUS, SourceOptions
from gpumon.cli.option_groups import Option, OptionGroup
from gpumon.model.makers import makers

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from gpumon.cli.parser import Parser
    from gpumon.scheduling.requirements import Requirements

_MOST_GPUS = 1024


def _count(text: str) -> tuple[int, int]:
    """A number of GPUs, or a range of it."""
    found = values.match(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", text)
    least, most = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= least <= _MOST_GPUS or most > _MOST_GPUS:
        values.refuse(f"{text!r} is not a number of GPUs: write 2, or 1-4 for one to four")
    if most < least:
        values.refuse(f"the range {text!r} runs backwards: write {most}-{least}")
    return least, most


def _size(text: str) -> int:
    """An amount of memory, in bytes."""
    from gpumon.text.unit_parsing import SIZE

    size = values.amount(text, SIZE)
    if not size < math.inf:
        values.refuse(f"{text!r} is not a size of memory")
    return int(size)


def _percent(text: str) -> float:
    """A percentage."""
    from gpumon.text.unit_parsing import PERCENT

    percent = values.amount(text, PERCENT)
    if not percent <= 100:
        values.refuse(f"{text!r} is more than 100 %")
    return percent


def _celsius(text: str) -> float:
    """A temperature."""
    if not values.match(r"[0-9]{1,3}(\.[0-9]+)?", text):
        values.refuse(f"{text!r} is not a temperature in degrees Celsius, such as 60")
    return float(text)


def _capability(text: str) -> tuple[int, int]:
    """A CUDA compute capability."""
    found = values.match(r"([0-9]{1,3})(?:\.([0-9]{1,3}))?", text)
    if found is None:
        values.refuse(f"{text!r} is not a compute capability, such as 8.0 or 9")
    return int(found[1]), int(found[2] or 0)


def _folder(text: str) -> str:
    """The path of a folder."""
    if not text:
        values.refuse("'' is not a folder")
    return text


def _names(text: str) -> tuple[str, ...]:
    """Names separated by commas, lower case."""
    words = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    if not words:
        values.refuse(f"{text!r} contains no name")
    return words


_REQUIREMENTS = OptionGroup(
    Option(
        "-n",
        "--count",
        metavar="NUMBER",
        type=_count,
        default=(1, 1),
        help="how many: 2, or 1-4 for as many as are free (default: 1)",
    ),
    Option(
        "--free",
        metavar="SIZE",
        type=_size,
        help="at least this much free memory, such as 20G; other processes may run on the GPU "
        "(default: the GPU must be empty)",
    ),
    Option(
        "--total",
        metavar="SIZE",
        type=_size,
        help="at least this much total memory, such as 80G",
    ),
    Option(
        "--util",
        metavar="PERCENT",
        type=_percent,
        help="at most this utilisation over the last second",
    ),
    Option("--temp", metavar="CELSIUS", type=_celsius, help="at most this temperature"),
    Option(
        "--processes",
        metavar="NUMBER",
        type=values.number(0, 999_999, "a number of processes: write 0, 1 or more"),
        help="at most this many compute processes on the GPU",
    ),
    Option(
        "--mine-is-free",
        action="store_true",
        help="ignore your own processes and count their memory as free",
    ),
    Option(
        "--model",
        metavar="NAMES",
        type=_names,
        help="the product name contains one of these: h100,a100",
    ),
    Option(
        "--arch",
        metavar="NAMES",
        type=_names,
        help="one of these architectures: hopper,ampere",
    ),
    Option(
        "--capability",
        metavar="NUMBER",
        type=_capability,
        help="at least this CUDA compute capability, such as 8.0",
    ),
    GPUS,
    Option("--not", metavar="LIST", type=values.selection, dest="never", help="none of these GPUs"),
    Option("--mig", action="store_true", help="MIG devices instead of whole GPUs"),
    Option(
        "--stable",
        metavar="TIME",
        type=values.timespan,
        help="the GPU has met all conditions for at least this long, such as 60s: read from "
        "--from, or watched",
    ),
    Option(
        "--from",
        metavar="FILE",
        dest="past",
        help="with --stable: a log that gpumon is writing, or a history, to read the past from",
    ),
    Option(
        "--lock-dir",
        metavar="FOLDER",
        type=_folder,
        help="folder of the locks that all users of this machine share (default: "
        "GPUMON_LOCK_DIR, or what docs/run.md says)",
    ),
    title="which GPUs",
)


class RequirementOptions(SourceOptions):
    """Which GPUs and how many, for the commands that select GPUs."""

    def __init__(self) -> None:
        super().__init__(
            Option(
                "-v", "--verbose", action="store_true", help="print which GPUs were chosen, and why"
            )
        )

    def add_to(self, parser: Parser) -> None:
        """See ``OptionGroup``; the requirements have a heading of their own."""
        _REQUIREMENTS.add_to(parser)
        super().add_to(parser)

    def fault(self, options: argparse.Namespace, given: Iterable[argparse.Action]) -> str | None:
        if options.past is not None and options.stable is None:
            return "--from needs --stable, which says how much of the log to read."
        return super().fault(options, given)

    def sampled(self, options: argparse.Namespace) -> None:
        """All: ``--gpus`` is a requirement, and numbers and links depend on the other GPUs."""

    @staticmethod
    def requirements(options: argparse.Namespace) -> Requirements:
        """The requirements that the options state."""
        from gpumon.model.selection import ALL
        from gpumon.scheduling.requirements import Requirements

        least, most = options.count
        backend = options.backend
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
            only=options.gpus or ALL,
            never=options.never or ALL,
            maker=next((maker.name for maker in makers() if maker.backend == backend), None),
            mig=options.mig,
            mine_is_free=options.mine_is_free,
            stable=options.stable,
        )
