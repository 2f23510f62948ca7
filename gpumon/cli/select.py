"""``gpumon select``: print free GPUs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpumon.cli.common import fleet_option, whole_machine
from gpumon.cli.fleet import connected
from gpumon.cli.help import RawFormatter
from gpumon.cli.messages import EXIT_USAGE, fail
from gpumon.cli.options import (
    TIMEOUT,
    OtherMachines,
    add_gpu_requirements,
    drawing,
    requirements,
    requirements_fault,
)

if TYPE_CHECKING:
    import argparse

    from gpumon.cli.help import MakeParser


def add_options(command: MakeParser) -> None:
    """Add ``gpumon select`` to the parser."""
    select = command(
        parents=[drawing()],
        description="Print the UUIDs of free GPUs:\n"
        "  CUDA_VISIBLE_DEVICES=$(gpumon select -n 2 --free 20G) python train.py\n"
        "If not enough GPUs fit, the exit status is 1 and standard error says why, GPU by GPU.\n"
        "docs/select.md.",
        formatter_class=RawFormatter,
    )
    add_gpu_requirements(select)
    machines = (
        *("count", "free", "total", "util", "temp", "processes", "model", "arch", "capability"),
        *("gpus", "never", "mig", "stable", "format", "verbose"),
    )
    OtherMachines(machines, machines, timeout=True).add_to(select)
    select.add_argument(
        "--format",
        choices=("uuid", "index", "env", "json"),
        default="uuid",
        help="uuid: UUIDs; index: indices as on the screen; env: CUDA_VISIBLE_DEVICES with "
        "CUDA_DEVICE_ORDER, so that CUDA counts in the same order, or the variables of another "
        "maker; json: every detail (default: %(default)s). With --hosts the name of the host comes "
        "first",
    )


def run(options: argparse.Namespace) -> int:
    """Print free GPUs; the exit status."""
    wrong = requirements_fault(options)
    if wrong is not None:
        return fail(wrong, EXIT_USAGE)
    from gpumon.scheduling.select import SelectOptions, select

    if fleet_option(options) is not None:
        return _select_host(options)
    terms = SelectOptions(
        requirements(options), options.format, options.verbose, options.lock_dir, options.past
    )
    source, links = whole_machine(options)
    return select(source, terms, sys.stdout, links)


def _select_host(options: argparse.Namespace) -> int:
    """Print free GPUs of one of several hosts; the exit status."""
    from gpumon.fleet.select import select_host

    with connected(options) as fleet:
        return select_host(
            fleet,
            requirements(options),
            options.format,
            sys.stdout,
            patience=options.timeout or TIMEOUT,
            verbose=options.verbose,
        )
