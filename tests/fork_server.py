"""Starts gpumon by a fork of a process that has imported it.

A fresh interpreter takes two thirds of the CPU time of a short session to import gpumon and
Textual. What is started here differs from it only in that the modules are there already, and in
``/proc/PID/cmdline``, which is the server's. A test of the start itself starts a fresh interpreter.

There is a server for each environment that an interpreter reads at its start, such as
``LD_LIBRARY_PATH``: a running process no longer heeds it.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ROOT = Path(__file__).parent.parent
_MODULES = {"gpumon", "tests.demo"}
"""What is started by ``python -m`` and can be forked."""
_IMPORTED = (
    "gpumon.cli.dashboard",
    "gpumon.makers.demo",
    "gpumon.ui.app",
    "gpumon.ui.session",
    "gpumon.ui.startup",
    "gpumon.ui.terminal.driver",
    "tests.demo",
    "textual.app",
)
"""What nearly every session in a terminal imports, and the rest with it."""
_AT_START = ("LD_", "LANG", "LC_", "MALLOC_", "PYTHON", "TEXTUAL", "ESCDELAY")
"""How the variables begin that an interpreter, its libraries or Textual read once."""
_LONGEST = 1 << 20
"""Bytes of an order."""
_DESCRIPTORS = 4
"""Of an order: the program's three, and where its exit status is written."""


class _Order(NamedTuple):
    """What to start.

    Its texts have a character for each byte: servers differ in the encoding of names.

    Attributes:
        module: Its name.
        arguments: Those after the module.
        environment: All of it.
        cwd: The folder to run in.
        on_terminal: Whether its standard input becomes the controlling terminal of its own session.
    """

    module: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    cwd: str
    on_terminal: bool


class ForkedProgram:
    """A program that a server has forked: what a test needs of ``subprocess.Popen``.

    Attributes:
        pid: Its process ID.
        returncode: Its exit status as in ``Popen``; ``None`` while it is not known to have ended.
    """

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self._asking = threading.Lock()
        weakref.finalize(self, os.close, status)

    def poll(self) -> int | None:
        """The exit status, or ``None`` while it runs."""
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; returns the exit status.

        Raises:
            subprocess.TimeoutExpired: It still runs after so many seconds.
        """
        status = self._ended_within(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return status

    def _ended_within(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            # The thread that reads the screen asks as well; the descriptor stays ready.
            with self._asking:
                if self.returncode is None:
                    self.returncode = int(os.read(self._status, 16))
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


class _Server:
    """The side of the tests: orders programs from a server."""

    def __init__(self, at_start: Mapping[str, str]) -> None:
        self._socket, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(other.fileno())],
                stdin=subprocess.DEVNULL,
                env={name: os.environ[name] for name in ("HOME", "PATH")} | dict(at_start),
                cwd=_ROOT,
                pass_fds=[other.fileno()],
            )
        atexit.register(self._close)

    def start(self, order: _Order, streams: Sequence[int]) -> ForkedProgram:
        status, written = os.pipe()
        try:
            descriptors = array.array("i", (*streams, written))
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
            message = json.dumps(order).encode() + b"\n"
            self._socket.sendmsg([message[:1]], rights)
            self._socket.sendall(message[1:])
        finally:
            os.close(written)
        pid = self._socket.recv(16)
        return ForkedProgram(int(pid), status)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


_servers: dict[tuple[tuple[str, str], ...], _Server] = {}


def start(
    command: Sequence[str], terminal: int, environment: Mapping[str, str], cwd: Path | None
) -> ForkedProgram | None:
    """Start a command in a session of its own whose controlling terminal this is.

    Args:
        command: Program and arguments.
        terminal: A descriptor of the terminal.
        environment: Its environment.
        cwd: The folder in which it runs; ``None`` is that of the test.

    Returns:
        The program, or ``None`` if it is none that can be forked.
    """
    if not _can_fork(command):
        return None
    return _start(command, (terminal,) * 3, environment, cwd, on_terminal=True)


def run(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    text: str = "",
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end as ``subprocess.run`` does, with files instead of pipes.

    Args:
        command: Program and arguments.
        environment: Its environment; ``None`` is that of the test.
        cwd: The folder in which it runs; ``None`` is that of the test.
        text: What it can read.
        timeout: Seconds after which it is killed.

    Raises:
        subprocess.TimeoutExpired: It was killed.
    """
    environment = os.environ if environment is None else environment
    with contextlib.ExitStack() as stack:
        streams = [
            stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in range(3)
        ]
        streams[0].write(text)
        streams[0].seek(0)
        descriptors = [stream.fileno() for stream in streams]
        program: ForkedProgram | subprocess.Popen[bytes]
        if _can_fork(command):
            program = _start(command, descriptors, environment, cwd, on_terminal=False)
        else:
            stdin, stdout, stderr = descriptors
            program = subprocess.Popen(
                command, stdin=stdin, stdout=stdout, stderr=stderr, env=environment, cwd=cwd
            )
        try:
            status = program.wait(timeout)
        finally:
            program.kill()
        said = []
        for stream in streams[1:]:
            stream.seek(0)
            said.append(stream.read())
    return subprocess.CompletedProcess(command, status, *said)


def _can_fork(command: Sequence[str]) -> bool:
    return (
        len(command) > 2
        and command[0] == sys.executable
        and command[1] == "-m"
        and command[2] in _MODULES
    )


def _start(
    command: Sequence[str],
    streams: Sequence[int],
    environment: Mapping[str, str],
    cwd: Path | str | None,
    *,
    on_terminal: bool,
) -> ForkedProgram:
    at_start = {name: value for name, value in environment.items() if name.startswith(_AT_START)}
    key = tuple(sorted(at_start.items()))
    if key not in _servers:
        _servers[key] = _Server(at_start)
    order = _Order(
        command[2],
        tuple(map(_bytes_of, command[3:])),
        {_bytes_of(name): _bytes_of(value) for name, value in environment.items()},
        _bytes_of(str(cwd or Path.cwd())),
        on_terminal,
    )
    return _servers[key].start(order, streams)


def _bytes_of(text: str) -> str:
    return os.fsencode(text).decode("latin-1")


def _text_of(characters: str) -> str:
    return os.fsdecode(characters.encode("latin-1"))


def _serve(orders: socket.socket) -> _Order:
    """Fork a process for each order; returns the order in each of them, and never in the server."""
    running: dict[int, int] = {}
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    while True:
        ready = select.select([orders.fileno(), woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            for pid in list(running):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    _tell(running.pop(pid), os.waitstatus_to_exitcode(status))
        if orders.fileno() not in ready:
            continue
        message, descriptors, *_ = socket.recv_fds(orders, _LONGEST, _DESCRIPTORS)
        if not message:
            _leave(running)
        while not message.endswith(b"\n"):
            message += orders.recv(_LONGEST)
        *streams, status = descriptors
        pid = os.fork()
        if pid:
            for stream in streams:
                os.close(stream)
            running[pid] = status
            orders.send(b"%d" % pid)
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        orders.close()
        for descriptor in (woken, wakes, status, *running.values()):
            os.close(descriptor)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        order = _Order(*json.loads(message))
        if order.on_terminal:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        return order


def _tell(descriptor: int, status: int) -> None:
    # Nobody may listen any more.
    try:
        os.write(descriptor, b"%d" % status)
    except BrokenPipeError:
        pass
    finally:
        os.close(descriptor)


def _leave(running: Mapping[int, int]) -> NoReturn:
    """End, now that the tests have: and with it what they left running."""
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    raise SystemExit(0)


def _become(order: _Order) -> None:
    """Make this process what a fresh interpreter would be for the order, before its module."""
    os.environ.clear()
    for name, value in order.environment.items():
        os.environ[_text_of(name)] = _text_of(value)
    time.tzset()
    tempfile.tempdir = None
    sys.path[0] = _text_of(order.cwd)
    os.chdir(sys.path[0])
    sys.argv = ["-m", *map(_text_of, order.arguments)]
    for name, mode, descriptor in (("stdin", "r", 0), ("stdout", "w", 1), ("stderr", "w", 2)):
        old = getattr(sys, name)
        new = open(  # noqa: SIM115 - the descriptor, as long as the process lives
            descriptor,
            mode,
            encoding=old.encoding,
            errors=old.errors,
            closefd=False,
            buffering=1 if descriptor == 2 or os.isatty(descriptor) else -1,
        )
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


if __name__ == "__main__":
    for imported in _IMPORTED:
        importlib.import_module(imported)
    gc.collect()
    # What is there stays: no fork looks at it again, and so none copies it.
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        ordered = _serve(connection)
    _become(ordered)
    # The module may be one that is imported already.
    warnings.simplefilter("ignore", RuntimeWarning)
    runpy.run_module(ordered.module, run_name="__main__", alter_sys=True)
