"""The file in which an engine remembers what it has reported.

It must never be in the way: a missing file counts as empty, one that cannot be read is reported
once, and it is written on a thread of its own, because a home folder on a network may hang.

Two programs of a user may have the same alerts, such as a dashboard and ``gpumon watch``. A lock
beside the file decides which of them sends notices that leave the terminal.
"""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from gpumon.alerts.instances import (
    RememberedAlert,  # noqa: TC001 - msgspec resolves annotations at run time
)
from gpumon.system.files import beginning, replace_file
from gpumon.system.folders import state_folder

if TYPE_CHECKING:
    from gpumon.system.folders import Folder

_OTHER = (
    "another gpumon of yours has the same alerts: while it runs, only it sends what leaves the "
    "terminal"
)
_VERSION = 1
_MOST_BYTES = 4 * 2**20


class Remembered(Struct):
    """What an engine remembers."""

    at: float
    """The time of its last sample, in seconds since the epoch."""
    pace: float = 0.0
    """Seconds between its last two samples."""
    alerts: dict[str, RememberedAlert] = {}
    """What it knows of each alert, by name."""
    version: int = _VERSION
    """The version of this structure."""


def memory_path(host: str, alert_file: str | None = None) -> str:
    """The file of a machine, whose home folder others may share.

    It has a file for each ``alert_file``, and one for the alerts of the configuration.
    """
    from hashlib import sha256
    from pathlib import Path

    name = re.sub(r"[^\w.-]", "_", host, flags=re.ASCII)[:64]
    if alert_file is not None:
        digest = sha256(os.fsencode(Path(alert_file).absolute())).hexdigest()
        name = f"{name}-{digest[:12]}"
    return os.path.join(state_folder(), f"alerts-{name}.json")


class AlertMemory:
    """Reads and writes the file."""

    def __init__(self, path: Folder) -> None:
        self._path = os.fspath(path)
        self._newest: bytes | None = None
        self._change = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._lock: int | None = None
        self.is_ours = True
        """Whether this program sends what leaves the terminal, and writes the file."""
        self.trouble: str | None = None
        """Why nothing can be remembered, or why the file is not used."""

    def load(self) -> Remembered | None:
        """What is in the file; ``None`` without it, and if it cannot be used."""
        self._take_lock()
        try:
            data = beginning(self._path, _MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._start_anew(f"cannot be read ({error.strerror})")
            return None
        try:
            if len(data) > _MOST_BYTES:
                raise ValueError("it is too long")
            found = msgspec.json.decode(data, type=Remembered)
            if found.version != _VERSION:
                raise ValueError("another version wrote it")
        except (ValueError, RecursionError) as error:
            self._start_anew(f"is not usable ({error})")
            return None
        return found

    def _start_anew(self, why: str) -> None:
        self.trouble = (
            f"the file of past notifications, {self._path}, {why}: gpumon starts a new one, and "
            "does not report conditions that hold already"
        )

    def _take_lock(self) -> None:
        """Try to be the program that sends."""
        import fcntl
        from pathlib import Path

        if self._lock is None:
            try:
                # Others must not read who was notified of what.
                Path(self._path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock = os.open(
                    f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
            except OSError:
                return  # No program can: then each sends.
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.is_ours, self.trouble = False, _OTHER
        except OSError:
            self.is_ours = True
        else:
            self.is_ours = True
            self.trouble = None if self.trouble == _OTHER else self.trouble

    def save(self, remembered: Remembered) -> None:
        """Write on another thread; if several wait, the newest only."""
        if not self.is_ours:
            self._take_lock()
        if not self.is_ours:
            return
        data = msgspec.json.encode(remembered)
        with self._change:
            self._newest = data
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._write_on, name="gpumon-alerts", daemon=True
                )
                self._thread.start()
            self._change.notify()

    def close(self, seconds: float) -> None:
        """Wait until the newest is written, for so long at most."""
        with self._change:
            self._closing = True
            self._change.notify()
            thread = self._thread
        if thread is not None:
            thread.join(seconds)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _write_on(self) -> None:
        while True:
            with self._change:
                while self._newest is None:
                    if self._closing:
                        return
                    self._change.wait()
                data, self._newest = self._newest, None
            self._write(data)

    def _write(self, data: bytes) -> None:
        try:
            replace_file(self._path, data)
        except OSError as error:
            self.trouble = (
                f"cannot write {self._path} ({error.strerror}): after a restart gpumon does not "
                "know what it has reported"
            )
