"""Creates one argparse parser for the dashboard and all commands."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

from gpumon.cli import dashboard
from gpumon.cli.commands import COMMANDS, module_of
from gpumon.cli.help import Parser, RawFormatter
from gpumon.cli.plain import OPTIONAL

if TYPE_CHECKING:
    from collections.abc import Collection


class _PrintVersions(argparse.Action):
    """``--version``: print the versions and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from gpumon.cli.common import print_text
        from gpumon.cli.messages import no_standard_output
        from gpumon.sources.versions import all_versions

        parser.exit(
            no_standard_output() if sys.stdout is None else print_text(f"{all_versions()}\n")
        )


def make_parser(arguments: Collection[str] | None = None) -> argparse.ArgumentParser:
    """The parser of the whole command line.

    Args:
        arguments: The arguments to parse. A command that is not among them gets no options, which
            takes a fifth of the time; ``None`` adds the options of all commands.
    """
    parser = dashboard.make_parser(partial(Parser, prog="gpumon", formatter_class=RawFormatter))
    parser.add_argument(
        "--version",
        action=_PrintVersions,
        nargs=0,
        default=argparse.SUPPRESS,
        help="print the versions of gpumon, Python, Textual and the driver, and exit",
    )
    # Only here: with a default of its own a command would hide what stands before it.
    parser.set_defaults(**dict.fromkeys(OPTIONAL))
    commands = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", prog="gpumon", parser_class=Parser
    )
    for name, command in COMMANDS.items():
        if arguments is None or name in arguments:
            module_of(name).add_options(partial(commands.add_parser, name, help=command.about))
        else:
            commands.add_parser(name, help=command.about)
    return parser
