"""``gpumon end``: end processes that hold a GPU."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from typing import TYPE_CHECKING

from gpumon.cli import silence, values
from gpumon.cli.common import (
    fleet_option,
    print_text,
    source_and_host,
    take_output,
    take_settings,
)
from gpumon.cli.fleet import connected
from gpumon.cli.help import RawFormatter
from gpumon.cli.messages import fail
from gpumon.cli.options import (
    TIMEOUT,
    OtherMachines,
    add_format,
    add_readonly,
    add_source,
    drawing,
)

if TYPE_CHECKING:
    from gpumon.cli.help import MakeParser
    from gpumon.kill.end.end import EndOptions, EndResult


def add_options(command: MakeParser) -> None:
    """Add ``gpumon end`` to the parser."""
    end = command(
        parents=[drawing()],
        description="End processes that hold a GPU, and report what became of them and their "
        "memory:\n"
        "  gpumon end 4711                    show it, ask, send TERM, wait\n"
        "  gpumon end 4711 --children --yes   its children too, without asking\n"
        "  gpumon end 4711 --dry-run          whom it would reach, and whether you may\n"
        "A PID that another process uses by now gets nothing if its start time is named, too:\n"
        "  gpumon end 4711:88214033\n"
        "Exit status: 0 if all have ended, 1 if some have not or nothing was sent, 2 for\n"
        "invalid options. docs/end.md.",
        formatter_class=RawFormatter,
    )
    end.add_argument(
        "processes",
        metavar="PID",
        nargs="+",
        type=_process,
        help="a process, as PID or PID:START (clock ticks from boot to its start)",
    )
    end.add_argument(
        "--signal",
        metavar="NAME",
        type=_signal,
        default=signal.SIGTERM,
        dest="number",
        help="the signal: TERM, INT, KILL, HUP, ... (default: TERM)",
    )
    end.add_argument(
        "--children", action="store_true", help="their children and children's children, too"
    )
    end.add_argument(
        "--dry-run", action="store_true", help="say whom it would reach, and send nothing"
    )
    end.add_argument("-y", "--yes", action="store_true", help="do not ask")
    end.add_argument(
        "--timeout",
        metavar="TIME",
        type=values.timespan,
        default=30.0,
        dest="wait",
        help="wait at most this long for their end, and for a driver or a host that does not "
        "answer: 30s (the default), 5m",
    )
    add_format(end, "json")
    add_readonly(end, "send no signals, like readonly in the configuration")
    machines = ("number", "children", "dry_run", "yes", "wait", "format", "readonly")
    OtherMachines(machines).add_to(end)
    add_source(end)


def _process(text: str) -> tuple[int, int | None]:
    match = re.fullmatch(r"([1-9][0-9]{0,9})(?::([0-9]{1,19}))?", text)
    if match is None or int(match[1]) >= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a process such as 4711 or 4711:88214033")
    return int(match[1]), None if match[2] is None else int(match[2])


def _signal(text: str) -> int:
    from gpumon.kill.target import ends

    name = text.upper().removeprefix("SIG")
    number = getattr(signal, f"SIG{name}", None) if name.isalnum() else None
    if isinstance(number, signal.Signals) and ends(number):
        return number
    if isinstance(number, signal.Signals):
        raise argparse.ArgumentTypeError(f"{name} ends no process: use kill -{name}")
    raise argparse.ArgumentTypeError(f"{text!r} is not a signal such as TERM, INT or KILL")


def run(options: argparse.Namespace) -> int:
    """End the processes; the exit status."""
    from gpumon.kill.audit_log import AuditLog, NoAuditLog
    from gpumon.kill.end.end import EndOptions, end
    from gpumon.kill.end.selection import NamedProcess

    options.readonly = options.readonly or take_settings().readonly
    take_output(options, options.format)
    asked = EndOptions(
        tuple(dict.fromkeys(NamedProcess(*one) for one in options.processes)),
        options.number,
        options.children,
        options.dry_run,
        options.yes,
        options.format,
        options.wait,
    )
    if fleet_option(options) is not None:
        return _end_there(options, asked)
    source, host = source_and_host(options, profiled=False)
    log = NoAuditLog() if options.demo else AuditLog()
    return _printed(end(source, host, log, asked))


def _end_there(options: argparse.Namespace, asked: EndOptions) -> int:
    """End processes of another machine; the exit status.

    Raises:
        FleetError: The host or the ssh client cannot be read.
        SourceError: There is no list of the processes on the GPUs.
    """
    from gpumon.fleet.answers import answers, missing
    from gpumon.fleet.fleet import FleetError
    from gpumon.kill.audit_log import AuditLog
    from gpumon.kill.end.end import end
    from gpumon.text.formatting import printable

    patience = min(TIMEOUT, asked.timeout)
    with connected(options, asked.timeout) as fleet:
        names = [host.name for host in fleet.latest().hosts]
        if len(names) != 1:
            raise FleetError("PIDs are of one machine: name one with --hosts.")
        (host,) = answers(fleet, patience).hosts
        absent = missing(host, patience)
        if absent:
            return fail(f"{host.name}: {absent}.")
        processes = fleet.processes(host.name, readonly=options.readonly)
        log = AuditLog(machine=host.name)
        there = asked._replace(machine=printable(host.name))
        return _printed(end(fleet.source(host.name), processes, log, there))


def _printed(result: EndResult) -> int:
    """Print the report; the exit status."""
    from gpumon.system.standard_output import OutputError

    try:
        print_text(result.text)
    except OutputError as failure:
        if not isinstance(failure.error, BrokenPipeError):
            raise
        # Nobody reads the report, but a script may read the status.
        silence(sys.stdout)
    return result.status
