"""``gpumon run``: run a command on free GPUs and reserve them for it."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from gpumon.cli import values
from gpumon.cli.common import whole_machine
from gpumon.cli.help import RawFormatter
from gpumon.cli.messages import EXIT_USAGE, fail
from gpumon.cli.options import add_gpu_requirements, drawing, requirements, requirements_fault

if TYPE_CHECKING:
    from gpumon.cli.help import MakeParser

EXIT_CANNOT_RUN = 126
"""As in a shell: the command exists but cannot be run."""


def add_options(command: MakeParser) -> None:
    """Add ``gpumon run`` to the parser."""
    run = command(
        parents=[drawing()],
        usage="gpumon run [options] -- COMMAND ...",
        description="Run a command on free GPUs, with CUDA_VISIBLE_DEVICES set, and reserve them "
        "until it ends:\ngpumon run and gpumon select of every user leave them out.\n"
        "  gpumon run -n 1 --free 20G --wait=2h -- python train.py\n"
        "The exit status is that of the command, 128+N if signal N ended it, 1 if no GPU fits,\n"
        "124 if no GPU was free in time. docs/run.md.",
        formatter_class=RawFormatter,
    )
    add_gpu_requirements(run)
    how = run.add_argument_group("how to run")
    how.add_argument(
        "--wait",
        metavar="TIME",
        nargs="?",
        type=values.timespan,
        const=math.inf,
        help="wait for GPUs, with =TIME at most this long: --wait=2h",
    )
    how.add_argument(
        "--log",
        metavar="FILE",
        dest="job_log",
        help="log the GPUs and processes of this job to this CSV file",
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


def run(options: argparse.Namespace) -> int:
    """Run the command; the exit status."""
    command = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    wrong = requirements_fault(options)
    if not command:
        wrong = "there is no command to run: write it after --, as in gpumon run -- python x.py"
    elif options.mig and options.count[1] > 1:
        wrong = "CUDA gives a program only one MIG device: --mig needs -n 1."
    elif options.demo:
        wrong = "a simulated machine cannot run a command: use --demo with gpumon select."
    if wrong is not None:
        return fail(wrong, EXIT_USAGE)
    from gpumon.scheduling.reservation.lock_folder import FolderError
    from gpumon.scheduling.run.child import CommandError
    from gpumon.scheduling.run.run import RunOptions
    from gpumon.scheduling.run.run import run as run_job

    variables = {}
    if options.tf_growth:
        variables["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    if options.jax_no_prealloc:
        variables["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    terms = RunOptions(
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
        return run_job(source, terms, links)
    except FolderError as error:
        return fail(f"no GPU can be reserved: {error}.")
    except CommandError as error:
        return fail(str(error), EXIT_CANNOT_RUN)
