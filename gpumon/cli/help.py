"""Help and usage errors of the command line, and ``gpumon help``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from gpumon.cli.messages import EXIT_USAGE, fail

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpumon.cli.options import OtherMachines

_USUAL_COLUMNS = 80


class Formatter(argparse.HelpFormatter):
    """Argparse's formatter, with a cheaper width: it is created for every added option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


class RawFormatter(Formatter, argparse.RawDescriptionHelpFormatter):
    """Does not wrap descriptions."""


class Parser(argparse.ArgumentParser):
    """Reports an error in one sentence.

    Attributes:
        machines: What the command does with other machines; ``None`` if nothing.
        commands: The parsers of the commands, by name.
    """

    machines: OtherMachines | None = None
    commands: Mapping[str, Parser]

    def __init__(self, **words: Any) -> None:
        words.setdefault("formatter_class", Formatter)
        super().__init__(allow_abbrev=False, **words)

    def options(self) -> list[argparse.Action]:
        """The options, without the operands."""
        return [action for action in self._actions if action.option_strings]

    def error(self, message: str) -> NoReturn:
        """Exit with that sentence; see ``argparse.ArgumentParser.error``."""
        from gpumon.text.charset import ASCII, codeset_of, environment, take_stream

        # It quotes what was typed. The options are not known yet.
        is_ascii = "--ascii" in sys.argv
        take_stream(sys.stderr, ASCII if is_ascii else codeset_of(environment()))
        raise SystemExit(fail(f"{message}; see {self.prog} --help", EXIT_USAGE))


MakeParser: TypeAlias = Callable[..., Parser]
"""Creates the parser of a command, whose name and line in the list of commands are set."""


def add_options(command: MakeParser) -> None:
    """Add ``gpumon help`` to the parser."""
    from gpumon.cli.commands import COMMANDS

    help_ = command(
        description="Print the help of gpumon, or of a command, as --help does: gpumon help log"
    )
    help_.add_argument(
        "about",
        metavar="COMMAND",
        nargs="?",
        choices=tuple(COMMANDS),
        help="the command (default: gpumon itself)",
    )


def run(options: argparse.Namespace) -> int:
    """Print the help; the exit status."""
    from gpumon.cli.common import print_text
    from gpumon.cli.parser import make_parser

    name = options.about
    parser = make_parser([name])
    return print_text((parser if name is None else parser.commands[name]).format_help())


def _columns() -> int:
    """Same as ``shutil.get_terminal_size``, whose import takes 2 ms."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(1).columns or _USUAL_COLUMNS
    except OSError:
        return _USUAL_COLUMNS
