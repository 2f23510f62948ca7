"""``gpumon help``: print the help of gpumon or of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.cli.commands import COMMANDS, Command
from gpumon.cli.option_groups import Option
from gpumon.cli.output import print_text

if TYPE_CHECKING:
    import argparse


class HelpCommand(Command):
    description = "Print the help of gpumon, or of a command, as --help does: gpumon help log"
    options = (
        Option(
            "about",
            metavar="COMMAND",
            nargs="?",
            choices=tuple(COMMANDS),
            help="the command (default: gpumon itself)",
        ),
    )

    def run(self, options: argparse.Namespace) -> int:
        from gpumon.cli.parser import make_parser

        name = options.about
        parser = make_parser([name])
        return print_text((parser if name is None else parser.commands[name]).format_help())
