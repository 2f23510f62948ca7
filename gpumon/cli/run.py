"""``gpumon run``: run a command on free GPUs and reserve them for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpumon.cli import values
from gpumon.cli.commands import Command
from gpumon.cli.option_groups import ASCII, Option, OptionGroup
from gpumon.cli.output import fail
from gpumon.cli.requirement_options import RequirementOptions

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


class RunCommand(Command):
    usage = "gpumon run [options] -- COMMAND ..."
    description = (
        "Run a command on free GPUs, with CUDA_VISIBLE_DEVICES set, and reserve them\n"
        "until it ends: gpumon run and gpumon select of every user leave them out.\n"
        "  gpumon run -n 1 --free 20G --wait=2h -- python train.py\n"
        "The exit status is that of the command, 128+N if signal N ended it, 1 if no GPU\n"
        "fits, 124 if no GPU was free in time. docs/run.md."
    )
    needs_stdout = False
    machine = RequirementOptions()
    options = (Option("argv", metavar="COMMAND", nargs="..."),)
    groups = (
        OptionGroup(
            Option(
                "--wait",
                metavar="TIME",
                nargs="?",
                type=values.timespan,
                const=math.inf,
                help="wait for GPUs, with =TIME at most this long: --wait=2h",
            ),
            Option(
                "--log",
                metavar="FILE",
                dest="job_log",
                help="log the GPUs and processes of this job to this CSV file",
            ),
            Option(
                "--tf-growth",
                action="store_true",
                help="set TF_FORCE_GPU_ALLOW_GROWTH=true: TensorFlow takes memory as it needs it",
            ),
            Option(
                "--jax-no-prealloc",
                action="store_true",
                help="set XLA_PYTHON_CLIENT_PREALLOCATE=false: JAX takes memory as it needs it",
            ),
            title="how to run",
        ),
        machine,
        ASCII,
    )

    def fault(self, options: argparse.Namespace) -> str | None:
        if not _command_of(options):
            return "there is no command to run: write it after --, as in gpumon run -- python x.py"
        if options.mig and options.count[1] > 1:
            return "CUDA gives a program only one MIG device: --mig needs -n 1."
        if options.demo:
            return "a simulated machine cannot run a command: use --demo with gpumon select."
        return None

    def run(self, options: argparse.Namespace) -> int:
        from gpumon.scheduling.child import NOT_EXECUTABLE, CommandError
        from gpumon.scheduling.lock_folder import FolderError
        from gpumon.scheduling.run import run

        variables = {}
        if options.tf_growth:
            variables["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
        if options.jax_no_prealloc:
            variables["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        machine = self.machine.open(options, profiled=False)
        try:
            return run(
                machine.source,
                self.machine.requirements(options),
                _command_of(options),
                wait=options.wait,
                log=options.job_log,
                verbose=options.verbose,
                lock_dir=options.lock_dir,
                past=options.past,
                variables=variables,
                links=machine.links,
                allocations=machine.allocations,
            )
        except FolderError as error:
            return fail(f"no GPU can be reserved: {error}.")
        except CommandError as error:
            return fail(str(error), NOT_EXECUTABLE)


def _command_of(options: argparse.Namespace) -> Sequence[str]:
    argv: Sequence[str] = options.argv
    return argv[1:] if argv[:1] == ["--"] else argv
