"""Options that several commands have."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gpumon.cli import values
from gpumon.cli.common import fleet_option
from gpumon.cli.help import Parser
from gpumon.model.interval import MAX_INTERVAL, MIN_INTERVAL
from gpumon.model.makers import BACKENDS, MAKERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpumon.scheduling.requirements import Requirements

TIMEOUT = 10.0
"""Seconds to wait for the answers of other machines."""


def drawing() -> Parser:
    """Options for text output: a parent of the parser of nearly every command."""
    parser = Parser(add_help=False)
    parser.add_argument_group("how to draw").add_argument(
        "--ascii",
        action="store_true",
        default=argparse.SUPPRESS,
        help="draw with ASCII only (default: what the locale can show; GPUMON_ASCII=1 does the "
        "same)",
    )
    return parser


def samples(*, filtered: bool) -> Parser:
    """Options that select GPUs, processes and the machine: a parent of parsers.

    Args:
        filtered: Whether ``--filter`` is among them.
    """
    parser = Parser(add_help=False)
    what = parser.add_argument_group("what to show")
    add_gpus(what)
    what.add_argument(
        "--user",
        metavar="NAME",
        type=values.user,
        default=argparse.SUPPRESS,
        help="only this user's processes",
    )
    if filtered:
        what.add_argument(
            "--filter",
            metavar="TERMS",
            type=values.filter_terms,
            default=argparse.SUPPRESS,
            help="only processes that match, such as 'user:ann mem>10G !idle>1h'; the help page "
            "of the dashboard lists the terms",
        )
    add_source(what)
    return parser


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Add the options that select GPUs and the machine."""
    what = parser.add_argument_group("what to show")
    add_gpus(what)
    add_source(what)


class OtherMachines:
    """The options for other machines, and what else a command takes together with them.

    With ``--hosts`` or ``--prometheus`` every option that is not named here is refused: one that
    means this machine would have no effect, or act on the wrong machine.

    Args:
        hosts: The names of the options that have an effect with ``--hosts``, as in the namespace.
        prometheus: The same for ``--prometheus``; ``None`` if the command cannot use it.
        timeout: Whether to add ``--timeout``.
        refusal: What is said of an option that is refused with ``--hosts``.
    """

    def __init__(
        self,
        hosts: Collection[str],
        prometheus: Collection[str] | None = None,
        *,
        timeout: bool = False,
        refusal: str = "means this machine",
    ) -> None:
        self._accepted = {"--hosts": frozenset((*hosts, "hosts", "ssh", "timeout", "ascii"))}
        if prometheus is not None:
            with_it = (*prometheus, "prometheus", "match", "timeout", "ascii")
            self._accepted["--prometheus"] = frozenset(with_it)
        self._timeout = timeout
        self._refusal = refusal

    def add_to(self, parser: Parser) -> None:
        """Add the options to the parser of the command, which checks them by this object."""
        group = parser.add_argument_group("other machines")
        group.add_argument(
            "--hosts",
            metavar="LIST",
            default=argparse.SUPPRESS,
            help="these machines instead, over ssh: gpu-01,gpu-[02-16],ann@box, @FILE with a name "
            "on each line, group:NAME of the configuration. docs/fleet.md",
        )
        group.add_argument(
            "--ssh",
            metavar="COMMAND",
            default=argparse.SUPPRESS,
            help="with --hosts: the ssh client, such as 'ssh -F FILE' (default: that of the "
            "configuration, or ssh)",
        )
        if "--prometheus" in self._accepted:
            group.add_argument(
                "--prometheus",
                metavar="URL",
                nargs="?",
                const="",
                default=argparse.SUPPRESS,
                help="the machines whose metrics this Prometheus has, such as "
                "http://prometheus:9090 (default: that of the configuration, which also has "
                "passwords). docs/fleet.md",
            )
            group.add_argument(
                "--match",
                metavar="MATCHERS",
                default=argparse.SUPPRESS,
                help="with --prometheus: only metrics with these labels, as in PromQL: "
                "'job=\"dcgm\"'",
            )
        if self._timeout:
            group.add_argument(
                "--timeout",
                metavar="TIME",
                type=values.timespan,
                help=f"with other machines: how long to wait for answers (default: {TIMEOUT:g}s)",
            )
        parser.machines = self

    def fault(self, options: argparse.Namespace, given: Iterable[argparse.Action]) -> str | None:
        """What is wrong with the options together, in a sentence.

        Args:
            options: The command line.
            given: Its options.
        """
        asked = fleet_option(options)
        if options.hosts is not None and options.prometheus is not None:
            return "--hosts connects by ssh and --prometheus does not: give one of them."
        for name, needed in (
            ("ssh", "--hosts"),
            ("match", "--prometheus"),
            ("timeout", asked or "--hosts"),
        ):
            if getattr(options, name, None) is not None and asked != needed:
                return f"--{name} needs {needed}, which names the machines to connect to."
        if asked is None:
            return None
        accepted = self._accepted[asked]
        if options.demo and "demo" not in accepted:
            return f"simulated machines are shown on a terminal only: leave out --demo or {asked}."
        if options.demo and options.ssh is not None:
            return "--ssh connects to machines, and --demo simulates them: give one of them."
        for action in given:
            if action.dest not in accepted:
                known = action.dest in self._accepted["--hosts"]
                why = f"has no effect with {asked}" if known else self._refusal
                return f"{action.option_strings[-1]} {why}: leave out {asked}."
        return None


def add_format(to: argparse._ActionsContainer, *forms: str) -> None:
    """Add ``--format``: a table, the default, or one of these."""
    to.add_argument(
        "--format",
        choices=("table", *forms),
        default="table",
        help="for a person, or for a program (default: %(default)s)",
    )


def add_readonly(to: argparse._ActionsContainer, about: str) -> None:
    """Add ``--readonly``, which needs words of its own in each command."""
    to.add_argument("--readonly", action="store_true", default=argparse.SUPPRESS, help=about)


def add_theme(to: argparse._ActionsContainer) -> None:
    """Add the option for a theme."""
    to.add_argument(
        "--theme",
        metavar="NAME",
        default=argparse.SUPPRESS,
        help="colours of the dashboard; gpumon theme list names them, the key T chooses",
    )


def add_columns(to: argparse._ActionsContainer, default: object = argparse.SUPPRESS) -> None:
    """Add the option for the columns of the dashboard."""
    to.add_argument(
        "--columns",
        metavar="LIST",
        type=values.columns,
        default=default,
        help="columns of the process table, in order, such as pid,user,memory_used,command, and "
        "of the list of GPUs, such as fan_speed; or a set: default, nvitop",
    )


def add_interval(to: argparse._ActionsContainer, default: float | None) -> None:
    """Add ``--interval``.

    Args:
        to: A parser or a group of it.
        default: Seconds, for the help; ``None`` if the configuration decides.
    """
    otherwise = "" if default is None else f" (default: {default:g})"
    to.add_argument(
        "-n",
        "--interval",
        metavar="SECONDS",
        type=values.interval,
        default=argparse.SUPPRESS,
        help=f"seconds between samples, {MIN_INTERVAL:g} to {MAX_INTERVAL:g}{otherwise}",
    )


def add_gpus(to: argparse._ActionsContainer) -> None:
    """Add the option for the GPUs to read."""
    to.add_argument(
        "--gpus",
        metavar="LIST",
        type=values.selection,
        default=argparse.SUPPRESS,
        help="only these GPUs: indices, ranges, UUIDs or their beginnings, such as 0,2-3,GPU-1a2b",
    )


def add_source(to: argparse._ActionsContainer) -> None:
    """Add the options for the drivers to ask, and for the simulated machine."""
    to.add_argument(
        "--backend",
        choices=BACKENDS,
        default=argparse.SUPPRESS,
        help="the driver to ask: NVIDIA's (nvml), AMD's (amdgpu), Intel's (i915 and xe); auto: all "
        "that the machine has, without a processor's own GPU if there is another one; all: with "
        "it (default: auto). docs/makers.md",
    )
    to.add_argument(
        "--demo",
        action="store_true",
        default=argparse.SUPPRESS,
        help="a simulated machine with eight GPUs; needs no GPU",
    )


def add_gpu_requirements(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which GPUs and how many, for the commands that select GPUs."""
    asked = parser.add_argument_group("which GPUs")
    asked.add_argument(
        "-n",
        "--count",
        metavar="NUMBER",
        type=values.count,
        default=(1, 1),
        help="how many: 2, or 1-4 for as many as are free (default: 1)",
    )
    asked.add_argument(
        "--free",
        metavar="SIZE",
        type=values.size,
        help="at least this much free memory, such as 20G; other processes may run on the GPU "
        "(default: the GPU must be empty)",
    )
    asked.add_argument(
        "--total",
        metavar="SIZE",
        type=values.size,
        help="at least this much total memory, such as 80G",
    )
    asked.add_argument(
        "--util",
        metavar="PERCENT",
        type=values.percent,
        help="at most this utilisation over the last second",
    )
    asked.add_argument(
        "--temp", metavar="CELSIUS", type=values.celsius, help="at most this temperature"
    )
    asked.add_argument(
        "--processes",
        metavar="NUMBER",
        type=values.number,
        help="at most this many compute processes on the GPU",
    )
    asked.add_argument(
        "--mine-is-free",
        action="store_true",
        help="ignore your own processes and count their memory as free",
    )
    asked.add_argument(
        "--model",
        metavar="NAMES",
        type=values.names,
        help="the product name contains one of these: h100,a100",
    )
    asked.add_argument(
        "--arch",
        metavar="NAMES",
        type=values.names,
        help="one of these architectures: hopper,ampere",
    )
    asked.add_argument(
        "--capability",
        metavar="NUMBER",
        type=values.capability,
        help="at least this CUDA compute capability, such as 8.0",
    )
    add_gpus(asked)
    asked.add_argument(
        "--not", metavar="LIST", type=values.selection, dest="never", help="none of these GPUs"
    )
    asked.add_argument("--mig", action="store_true", help="MIG devices instead of whole GPUs")
    asked.add_argument(
        "--stable",
        metavar="TIME",
        type=values.timespan,
        help="the GPU has met all conditions for at least this long, such as 60s: read from "
        "--from, or watched",
    )
    asked.add_argument(
        "--from",
        metavar="FILE",
        dest="past",
        help="with --stable: a log that gpumon is writing, to read the past from",
    )
    asked.add_argument(
        "--lock-dir",
        metavar="FOLDER",
        type=values.folder,
        help="folder of the locks that all users of this machine share (default: "
        "GPUMON_LOCK_DIR, or what docs/run.md says)",
    )
    add_source(parser)
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print which GPUs were chosen, and why"
    )


def requirements(options: argparse.Namespace) -> Requirements:
    """The requirements that the options of ``add_gpu_requirements`` state."""
    from gpumon.model.selection import ALL
    from gpumon.scheduling.requirements import Requirements

    least, most = options.count
    backend = options.backend
    return Requirements(
        least=least,
        most=most,
        free=options.free,
        total=options.total,
        utilization=options.util,
        temperature=options.temp,
        processes=options.processes,
        models=options.model or (),
        architectures=options.arch or (),
        capability=options.capability,
        only=options.gpus or ALL,
        never=options.never or ALL,
        maker=next((maker for maker, facts in MAKERS.items() if facts.backend == backend), None),
        mig=options.mig,
        mine_is_free=options.mine_is_free,
        stable=options.stable,
    )


def requirements_fault(options: argparse.Namespace) -> str | None:
    """What is wrong with the options of ``add_gpu_requirements`` together, in a sentence."""
    if options.past is not None and options.stable is None:
        return "--from needs --stable, which says how much of the log to read."
    return None
