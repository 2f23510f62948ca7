"""``gpumon wait``: wait for GPUs, or for processes to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.cli import values
from gpumon.cli.commands import Command
from gpumon.cli.option_groups import ASCII, Option, OptionGroup
from gpumon.cli.requirement_options import RequirementOptions
from gpumon.scheduling.requirements import DEFAULT_KIND, KINDS, Requirements

if TYPE_CHECKING:
    import argparse

MOST_PIDS = 1024
"""Each process that is waited for needs an open file."""


def _pids(text: str) -> tuple[int, ...]:
    if values.match(r"[1-9][0-9]{0,9}(,[1-9][0-9]{0,9})*", text):
        found = tuple(dict.fromkeys(int(number) for number in text.split(",")))
        if len(found) <= MOST_PIDS and max(found) < 2**31:
            return found
    return values.refuse(f"{text!r} is not a list of PIDs such as 4711,4712")


class WaitCommand(Command):
    description = (
        "Wait until gpumon select would succeed, until GPUs are idle or cool, or until\n"
        "processes have ended:\n"
        "  gpumon wait -n 2 --free 20G --notify\n"
        "  gpumon wait --pid 4711 && ./next-step\n"
        "Standard error says who holds which GPU, and since when. docs/wait.md."
    )
    needs_stdout = False
    machine = RequirementOptions()
    groups = (
        OptionGroup(
            Option(
                "what",
                metavar="WHAT",
                nargs="?",
                choices=tuple(KINDS),
                help="; ".join(f"{name}: {kind.about}" for name, kind in KINDS.items())
                + f" (default: {DEFAULT_KIND})",
            ),
            Option(
                "--pid",
                metavar="LIST",
                type=_pids,
                default=(),
                help="wait until these processes have ended, instead of for GPUs: 4711 or "
                "4711,4712",
            ),
            Option(
                "--timeout",
                metavar="TIME",
                type=values.timespan,
                help="give up after this long, with exit status 124: 90, 30s, 15m, 1h30m, 2d",
            ),
            title="what to wait for",
        ),
        OptionGroup(
            Option("--bell", action="store_true", help="ring the terminal's bell"),
            Option(
                "--notify",
                action="store_true",
                help="show a desktop notification, if the terminal can (OSC 9, 777 or 99); tmux "
                "needs `set -g allow-passthrough on`",
            ),
            Option(
                "--exec",
                metavar="COMMAND",
                dest="shell",
                help="replace gpumon with this shell command; to reserve a GPU use gpumon run",
            ),
            title="what to do then",
        ),
        machine,
        ASCII,
    )

    def fault(self, options: argparse.Namespace) -> str | None:
        if not options.pid:
            return None
        if options.demo:
            return "--pid waits for processes of this machine: leave out --demo."
        of_gpus = options.what or options.lock_dir or options.verbose
        if of_gpus or self.machine.requirements(options) != Requirements():
            return (
                "--pid waits for processes, the other options wait for GPUs: use one or the other."
            )
        return None

    def run(self, options: argparse.Namespace) -> int:
        from gpumon.scheduling.wait import wait

        machine = self.machine.open(options, profiled=False)
        return wait(
            machine.source,
            options.what or DEFAULT_KIND,
            self.machine.requirements(options),
            pids=options.pid,
            timeout=options.timeout,
            verbose=options.verbose,
            bell=options.bell,
            notify=options.notify,
            command=options.shell,
            lock_dir=options.lock_dir,
            past=options.past,
            allocations=machine.allocations,
        )
