"""The commands: what must be known of each before its module is imported.

The module has the command's name and stands beside this one. ``add_options`` there says what it
takes, ``run`` runs it. Importing them all would make ``gpumon --help`` take a fifth longer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import argparse
    from typing import Protocol

    from gpumon.cli.help import MakeParser

    class CommandModule(Protocol):
        """What the module of a command has."""

        def add_options(self, command: MakeParser) -> None:
            """Add the command with its options to the parser."""

        def run(self, options: argparse.Namespace) -> int:
            """Run the command; the exit status."""


GENERAL = ("log", "columns", "readonly", "interval", "theme", "gpus", "user", "filter", "demo")
"""Options that may stand before a command."""
_SAMPLES = ("gpus", "user", "filter", "demo")


class Command:
    """A command. No named tuple: to make its class takes as long as to import this.

    Args:
        about: Its line in the list of commands.
        takes: Those of ``GENERAL`` that have an effect on it; it refuses the others.
        prints: Whether it needs standard output.
        short: Whether it runs without garbage collection, or starts that later by itself.
    """

    def __init__(
        self, about: str, takes: tuple[str, ...] = (), *, prints: bool = True, short: bool = False
    ) -> None:
        self.about = about
        self.takes = takes
        self.prints = prints
        self.short = short


COMMANDS = {
    "snapshot": Command("print one sample and exit", _SAMPLES, short=True),
    "log": Command(
        "log to CSV files without a screen, for tmux, nohup, a service or a job script",
        ("interval", *_SAMPLES),
        prints=False,
    ),
    "replay": Command("show a log in the dashboard, as it was recorded", ("theme",), short=True),
    "report": Command("summarize logs by card, user, process or job"),
    "theme": Command("list themes, show one, check a theme file"),
    "config": Command("find, create, check or show the configuration"),
    "completion": Command("print the completion script for a shell"),
    "select": Command("print free cards, for CUDA_VISIBLE_DEVICES", ("gpus", "demo"), short=True),
    "run": Command(
        "run a command on free cards and reserve them for it", ("gpus", "demo"), prints=False
    ),
    "wait": Command(
        "wait until cards are free, idle or cool, or until processes have ended",
        ("gpus", "demo"),
        prints=False,
    ),
    "doctor": Command("check driver, permissions, cards and CUDA, and suggest fixes"),
}


def module_of(name: str) -> CommandModule:
    """Import the module of a command."""
    return cast("CommandModule", import_module(f"gpumon.cli.{name}"))
