"""The commands: a class each, in the file of its name, from which everything else follows.

The help of gpumon and of the command, its man page, the completion scripts, and which options are
refused with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.cli.option_groups import OptionGroup

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gpumon.cli.option_groups import Option
    from gpumon.cli.parser import Parser

COMMANDS = (
    *("snapshot", "log", "exporter", "serve", "watch", "alert", "stream", "replay", "report"),
    *("theme", "config", "completion", "select", "run", "wait", "end", "remote", "doctor"),
    *("help", "version"),
)
"""The names in the order of the help. A command is imported when it runs or is listed."""

_DECLARED: dict[str, type[Command]] = {}
"""By the name of the module."""


class Command:
    """A command.

    Modules of commands import nothing heavy at the top: ``gpumon --help`` imports all of them.
    """

    about = ""
    """Its line in the list of commands."""
    description = ""
    epilog: str | None = None
    usage: str | None = None
    options: Sequence[Option] = ()
    """Those that do not belong to a group."""
    groups: Sequence[OptionGroup] = ()
    """The groups of options that it takes; all others are refused."""
    prints = True
    """Whether it needs standard output."""
    short = False
    """Whether it runs without garbage collection, or starts garbage collection itself."""

    def __init_subclass__(cls) -> None:
        _DECLARED[cls.__module__] = cls

    def add_options(self, parser: Parser) -> None:
        """Add the options that do not belong to a group."""
        OptionGroup(*self.options).add_to(parser)

    def fault(self, options: argparse.Namespace) -> str | None:  # noqa: ARG002 - for subclasses
        """What is wrong with the options together, in a sentence."""
        return None

    def run(self, options: argparse.Namespace) -> int:
        """Run the command; the exit status."""
        raise NotImplementedError


def command(name: str) -> Command:
    """The command of a name."""
    from importlib import import_module

    return _DECLARED[import_module(f"gpumon.cli.{name}").__name__]()
