"""A running ssh client: its pipes are read without waiting, and it ends together with its group."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_BYTES = 2**16
"""Bytes that are read in one turn."""


class SshProcess:
    """An ssh client in a session of its own.

    A key of the terminal, such as Ctrl+C, does not reach it, and it cannot ask on the terminal.
    Its standard input is a pipe that nothing is written to: when this program ends, however it
    does, the pipe closes, and with it what runs on the host.

    Attributes:
        output: Descriptor of its standard output.
        errors: Descriptor of its standard error.

    Args:
        arguments: The command.

    Raises:
        OSError: It does not start.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe, as asked
        assert self._process.stdout is not None  # noqa: S101 - likewise
        assert self._process.stderr is not None  # noqa: S101 - likewise
        self._files = (self._process.stdin, self._process.stdout, self._process.stderr)
        self.output = self._process.stdout.fileno()
        self.errors = self._process.stderr.fileno()
        os.set_blocking(self.output, False)
        os.set_blocking(self.errors, False)

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
            self._close()
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

    def _close(self) -> None:
        for file in self._files:
            file.close()


def allow_descriptors(processes: int) -> None:
    """Raise the limit of open files, as far as it is allowed, for so many processes."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = soft + 3 * processes
    if soft != resource.RLIM_INFINITY:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))


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
