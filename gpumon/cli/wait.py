"""``gpumon wait``: wait for GPUs, or for processes to end."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from gpumon.cli import values
from gpumon.cli.common import whole_machine
from gpumon.cli.help import RawFormatter
from gpumon.cli.messages import EXIT_USAGE, fail
from gpumon.cli.options import add_gpu_requirements, drawing, requirements, requirements_fault
from gpumon.scheduling.wait.kinds import DEFAULT_KIND, KINDS

if TYPE_CHECKING:
    from gpumon.cli.help import MakeParser

MOST_PIDS = 1024
"""Each process that is waited for needs an open file."""


def add_options(command: MakeParser) -> None:
    """Add ``gpumon wait`` to the parser."""
    wait = command(
        parents=[drawing()],
        description="Wait until gpumon select would succeed, until GPUs are idle or cool, or "
        "until processes\nhave ended:\n"
        "  gpumon wait -n 2 --free 20G --notify\n"
        "  gpumon wait --pid 4711 && ./next-step\n"
        "Standard error says who holds which GPU, and since when. docs/wait.md.",
        formatter_class=RawFormatter,
    )
    what = wait.add_argument_group("what to wait for")
    what.add_argument(
        "what",
        metavar="WHAT",
        nargs="?",
        choices=tuple(KINDS),
        help="; ".join(f"{name}: {kind.about}" for name, kind in KINDS.items())
        + f" (default: {DEFAULT_KIND})",
    )
    what.add_argument(
        "--pid",
        metavar="LIST",
        type=_pids,
        default=(),
        help="wait until these processes have ended, instead of for GPUs: 4711 or 4711,4712",
    )
    what.add_argument(
        "--timeout",
        metavar="TIME",
        type=values.timespan,
        help="give up after this long, with exit status 124: 90, 30s, 15m, 1h30m, 2d",
    )
    then = wait.add_argument_group("what to do then")
    then.add_argument("--bell", action="store_true", help="ring the terminal's bell")
    then.add_argument(
        "--notify",
        action="store_true",
        help="show a desktop notification, if the terminal can (OSC 9, 777 or 99); tmux needs "
        "`set -g allow-passthrough on`",
    )
    then.add_argument(
        "--exec",
        metavar="COMMAND",
        dest="shell",
        help="replace gpumon with this shell command; to reserve a GPU use gpumon run",
    )
    add_gpu_requirements(wait)


def _pids(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9][0-9]{0,9}(,[1-9][0-9]{0,9})*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of PIDs such as 4711,4712")
    found = tuple(dict.fromkeys(int(number) for number in text.split(",")))
    if len(found) > MOST_PIDS or max(found) >= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of PIDs such as 4711,4712")
    return found


def _fault(options: argparse.Namespace) -> str | None:
    """What is wrong with the options together, in a sentence."""
    from gpumon.scheduling.requirements import Requirements

    if options.pid and options.demo:
        return "--pid waits for processes of this machine: leave out --demo."
    of_gpus = options.what or options.lock_dir or options.verbose
    if options.pid and (of_gpus or requirements(options) != Requirements()):
        return "--pid waits for processes, the other options wait for GPUs: use one or the other."
    return requirements_fault(options)


def run(options: argparse.Namespace) -> int:
    """Wait; the exit status."""
    wrong = _fault(options)
    if wrong is not None:
        return fail(wrong, EXIT_USAGE)
    from gpumon.scheduling.wait.wait import WaitOptions, wait

    terms = WaitOptions(
        kind=options.what or DEFAULT_KIND,
        requirements=requirements(options),
        pids=options.pid,
        timeout=options.timeout,
        verbose=options.verbose,
        bell=options.bell,
        notify=options.notify,
        command=options.shell,
        lock_dir=options.lock_dir,
        past=options.past,
    )
    source, _ = whole_machine(options)
    return wait(source, terms)
