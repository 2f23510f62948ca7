"""A pair of pipes to ``gpumon remote``, and the program that carries them, such as ssh."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from gpumon.remote.piped import PipedProgram

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHUNK = 65536
_LAST_WORDS = 2048
"""Bytes kept of what the program wrote on standard error last."""
_LAST_WORDS_SECONDS = 0.5
"""Seconds to wait for them after its output has ended; ssh writes them then."""
_LEAVE_SECONDS = 1.0
"""Seconds for the program to end once its pipes are closed, before it is killed."""


class Channel:
    """Runs a program, and reads and writes its pipes without blocking for ever.

    Args:
        command: The program with its arguments.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._pipes = PipedProgram(command)
        self._program = self._pipes.process
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
        poll = select.poll()
        for descriptor in (self._pipes.output, self._pipes.errors, self._leaving):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._leaving in ready:
                return b""
            if self._pipes.errors in ready and not self._read_error():
                poll.unregister(self._pipes.errors)
            if self._pipes.output not in ready:
                continue
            with contextlib.suppress(BlockingIOError):
                data = os.read(self._pipes.output, _CHUNK)
                if not data:
                    self._read_last_words()
                return data

    def write(self, data: bytes, deadline: float) -> None:
        """Write bytes.

        Args:
            data: The bytes.
            deadline: Monotonic time.

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
            poll.register(self._pipes.input, select.POLLOUT)
            while data:
                if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                    raise TimeoutError
                with contextlib.suppress(BlockingIOError):
                    data = data[os.write(self._pipes.input, data) :]
        finally:
            self._writing.release()

    def leave(self) -> None:
        """Make ``read`` return, on whatever thread. May be called more than once."""
        with self._writing:
            if not self._closed:
                os.write(self._leave, b".")

    def close(self) -> None:
        """Close the pipes and end the program. Only once, by the thread that reads."""
        program = self._program
        with self._writing:
            self._closed = True
            self._pipes.close()
            os.close(self._leaving)
            os.close(self._leave)
        try:
            program.wait(_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()

    def _read_error(self) -> bool:
        """Read standard error; False at its end."""
        try:
            data = os.read(self._pipes.errors, _CHUNK)
        except BlockingIOError:
            return True
        self._last_words = (self._last_words + data)[-_LAST_WORDS:]
        return bool(data)

    def _read_last_words(self) -> None:
        """Read what is written on standard error at the end."""
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        poll = select.poll()
        poll.register(self._pipes.errors, select.POLLIN)
        while poll.poll(max(0.0, deadline - time.monotonic()) * 1000) and self._read_error():
            pass
