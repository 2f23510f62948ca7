"""``gpumon serve``: the dashboard in a browser."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpumon.cli import values
from gpumon.cli.commands import Command
from gpumon.cli.dashboard import DashboardCommand
from gpumon.cli.machine_options import FleetOptions, SampleOptions
from gpumon.cli.option_groups import ASCII, Option, OptionGroup, ScreenOptions, interval_option
from gpumon.cli.output import EXIT_USAGE, fail

if TYPE_CHECKING:
    import argparse


_MOST_VISITORS = 100
_VISITOR = "--visitor"
"""Not for people: shows the dashboard on the terminal of a visitor."""
_ON_OTHER_MACHINES = (
    *("--interval", "--columns", "--theme"),
    *("--port", "--address", "--visitors", _VISITOR),
)


class ServeCommand(Command):
    description = (
        "Serve the dashboard to browsers, read-only: no key sends a signal or writes a file. "
        "Prints the address, with a random token in it, and serves until Ctrl+C or SIGTERM. "
        "docs/browser.md"
    )
    groups = (
        OptionGroup(
            Option(
                "--port",
                metavar="NUMBER",
                type=values.number(0, 65535, "a port, a number from 0 to 65535"),
                default=8000,
                help="the port; 0 for one that is free (default: %(default)s)",
            ),
            Option(
                "--address",
                metavar="ADDRESS",
                default="localhost",
                help="where to listen; 0.0.0.0 is every address of this machine, without TLS "
                "(default: %(default)s, which others reach by ssh -L 8000:localhost:8000)",
            ),
            Option(
                "--visitors",
                metavar="NUMBER",
                type=values.number(1, _MOST_VISITORS, f"a number from 1 to {_MOST_VISITORS}"),
                default=10,
                help="how many pages may be open at a time, each of them a process (default: "
                "%(default)s)",
            ),
            Option(_VISITOR, action="store_true"),
            title="where",
        ),
        SampleOptions(user=True, filtered=True),
        ASCII,
        OptionGroup(interval_option(), title=ScreenOptions.TITLE),
        ScreenOptions(),
        FleetOptions(
            (*_ON_OTHER_MACHINES, "--demo"), _ON_OTHER_MACHINES, reason="is for one machine"
        ),
    )

    def run(self, options: argparse.Namespace) -> int:
        if options.visitor:
            return _show(options)
        from gpumon.web.run import ServeError, serve

        # Mistakes in the options are reported here, and not to each visitor.
        DashboardCommand().check(options)
        # A visitor gets the same command line; nothing that its browser asks for can change it.
        arguments = [*(argument for argument in sys.argv[1:] if argument != "--"), _VISITOR]
        try:
            return serve(options.address, options.port, options.visitors, arguments)
        except ServeError as error:
            return fail(str(error), EXIT_USAGE)


def _show(options: argparse.Namespace) -> int:
    from gpumon.web.visitor import take_terminal

    try:
        take_terminal()
    except OSError:
        return fail(f"{_VISITOR} is for gpumon serve itself: leave it out.", EXIT_USAGE)
    return DashboardCommand().run(options, visitor=True)
