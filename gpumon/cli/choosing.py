"""The commands that choose cards, on the command line: ``select`` and ``run``."""

from __future__ import annotations

import argparse
import math
import sys
from typing import TYPE_CHECKING

from gpumon.choosing.options import add_options, fault, read_amount, requirements
from gpumon.cli.common import silence
from gpumon.cli.help import RawFormatter
from gpumon.cli.words import EXIT_USAGE, explain, fail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.cli.help import Command
    from gpumon.sources import Source
    from gpumon.sources.links import Links

EXIT_CANNOT_RUN = 126
"""As shells have it for a command that is there and cannot be run."""


def add_select(command: Command, parents: Sequence[argparse.ArgumentParser]) -> None:
    """Add ``gpumon select`` to the parser."""
    select = command(
        parents=list(parents),
        description="Print the UUIDs of cards that are free:\n"
        "  CUDA_VISIBLE_DEVICES=$(gpumon select -n 2 --free 20G) python train.py\n"
        "Where not enough fit, the exit status is 1 and standard error says of each card why.\n"
        "docs/select.md.",
        formatter_class=RawFormatter,
    )
    add_options(select)
    select.add_argument(
        "--format",
        choices=("uuid", "index", "env", "json"),
        default="uuid",
        help="UUIDs, nvidia-smi's indices, both variables that make indices certain, or all that "
        "is known (default: %(default)s)",
    )


def add_run(command: Command, parents: Sequence[argparse.ArgumentParser]) -> None:
    """Add ``gpumon run`` to the parser."""
    run = command(
        parents=list(parents),
        usage="gpumon run [options] -- COMMAND ...",
        description="Run a command on cards that are free, with CUDA_VISIBLE_DEVICES set, and keep "
        "everybody's\ngpumon run and gpumon select off them until it has ended:\n"
        "  gpumon run -n 1 --free 20G --wait=2h -- python train.py\n"
        "The exit status is the command's, 128+N where signal N ended it; 1 where nothing fits, "
        "124 where\nnothing did in time. docs/run.md.",
        formatter_class=RawFormatter,
    )
    add_options(run)
    how = run.add_argument_group("how to run")
    how.add_argument(
        "--wait",
        metavar="TIME",
        nargs="?",
        type=_patience,
        const=math.inf,
        help="wait for cards, with =TIME at most so long: --wait=2h",
    )
    how.add_argument(
        "--log",
        metavar="FILE",
        dest="job_log",
        help="log the cards and the processes of this job to this CSV file",
    )
    how.add_argument(
        "--tf-growth",
        action="store_true",
        help="set TF_FORCE_GPU_ALLOW_GROWTH=true: TensorFlow takes memory as it needs it",
    )
    how.add_argument(
        "--jax-no-prealloc",
        action="store_true",
        help="set XLA_PYTHON_CLIENT_PREALLOCATE=false: JAX takes memory as it needs it",
    )
    run.add_argument("argv", metavar="COMMAND", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _patience(text: str) -> float:
    from gpumon.quantity import TIMESPAN

    seconds = read_amount(text, TIMESPAN)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time to wait")
    return seconds


def run_select(options: argparse.Namespace) -> int:
    """``gpumon select``."""
    wrong = fault(options)
    if wrong is not None:
        return fail(wrong, EXIT_USAGE)
    from gpumon.choosing.allocation import UncertainAllocationError
    from gpumon.commands.select import Terms, select
    from gpumon.sources import SourceError
    from gpumon.tape import TapeError

    terms = Terms(
        requirements(options), options.format, options.verbose, options.lock_dir, options.past
    )
    source, links = whole_machine(options)
    try:
        return select(source, terms, sys.stdout, links)
    except SourceError as error:
        return explain(error)
    except (TapeError, UncertainAllocationError) as error:
        return fail(error.sentence)
    except BrokenPipeError:
        raise  # no failure: main ends quietly
    except OSError as error:
        silence(sys.stdout)
        return fail(f"cannot write to standard output: {error.strerror}.")


def run_job(options: argparse.Namespace) -> int:
    """``gpumon run``."""
    command = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    wrong = fault(options)
    if not command:
        wrong = "there is no command to run: write it behind --, as in gpumon run -- python x.py"
    elif options.mig and options.count[1] > 1:
        wrong = "CUDA gives a program one MIG device: --mig goes with -n 1."
    elif getattr(options, "demo", False):
        wrong = "a simulated machine runs nothing: --demo goes with gpumon select."
    if wrong is not None:
        return fail(wrong, EXIT_USAGE)
    from gpumon.choosing.allocation import UncertainAllocationError
    from gpumon.commands.run import Terms, run
    from gpumon.log.opening import LogError
    from gpumon.reserving.folder import FolderError
    from gpumon.sources import SourceError
    from gpumon.tape import TapeError

    variables = {}
    if options.tf_growth:
        variables["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    if options.jax_no_prealloc:
        variables["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    terms = Terms(
        requirements(options),
        command,
        options.wait,
        options.job_log,
        options.verbose,
        options.lock_dir,
        options.past,
        variables,
    )
    source, links = whole_machine(options)
    try:
        return run(source, terms, links)
    except SourceError as error:
        return explain(error)
    except FolderError as error:
        return fail(f"no card can be reserved: {error}.")
    except (LogError, TapeError, UncertainAllocationError) as error:
        return fail(error.sentence)
    except OSError as error:
        return fail(f"{command[0]} cannot be run: {error.strerror}.", EXIT_CANNOT_RUN)


def whole_machine(options: argparse.Namespace) -> tuple[Source, Callable[[], Links] | None]:
    """All cards, whichever are wanted, and who tells how near they are to one another."""
    if getattr(options, "demo", False):
        from gpumon.sources.demo import DemoSource

        return DemoSource(), None
    from gpumon.sources.nvml.source import NvmlSource

    return NvmlSource(), _links


def _links() -> Links:
    from gpumon.sources.nvml.topology import read_links

    return read_links()
