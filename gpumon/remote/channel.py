"""A pair of pipes to ``gpumon remote``, and the program that carries them, such as ssh."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
import time
from typing import TYPE_CHECKING

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

    The program has a session of its own, so that Ctrl+C in the terminal does not end it.

    Args:
        command: The program with its arguments.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._program = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._program.stdin is not None  # noqa: S101 - for mypy: all three are pipes
        assert self._program.stdout is not None  # noqa: S101 - the same
        assert self._program.stderr is not None  # noqa: S101 - the same
        self._in = self._program.stdin.fileno()
        self._out = self._program.stdout.fileno()
        self._err = self._program.stderr.fileno()
        self._leaving, self._leave = os.pipe()
        self._last_words = b""
        # A descriptor that is closed during a write may get the number of another file.
        self._writing = threading.Lock()
        self._closed = False
        for descriptor in (self._in, self._out, self._err):
            os.set_blocking(descriptor, False)

    @property
    def last_words(self) -> str:
        """The last line that the program wrote on standard error; not safe to print."""
        lines = self._last_words.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def read(self) -> bytes:
        """Wait for bytes; empty at the end, and once ``leave`` was called. For one thread."""
        poll = select.poll()
        for descriptor in (self._out, self._err, self._leaving):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._leaving in ready:
                return b""
            if self._err in ready and not self._read_error():
                poll.unregister(self._err)
            if self._out not in ready:
                continue
            with contextlib.suppress(BlockingIOError):
                data = os.read(self._out, _CHUNK)
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
            poll.register(self._in, select.POLLOUT)
            while data:
                if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                    raise TimeoutError
                with contextlib.suppress(BlockingIOError):
                    data = data[os.write(self._in, data) :]
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
            for stream in (program.stdin, program.stdout, program.stderr):
                if stream is not None:
                    stream.close()
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
            data = os.read(self._err, _CHUNK)
        except BlockingIOError:
            return True
        self._last_words = (self._last_words + data)[-_LAST_WORDS:]
        return bool(data)

    def _read_last_words(self) -> None:
        """Read what is written on standard error at the end."""
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        poll = select.poll()
        poll.register(self._err, select.POLLIN)
        while poll.poll(max(0.0, deadline - time.monotonic()) * 1000) and self._read_error():
            pass
