"""The commands: a class each, in the file of its name, from which everything else follows.

The help of the command, its man page, the completion scripts, and which options are refused with
it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from gpumon.cli.option_groups import OptionGroup

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gpumon.cli.option_groups import Option
    from gpumon.cli.parser import Parser

COMMAND_GROUPS = {
    "to look at GPUs": {
        "snapshot": "print one sample and exit",
        "topo": "print how GPUs, network adapters and processors are connected",
        "doctor": "check driver, permissions, GPUs and CUDA, and suggest fixes",
    },
    "to choose GPUs": {
        "select": "print free GPUs, for CUDA_VISIBLE_DEVICES",
        "run": "run a command on free GPUs and reserve them for it",
        "wait": "wait until GPUs are free, idle or cool, or until processes have ended",
        "end": "end processes that hold a GPU, and report the memory that came back",
    },
    "to log": {
        "log": "log to CSV files without a screen, for tmux, nohup, a service or a job script",
        "replay": "show a log in the dashboard, as it was recorded",
        "report": "summarize logs by GPU, host, user, process or job",
    },
    "for many machines": {
        "stream": "write a line of JSON for each sample, for programs on other machines",
        "remote": "serve the dashboard of another machine; gpumon --hosts starts it",
    },
    "for services": {
        "serve": "show the dashboard in a browser, read-only",
        "exporter": "serve metrics of GPUs and users to Prometheus",
        "watch": "send alerts without a screen, for a service",
        "alert": "list the alerts, or send a test notification",
    },
    "for gpumon itself": {
        "config": "find, create, check or show the configuration",
        "theme": "list themes, show one, check a theme file",
        "completion": "print the completion script for a shell",
        "help": "print the help of gpumon or of a command",
        "version": "print the versions of gpumon, Python, Textual and the driver",
    },
}
"""The commands by what they are for, each with its line in the help. Importing all of them for it
takes a fifth longer."""
COMMANDS = {name: line for group in COMMAND_GROUPS.values() for name, line in group.items()}


class Command(ABC):
    """A command."""

    description = ""
    """The text of its help above the options."""
    epilog: str | None = None
    """The text below them."""
    usage: str | None = None
    """The first line of its help, if not argparse's."""
    options: Sequence[Option] = ()
    """Those that do not belong to a group."""
    groups: Sequence[OptionGroup] = ()
    """The groups of options that it takes; all others are refused."""
    needs_stdout = True
    """Whether it is refused while standard output is closed."""
    without_gc = False
    """Whether it runs without garbage collection, or starts garbage collection itself."""

    def add_options(self, parser: Parser) -> None:
        """Add the options that do not belong to a group."""
        OptionGroup(*self.options).add_to(parser)

    def fault(self, options: argparse.Namespace) -> str | None:  # noqa: ARG002 - for subclasses
        """What is wrong with the options together, in a sentence."""
        return None

    @abstractmethod
    def run(self, options: argparse.Namespace) -> int:
        """Run the command; the exit status."""


def command(name: str | None) -> Command:
    """The command of a name; the dashboard without one."""
    if name is None:
        from gpumon.cli.dashboard import DashboardCommand

        return DashboardCommand()
    from importlib import import_module

    module = import_module(f"gpumon.cli.{name}")
    found: Command = getattr(module, f"{name.capitalize()}Command")()
    return found
