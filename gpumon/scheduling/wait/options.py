"""The options of ``gpumon wait``, besides those that say which cards are wanted."""

from __future__ import annotations

import argparse
import math
import re
from typing import TYPE_CHECKING

from gpumon.scheduling import options as of_cards
from gpumon.scheduling.options import read_amount

if TYPE_CHECKING:
    from gpumon.scheduling.wait.terms import WaitOptions

KINDS = ("free", "idle", "cool")
MOST_PIDS = 1024
"""So many processes can be waited for; each takes an open file."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what to wait for, for how long, and what to do then."""
    what = parser.add_argument_group("what to wait for")
    what.add_argument(
        "what",
        metavar="WHAT",
        nargs="?",
        choices=KINDS,
        help="free: as gpumon select would take it; idle: nothing ran on it for a minute, or for "
        "--stable; cool: at most 50 °C, or --temp (default: free)",
    )
    what.add_argument(
        "--pid",
        metavar="LIST",
        type=_pids,
        default=(),
        help="in place of cards: until these processes have ended, such as 4711 or 4711,4712",
    )
    what.add_argument(
        "--timeout",
        metavar="TIME",
        type=_timespan,
        help="give up after this long, with exit status 124: 90, 30s, 15m, 1h30m, 2d",
    )
    then = parser.add_argument_group("what to do then")
    then.add_argument("--bell", action="store_true", help="ring the terminal's bell")
    then.add_argument(
        "--notify",
        action="store_true",
        help="have the desktop notify, where the terminal can (OSC 9 or 777); in tmux that takes "
        "`set -g allow-passthrough on`",
    )
    then.add_argument(
        "--exec",
        metavar="COMMAND",
        dest="shell",
        help="run this by the shell in place of gpumon; gpumon run takes cards for a command",
    )


def terms(options: argparse.Namespace) -> WaitOptions:
    """What the options that were read ask for."""
    from gpumon.scheduling.wait.terms import WaitOptions

    return WaitOptions(
        options.what or KINDS[0],
        of_cards.requirements(options),
        options.pid,
        options.timeout,
        options.verbose,
        options.bell,
        options.notify,
        options.shell,
        options.lock_dir,
        options.past,
    )


def fault(options: argparse.Namespace) -> str | None:
    """What is wrong with the options together, in a sentence."""
    from gpumon.scheduling.requirements import Requirements

    if options.pid and (options.what or of_cards.requirements(options) != Requirements()):
        return "--pid waits for processes, the other options for cards: give one or the other."
    return of_cards.fault(options)


def _pids(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9][0-9]{0,9}(,[1-9][0-9]{0,9})*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of process numbers: write 4711,4712")
    found = tuple(dict.fromkeys(int(number) for number in text.split(",")))
    if len(found) > MOST_PIDS or max(found) >= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of process numbers: write 4711,4712")
    return found


def _timespan(text: str) -> float:
    from gpumon.text.unit_parsing import TIMESPAN

    seconds = read_amount(text, TIMESPAN)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time")
    return seconds
