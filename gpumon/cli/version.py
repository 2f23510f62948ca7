"""``gpumon version`` and ``gpumon --version``: print versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.cli.commands import Command
from gpumon.cli.output import print_text

if TYPE_CHECKING:
    import argparse


class VersionCommand(Command):
    description = (
        "Print the versions of gpumon, Python, Textual and the driver, as gpumon --version does."
    )

    def run(self, options: argparse.Namespace) -> int:  # noqa: ARG002 - it has none
        from gpumon.makers.machine import all_versions

        return print_text(f"{all_versions()}\n")
