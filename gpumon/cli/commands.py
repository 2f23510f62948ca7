"""The commands: what is needed of each before its module is imported.

The module of a command has its name, in this package: ``add_options`` adds its options, ``run``
runs it. Importing all of them would make ``gpumon --help`` a fifth slower.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import argparse
    from typing import Protocol

    from gpumon.cli.help import MakeParser

    class CommandModule(Protocol):
        """The functions in the module of a command."""

        def add_options(self, command: MakeParser) -> None:
            """Add the command with its options to the parser."""

        def run(self, options: argparse.Namespace) -> int:
            """Run the command; the exit status."""


class Command:
    """A command. Not a named tuple: creating its class takes as long as importing this module.

    Args:
        about: Its line in the list of commands.
        prints: Whether it needs standard output.
        short: Whether it runs without garbage collection, or starts garbage collection itself.
    """

    def __init__(self, about: str, *, prints: bool = True, short: bool = False) -> None:
        self.about = about
        self.prints = prints
        self.short = short


COMMANDS = {
    "snapshot": Command("print one sample and exit", short=True),
    "log": Command(
        "log to CSV files without a screen, for tmux, nohup, a service or a job script",
        prints=False,
    ),
    "exporter": Command("serve metrics of GPUs and users to Prometheus", prints=False),
    "serve": Command("show the dashboard in a browser, for looking only"),
    "watch": Command("send alerts without a screen, for a service"),
    "alert": Command("list the alerts, or send a test notification"),
    "stream": Command("write a line of JSON for each sample, for programs on other machines"),
    "replay": Command("show a log in the dashboard, as it was recorded", short=True),
    "report": Command("summarize logs by GPU, host, user, process or job"),
    "theme": Command("list themes, show one, check a theme file"),
    "config": Command("find, create, check or show the configuration"),
    "completion": Command("print the completion script for a shell"),
    "select": Command("print free GPUs, for CUDA_VISIBLE_DEVICES", short=True),
    "run": Command("run a command on free GPUs and reserve them for it", prints=False),
    "wait": Command(
        "wait until GPUs are free, idle or cool, or until processes have ended", prints=False
    ),
    "end": Command("end processes that hold a GPU, and report the memory that came back"),
    "remote": Command("serve the dashboard of another machine; gpumon --hosts starts it"),
    "doctor": Command("check driver, permissions, GPUs and CUDA, and suggest fixes"),
    "help": Command("print the help of gpumon or of a command"),
    "version": Command("print the versions of gpumon, Python, Textual and the driver"),
}


def module_of(name: str) -> CommandModule:
    """Import the module of a command."""
    return cast("CommandModule", import_module(f"gpumon.cli.{name}"))
