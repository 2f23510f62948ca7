"""The channel ``command``: a program without a shell or terminal, in bounded time and memory."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import msgspec

from gpumon.alerts.channels.channel import CANCELLED, Channel, DeliveryError
from gpumon.alerts.notice import as_environment, as_json
from gpumon.config.table import InvalidValue
from gpumon.text.formatting import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gpumon.alerts.channels.channel import Attempt
    from gpumon.system.piped_program import PipedProgram

_POLL_SECONDS = 0.05
"""A pipe shows that there is output, but not that the program has ended: what it started may keep
the pipe."""
_MOST_PIECES = 64
"""Pieces of output that are read after the end."""
_KEPT = 4096
"""Bytes of the output that are kept: its end."""
_MOST_CHARACTERS = 200


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

    What it leaves running in its process group is killed when it ends. It is killed after
    ``seconds``, and when the attempt is cancelled. ``given`` is its standard input.

    Raises:
        DeliveryError: It did not start, or did not end in time.
    """
    # Imported here: most people run no command.
    from subprocess import SubprocessError

    from gpumon.system.piped_program import PipedProgram

    try:
        program = PipedProgram(arguments, environment=environment, merged=True)
    except (OSError, ValueError, SubprocessError) as error:
        raise DeliveryError(_not_started(arguments[0], error)) from None
    output = _Output()
    try:
        with attempt.cancelled_by(lambda: program.signal(signal.SIGKILL)):
            in_time = _wait(program, given, time.monotonic() + seconds, output)
    finally:
        program.signal(signal.SIGKILL)
        for _ in range(_MOST_PIECES):
            if not output.read(program):
                break
        status = program.end()
    if attempt.is_cancelled:
        raise DeliveryError(CANCELLED)
    if not in_time:
        raise DeliveryError(f"it did not end within {seconds:g} s and was killed")
    return EndedProgram(status, output.last_line)


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

    def read(self, program: PipedProgram) -> bool:
        """Read what is there; whether there was something."""
        piece = program.read(program.output) or b""
        self._tail = (self._tail + piece)[-_KEPT:]
        return bool(piece)

    @property
    def last_line(self) -> str:
        lines = self._tail.decode(errors="replace").split("\n")
        shown = (printable(line.strip()) for line in reversed(lines) if line.strip())
        return shortened(next(shown, ""), _MOST_CHARACTERS)


def _wait(program: PipedProgram, given: bytes, deadline: float, output: _Output) -> bool:
    """Write and read until it has ended; whether it has before the deadline."""
    from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector

    left = memoryview(given)
    with DefaultSelector() as pipes:
        pipes.register(program.input, EVENT_WRITE)
        pipes.register(program.output, EVENT_READ)
        while not program.is_over:
            if time.monotonic() >= deadline:
                return False
            for key, _ in pipes.select(_POLL_SECONDS):
                if key.fd == program.output:
                    if not output.read(program):
                        pipes.unregister(program.output)
                    continue
                try:
                    left = left[os.write(program.input, left) :]
                except OSError:
                    # It does not read its standard input.
                    left = left[:0]
                if not left:
                    pipes.unregister(program.input)
                    program.close_input()
    return True


def _not_started(program: str, error: Exception) -> str:
    shown = shortened(printable(program), _MOST_CHARACTERS)
    if isinstance(error, FileNotFoundError):
        return f"there is no program {shown}, or its interpreter is missing"
    if isinstance(error, PermissionError):
        return f"{shown} is not an executable file, or this user may not run it"
    reason = error.strerror if isinstance(error, OSError) else None
    return f"{shown} cannot be started: {printable(reason or type(error).__name__)}"
