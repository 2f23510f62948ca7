"""``gpumon remote``: what another machine's gpumon starts here to end processes."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from gpumon.cli.commands import Command
from gpumon.cli.machine_options import SourceOptions
from gpumon.cli.option_groups import ReadonlyOption
from gpumon.cli.output import EXIT_USAGE, fail

if TYPE_CHECKING:
    import argparse


class RemoteCommand(Command):
    description = (
        "Answer another machine's gpumon about the processes of this one, on standard input and "
        "output, until its input ends. gpumon --hosts starts it over ssh; it is "
        "not for use by hand."
    )
    readonly = ReadonlyOption("refuse every signal")
    machine = SourceOptions()
    groups = (readonly, machine)

    def run(self, options: argparse.Namespace) -> int:
        if sys.stdin.isatty():
            return fail("gpumon remote is started by gpumon --hosts, not by hand.", EXIT_USAGE)
        import signal

        from gpumon.config import load
        from gpumon.kill.audit_log import AuditLog, NoAuditLog
        from gpumon.remote.server import Server
        from gpumon.system.ending_signals import exit_on_signals

        readonly = self.readonly.holds(options, load().settings)
        machine = self.machine.open(options, profiled=False, readonly=readonly)
        log = NoAuditLog() if options.demo else AuditLog()
        # The client may go while it is answered. An exit in order continues processes that are
        # stopped for SIGKILL.
        with suppress(BrokenPipeError), exit_on_signals(signal.SIGTERM, signal.SIGHUP):
            Server(machine.processes, sys.stdin.fileno(), sys.stdout.fileno(), log).run()
        return 0
