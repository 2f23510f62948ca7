"""Runs a program of a scheduler in bounded time and size, whatever it does."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.system.piped_program import PipedProgram

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_BYTES = 4 * 2**20
"""One job of Slurm takes some 15 kB; an array's parent prints all its tasks."""
_MOST_ERRORS = 4096


class Printed(Struct, frozen=True):
    """What a program printed, once it has ended by itself."""

    output: bytes
    errors: bytes = b""
    exit_status: int = 0

    def has_failed_with(self, message: bytes) -> bool:
        """Whether it has failed and printed this message, in English."""
        return self.exit_status != 0 and message in self.errors + self.output


def printed_by(command: Sequence[str], patience: float, **variables: str) -> Printed | None:
    """Run a program.

    Args:
        command: The program with its arguments.
        patience: Seconds after which it is killed.
        variables: What its environment has besides that of this program.

    Returns:
        ``None`` if it cannot be started, takes longer or prints more than 4 MiB.
    """
    # Its messages are compared.
    environment = {**os.environ, **variables, "LC_ALL": "C"}
    try:
        program = PipedProgram(command, environment=environment)
    except OSError:
        return None
    try:
        program.close_input()
        read = _read(program, time.monotonic() + patience)
    finally:
        status = program.ended() if program.is_over else None
        program.end()
    if read is None:
        return None
    return Printed(*read, program.end() if status is None else status)


def _read(program: PipedProgram, deadline: float) -> tuple[bytes, bytes] | None:
    """All that it prints until it closes its output, and the start of its messages."""
    output, errors = bytearray(), bytearray()
    poll = select.poll()
    for descriptor in (program.output, program.errors):
        poll.register(descriptor, select.POLLIN)
    pending = {program.output, program.errors}
    while pending:
        left = deadline - time.monotonic()
        if left <= 0 or len(output) > _MOST_BYTES:
            return None
        for descriptor, _ in poll.poll(left * 1000):
            data = program.read(descriptor)
            if data == b"":
                poll.unregister(descriptor)
                pending.discard(descriptor)
            elif data is not None and descriptor == program.output:
                output += data
            elif data is not None:
                errors += data[: _MOST_ERRORS - len(errors)]
    while not program.is_over:
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.01)
    return bytes(output), bytes(errors)
