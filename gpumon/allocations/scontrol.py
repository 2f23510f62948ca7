"""Runs ``scontrol`` in bounded time and size, whatever it does."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.system.piped_program import PipedProgram

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "scontrol"
PATIENCE = 25.0
"""Seconds. ``scontrol`` itself gives up after 10 to 20 s when the controller does not answer."""
_MOST_BYTES = 4 * 2**20
"""One job takes some 15 kB; an array's parent prints all its tasks."""
_MOST_ERRORS = 4096
_NO_SUCH_JOB = b"Invalid job id"
_NO_SUCH_NODE = b" not found"


class Printed(Struct, frozen=True):
    """What ``scontrol`` printed, once it has ended by itself."""

    output: bytes
    errors: bytes = b""
    exit_status: int = 0

    @property
    def no_such_job(self) -> bool:
        """Whether the controller answered that there is no such job, or that it is private."""
        return self.exit_status != 0 and _NO_SUCH_JOB in self.errors + self.output

    @property
    def no_such_node(self) -> bool:
        """Whether the controller answered that it does not know the machine."""
        return self.exit_status != 0 and _NO_SUCH_NODE in self.errors + self.output


def printed_by(arguments: Sequence[str], patience: float = PATIENCE) -> Printed | None:
    """Run ``scontrol``.

    Args:
        arguments: Its arguments.
        patience: Seconds after which it is killed.

    Returns:
        ``None`` if it cannot be started, takes longer or prints more than 4 MiB.
    """
    # Local times without a zone, and messages that can be compared.
    environment = {**os.environ, "SLURM_TIME_FORMAT": "standard", "LC_ALL": "C"}
    try:
        program = PipedProgram([PROGRAM, *arguments], environment=environment)
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
