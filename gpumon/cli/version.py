"""``gpumon version`` and ``gpumon --version``: print versions."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from gpumon.cli.common import print_text
from gpumon.cli.messages import no_standard_output

if TYPE_CHECKING:
    from gpumon.cli.help import MakeParser


def add_options(command: MakeParser) -> None:
    """Add ``gpumon version`` to the parser."""
    command(
        description="Print the versions of gpumon, Python, Textual and the driver, as gpumon "
        "--version does."
    )


def run(_: argparse.Namespace | None = None) -> int:
    """Print the versions; the exit status."""
    from gpumon.sources.versions import all_versions

    return print_text(f"{all_versions()}\n")


class PrintVersions(argparse.Action):
    """``--version``: print the versions and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print them; see ``argparse.Action``."""
        parser.exit(no_standard_output() if sys.stdout is None else run())
