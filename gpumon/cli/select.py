"""``gpumon select``: print free cards."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpumon.cli.common import all_cards, print_all
from gpumon.cli.help import RawFormatter
from gpumon.cli.messages import EXIT_USAGE, explain, fail
from gpumon.cli.options import add_cards, cards_fault, drawing, requirements

if TYPE_CHECKING:
    import argparse

    from gpumon.cli.help import MakeParser


def add_options(command: MakeParser) -> None:
    """Add ``gpumon select`` to the parser."""
    select = command(
        parents=[drawing()],
        description="Print the UUIDs of free cards:\n"
        "  CUDA_VISIBLE_DEVICES=$(gpumon select -n 2 --free 20G) python train.py\n"
        "If not enough cards fit, the exit status is 1 and standard error says why, card by card.\n"
        "docs/select.md.",
        formatter_class=RawFormatter,
    )
    add_cards(select)
    select.add_argument(
        "--format",
        choices=("uuid", "index", "env", "json"),
        default="uuid",
        help="UUIDs; nvidia-smi's indices; CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, which makes "
        "indices certain; or every detail (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    """Print free cards; the exit status."""
    wrong = cards_fault(options)
    if wrong is not None:
        return fail(wrong, EXIT_USAGE)
    from gpumon.recording import RecordingError
    from gpumon.scheduling.allocation import UncertainAllocationError
    from gpumon.scheduling.select import SelectOptions, select
    from gpumon.sources import SourceError

    terms = SelectOptions(
        requirements(options), options.format, options.verbose, options.lock_dir, options.past
    )
    source, links = all_cards(options)
    try:
        return print_all(lambda: select(source, terms, sys.stdout, links))
    except SourceError as error:
        return explain(error)
    except (RecordingError, UncertainAllocationError) as error:
        return fail(error.sentence)
