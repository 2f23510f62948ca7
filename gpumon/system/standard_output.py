"""Standard output, whose errors differ from those of all other files, and the terminal itself."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Buffer

_OUTPUT = 1
_TERMINAL = "/dev/tty"


class OutputError(Exception):
    """Standard output cannot be written.

    It is no ``OSError``: nothing that handles a file's error may handle this one by mistake.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        # A ``BrokenPipeError`` if the reader has closed it.
        self.error = error


def write_output(data: Buffer) -> int:
    """Write to standard output without a buffer; how many bytes were written.

    Raises:
        OutputError: It cannot be written.
    """
    try:
        return os.write(_OUTPUT, data)
    except OSError as error:
        raise OutputError(error) from error


class _Output(io.FileIO):
    """The file below the buffer of a stream."""

    def write(self, data: Buffer, /) -> int:
        return write_output(data)


def mark_output() -> None:
    """Let every later write to ``sys.stdout`` that fails raise ``OutputError``."""
    stream = sys.stdout
    # Another stream is a stand-in, as of a test.
    if stream is not sys.__stdout__ or not isinstance(stream, io.TextIOWrapper):
        return
    file = _Output(_OUTPUT, "wb", closefd=False)
    is_unbuffered = isinstance(stream.buffer, io.RawIOBase)
    sys.stdout = io.TextIOWrapper(
        file if is_unbuffered else io.BufferedWriter(file),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def write_to_terminal(sequence: str) -> None:
    """Write a control sequence to the terminal of this program, wherever its output goes.

    Nothing without one; never waits for it.
    """
    with suppress(OSError):
        terminal = os.open(_TERMINAL, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            os.write(terminal, sequence.encode())
        finally:
            os.close(terminal)
