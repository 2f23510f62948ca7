"""``gpumon doctor`` on the command line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpumon.cli.common import silence, take_output
from gpumon.cli.words import fail

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gpumon.cli.help import Command


def add_doctor(command: Command, parents: Sequence[argparse.ArgumentParser]) -> None:
    """Add ``gpumon doctor`` to the parser."""
    doctor = command(
        parents=list(parents),
        description="Check driver, permissions, cards, CUDA, Python packages and terminal: PASS, "
        "WARN or FAIL, with what to do. Nothing is changed. The exit status is 1 where a check "
        "fails. docs/doctor.md describes the checks.",
    )
    doctor.add_argument("--json", action="store_true", help="for a program")
    doctor.add_argument(
        "--scrub",
        action="store_true",
        help="leave out names of users, of the machine and of cards, for a public issue",
    )


def run_doctor(options: argparse.Namespace) -> int:
    """``gpumon doctor``."""
    from gpumon.commands.doctor import doctor
    from gpumon.sources.nvml.source import NvmlSource

    take_output(options, "json" if options.json else "table", utf_8=options.json)
    try:
        return doctor(NvmlSource(), sys.stdout, as_json=options.json, scrub=options.scrub)
    except BrokenPipeError:
        raise  # no failure: main ends quietly
    except OSError as error:
        silence(sys.stdout)
        return fail(f"cannot write to standard output: {error.strerror}.")
