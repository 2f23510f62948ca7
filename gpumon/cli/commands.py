"""The commands: what is needed of each before its module is imported.

The module of a command has its name, in this package: ``add_options`` adds its options, ``run``
runs it. Importing all of them would make ``gpumon --help`` a fifth slower.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from gpumon.cli.plain import SHARED

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


GENERAL = ("log", "columns", "readonly", "interval", *SHARED)
"""Options that may stand before a command."""
_SAMPLES = ("backend", "gpus", "user", "filter", "demo")
_MACHINE = ("backend", "gpus", "demo")
_HOSTS = ("hosts", "ssh", "prometheus", "match")


class Command:
    """A command. Not a named tuple: creating its class takes as long as importing this module.

    Args:
        about: Its line in the list of commands.
        takes: The options of ``GENERAL`` that it accepts.
        prints: Whether it needs standard output.
        short: Whether it runs without garbage collection, or starts garbage collection itself.
    """

    def __init__(
        self, about: str, takes: tuple[str, ...] = (), *, prints: bool = True, short: bool = False
    ) -> None:
        self.about = about
        self.takes = takes
        self.prints = prints
        self.short = short


COMMANDS = {
    "snapshot": Command("print one sample and exit", (*_SAMPLES, *_HOSTS), short=True),
    "log": Command(
        "log to CSV files without a screen, for tmux, nohup, a service or a job script",
        ("interval", *_SAMPLES, *_HOSTS),
        prints=False,
    ),
    "exporter": Command(
        "serve metrics of GPUs and users to Prometheus",
        ("interval", *_MACHINE),
        prints=False,
    ),
    "serve": Command(
        "show the dashboard in a browser, for looking only",
        (*_SAMPLES, "interval", "columns", "readonly", "theme", *_HOSTS),
    ),
    "watch": Command("tell alerts without a screen, for a service", ("interval", *_MACHINE)),
    "alert": Command("list the alerts, or send one as a test"),
    "stream": Command(
        "write a line of JSON for each sample, for programs on other machines",
        ("interval", *_MACHINE),
    ),
    "replay": Command("show a log in the dashboard, as it was recorded", ("theme",), short=True),
    "report": Command("summarize logs by GPU, host, user, process or job"),
    "theme": Command("list themes, show one, check a theme file"),
    "config": Command("find, create, check or show the configuration"),
    "completion": Command("print the completion script for a shell"),
    "select": Command(
        "print free GPUs, for CUDA_VISIBLE_DEVICES", (*_MACHINE, *_HOSTS), short=True
    ),
    "run": Command("run a command on free GPUs and reserve them for it", _MACHINE, prints=False),
    "wait": Command(
        "wait until GPUs are free, idle or cool, or until processes have ended",
        _MACHINE,
        prints=False,
    ),
    "end": Command(
        "end processes that hold a GPU, and report the memory that came back",
        ("readonly", "backend", "demo", *_HOSTS),
    ),
    "remote": Command(
        "serve the dashboard of another machine; gpumon --hosts starts it",
        ("readonly", "backend", "demo"),
    ),
    "doctor": Command("check driver, permissions, GPUs and CUDA, and suggest fixes"),
}


def module_of(name: str) -> CommandModule:
    """Import the module of a command."""
    return cast("CommandModule", import_module(f"gpumon.cli.{name}"))
