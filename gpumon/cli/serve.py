"""``gpumon serve``: the dashboard in a browser."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from gpumon.cli.dashboard import SCREEN
from gpumon.cli.messages import EXIT_USAGE, fail
from gpumon.cli.options import (
    OtherMachines,
    add_columns,
    add_interval,
    add_theme,
    drawing,
    samples,
)

if TYPE_CHECKING:
    from gpumon.cli.help import MakeParser

_PORT = 8000
_ADDRESS = "localhost"
_VISITORS = 10
_MOST_VISITORS = 100
_VISITOR = "--visitor"
"""Not for people: shows the dashboard on the terminal of a visitor."""


def add_options(command: MakeParser) -> None:
    """Add ``gpumon serve`` to the parser."""
    serve = command(
        parents=[samples(filtered=True), drawing()],
        description="Serve the dashboard to browsers, for looking only: no signal is sent and "
        "nothing is written, whatever is pressed. Prints the address, with a random token in it, "
        "and serves until Ctrl+C or SIGTERM. docs/browser.md",
    )
    where = serve.add_argument_group("where")
    where.add_argument(
        "--port",
        metavar="NUMBER",
        type=_port,
        default=_PORT,
        help="the port; 0 for one that is free (default: %(default)s)",
    )
    where.add_argument(
        "--address",
        metavar="ADDRESS",
        default=_ADDRESS,
        help="where to listen; 0.0.0.0 is every address of this machine, without TLS (default: "
        "%(default)s, which others reach by ssh -L 8000:localhost:8000)",
    )
    where.add_argument(
        "--visitors",
        metavar="NUMBER",
        type=_visitors,
        default=_VISITORS,
        help="how many pages may be open at a time, each of them a process (default: %(default)s)",
    )
    where.add_argument(
        _VISITOR, action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    screen = serve.add_argument_group("the dashboard")
    add_interval(screen, None)
    add_columns(screen)
    add_theme(screen)
    shown = (*SCREEN, "port", "address", "visitors", "visitor")
    OtherMachines((*shown, "demo"), shown, refusal="is for one machine").add_to(serve)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, a number from 0 to 65535")
    return int(text)


def _visitors(text: str) -> int:
    known = text.isascii() and text.isdecimal() and len(text) <= 3
    if not (known and 0 < int(text) <= _MOST_VISITORS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {_MOST_VISITORS}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Serve until a signal, or show the dashboard of a visitor; the exit status."""
    if options.visitor:
        return _show(options)
    from gpumon.cli.dashboard import check_options
    from gpumon.web.run import ServeError, ServeOptions, serve

    # What is wrong with the options is said here, and not to each visitor.
    check_options(options)
    terms = ServeOptions(options.address, options.port, options.visitors)
    # A visitor gets the same command line; whatever its browser asks for, this one decides.
    arguments = [*(one for one in sys.argv[1:] if one != "--"), _VISITOR]
    try:
        return serve(terms, arguments)
    except ServeError as error:
        return fail(str(error), EXIT_USAGE)


def _show(options: argparse.Namespace) -> int:
    from gpumon.cli import dashboard
    from gpumon.web.visitor import take_terminal

    try:
        take_terminal()
    except OSError:
        return fail(f"{_VISITOR} is for gpumon serve itself: leave it out.", EXIT_USAGE)
    return dashboard.run(options)
