"""The dashboard of one visitor: a process in a terminal of its own.

A terminal, because it makes gpumon the same program as everywhere else, and because the kernel
ends the process with it: however the server ends, also by ``kill -9``, its side of the terminal is
closed, and the process gets SIGHUP.
"""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Sequence

_PROGRAM = (
    "import sys; sys.path[:] = [one for one in sys.path if one];"
    "from gpumon.cli import main; sys.exit(main())"
)
"""Runs gpumon without the working directory among the folders of modules."""
_CHUNK = 16384
"""Bytes that are read at a time, and the most that wait for a visitor here."""
_INPUT_SECONDS = 10.0
"""How long a process may take no input before it is given up."""
END_SECONDS = 5.0
"""How long a process may take to end; gpumon itself takes two seconds at most."""
_LEAST_SIZE = 1
_MOST_COLUMNS = 1000
_MOST_ROWS = 400
"""A larger window would only cost memory."""
_ENVIRONMENT = {
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
    # A service often has a locale without UTF-8, and every browser has UTF-8.
    "LC_ALL": "C.UTF-8",
}
_NOT_INHERITED = {
    *("TMUX", "STY", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "VTE_VERSION", "KONSOLE_VERSION"),
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "SSH_TTY", "WINDOWID", "DISPLAY"),
}
"""Variables about the terminal in which the server was started."""


class Size(NamedTuple):
    """The size of a window in cells."""

    columns: int
    rows: int


def bounded_size(columns: int, rows: int) -> Size:
    """The size nearest to what a browser says."""
    return Size(
        min(max(columns, _LEAST_SIZE), _MOST_COLUMNS), min(max(rows, _LEAST_SIZE), _MOST_ROWS)
    )


def gpumon(arguments: Sequence[str]) -> list[str]:
    """The command that runs this gpumon with other arguments."""
    return [sys.executable, "-c", _PROGRAM, *arguments]


def take_terminal() -> None:
    """Make the terminal of a visitor the controlling terminal of this process.

    From here on the kernel ends the process when the server is gone.

    Raises:
        OSError: The server is gone already, or standard input is no terminal.
    """
    import fcntl
    import termios

    # The parent may have been started by nohup.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Visitor:
    """The process of a visitor.

    Args:
        command: What is run.
        size: The size of the visitor's window.
    """

    def __init__(self, command: Sequence[str], size: Size) -> None:
        self._command = command
        self._size = size
        self._terminal = -1
        self._process: Process | None = None
        self._has_ended = False
        self._readable = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process.

        Raises:
            OSError: There is no free terminal, process or file descriptor.
        """
        import termios

        self._terminal, inner = os.openpty()
        try:
            os.set_blocking(self._terminal, False)
            self.resize(self._size)
            modes = termios.tcgetattr(inner)
            # What is typed before gpumon reads keys would be seen.
            modes[3] &= ~termios.ECHO
            termios.tcsetattr(inner, termios.TCSANOW, modes)
            environment = {
                name: value for name, value in os.environ.items() if name not in _NOT_INHERITED
            }
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=inner,
                stdout=inner,
                stderr=inner,
                env=environment | _ENVIRONMENT,
                start_new_session=True,
            )
        finally:
            os.close(inner)
        self._watching = asyncio.create_task(self._watch(self._process))

    async def _watch(self, process: Process) -> None:
        await process.wait()
        self._has_ended = True
        self._readable.set()

    def resize(self, size: Size) -> None:
        """The window has another size now."""
        import fcntl
        import termios

        with suppress(OSError):
            fcntl.ioctl(
                self._terminal,
                termios.TIOCSWINSZ,
                struct.pack("HHHH", size.rows, size.columns, 0, 0),
            )

    async def read(self) -> bytes:
        """What the process has drawn since the last call; empty when it has ended.

        As long as nobody calls this, the process waits once the terminal is full.
        """
        while True:
            try:
                return os.read(self._terminal, _CHUNK)
            except BlockingIOError:
                if self._has_ended:
                    return b""
            except OSError:
                # EIO: nobody has the other side open.
                return b""
            self._readable.clear()
            self._loop.add_reader(self._terminal, self._readable.set)
            try:
                if not self._has_ended:
                    await self._readable.wait()
            finally:
                self._loop.remove_reader(self._terminal)

    async def write(self, data: bytes) -> None:
        """Pass on what the visitor typed.

        Raises:
            asyncio.TimeoutError: The process takes no input.
        """
        rest = memoryview(data)
        while rest:
            try:
                written = os.write(self._terminal, rest)
            except BlockingIOError:
                written = 0
            except OSError:
                return
            rest = rest[written:]
            if not written:
                await asyncio.wait_for(self._until_writable(), _INPUT_SECONDS)

    async def _until_writable(self) -> None:
        writable = asyncio.Event()
        self._loop.add_writer(self._terminal, writable.set)
        try:
            await writable.wait()
        finally:
            self._loop.remove_writer(self._terminal)

    async def end(self) -> None:
        """End the process, by force if it does not end."""
        if self._terminal < 0:
            return
        os.close(self._terminal)
        self._terminal = -1
        process, watching = self._process, self._watching
        if process is None or watching is None:
            return
        for number in (signal.SIGHUP, signal.SIGKILL):
            with suppress(ProcessLookupError):
                if number is signal.SIGKILL:
                    os.killpg(process.pid, number)
                else:
                    # It may have no controlling terminal yet.
                    process.send_signal(number)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(watching), END_SECONDS)
                return
