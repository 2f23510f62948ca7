"""Creates one argparse parser for the dashboard and all commands."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpumon import __version__
from gpumon.cli import dashboard
from gpumon.cli.commands import COMMANDS, module_of
from gpumon.cli.help import Parser, RawFormatter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection


def make_parser(arguments: Collection[str] | None = None) -> argparse.ArgumentParser:
    """The parser of the whole command line.

    Args:
        arguments: The arguments to parse. A command that is not among them gets no options, which
            takes a fifth of the time; ``None`` adds the options of all commands.
    """
    parser = dashboard.make_parser(partial(Parser, prog="gpumon", formatter_class=RawFormatter))
    parser.add_argument("--version", action="version", version=f"gpumon {__version__}")
    commands = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", prog="gpumon", parser_class=Parser
    )
    for name, command in COMMANDS.items():
        if arguments is None or name in arguments:
            module_of(name).add_options(partial(commands.add_parser, name, help=command.about))
        else:
            commands.add_parser(name, help=command.about)
    return parser
