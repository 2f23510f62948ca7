"""``gpumon report``: summarize logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.cli import values
from gpumon.cli.commands import Command
from gpumon.cli.option_groups import ASCII, Option, TimeOption, output_format
from gpumon.cli.output import configure_output, fail, load_settings
from gpumon.text.time_parsing import FORMS

if TYPE_CHECKING:
    import argparse

    from gpumon.recording.archive import FoundArchive
    from gpumon.report.chosen_job import ChosenJob


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


def _find_history() -> FoundArchive:
    """The history of this machine."""
    from gpumon.host.machine import MachineReader
    from gpumon.recording.archive import FoundArchive, find_archive

    settings = load_settings().history
    if not settings.use:
        return FoundArchive(note="The configuration says not to use the history of this machine.")
    return find_archive(MachineReader().name, settings.folder or None)


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
            help="any file of each log, rotated parts included: the whole log is read; without it "
            "the last day of the history of this machine, see gpumon log --local",
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
        Option("--plot", action="store_true", help="also draw utilisation and memory of the GPUs"),
        output_format("json", "csv"),
    )

    def fault(self, options: argparse.Namespace) -> str | None:
        if options.job is None:
            return None
        if options.plot:
            return "--plot draws whole GPUs: it cannot be used with --job."
        if options.by not in (None, "host"):
            return f"--job has a line for each host: it cannot be used with --by {options.by}."
        return None

    def run(self, options: argparse.Namespace) -> int:
        from gpumon.report.output import print_report

        hosts = None
        if options.host is not None:
            from gpumon.fleet.host_names import read_hosts

            hosts = frozenset(read_hosts(options.host, load_settings().hosts.groups))
        configure_output(options, options.format)
        history = None
        if not options.files:
            found = _find_history()
            if found.archive is None:
                return fail(f"{found.note} To sum up a log, name one of its files.")
            history = found.archive
        return print_report(
            options.files,
            history=history,
            by=options.by or "gpu" if options.job is None else "job",
            first=options.first,
            last=options.last,
            hosts=hosts,
            job=options.job,
            form=options.format,
            plot=options.plot,
        )
