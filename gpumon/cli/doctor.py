"""``gpumon doctor``: check this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpumon.cli.common import take_output
from gpumon.cli.options import drawing

if TYPE_CHECKING:
    import argparse

    from gpumon.cli.help import MakeParser


def add_options(command: MakeParser) -> None:
    """Add ``gpumon doctor`` to the parser."""
    doctor = command(
        parents=[drawing()],
        description="Check drivers, permissions, GPUs, CUDA, ROCm, Python packages and terminal: "
        "PASS, WARN or FAIL, with what to do. Nothing is changed. The exit status is 1 if a check "
        "fails. docs/doctor.md describes the checks.",
    )
    doctor.add_argument("--json", action="store_true", help="print JSON, for a program")
    doctor.add_argument(
        "--scrub",
        action="store_true",
        help="leave out names of users, of the machine and of GPUs, for a public issue",
    )


def run(options: argparse.Namespace) -> int:
    """Run the checks; the exit status."""
    from gpumon.doctor.report import doctor
    from gpumon.sources.machine import this_machine

    take_output(options, "json" if options.json else "table")
    return doctor(
        this_machine(profiled=True), sys.stdout, as_json=options.json, scrub=options.scrub
    )
