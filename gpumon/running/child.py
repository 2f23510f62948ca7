"""Starts a command as a shell does and stays with it until it has ended.

Where gpumon is a job of its own at a terminal, the command gets a process group of its own and is
put into the foreground: the terminal's keys reach it and it alone. When it is stopped gpumon stops
too, which is how the shell that it was started from gets to know; ``fg`` and ``bg`` there continue
both.

Everywhere else (in a script, a pipeline, a service) the command stays in gpumon's process group, as
the commands of a script do: what reaches one reaches all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.host.job_control import is_orphaned
from gpumon.host.procfs import read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from gpumon.running.terminal import Terminal

    _Handler = Callable[[int, FrameType | None], None]

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""What shells, ``env`` and ``timeout`` exit with for a command that there is not, or is none."""

_PASSED_ON = ("TERM", "HUP", "USR1", "USR2")
_KEYS = ("INT", "QUIT")
_TO_THE_FOREGROUND = ("TSTP", "WINCH")
"""What the terminal sends to who is at it, besides the keys."""
_STOPPED_BY_TERMINAL = ("TSTP", "TTIN", "TTOU")
_NOT_THEIRS = ("PIPE", "XFSZ", "TTOU")
"""Ignored by Python, or by us, and not to be ignored by the command."""
_MOST_WAKES = 4096


class Ending(Struct, frozen=True):
    """How a command ended.

    Attributes:
        status: Its exit status; ``None`` where a signal ended it.
        signal: Number of that signal.
        by_key: Whether that was Ctrl+C's or Ctrl+backslash's, at a terminal.
    """

    status: int | None
    signal: int | None = None
    by_key: bool = False

    @property
    def exit_status(self) -> int:
        """What a shell would say in ``$?``."""
        return 128 + (self.signal or 0) if self.status is None else self.status

    @property
    def words(self) -> str:
        """For a person: ``exit status 1``, ``killed by SIGKILL``."""
        if self.status is not None:
            return f"exit status {self.status}"
        try:
            return f"killed by {signal.Signals(self.signal or 0).name}"
        except ValueError:
            return f"killed by signal {self.signal}"


class Child:
    """A command to be run.

    Args:
        terminal: What it is started from.

    Attributes:
        pid: Its number, once it was started.
        group: Its process group, where it has one of its own.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._own_group = terminal.foreground is not None and _is_alone_in_group()
        self._early: list[int] = []
        self._wanted = os.WUNTRACED if self._own_group else 0
        self._wake = -1
        self._over = False
        self.pid = 0
        self.group: int | None = None

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it; to be called in the block of ``signals_passed_on``.

        Args:
            command: Program and arguments.
            environment: Its variables.

        Raises:
            OSError: It cannot be started.
        """
        try:
            self.pid = _spawn(list(command), environment, own_group=self._own_group)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without a first line that names its program: shells run it themselves.
            shell = ["/bin/sh", *command]
            self.pid = _spawn(shell, environment, own_group=self._own_group)
        if self._own_group:
            self.group = self.pid
            self._terminal.lend(self.group)
        early, self._early = self._early, []
        for number in early:
            self.send(number)

    def wait(self) -> Ending:
        """Stay until it has ended; likewise."""
        while True:
            changed, status = os.waitpid(self.pid, self._wanted | os.WNOHANG)
            if not changed:
                # Not in waitpid itself: a signal that came just before would not be passed on.
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
                return Ending(os.WEXITSTATUS(status))
            number = os.WTERMSIG(status)
            return Ending(None, number, at_terminal and number in _numbers(_KEYS))

    def send(self, number: int) -> None:
        """Send it a signal, with all of its process group where that is its own."""
        if not self.pid:
            self._early.append(number)
            return
        if self._over:
            return  # its number may be somebody else's
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.group is None:
                os.kill(self.pid, number)
            else:
                os.killpg(self.group, number)

    def _stop_too(self, number: int) -> None:
        by_terminal = number in _numbers(_STOPPED_BY_TERMINAL)
        at_terminal = self._terminal.is_lent and self._terminal.foreground == self.group
        if by_terminal and at_terminal and number != signal.SIGTSTP:
            # It asked for the terminal just before it was put there.
            self.send(signal.SIGCONT)
            return
        orphaned = is_orphaned()
        if orphaned and not by_terminal:
            return  # whoever stopped it will continue it
        self._terminal.take_back()
        if not orphaned:
            _stop()
        if self.group is not None:
            self._terminal.lend(self.group)
        self.send(signal.SIGCONT)

    @contextlib.contextmanager
    def signals_passed_on(self) -> Iterator[None]:
        """Pass on what is meant for the command; what is ignored here is ignored there too."""
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
        """Within the block signals are passed on, and each wakes up whoever reads there."""

        def pass_on(number: int, _: FrameType | None) -> None:
            self.send(number)

        def leave(*_: object) -> None:
            """Do nothing, which is not to ignore: the command would inherit that."""

        handlers: dict[signal.Signals, _Handler] = dict.fromkeys(_numbers(_PASSED_ON), pass_on)
        if self._own_group:
            handlers |= dict.fromkeys(_numbers(_KEYS + _TO_THE_FOREGROUND), pass_on)
        else:
            # From a terminal the key reaches the command too.
            at_terminal = self._terminal.foreground is not None
            handlers |= dict.fromkeys(_numbers(_KEYS), leave if at_terminal else pass_on)
        before = {
            number: signal.signal(number, handler)
            for number, handler in handlers.items()
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        # Every change of the command is a signal too, which must not be ignored.
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, leave)
        woken = signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(woken)
            for number, former in before.items():
                signal.signal(number, former)


@contextlib.contextmanager
def at_ease_with_terminal() -> Iterator[None]:
    """Within the block, writing to the terminal from the background does not stop gpumon."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTTOU, before)


def end_by(number: int) -> None:
    """End by a signal: a shell learns by that alone that a key has ended a command of a loop."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _numbers(names: Sequence[str]) -> list[signal.Signals]:
    return [signal.Signals[f"SIG{name}"] for name in names]


def _spawn(command: list[str], environment: Mapping[str, str], *, own_group: bool) -> int:
    default = _numbers(_NOT_THEIRS)
    if own_group:
        return os.posix_spawnp(command[0], command, environment, setsigdef=default, setpgroup=0)
    return os.posix_spawnp(command[0], command, environment, setsigdef=default)


def _is_alone_in_group() -> bool:
    """Whether no other process is in our process group, as in a pipeline or a script."""
    own = os.getpgrp()
    return not any(
        stat.group == own and stat.id.pid != os.getpid() for stat in read_table("/proc").values()
    )


def _stop() -> None:
    """Stop until somebody continues us."""
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    try:
        os.kill(os.getpid(), signal.SIGTSTP)
    finally:
        signal.signal(signal.SIGTSTP, before)
