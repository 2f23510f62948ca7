"""An audit log of signals, sent or refused, and of process exits: time, user, target, signal.

It answers the question, a week later, who ended a run. It must never prevent a process from being
ended: network home directories hang, disks are full. So a separate thread writes, and a failed
write is reported.
"""

from __future__ import annotations

import atexit
import errno
import os
import stat
import threading
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpumon.host.refusals import signal_name
from gpumon.system.folders import state_folder
from gpumon.system.system import user_name
from gpumon.text.formatting import printable, shortened

if TYPE_CHECKING:
    from gpumon.host.process_host import Target

NAME = "signals.jsonl"
MOST_BYTES = 2**20
"""A log that would grow beyond this is renamed to ``signals.jsonl.1``, replacing the last one."""
COMMAND_CHARACTERS = 200
"""Maximum length of a command in the log."""


class AuditEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the log."""

    time: str  # ISO 8601 with the offset from UTC
    by: str  # name of the user who ran gpumon, or the number as text
    by_uid: int
    signal: str  # its name without SIG, or its number as text
    pid: int
    start_time: int | None  # of that process, clock ticks after boot
    user: str | None  # its owner
    uid: int | None
    command: str  # shortened to ``COMMAND_CHARACTERS``
    # ``sent``, or why it was not; later ``ended after 1.2 s``, or ``still there`` if gpumon stopped
    # waiting.
    outcome: str
    machine: str | None = None  # of the target, as the user named it; only if it is another machine


class AuditLog:
    """The audit log of one user.

    Args:
        folder: Its folder; by default gpumon's folder in the user's state directory.
        machine: The machine of the targets, if it is another one.
    """

    def __init__(self, folder: Path | None = None, machine: str | None = None) -> None:
        self._folder = folder
        self._machine = None if machine is None else printable(machine)
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._writing = False
        self._flushed_at_exit = False
        self._failure: str | None = None

    @property
    def path(self) -> Path:
        """The path of the log."""
        if self._folder is None:
            self._folder = Path(state_folder())
        return self._folder / NAME

    @property
    def failure(self) -> str | None:
        """Why the last line could not be written, for the user; ``None`` if it was."""
        return self._failure

    @property
    def pending(self) -> bool:
        """Whether some lines are not written yet."""
        return self._writing

    def write(self, target: Target, number: int, outcome: str) -> None:
        """Queue a line for writing without blocking; at exit the program waits shortly for it.

        Args:
            target: The target of the signal.
            number: The signal.
            outcome: See ``AuditEntry``.
        """
        line = msgspec.json.encode(_audit_entry(target, number, outcome, self._machine)) + b"\n"
        with self._changed:
            self._lines.append(line)
            if not self._flushed_at_exit:
                self._flushed_at_exit = True
                atexit.register(self.flush)
            if not self._writing:
                self._start_writing()

    def flush(self, seconds: float = 2.0) -> bool:
        """Wait until all lines are written or given up; False if that takes longer."""
        with self._changed:
            done = self._changed.wait_for(lambda: not self._writing, seconds)
            if not done:
                self._failure = self._sentence("it does not answer")
        return done

    def _start_writing(self) -> None:
        writer = threading.Thread(target=self._write_all, name="gpumon-audit-log", daemon=True)
        try:
            writer.start()
        except RuntimeError:
            # The line stays, and is written with the next one.
            self._failure = self._sentence("no thread can be started")
        else:
            self._writing = True

    def _write_all(self) -> None:
        while line := self._next():
            try:
                self._append(line)
                failure = None
            except Exception as error:  # noqa: BLE001 - the lines after it are written all the same
                failure = self._sentence(getattr(error, "strerror", None) or str(error))
            with self._changed:
                self._failure = failure

    def _next(self) -> bytes | None:
        with self._changed:
            if self._lines:
                return self._lines.popleft()
            self._writing = False
            self._changed.notify_all()
            return None

    def _sentence(self, why: str) -> str:
        path = printable(str(self.path))
        return f"Signals were sent, but are missing in the log {path}: {why}"

    def _append(self, line: bytes) -> None:
        self._make_folder()
        if not self._write_within_bounds(line):
            self.path.replace(self.path.with_name(f"{NAME}.1"))
            self._write_within_bounds(line)

    def _write_within_bounds(self, line: bytes) -> bool:
        """Write a line, unless the file would grow too long."""
        descriptor = self._open()
        try:
            size = os.fstat(descriptor).st_size
            if size and size + len(line) > MOST_BYTES:
                return False
            if os.write(descriptor, line) < len(line):
                # A partial line would also corrupt the next one.
                os.ftruncate(descriptor, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return True
        finally:
            os.close(descriptor)

    def _make_folder(self) -> None:
        folder = self.path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        _refuse_other_owner(found)
        if stat.S_IMODE(found.st_mode) != 0o700:
            folder.chmod(0o700)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        # A named pipe under this name must not block the writer.
        flags |= os.O_NONBLOCK
        try:
            descriptor = os.open(self.path, flags, 0o600)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, "it is a symbolic link") from None
            raise
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            _refuse_other_owner(found)
            if stat.S_IMODE(found.st_mode) != 0o600:
                os.fchmod(descriptor, 0o600)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


class NoAuditLog(AuditLog):
    """No audit log, for the demo: its signals are never sent."""

    def write(self, target: Target, number: int, outcome: str) -> None:
        """Write nothing."""


def _refuse_other_owner(found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise OSError(errno.EPERM, f"it belongs to {user_name(found.st_uid)}")


def _audit_entry(target: Target, number: int, outcome: str, machine: str | None) -> AuditEntry:
    command = printable(" ".join(target.command) or target.name or "")
    return AuditEntry(
        time=datetime.now().astimezone().isoformat(timespec="milliseconds"),
        by=user_name(os.geteuid()),
        by_uid=os.geteuid(),
        signal=signal_name(number),
        pid=target.id.pid,
        start_time=target.id.start_time,
        user=None if target.user is None else printable(target.user),
        uid=target.uid,
        command=shortened(command, COMMAND_CHARACTERS),
        outcome=outcome,
        machine=machine,
    )
