"""A program such as ssh, started with pipes that never block and ended in bounded time."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

OPEN_FILES = 3
"""Open files of one program."""
_CHUNK = 65536
"""Bytes that are read at a time."""
_REAP_SECONDS = 1.0
_POLL_SECONDS = 0.01
_LAST_WORDS = 2048
"""Bytes kept of what the program wrote on standard error last."""
_LAST_WORDS_SECONDS = 0.5
"""Seconds to wait for them after its output has ended; ssh writes them then."""
_TERMINATE_SECONDS = 1.0
"""Seconds between SIGTERM and SIGKILL."""
_LEAVE_SECONDS = 1.0
"""Seconds for the program to end by itself once its pipes are closed."""


class PipedProgram:
    """A running program, the leader of a session and a process group of its own.

    A key of the terminal, such as Ctrl+C, does not reach it, and it cannot ask on the terminal.
    When this program ends, however it does, the pipes close, and with them what runs on a host.

    Args:
        command: The program with its arguments.
        environment: Its environment; by default that of this program.
        merged: Whether ``output`` has what it writes on standard error, too.

    Raises:
        OSError: It does not start.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        merged: bool = False,
    ) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            bufsize=0,
            env=environment,
            start_new_session=True,
        )
        files = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._files = [file for file in files if file is not None]
        self._output = self._files[1]
        descriptors = [file.fileno() for file in self._files]
        for descriptor in descriptors:
            os.set_blocking(descriptor, False)
        self._given_up = False  # whether it was killed and has not ended
        # Of its standard input, output and error; the last two are the same if they are merged.
        self.input, self.output, self.errors = (*descriptors, descriptors[-1])[:3]

    @property
    def pid(self) -> int:
        """Its PID, which is also the number of its process group."""
        return self._process.pid

    @staticmethod
    def read(descriptor: int) -> bytes | None:
        """What has arrived on one of its pipes: empty at the end, ``None`` if nothing has."""
        try:
            return os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def drain(self) -> bool:
        """Discard some of what has arrived on its output; returns whether nothing more can."""
        return self._output.closed or self.read(self.output) == b""

    def close_input(self) -> None:
        """Close its standard input. May be called more than once."""
        self._files[0].close()

    def close(self) -> None:
        """Close all pipes. May be called more than once."""
        for file in self._files:
            file.close()

    def signal(self, number: int) -> None:
        """Send a signal to its process group; does nothing once it is reaped."""
        if self._process.returncode is None and not self._given_up:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, reaped or not."""
        if self._process.returncode is not None or self._given_up:
            return True
        try:
            waits = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.pid, waits) is not None
        except ChildProcessError:
            return True

    def ended(self) -> int | None:
        """The exit status, negative for a signal, once it has ended; see ``end``."""
        return self.end() if self.is_over else None

    def end(self) -> int:
        """Kill what is left of its process group, close the pipes and reap it.

        Takes a second at most. Returns the exit status, negative for a signal.
        """
        process = self._process
        if process.returncode is None and not self._given_up:
            # Before it is reaped: after that the number of its group may be of another one. What
            # it started, such as a ProxyCommand, ends with it.
            self.signal(signal.SIGKILL)
            self.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_REAP_SECONDS)
            # One that a dead file system holds cannot even be killed. The module ``subprocess``
            # reaps it when it starts the next program.
            self._given_up = process.returncode is None
        return -signal.SIGKILL if process.returncode is None else process.returncode


def end_all(
    programs: Sequence[PipedProgram], patience: float, grace: float = _TERMINATE_SECONDS
) -> None:
    """Wait ``patience`` seconds for programs that are about to end, then make the others end.

    SIGTERM comes first, on which a ``gpumon remote`` that was started through another program
    continues what it has stopped. What is left ``grace`` seconds later is killed.
    """
    left = _not_yet(programs, patience, lambda program: program.is_over)
    for program in left:
        program.signal(signal.SIGTERM)
    # What the program has started may need longer than itself, and holds its output until then.
    _not_yet(left, grace, lambda program: program.is_over and program.drain())
    for program in programs:
        program.end()


def _not_yet(
    programs: Sequence[PipedProgram], seconds: float, done: Callable[[PipedProgram], bool]
) -> list[PipedProgram]:
    """Wait until all programs are done; returns those that are not after so many seconds."""
    deadline = time.monotonic() + seconds
    while left := [program for program in programs if not done(program)]:
        if time.monotonic() >= deadline:
            break
        for program in left:
            program.drain()  # one that cannot write does not end
        time.sleep(_POLL_SECONDS)
    return left


class Channel:
    """A program for lines to and fro: one thread reads, and any thread writes with a deadline.

    Raises:
        OSError: The program cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._program = PipedProgram(command)
        self._leaving, self._leave = os.pipe()
        self._last_words = b""
        # A descriptor that is closed during a write may get the number of another file.
        self._writing = threading.Lock()
        self._closed = False

    @property
    def last_words(self) -> str:
        """The last line that the program wrote on standard error; not safe to print."""
        lines = self._last_words.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def read(self) -> bytes:
        """Wait for bytes; empty at the end, and once ``leave`` was called. For one thread."""
        output, errors = self._program.output, self._program.errors
        poll = select.poll()
        for descriptor in (output, errors, self._leaving):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._leaving in ready:
                return b""
            if errors in ready and not self._read_error():
                poll.unregister(errors)
            if output not in ready or (data := self._program.read(output)) is None:
                continue
            if not data:
                self._read_last_words()
            return data

    def write(self, data: bytes, deadline: float) -> None:
        """Write bytes until a time of the monotonic clock.

        Raises:
            TimeoutError: The pipe is full until then; a part may be written.
            OSError: The pipe is closed.
        """
        if not self._writing.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise TimeoutError
        try:
            if self._closed:
                raise BrokenPipeError
            poll = select.poll()
            poll.register(self._program.input, select.POLLOUT)
            while data:
                if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                    raise TimeoutError
                with contextlib.suppress(BlockingIOError):
                    data = data[os.write(self._program.input, data) :]
        finally:
            self._writing.release()

    def leave(self) -> None:
        """Make ``read`` return, on whatever thread. May be called more than once."""
        with self._writing:
            if not self._closed:
                os.write(self._leave, b".")

    def close(self) -> None:
        """Close its input and end the program. Only once, by the thread that reads."""
        with self._writing:
            self._closed = True
            self._program.close_input()
            os.close(self._leaving)
            os.close(self._leave)
        end_all([self._program], _LEAVE_SECONDS)

    def _read_error(self) -> bool:
        """Read standard error; False at its end."""
        data = self._program.read(self._program.errors)
        if data is not None:
            self._last_words = (self._last_words + data)[-_LAST_WORDS:]
        return data != b""

    def _read_last_words(self) -> None:
        """Read what is written on standard error at the end."""
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        poll = select.poll()
        poll.register(self._program.errors, select.POLLIN)
        while poll.poll(max(0.0, deadline - time.monotonic()) * 1000) and self._read_error():
            pass
