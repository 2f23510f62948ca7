"""``gpumon remote``: what another machine's gpumon starts here to end processes."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from gpumon.cli.common import source_and_host
from gpumon.cli.messages import EXIT_USAGE, fail
from gpumon.cli.options import add_readonly, add_source

if TYPE_CHECKING:
    import argparse

    from gpumon.cli.help import MakeParser


def add_options(command: MakeParser) -> None:
    """Add ``gpumon remote`` to the parser."""
    remote = command(
        description="Answer another machine's gpumon about the processes of this one, on standard "
        "input and output, until its input ends. gpumon --hosts starts it over ssh; it is of no "
        "use by itself.",
    )
    add_readonly(remote, "refuse every signal")
    add_source(remote)


def run(options: argparse.Namespace) -> int:
    """Serve until standard input ends; the exit status."""
    if sys.stdin.isatty():
        return fail("gpumon remote is started by gpumon --hosts, not by hand.", EXIT_USAGE)
    from gpumon.config import load
    from gpumon.kill.audit_log import AuditLog, NoAuditLog
    from gpumon.remote.server import Server
    from gpumon.system.ending_signals import exit_on_signals

    options.readonly = options.readonly or load().settings.readonly
    _, host = source_and_host(options, profiled=False)
    log = NoAuditLog() if options.demo else AuditLog()
    # The client may go while it is answered. An exit in order continues processes that are stopped
    # for SIGKILL.
    with suppress(BrokenPipeError), exit_on_signals(signal.SIGTERM, signal.SIGHUP):
        Server(host, sys.stdin.fileno(), sys.stdout.fileno(), log).run()
    return 0
