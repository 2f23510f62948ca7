"""``gpumon report``: summarize logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.cli import values
from gpumon.cli.commands import Command
from gpumon.cli.option_groups import ASCII, Option, TimeOption, output_format
from gpumon.cli.output import configure_output, fail, say
from gpumon.config.settings import MOST_CO2, MOST_PRICE
from gpumon.text.time_parsing import FORMS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gpumon.config import Settings
    from gpumon.config.settings import LocalHistory
    from gpumon.recording.archive import FoundArchive
    from gpumon.report.chosen_job import ChosenJob
    from gpumon.report.price import Price


_HEADINGS = """\
headings of the table:
  COVERED             how long the GPU or the host was sampled
  UTIL%, SM%          mean utilisation of a GPU, or SM share of processes
  MED, P95            the median and 95th percentile of that
  MEAN-GiB, PEAK-GiB  GPU memory in use
  BUSY, IDLE          hours in use with utilisation, and without
  GPU-H               GPUs with a compute process, times hours
  ALLOC, UNUSED       GPUs allocated to a job, times hours; without computing
  kWh, Wh             energy
  COST, CO2-kg        its cost and carbon dioxide, with --price and --co2
  HEAT, BRAKE         how long slowed down by heat, by the power brake,
  HW-SLOW, CAPPED     by the hardware for other reasons; at the power limit
  EMPTY               how long busy, but most multiprocessors without work
  STARVED             how long perhaps waiting for data between kernels
  TOKENS, REQUESTS    what inference servers generated and finished
  SERVER-IDLE         how long they served nobody, times servers
  LEFT-OUT            how long a job worked on most of its other GPUs only
  GAPS                how often samples are missing, and for how long

A dash is unknown; * means known for a part of the time.
"""


def _job(text: str) -> ChosenJob:
    from gpumon.report.chosen_job import chosen_job

    job = chosen_job(text)
    if job is None:
        values.refuse(
            f"{text!r} is no Slurm job: give its number, 88123, or that of a part, 88123_4"
        )
    return job


def _find_history(settings: LocalHistory) -> FoundArchive:
    """The history of this machine."""
    from gpumon.host.machine import MachineReader
    from gpumon.recording.archive import FoundArchive, find_archive

    if not settings.use:
        return FoundArchive(note="The configuration turns off the history of this machine.")
    return find_archive(MachineReader().name, settings.folder or None)


def _amount(most: float, what: str) -> Callable[[str], float]:
    """Reads a number from 0 to ``most``; ``what`` names it in a refusal, with its article."""

    def read(text: str) -> float:
        known = values.match(r"[0-9]{1,9}(\.[0-9]{1,9})?", text)
        if not known or float(text) > most:
            values.refuse(f"{text!r} is not {what}: give a number from 0 to {most:g}")
        return float(text)

    return read


class ReportCommand(Command):
    description = (
        "Summarize logs: memory, utilisation, hours busy and idle, energy, errors.\n"
        "docs/report.md describes the figures."
    )
    epilog = _HEADINGS
    groups = (ASCII,)
    options = (
        Option(
            "files",
            metavar="FILE",
            nargs="*",
            help="any file of each log, rotated parts included, or the folder of a history: the "
            "whole log is read; without it the last day of the history of this machine, see gpumon "
            "log --local",
        ),
        Option(
            "--by",
            choices=("gpu", "host", "user", "process", "job"),
            help="group by (default: gpu)",
        ),
        Option(
            "--job",
            metavar="NUMBER",
            type=_job,
            help="only this Slurm job, a line for each host, short enough for a mail: 88123 with "
            "all its parts, or one of them, 88123_4",
        ),
        Option(
            "--host",
            metavar="LIST",
            help="only these hosts, where logs have several: gpu-01,gpu-[04-08]",
        ),
        TimeOption("--from", metavar="TIME", dest="first", help=f"start time: {FORMS}"),
        TimeOption("--to", metavar="TIME", dest="last", help="end time (same formats as --from)"),
        Option(
            "--price",
            metavar="NUMBER",
            type=_amount(MOST_PRICE, "a price"),
            help="show the cost of the energy, at this price per kWh (default: that of the "
            "configuration, which also has the currency)",
        ),
        Option(
            "--co2",
            metavar="GRAMS",
            type=_amount(MOST_CO2, "an amount of CO2 in grams"),
            help="show the carbon dioxide of the energy, at this many grams per kWh (default: "
            "that of the configuration)",
        ),
        Option(
            "--accidents",
            action="store_true",
            help="list the errors and resets of GPUs and the processes that the kernel killed: "
            "when, what it means, whose processes and jobs it concerned, what ended",
        ),
        Option("--plot", action="store_true", help="also draw utilisation and memory of the GPUs"),
        output_format("json", "csv"),
    )

    def fault(self, options: argparse.Namespace) -> str | None:
        if options.accidents:
            return next(
                (
                    f"--accidents lists accidents: it cannot be used with --{name}."
                    for name in ("by", "job", "plot", "price", "co2")
                    if getattr(options, name) not in (None, False)
                ),
                None,
            )
        if options.job is None:
            return None
        if options.plot:
            return "--plot draws whole GPUs: it cannot be used with --job."
        if options.by not in (None, "host"):
            return f"--job has a line for each host: it cannot be used with --by {options.by}."
        return None

    def run(self, options: argparse.Namespace) -> int:
        from gpumon.config import load
        from gpumon.report.output import print_report

        loaded = load()
        for error in loaded.errors:
            say(error.sentence)
        settings = loaded.settings
        hosts = None
        if options.host is not None:
            from gpumon.fleet.host_names import read_hosts

            hosts = frozenset(read_hosts(options.host, settings.hosts.groups))
        configure_output(options, options.format)
        history = None
        if not options.files:
            found = _find_history(settings.history)
            if found.archive is None:
                return fail(f"{found.note} To sum up a log, name one of its files.")
            history = found.archive
        if options.accidents:
            from gpumon.report.accidents import print_accidents

            return print_accidents(
                options.files,
                history=history,
                first=options.first,
                last=options.last,
                hosts=hosts,
                form=options.format,
            )
        return print_report(
            options.files,
            history=history,
            by=options.by or "gpu" if options.job is None else "job",
            first=options.first,
            last=options.last,
            hosts=hosts,
            job=options.job,
            price=_price(options, settings),
            form=options.format,
            plot=options.plot,
        )


def _price(options: argparse.Namespace, settings: Settings) -> Price:
    """The price of the command line, else of the configuration; 0 is none."""
    from gpumon.report.price import Price

    price = settings.report.price if options.price is None else options.price
    co2 = settings.report.co2 if options.co2 is None else options.co2
    return Price(price or None, settings.report.currency if price else "", co2 or None)
