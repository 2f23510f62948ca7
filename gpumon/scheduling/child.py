"""Starts a command as a shell does, and waits until it has exited.

If gpumon is a job of its own at a terminal, the command gets its own process group in the
foreground: the terminal's keys reach only the command. When it stops, gpumon stops too, so that the
parent shell notices; ``fg`` and ``bg`` there continue both.

Otherwise (in a script, a pipeline, a service) the command stays in gpumon's process group, like the
commands of a script: a signal to one reaches all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.host.process_tree import is_orphaned
from gpumon.host.procfs import read_table
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    _Modes = list[object]
    _Handler = Callable[[int, FrameType | None], None]

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""The exit statuses of shells, ``env`` and ``timeout`` for a missing or unusable command."""

_PASSED_ON = ("TERM", "HUP", "USR1", "USR2")
_KEYS = ("INT", "QUIT")
_TO_THE_FOREGROUND = ("TSTP", "WINCH")
"""Signals that the terminal sends to the foreground group, besides those of keys."""
_STOPPED_BY_TERMINAL = ("TSTP", "TTIN", "TTOU")
_RESET_SIGNALS = ("PIPE", "XFSZ", "TTOU")
"""Signals that Python or gpumon ignores; the command gets their default action back."""
_MOST_WAKES = 4096


class CommandExit(Struct, frozen=True):
    """How a command exited."""

    status: int | None  # ``None`` if a signal ended it
    signal: int | None = None
    by_key: bool = False  # whether the terminal sent it for Ctrl+C or Ctrl+backslash

    @property
    def exit_status(self) -> int:
        """The value of ``$?`` in a shell."""
        return 128 + (self.signal or 0) if self.status is None else self.status

    @property
    def words(self) -> str:
        """The text for the user: ``exit status 1``, ``killed by SIGKILL``."""
        if self.status is not None:
            return f"exit status {self.status}"
        try:
            return f"killed by {signal.Signals(self.signal or 0).name}"
        except ValueError:
            return f"killed by signal {self.signal}"


class CommandError(Exception):
    """The command cannot be started; the text says why."""


class ControllingTerminal:
    """The controlling terminal, given to a job and taken back. There may be none.

    A program must ignore ``SIGTTOU`` to change the terminal from the background.
    """

    def __init__(self) -> None:
        self._descriptor = -1
        with contextlib.suppress(OSError):
            self._descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        self._ours: _Modes | None = None
        self._theirs: _Modes | None = None
        self._lent_to: int | None = None

    def __enter__(self) -> ControllingTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.take_back()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def is_lent(self) -> bool:
        """Whether the job has it."""
        return self._lent_to is not None

    @property
    def foreground(self) -> int | None:
        """The foreground process group; ``None`` without a terminal."""
        try:
            return os.tcgetpgrp(self._descriptor)
        except OSError:
            return None

    def lend(self, group: int) -> bool:
        """Put a job in the foreground if we are there, in the mode in which that job left it.

        Returns:
            Whether we were in the foreground.
        """
        if self._descriptor < 0 or self.foreground != os.getpgrp():
            return False
        self._ours = self._modes()
        self._set_modes(self._theirs)
        try:
            os.tcsetpgrp(self._descriptor, group)
        except OSError:
            return False  # The job has exited already.
        self._lent_to = group
        return True

    def take_back(self) -> None:
        """Return to the foreground, in the previous mode, if the job has the terminal."""
        if self._lent_to is None:
            return
        self._lent_to = None
        with contextlib.suppress(OSError):
            os.tcsetpgrp(self._descriptor, os.getpgrp())
        self._theirs = self._modes()
        if self._theirs != self._ours:
            self._set_modes(self._ours)

    def _modes(self) -> _Modes | None:
        import termios

        try:
            return list(termios.tcgetattr(self._descriptor))
        except termios.error:
            return None

    def _set_modes(self, modes: _Modes | None) -> None:
        import termios

        if modes is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, modes)  # type: ignore[arg-type]  # as they were read


class Child:
    """A command to run.

    Args:
        terminal: The terminal it is started from.

    Attributes:
        pid: Its PID, once it has started.
        group: Its process group, if it has its own.
    """

    def __init__(self, terminal: ControllingTerminal) -> None:
        self._terminal = terminal
        self._own_group = terminal.foreground is not None and _is_alone_in_group()
        self._early: list[int] = []
        self._wanted = os.WUNTRACED if self._own_group else 0
        self._wake = -1
        self._over = False
        self.pid = 0
        self.group: int | None = None

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it; call it within ``signals_passed_on``.

        Raises:
            CommandError: The command cannot be started.
        """
        try:
            self.pid = self._spawned(list(command), environment)
        except OSError as error:
            raise CommandError(f"{command[0]} cannot be run: {error.strerror}.") from error
        if self._own_group:
            self.group = self.pid
            self._terminal.lend(self.group)
        early, self._early = self._early, []
        for number in early:
            self.send(number)

    def _spawned(self, command: list[str], environment: Mapping[str, str]) -> int:
        try:
            return _spawn(command, environment, own_group=self._own_group)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without a shebang line: shells run it themselves.
            return _spawn(["/bin/sh", *command], environment, own_group=self._own_group)

    def wait(self) -> CommandExit:
        """Wait until it has exited; call it within ``signals_passed_on`` too."""
        while True:
            changed, status = os.waitpid(self.pid, self._wanted | os.WNOHANG)
            if not changed:
                # Not in waitpid itself: a signal that arrives just before would not be passed on.
                select.select([self._wake], [], [])
                os.read(self._wake, _MOST_WAKES)
                continue
            if os.WIFSTOPPED(status):
                self._stop_too(os.WSTOPSIG(status))
                continue
            self._over = True
            at_terminal = self._terminal.is_lent or (
                self.group is None and self._terminal.foreground == os.getpgrp()
            )
            self._terminal.take_back()
            if os.WIFEXITED(status):
                return CommandExit(os.WEXITSTATUS(status))
            number = os.WTERMSIG(status)
            return CommandExit(None, number, at_terminal and number in _numbers(_KEYS))

    def send(self, number: int) -> None:
        """Send it a signal, and to its whole process group if it has its own."""
        if not self.pid:
            self._early.append(number)
            return
        if self._over:
            return  # Another process may have its PID.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.group is None:
                os.kill(self.pid, number)
            else:
                os.killpg(self.group, number)

    def _stop_too(self, number: int) -> None:
        by_terminal = number in _numbers(_STOPPED_BY_TERMINAL)
        at_terminal = self._terminal.is_lent and self._terminal.foreground == self.group
        if by_terminal and at_terminal and number != signal.SIGTSTP:
            # It used the terminal just before it was put in the foreground.
            self.send(signal.SIGCONT)
            return
        orphaned = is_orphaned()
        if orphaned and not by_terminal:
            return  # The sender of the stop will also continue it.
        self._terminal.take_back()
        if not orphaned:
            _stop()
        if self.group is not None:
            self._terminal.lend(self.group)
        self.send(signal.SIGCONT)

    @contextlib.contextmanager
    def signals_passed_on(self) -> Iterator[None]:
        """Pass signals on to the command; signals that are ignored here stay ignored there."""
        wake, waking = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self._wake = wake
            with self._handled(waking):
                yield
        finally:
            os.close(wake)
            os.close(waking)

    @contextlib.contextmanager
    def _handled(self, waking: int) -> Iterator[None]:
        """Within the block signals are passed on, and each wakes up the reader of the pipe."""

        def pass_on(number: int, _: FrameType | None) -> None:
            self.send(number)

        def leave(*_: object) -> None:
            """Do nothing: unlike SIG_IGN, the command does not inherit this."""

        handlers: dict[signal.Signals, _Handler] = dict.fromkeys(_numbers(_PASSED_ON), pass_on)
        if self._own_group:
            handlers |= dict.fromkeys(_numbers(_KEYS + _TO_THE_FOREGROUND), pass_on)
        else:
            # The terminal sends the key's signal to the command too.
            at_terminal = self._terminal.foreground is not None
            handlers |= dict.fromkeys(_numbers(_KEYS), leave if at_terminal else pass_on)
        before = {
            number: signal.signal(number, handler)
            for number, handler in handlers.items()
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        # Every state change of the command sends SIGCHLD, which must not be ignored.
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, leave)
        woken = signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(woken)
            for number, former in before.items():
                signal.signal(number, former)


@contextlib.contextmanager
def background_writes_allowed() -> Iterator[None]:
    """Within the block, writing to the terminal from the background does not stop gpumon."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTTOU, before)


def end_by(number: int) -> None:
    """End by a signal: only so a shell knows that a key ended a command inside a loop."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _numbers(names: Sequence[str]) -> list[signal.Signals]:
    return [signal.Signals[f"SIG{name}"] for name in names]


def _spawn(command: list[str], environment: Mapping[str, str], *, own_group: bool) -> int:
    default = _numbers(_RESET_SIGNALS)
    if own_group:
        return os.posix_spawnp(command[0], command, environment, setsigdef=default, setpgroup=0)
    return os.posix_spawnp(command[0], command, environment, setsigdef=default)


def _is_alone_in_group() -> bool:
    """Whether our process group has no other process, as in a pipeline or a script."""
    own, table = os.getpgrp(), read_table(THIS_SYSTEM.proc)
    return not any(stat.group == own and pid != os.getpid() for pid, stat in table.items())


def _stop() -> None:
    """Stop until a SIGCONT."""
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    try:
        os.kill(os.getpid(), signal.SIGTSTP)
    finally:
        signal.signal(signal.SIGTSTP, before)
