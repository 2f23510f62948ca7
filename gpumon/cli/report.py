"""``gpumon report``: summarize logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.cli.common import print_all, take_output
from gpumon.cli.help import MakeParser, RawFormatter
from gpumon.cli.options import drawing

if TYPE_CHECKING:
    import argparse

_HEADINGS = """\
headings of the table:
  COVERED             for how long samples tell of the card
  UTIL%, SM%          mean utilisation of a card, SM share of who uses it
  MED, P95            what that did not exceed for 50 and 95 % of the time
  MEAN-GiB, PEAK-GiB  GPU memory in use
  BUSY, IDLE          hours with utilisation, and without though in use
  GPU-H               hours times cards with a process that computes
  kWh, Wh             energy
  HEAT, BRAKE         for how long slowed down by heat, by the power brake,
  HW-SLOW, CAPPED     by the hardware for neither, held at the power limit
  GAPS                how often samples are missing, and for how long

A dash is unknown, * known for a part of the time.
"""


def add_options(command: MakeParser) -> None:
    """Add ``gpumon report`` to the parser."""
    report = command(
        parents=[drawing()],
        description="Summarize logs: memory, utilisation, hours busy and idle, energy, errors.\n"
        "docs/report.md describes the figures.",
        epilog=_HEADINGS,
        formatter_class=RawFormatter,
    )
    report.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="any file of each log, rotated parts included: the whole log is read",
    )
    report.add_argument(
        "--by",
        choices=("gpu", "user", "process", "job"),
        default="gpu",
        help="group by (default: %(default)s)",
    )
    times = "2025-03-01, '2025-03-01 03:00', 03:00, 'yesterday 03:00' or -8h"
    report.add_argument("--from", metavar="TIME", dest="first", help=f"start time: {times}")
    report.add_argument(
        "--to", metavar="TIME", dest="last", help="end time (same formats as --from)"
    )
    report.add_argument(
        "--format",
        choices=("table", "json", "csv"),
        default="table",
        help="for a person, or for a program (default: %(default)s)",
    )
    report.add_argument(
        "--plot", action="store_true", help="also draw utilisation and memory of the cards"
    )


def run(options: argparse.Namespace) -> int:
    """Print the report; the exit status."""
    from gpumon.report.output import print_report

    take_output(options, options.format, utf_8=options.format == "json")
    return print_all(
        lambda: print_report(
            options.files,
            by=options.by,
            first=options.first,
            last=options.last,
            form=options.format,
            plot=options.plot,
        )
    )
