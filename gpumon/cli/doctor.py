"""``gpumon doctor``: check this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpumon.cli.commands import Command
from gpumon.cli.option_groups import ASCII, Option
from gpumon.cli.output import configure_output

if TYPE_CHECKING:
    import argparse


class DoctorCommand(Command):
    description = (
        "Check drivers, permissions, GPUs, CUDA, ROCm, Python packages and terminal: PASS, WARN or "
        "FAIL, with what to do. Nothing is changed. The exit status is 1 if a check fails. "
        "docs/doctor.md describes the checks."
    )
    groups = (ASCII,)
    options = (
        Option("--json", action="store_true", help="print JSON, for a program"),
        Option(
            "--scrub",
            action="store_true",
            help="leave out names of users, of the machine and of GPUs, for a public issue",
        ),
    )

    def run(self, options: argparse.Namespace) -> int:
        from gpumon.doctor.report import doctor
        from gpumon.makers.machine import this_machine

        configure_output(options, "json" if options.json else "table")
        return doctor(
            this_machine(profiled=True), sys.stdout, as_json=options.json, scrub=options.scrub
        )
