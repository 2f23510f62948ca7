"""``gpumon end``: end processes that hold a GPU."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpumon.cli import silence, values
from gpumon.cli.commands import Command
from gpumon.cli.machine_options import TIMEOUT, FleetOptions, SourceOptions
from gpumon.cli.option_groups import ASCII, Option, ReadonlyOption, output_format
from gpumon.cli.output import configure_output, fail, load_settings, print_text

if TYPE_CHECKING:
    import argparse

    from gpumon.kill.end import EndRequest, EndResult


def _process(text: str) -> tuple[int, int | None]:
    found = values.match(r"([1-9][0-9]{0,9})(?::([0-9]{1,19}))?", text)
    if found is None or int(found[1]) >= 2**31:
        values.refuse(f"{text!r} is not a process such as 4711 or 4711:88214033")
    return int(found[1]), None if found[2] is None else int(found[2])


def _signal(text: str) -> int:
    import signal

    from gpumon.kill.target import ends

    name = text.upper().removeprefix("SIG")
    number = getattr(signal, f"SIG{name}", None) if name.isalnum() else None
    if isinstance(number, signal.Signals) and ends(number):
        return number
    if isinstance(number, signal.Signals):
        values.refuse(f"{name} ends no process: use kill -{name}")
    return values.refuse(f"{text!r} is not a signal such as TERM, INT or KILL")


class EndCommand(Command):
    description = (
        "End processes that hold a GPU, and report which ended and how much memory came\n"
        "back:\n"
        "  gpumon end 4711                    show it, ask, send TERM, wait\n"
        "  gpumon end 4711 --children --yes   its children too, without asking\n"
        "  gpumon end 4711 --dry-run          what it would reach, and whether you may\n"
        "With its start time, a PID that another process has got since gets no signal:\n"
        "  gpumon end 4711:88214033\n"
        "Exit status: 0 if all have ended, 1 if some have not or nothing was sent, 2 for\n"
        "invalid options. docs/end.md."
    )
    readonly = ReadonlyOption("send no signals, like readonly in the configuration")
    machine = SourceOptions()
    fleet = FleetOptions(
        ("--signal", "--children", "--dry-run", "--yes", "--timeout", "--format", "--readonly")
    )
    groups = (readonly, machine, ASCII, fleet)
    options = (
        Option(
            "processes",
            metavar="PID",
            nargs="+",
            type=_process,
            help="a process, as PID or PID:START (clock ticks from boot to its start)",
        ),
        Option(
            "--signal",
            metavar="NAME",
            type=_signal,
            dest="number",
            help="the signal: TERM, INT, KILL, HUP, ... (default: TERM)",
        ),
        Option(
            "--children", action="store_true", help="their children and children's children, too"
        ),
        Option(
            "--dry-run",
            action="store_true",
            help="print which processes it would reach, and send nothing",
        ),
        Option("-y", "--yes", action="store_true", help="do not ask"),
        Option(
            "--timeout",
            metavar="TIME",
            type=values.timespan,
            default=30.0,
            dest="wait",
            help="wait at most this long for their end, and for a driver or a host that does not "
            "answer: 30s (the default), 5m",
        ),
        output_format("json"),
    )

    def run(self, options: argparse.Namespace) -> int:
        import signal

        from gpumon.kill.audit_log import AuditLog, NoAuditLog
        from gpumon.kill.end import EndRequest, end
        from gpumon.model.processes import ProcessId

        readonly = self.readonly.holds(options, load_settings())
        configure_output(options, options.format)
        request = EndRequest(
            tuple(dict.fromkeys(ProcessId(*process) for process in options.processes)),
            number=options.number or signal.SIGTERM,
            children=options.children,
            dry_run=options.dry_run,
            yes=options.yes,
            as_json=options.format == "json",
            timeout=options.wait,
        )
        if self.fleet.asked(options) is not None:
            return self._end_there(options, request, readonly=readonly)
        machine = self.machine.open(options, profiled=False, readonly=readonly)
        log = NoAuditLog() if options.demo else AuditLog()
        return _printed(end(machine, log, request))

    def _end_there(
        self, options: argparse.Namespace, request: EndRequest, *, readonly: bool
    ) -> int:
        """End processes of another machine; the exit status.

        Raises:
            FleetError: The host or the ssh client cannot be read.
            SourceError: There is no list of the processes on the GPUs.
        """
        from gpumon.fleet.answers import answers, missing
        from gpumon.fleet.fleet import FleetError
        from gpumon.kill.audit_log import AuditLog
        from gpumon.kill.end import end

        patience = min(TIMEOUT, options.wait)
        with self.fleet.connected(options, options.wait) as fleet:
            names = [host.name for host in fleet.latest().hosts]
            if len(names) != 1:
                raise FleetError("PIDs are of one machine: name one with --hosts.")
            (host,) = answers(fleet, patience).hosts
            absent = missing(host, patience)
            if absent:
                return fail(f"{host.name}: {absent}.")
            machine = fleet.machine(host.name, readonly=readonly)
            return _printed(end(machine, AuditLog(machine=machine.name), request))


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
