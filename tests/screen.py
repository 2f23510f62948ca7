"""A program in a real pseudo-terminal, and what stands on its screen, cell by cell."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyte
from pyte.modes import IRM
from pyte.screens import Char, wcwidth

from tests import fork_server

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from typing_extensions import Self

PATIENCE = 60.0
"""Seconds a test waits for something that must come; a pass takes a fraction of it, but on a busy
machine it may take long."""
_HAND_OVER = 5.0
"""Seconds for which keys wait for it: not every program paints in advance."""
_BUSY = 2.0
"""Seconds for which keys wait for a program that never waits for any."""
_SOON = 0.001
_GLANCE = 0.2
"""Seconds between two looks at what is waited for while the screen stands still."""
_ON_AT_FIRST = {7, 25}
"""Modes a terminal begins with: lines wrap, and the cursor is seen."""
_QUERY = re.compile(rb"\x1b\[(?:c|\?(\d+)\$p)")
"""DA1, which is a terminal's attributes, or DECRQM, which is whether it has a mode."""
_ATTRIBUTES = b"\x1b[?62;22c"
_ALTERNATE = 1049
"""The mode in which programs draw, and leave no trace of it."""


class _Emulator(pyte.Screen):
    """Has an alternate screen, which pyte lacks: what is said in the end has lines of its own.

    It also takes a sixth of pyte's time: a test looks at the screen after each piece of output.
    """

    def __init__(self, columns: int, lines: int) -> None:
        self._rows: list[str] = []
        super().__init__(columns, lines)

    def rows(self) -> list[str]:
        """The same as ``display``, of which only what has changed is put together anew."""
        if len(self._rows) != self.lines:
            self._rows = [""] * self.lines
            self.dirty.update(range(self.lines))
        for y in self.dirty:
            if y < self.lines:
                line = self.buffer[y]
                # Behind a wide character is a cell without text.
                self._rows[y] = "".join([line[x].data for x in range(self.columns)])
        self.dirty.clear()
        return list(self._rows)

    def draw(self, data: str) -> None:
        cursor = self.cursor
        is_plain = self.charset == 0 and IRM not in self.mode
        if is_plain and cursor.x + len(data) <= self.columns and set(map(wcwidth, data)) == {1}:
            line, look = self.buffer[cursor.y], cursor.attrs[1:]
            for x, character in enumerate(data, cursor.x):
                line[x] = Char(character, *look)
            cursor.x += len(data)
            self.dirty.add(cursor.y)
            return
        # A combining character at the beginning of a line changes the line before.
        self.dirty.add(cursor.y - 1)
        super().draw(data)

    def set_mode(self, *modes: int, **kwargs: bool) -> None:
        super().set_mode(*modes, **kwargs)
        if kwargs.get("private") and _ALTERNATE in modes:
            self.save_cursor()
            self.erase_in_display(2)

    def reset_mode(self, *modes: int, **kwargs: bool) -> None:
        super().reset_mode(*modes, **kwargs)
        if kwargs.get("private") and _ALTERNATE in modes:
            self.erase_in_display(2)
            self.restore_cursor()


class Screen:
    """Runs a command in a pty of its own session, as a login shell would.

    Args:
        command: Program and arguments.
        env: Its environment; ``TERM`` is set here.
        columns: Width in cells.
        lines: Height in cells.
        term: Value of ``TERM``.
        colorterm: Value of ``COLORTERM``; ``None`` is without it.
        cwd: The folder in which it runs; ``None`` is that of the test.
        fresh: Whether an interpreter is started that has imported nothing, as a shell starts it.
        silent: Whether the terminal replies to no query.
    """

    modes: frozenset[bytes] = frozenset()
    """The modes it says it has, and are off (DECRPM); it knows no others."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        columns: int = 100,
        lines: int = 24,
        term: str = "xterm-256color",
        colorterm: str | None = "truecolor",
        cwd: Path | None = None,
        *,
        fresh: bool = False,
        silent: bool = False,
    ) -> None:
        self.columns, self.lines = columns, lines
        self.output = bytearray()
        self._screen = _Emulator(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._changed = threading.Condition()
        self._ended = False
        self._hung_up = False
        self._broken: Exception | None = None
        self._awaited: Callable[[Screen], bool] | None = None
        self._held = threading.Event()
        self._held.set()
        self._handed_over = False
        master, slave = pty.openpty()
        self._master, self._slave = master, slave
        self._set_size()
        self.attributes_before = termios.tcgetattr(slave)
        environment = {**(os.environ if env is None else env), "TERM": term}
        environment.pop("COLORTERM", None)
        if colorterm is not None:
            environment["COLORTERM"] = colorterm
        self._silent = silent
        self._asked = 0
        self.process: subprocess.Popen[bytes] | fork_server.ForkedProgram
        forked = None if fresh else fork_server.start(command, slave, environment, cwd)
        self.process = forked or subprocess.Popen(
            # A login shell's terminal is its controlling one: signals of the line reach it.
            ["setsid", "--ctty", *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            cwd=cwd,
        )
        self._reader = threading.Thread(target=self._read, name="pty-reader", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self) -> None:
        """Take output until the program has ended and all it wrote has been read."""
        while not self._hung_up:
            self._held.wait()
            ready, _, _ = select.select([self._master], [], [], 0.1)
            if not ready:
                if self.process.poll() is not None:
                    break
                continue
            try:
                data = os.read(self._master, 65536)
            except OSError as error:
                if error.errno == errno.EIO:
                    break
                raise
            with self._changed:
                self.output += data
                try:
                    self._stream.feed(data)
                    if not self._silent:
                        self.reply()
                    self._look()
                except Exception as error:  # noqa: BLE001 - told to whoever waits
                    self._broken = error
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def reply(self) -> None:
        """Reply to the queries that have come."""
        for query in _QUERY.finditer(self.output, self._asked):
            self._asked = query.end()
            mode = query[1]
            state = 2 if mode in self.modes else 0
            os.write(
                self._master, _ATTRIBUTES if mode is None else b"\x1b[?%s;%d$y" % (mode, state)
            )

    def _look(self) -> None:
        """See whether what is waited for stands there now: it may not stay for long."""
        if self._awaited is not None and self._awaited(self):
            self._awaited = None

    def hold(self) -> None:
        """Read no more output: the terminal of somebody whose line is dead."""
        self._held.clear()

    def release(self) -> None:
        """Read on."""
        self._held.set()

    def text(self) -> str:
        """The screen, trailing blanks cut off."""
        with self._changed:
            return "\n".join(line.rstrip() for line in self._screen.rows())

    def rows(self) -> list[str]:
        """The screen's lines, each as wide as the screen."""
        with self._changed:
            return self._screen.rows()

    def cells(self) -> list[tuple[str, str, str, bool]]:
        """Every cell from the top left: text and its look, ground, reversed."""
        with self._changed:
            buffer = self._screen.buffer
            cells = [buffer[y][x] for y in range(self.lines) for x in range(self.columns)]
        return [
            # Neither the colour nor the weight of a blank shows.
            (
                cell.data,
                f"{cell.fg} {cell.bold}" if cell.data.strip() else "",
                cell.bg,
                cell.reverse,
            )
            for cell in cells
        ]

    def frames(self) -> int:
        """How many frames have been written so far."""
        with self._changed:
            return self.output.count(b"\x1b[0m")

    def wait(self, holds: Callable[[Screen], bool], what: str, patience: float = PATIENCE) -> None:
        """Wait until a condition holds for the screen.

        Raises:
            AssertionError: It did not come; the message shows the screen.
        """
        deadline = time.monotonic() + patience
        with self._changed:
            self._awaited = holds
            try:
                while True:
                    self._look()
                    if self._awaited is None:
                        return
                    if self._broken is not None:
                        raise self._broken
                    left = deadline - time.monotonic()
                    if left <= 0 or self._ended:
                        why = "the program ended" if self._ended else f"not within {patience:g} s"
                        raise AssertionError(f"{what}: {why}. The screen:\n{self.text()}")
                    # Some conditions are no screen's.
                    self._changed.wait(min(left, _GLANCE))
            finally:
                self._awaited = None

    def wait_for(self, pattern: str, patience: float = PATIENCE) -> str:
        """Wait until the pattern stands on the screen; returns the screen."""
        found: list[str] = []

        def holds(screen: Screen) -> bool:
            text = screen.text()
            if re.search(pattern, text):
                found.append(text)
            return bool(found)

        self.wait(holds, f"waiting for {pattern!r}", patience)
        return found[-1]

    def wait_gone(self, pattern: str, patience: float = PATIENCE) -> None:
        """Wait until the pattern stands on the screen no longer."""
        self.wait(
            lambda screen: re.search(pattern, screen.text()) is None,
            f"waiting for {pattern!r} to go",
            patience,
        )

    def type(self, keys: str) -> None:
        """Type keys, or send any other input, once the program waits for some.

        A dialog that confirms something drops keys that are older than its picture, and the program
        knows a moment after the picture stands there that it does: sooner than anybody has read it,
        but on a busy machine later than a test has.
        """
        self.wait_until_live()
        deadline = time.monotonic() + _BUSY
        while self._held.is_set() and not self._is_idle() and time.monotonic() < deadline:
            time.sleep(_SOON)
        os.write(self._master, keys.encode())

    def press(self, keys: str, shown: str) -> str:
        """Type keys, and wait until what they lead to stands on the screen; returns the screen."""
        self.type(keys)
        return self.wait_for(shown)

    def press_away(self, keys: str, gone: str) -> None:
        """Type keys, and wait until what they take away stands on the screen no longer."""
        self.type(keys)
        self.wait_gone(gone)

    def quit(self) -> None:
        """Press the key that ends gpumon, which ends well."""
        self.type("q")
        assert self.wait_end() == 0

    def unread(self) -> int:
        """How many bytes were typed that the program has not read."""
        waiting = fcntl.ioctl(self._slave, termios.FIONREAD, b"\0" * 4)
        return int.from_bytes(waiting, sys.byteorder)

    def _is_idle(self) -> bool:
        """Whether all output has been read, and every thread of the program waits for something."""
        if select.select([self._master], [], [], 0)[0]:
            return False
        tasks = Path(f"/proc/{self.process.pid}/task")
        try:
            states = [(task / "stat").read_text().rpartition(")")[2] for task in tasks.iterdir()]
        except OSError:
            return self.process.poll() is not None  # A thread has just ended, or all have.
        return all(state.split()[0] in "STZ" for state in states)

    def wait_until_live(self) -> None:
        """Wait until there is more than a first picture: keys and samples have effects."""
        if not self._handed_over:
            with contextlib.suppress(AssertionError):
                self.wait(self._is_past_the_picture, "waiting for the hand-over", _HAND_OVER)
            self._handed_over = True

    def send(self, data: bytes) -> None:
        """Send bytes, as a terminal of another encoding does."""
        os.write(self._master, data)

    def click(self, x: int, y: int) -> None:
        """Press and release the left button at a cell, counted from 0."""
        self.wait_for_mouse()
        self.type(f"\x1b[<0;{x + 1};{y + 1}M\x1b[<0;{x + 1};{y + 1}m")

    def wheel(self, x: int, y: int, *, down: bool = True) -> None:
        """Turn the wheel by one notch over a cell."""
        self.wait_for_mouse()
        self.type(f"\x1b[<{65 if down else 64};{x + 1};{y + 1}M")

    @staticmethod
    def _is_past_the_picture(screen: Screen) -> bool:
        """Whether nothing was painted in advance, or whoever takes keys has painted it all anew."""
        asked = screen.output.find(b"\x1b[?1004h")
        if asked < 0:
            return b"\x1b[?1049h" not in screen.output
        return screen.output.count(b"\x1b[0m", asked) >= screen.lines

    def wait_for_mouse(self) -> None:
        """Terminals tell of the mouse when asked to, by whom has drawn what is clicked on."""

        def drawn(screen: Screen) -> bool:
            asked = screen.output.find(b"\x1b[?1006h")
            # One ends each row.
            return asked >= 0 and screen.output.count(b"\x1b[0m", asked) >= screen.lines

        self.wait(drawn, "waiting for a screen that takes the mouse")

    def resize(self, columns: int, lines: int, told: tuple[int, int] | None = None) -> None:
        """Change the terminal's size, as a window manager does; ``told`` is one it had before."""
        with self._changed:
            self.columns, self.lines = columns, lines
            self._screen.resize(lines, columns)
        self._set_size(told)

    def size(self) -> tuple[int, int]:
        """Columns and lines that the terminal says it has, whoever set them."""
        told = os.get_terminal_size(self._slave)
        return told.columns, told.lines

    def _set_size(self, told: tuple[int, int] | None = None) -> None:
        columns, lines = told or (self.columns, self.lines)
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, size)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program."""
        self.process.send_signal(number)

    def wait_end(self, patience: float = PATIENCE) -> int:
        """Wait for the program to end and its output to be read; returns its exit status."""
        status = self.process.wait(patience)
        self._reader.join(patience)
        return status

    def left_on(self) -> set[int]:
        """The terminal's modes that are not as they were found; -1 stands for the keyboard's."""
        output = bytes(self.output)
        told = re.findall(rb"\x1b\[\?(\d+)([hl])", output)
        last = {int(mode): state == b"h" for mode, state in told}
        changed = {mode for mode, on in last.items() if on != (mode in _ON_AT_FIRST)}
        pushed, popped = output.count(b"\x1b[>"), output.count(b"\x1b[<u")
        return changed | ({-1} if popped < pushed else set())

    def attributes(self) -> list[object]:
        """The terminal's settings now."""
        return list(termios.tcgetattr(self._slave))

    def foreground(self) -> int:
        """The process group that the terminal's keys reach."""
        return os.tcgetpgrp(self._master)

    def hang_up(self) -> None:
        """Take the terminal away, as a dropped connection does: the kernel sends SIGHUP."""
        self._hung_up = True
        self.release()
        self._reader.join(PATIENCE)
        os.close(self._slave)
        os.close(self._master)
        self._slave = self._master = -1

    def close(self) -> None:
        """End the program, if it still runs, and the terminal."""
        self.release()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        for descriptor in (self._master, self._slave):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self._slave = self._master = -1
