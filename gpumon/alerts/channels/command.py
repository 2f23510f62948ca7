"""The channel ``command``: a program without a shell or terminal, in bounded time and memory."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import msgspec

from gpumon.alerts.channels.channel import CANCELLED, Channel, DeliveryError
from gpumon.alerts.notice import as_environment, as_json
from gpumon.config.table import InvalidValue
from gpumon.text.formatting import printable, shortened

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gpumon.alerts.channels.channel import Attempt

_POLL_SECONDS = 0.05
"""A pipe shows that there is output, but not that the program has ended: what it started may keep
the pipe."""
_PIECE = 2**16
_MOST_PIECES = 64
"""Pieces of output that are read after the end."""
_KEPT = 4096
"""Bytes of the output that are kept: its end."""
_MOST_CHARACTERS = 200
_REAP_SECONDS = 1.0


class Command(Channel, frozen=True):
    """A program, which gets the notice in its environment and as JSON on its standard input."""

    name: ClassVar[str] = "command"
    example_value: ClassVar[str] = '["prog", "arg"]'
    about: ClassVar[str] = (
        "a program, without a shell; it gets the notification in its environment and, as JSON, on "
        "its standard input"
    )
    seconds: ClassVar[float] = 10.0

    args: tuple[str, ...]
    """The program and its arguments."""

    @classmethod
    def read(cls, table: Mapping[str, object], folder: Path) -> Channel:  # noqa: ARG003 - its paths are not relative to it
        args = table["command"]
        if (
            not isinstance(args, list)
            or not args
            or not all(isinstance(arg, str) and "\0" not in arg for arg in args)
            or not args[0].strip()
        ):
            raise InvalidValue('a command is a list, such as ["mail", "-s", "gpumon", "ann"]')
        return cls(tuple(args))

    def describe(self) -> str:
        return f"command {self.args[0]}"

    def send(self, attempt: Attempt) -> None:
        environment = dict(os.environ)
        for name, value in as_environment(attempt.notice).items():
            # A variable of a gpumon around this one would be mistaken for a value of the notice.
            environment.pop(name, None)
            if value is not None:
                environment[name] = value
        given = msgspec.json.encode(as_json(attempt.notice)) + b"\n"
        ended = run_program(self.args, given, self.seconds, attempt, environment=environment)
        if ended.status != 0:
            raise DeliveryError(status_in_words(ended))


class EndedProgram(NamedTuple):
    """How a program ended."""

    status: int
    """The exit status, negative for a signal."""
    last_line: str
    """The last line of its output, safe to print; empty without output."""


def run_program(
    arguments: Sequence[str],
    given: bytes,
    seconds: float,
    attempt: Attempt,
    *,
    environment: Mapping[str, str],
) -> EndedProgram:
    """Run a program until it ends.

    It is the leader of a session of its own, so it has no terminal, and no key of the terminal
    reaches it. What it leaves running in its process group is killed when it ends. It is killed
    after ``seconds``, and when the attempt is cancelled. ``given`` is its standard input.

    Raises:
        DeliveryError: It did not start, or did not end in time.
    """
    # Imported here: most people run no command.
    import subprocess

    try:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            bufsize=0,
            env=environment,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise DeliveryError(_not_started(arguments[0], error)) from None
    output = _Output()
    try:
        with attempt.cancelled_by(lambda: _kill(process)):
            in_time = _wait(process, given, time.monotonic() + seconds, output)
    finally:
        # Before it is reaped: after that the number of its group may be of another one.
        _kill(process)
        with process:
            assert process.stdout is not None  # noqa: S101 - it is a pipe, as asked
            for _ in range(_MOST_PIECES):
                if not output.read(process.stdout.fileno()):
                    break
            with suppress(subprocess.TimeoutExpired):
                # A program that a dead file system holds cannot even be killed.
                process.wait(_REAP_SECONDS)
            process.returncode = (
                -signal.SIGKILL if process.returncode is None else process.returncode
            )
    if attempt.is_cancelled:
        raise DeliveryError(CANCELLED)
    if not in_time:
        raise DeliveryError(f"it did not end within {seconds:g} s and was killed")
    return EndedProgram(process.returncode, output.last_line)


def status_in_words(ended: EndedProgram) -> str:
    """A status other than 0, with the last line of the output."""
    if ended.status >= 0:
        how = f"it ended with status {ended.status}"
    else:
        number = -ended.status
        known = number in set(signal.Signals)
        how = f"it was ended by {signal.Signals(number).name if known else f'signal {number}'}"
    return f"{how}: {ended.last_line}" if ended.last_line else how


class _Output:
    """The end of what a program writes."""

    def __init__(self) -> None:
        self._tail = b""

    def read(self, descriptor: int) -> bool:
        """Read what is there; whether there was something."""
        try:
            piece = os.read(descriptor, _PIECE)
        except OSError:
            return False
        self._tail = (self._tail + piece)[-_KEPT:]
        return bool(piece)

    @property
    def last_line(self) -> str:
        lines = self._tail.decode(errors="replace").split("\n")
        shown = (printable(line.strip()) for line in reversed(lines) if line.strip())
        return shortened(next(shown, ""), _MOST_CHARACTERS)


def _wait(process: subprocess.Popen[bytes], given: bytes, deadline: float, output: _Output) -> bool:
    """Write and read until it has ended; whether it has before the deadline."""
    from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector

    assert process.stdin is not None  # noqa: S101 - it is a pipe, as asked
    assert process.stdout is not None  # noqa: S101 - so is this
    os.set_blocking(process.stdin.fileno(), False)
    os.set_blocking(process.stdout.fileno(), False)
    left = memoryview(given)
    with DefaultSelector() as pipes:
        pipes.register(process.stdin, EVENT_WRITE)
        pipes.register(process.stdout, EVENT_READ)
        while not _is_over(process):
            if time.monotonic() >= deadline:
                return False
            for key, _ in pipes.select(_POLL_SECONDS):
                if key.fileobj is process.stdout:
                    if not output.read(process.stdout.fileno()):
                        pipes.unregister(process.stdout)
                    continue
                try:
                    left = left[os.write(process.stdin.fileno(), left) :]
                except OSError:
                    # It does not read its standard input.
                    left = left[:0]
                if not left:
                    pipes.unregister(process.stdin)
                    process.stdin.close()
    return True


def _is_over(process: subprocess.Popen[bytes]) -> bool:
    waits = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, process.pid, waits) is not None
    except ChildProcessError:
        return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _not_started(program: str, error: Exception) -> str:
    shown = shortened(printable(program), _MOST_CHARACTERS)
    if isinstance(error, FileNotFoundError):
        return f"there is no program {shown}, or its interpreter is missing"
    if isinstance(error, PermissionError):
        return f"{shown} is not an executable file, or this user may not run it"
    reason = error.strerror if isinstance(error, OSError) else None
    return f"{shown} cannot be started: {printable(reason or type(error).__name__)}"
