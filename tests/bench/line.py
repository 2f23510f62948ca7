"""A program at the end of a terminal line: all it writes is kept with its time, nothing drawn.

Drawing while a program is measured would take the processor from it; ``sight`` draws afterwards.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.bench.meters import cpu_seconds, pss_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

COLUMNS, LINES = 200, 50

_SLOW_PIECE = 64
"""Bytes that a slow line takes at once."""

# What programs ask of a terminal at their start; without an answer some wait for it.
_QUESTION = re.compile(
    rb"\x1b\[\?(?P<mode>\d+)\$p|\x1b\[(?P<attributes>0?)c|\x1b\[(?P<cursor>6)n|\x1bP\+q(?P<names>[^\x1b]*)\x1b\\"
)


class Written(NamedTuple):
    """What was read from the program at once, and when, in seconds since its start."""

    at: float
    data: bytes


class Pressed(NamedTuple):
    """A key, and when it was sent."""

    at: float
    keys: bytes


class Line:
    """Runs a program on a pty of its own until the end of the block.

    The rate is bytes a second that the line carries; ``None`` is as fast as they come.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], rate: float | None = None
    ) -> None:
        self._rate = rate
        self.output: list[Written] = []  # What it wrote.
        self.pressed: list[Pressed] = []  # What was typed.
        self._free_at = 0.0
        self._rest = b""
        self._is_closed = False
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        environment = {**env, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            # A login shell's terminal is its controlling one; setsid becomes the command.
            ["setsid", "--ctty", *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
        )
        os.close(slave)

    def __enter__(self) -> Line:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._master)

    @property
    def now(self) -> float:
        """Seconds since the program's start."""
        return time.monotonic() - self._began

    @property
    def ended(self) -> bool:
        """Whether the program has, or nothing more can come from it."""
        return self._is_closed or self._process.poll() is not None

    def cpu_seconds(self) -> float:
        """Processor time of the program and its children so far."""
        return cpu_seconds(self._process.pid)

    def pss_bytes(self) -> int:
        return pss_bytes(self._process.pid)

    def press(self, keys: bytes) -> None:
        self.pressed.append(Pressed(self.now, keys))
        os.write(self._master, keys)

    def read_until(self, moment: float) -> None:
        """Take what the program writes until so many seconds after its start, or its end."""
        while (left := moment - self.now) > 0:
            wait = max(0.0, self._free_at - self.now)
            if wait:
                time.sleep(min(wait, left))
                continue
            ready, _, _ = select.select([self._master], [], [], left)
            if not ready or not self._take():
                return

    def leave_unread(self, moment: float) -> None:
        """Read nothing until so many seconds after its start: nobody is looking."""
        time.sleep(max(0.0, moment - self.now))

    def _take(self) -> bool:
        try:
            data = os.read(self._master, 65536 if self._rate is None else _SLOW_PIECE)
        except OSError:
            # The last of its processes has closed the terminal, a little before it has ended.
            self._is_closed = True
            return False
        at = self.now
        if self._rate is not None:
            # A byte is there once it has come down the line.
            self._free_at = at = max(self._free_at, at) + len(data) / self._rate
        self.output.append(Written(at, data))
        self._answer(data)
        return True

    def _answer(self, data: bytes) -> None:
        asked = self._rest + data
        end = 0
        for question in _QUESTION.finditer(asked):
            end = question.end()
            os.write(self._master, _reply(question))
        # A question may be cut in two.
        self._rest = asked[end:][-64:]


def _reply(question: re.Match[bytes]) -> bytes:
    if (mode := question["mode"]) is not None:
        known = mode == b"2026"
        return b"\x1b[?%s;%d$y" % (mode, 2 if known else 0)
    if question["attributes"] is not None:
        return b"\x1b[?62;22c"
    if question["cursor"] is not None:
        return b"\x1b[1;1R"
    return b"\x1bP0+r\x1b\\"
