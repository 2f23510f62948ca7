"""A program such as ssh with three pipes that never block."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class PipedProgram:
    """A running program in a session of its own.

    A key of the terminal, such as Ctrl+C, does not reach it, and it cannot ask on the terminal.
    When this program ends, however it does, the pipes close, and with them what runs on the host.

    Attributes:
        process: The program.
        input: Descriptor of its standard input.
        output: Descriptor of its standard output.
        errors: Descriptor of its standard error.

    Args:
        command: The program with its arguments.

    Raises:
        OSError: It does not start.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        files = (self.process.stdin, self.process.stdout, self.process.stderr)
        self._files = [file for file in files if file is not None]
        self.input, self.output, self.errors = [file.fileno() for file in self._files]
        for file in self._files:
            os.set_blocking(file.fileno(), False)

    def close(self) -> None:
        """Close the pipes."""
        for file in self._files:
            file.close()
