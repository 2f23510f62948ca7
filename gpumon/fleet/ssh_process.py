"""A running ssh client: its pipes are read without waiting, and it ends together with its group."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from gpumon.remote.piped import PipedProgram

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_BYTES = 2**16
"""Bytes that are read in one turn."""
FILES_EACH = 3
"""Open files of one client: two pipes, and one more while it starts."""


class SshProcess:
    """An ssh client, whose standard input gets nothing.

    Attributes:
        output: Descriptor of its standard output.
        errors: Descriptor of its standard error.

    Raises:
        OSError: It does not start.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._program = PipedProgram(arguments)
        self._process = self._program.process
        self.output, self.errors = self._program.output, self._program.errors

    @staticmethod
    def read(descriptor: int) -> bytes | None:
        """What has arrived, at most ``MOST_BYTES``.

        Returns:
            Empty at the end, ``None`` if nothing has arrived.
        """
        try:
            return os.read(descriptor, MOST_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def end(self) -> None:
        """Ask it to end. Returns at once."""
        self._signal(signal.SIGTERM)

    def ended(self, *, kill: bool = False) -> int | None:
        """The exit status, negative for a signal, once it has ended; ``None`` before.

        Args:
            kill: Whether to end it now if it has not ended.
        """
        if self._process.returncode is None:
            if not kill and not self._is_over():
                return None
            # Before it is reaped: after that the number of its group may be of another one. What
            # it started, such as a ProxyCommand, ends with it.
            self._signal(signal.SIGKILL)
            self._program.close()
            self._process.wait()
        return self._process.returncode

    def _is_over(self) -> bool:
        waits = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self._process.pid, waits) is not None
        except ChildProcessError:
            return True

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)


def end_all(processes: Sequence[SshProcess], patience: float) -> None:
    """End processes and wait for them.

    Args:
        processes: The processes.
        patience: Seconds after which those that remain are killed.
    """
    for process in processes:
        process.end()
    left = list(processes)
    deadline = time.monotonic() + patience
    while left := [process for process in left if process.ended() is None]:
        if time.monotonic() > deadline:
            for process in left:
                process.ended(kill=True)
            return
        time.sleep(0.01)
