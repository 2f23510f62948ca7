"""``gpumon select``: print free GPUs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpumon.cli.commands import Command
from gpumon.cli.machine_options import FleetOptions
from gpumon.cli.option_groups import ASCII, Option
from gpumon.cli.requirement_options import RequirementOptions

if TYPE_CHECKING:
    import argparse


_ON_OTHER_MACHINES = (
    *("--count", "--free", "--total", "--util", "--temp", "--processes", "--model", "--arch"),
    *("--capability", "--gpus", "--not", "--mig", "--stable", "--format", "--verbose"),
)


class SelectCommand(Command):
    description = (
        "Print the UUIDs of free GPUs:\n"
        "  CUDA_VISIBLE_DEVICES=$(gpumon select -n 2 --free 20G) python train.py\n"
        "If not enough GPUs fit, the exit status is 1 and standard error says why, GPU\n"
        "by GPU. docs/select.md."
    )
    without_gc = True
    machine = RequirementOptions()
    fleet = FleetOptions(_ON_OTHER_MACHINES, _ON_OTHER_MACHINES, timeout=True)
    groups = (machine, ASCII, fleet)
    options = (
        Option(
            "--format",
            choices=("uuid", "index", "env", "json"),
            default="uuid",
            help="uuid: UUIDs; index: indices as on the screen; env: CUDA_VISIBLE_DEVICES with "
            "CUDA_DEVICE_ORDER, so that CUDA counts in the same order, or the variables of another "
            "maker; json: every detail (default: %(default)s). With --hosts the name of the host "
            "comes first",
        ),
    )

    def run(self, options: argparse.Namespace) -> int:
        requirements = self.machine.requirements(options)
        form, verbose = options.format, options.verbose
        if self.fleet.asked(options) is not None:
            from gpumon.fleet.select import select_host

            patience = self.fleet.patience(options)
            with self.fleet.connected(options) as fleet:
                return select_host(
                    fleet, requirements, form, sys.stdout, patience=patience, verbose=verbose
                )
        from gpumon.scheduling.select import select

        machine = self.machine.open(options, profiled=False)
        return select(
            machine.source,
            requirements,
            sys.stdout,
            form=form,
            verbose=verbose,
            lock_dir=options.lock_dir,
            past=options.past,
            links=machine.links,
            allocations=machine.allocations,
        )
