"""Writes snapshots to a log on its own thread, of whatever form the log is.

A disk can be full, or hang for minutes. So the sampling thread only hands a snapshot over and
continues at once; lost samples are counted, and the status has a message while writing fails.
"""

from __future__ import annotations

import errno
import threading
import time
from collections import deque
from pathlib import Path  # noqa: TC003 - msgspec resolves annotations at run time
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from gpumon.recording.csv.opening import LogError, shown
from gpumon.system.resource_errors import lack_behind
from gpumon.system.system import Clock, SystemClock
from gpumon.text.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpumon.model.snapshot import Snapshot

QUEUED = 100
"""Snapshots that wait to be written, at most: ten seconds at 10 Hz."""
_FEWEST_QUEUED = 10
"""Samples of many machines that may wait although they have more snapshots."""

_SYNC_SECONDS = 1.0
"""Between two calls that wait for the disk, at least."""
_RETRY_SECONDS = 1.0
"""Between two attempts to write where it cannot be done, at least."""
_HANGING = 2.0
"""Seconds after which the disk is said to hang."""

_REMOVED = "the directory was removed; logging continues in a new file when it is there again"
_REASONS = {
    errno.ENOSPC: "the disk is full; logging continues when there is space",
    errno.EDQUOT: "your disk quota is used up; logging continues when there is space",
    errno.EFBIG: "the file has reached its largest size (see `ulimit -f`); log to another file",
    errno.EROFS: "the file system is mounted read-only; logging continues when it is writable",
    errno.EIO: "the disk reports errors (see `dmesg`); logging continues when they end",
    errno.ENOENT: _REMOVED,
    errno.ENOTDIR: _REMOVED,
    errno.EACCES: "you may not write there; logging continues when you may",
    errno.EPERM: "you may not write there; logging continues when you may",
}
_NOT_BEGUN = {
    errno.ENOENT: "there is no such directory; make it first",
    errno.ENOTDIR: "there is no such directory; make it first",
    errno.EACCES: "you may not write there; choose another place",
    errno.EPERM: "you may not write there; choose another place",
    errno.ENOSPC: "the disk is full; make space or choose another place",
    errno.EDQUOT: "your quota of disk space is used up; make space or choose another place",
    errno.EROFS: "the file system is mounted read-only; choose another place",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
}


class LogStatus(Struct, frozen=True):
    """The status of a log.

    Attributes:
        path: The log; of CSV files that of the GPUs.
        seconds: Duration of this run, including suspends.
        samples: Written in this run.
        bytes: Bytes written in this run, to all files.
        lost: Number of samples that could not be written.
        trouble: The current problem, in a sentence.
    """

    path: Path
    seconds: float
    samples: int
    bytes: int
    lost: int
    trouble: str | None = None


class RecordedLog(Protocol):
    """A log of any form. For use by one thread, but for its attributes.

    Attributes:
        path: Its name in messages.
    """

    path: Path

    @property
    def files(self) -> str:
        """Its files, for a sentence; not safe to print."""
        ...

    @property
    def advice(self) -> str:
        """What the user can do with it: a sentence without a full stop; not safe to print."""
        ...

    def begin(self) -> None:
        """Open or continue it, and lock it.

        Raises:
            LogError: There can be no log there; nothing has changed then.
            OSError: It cannot be written.
        """
        ...

    def write(self, snapshots: Mapping[str | None, Snapshot], elapsed: float) -> None:
        """Write one sample; if this raises, none of it is written.

        Args:
            snapshots: The snapshots by the names of their machines; ``None`` is the only one.
            elapsed: Seconds since the log began in this run, by a clock that never runs back.

        Raises:
            LogError: It cannot be continued at this place.
            OSError: It cannot be written.
        """
        ...

    def sync(self) -> None:
        """Wait until everything written is on the disk.

        Raises:
            OSError: The data cannot be synced.
        """
        ...

    def close(self) -> None:
        """Unlock it."""
        ...

    @property
    def bytes(self) -> int:
        """Written so far."""
        ...

    @property
    def trouble(self) -> str | None:
        """What goes wrong though samples are written: a sentence for a person."""
        ...


class Recorder:
    """Writes the snapshots it receives to a log, on its own thread.

    Attributes:
        log: The log.

    Args:
        log: The log.
        clock: Clock, for tests. The default also counts while the machine is suspended.
    """

    def __init__(self, log: RecordedLog, *, clock: Clock | None = None) -> None:
        self.log = log
        self._clock = clock or _WakefulClock()
        self._thread = threading.Thread(target=self._run, name="gpumon-log", daemon=True)

        self._changed = threading.Condition()
        self._queue: deque[tuple[Mapping[str | None, Snapshot], float]] = deque()
        self._open = False
        self._began = 0.0
        self._ended: float | None = 0.0
        self._dropped = 0

        # The attributes below belong to the thread; other threads only read them.
        self._samples = 0
        self._failed = 0
        self._trouble: str | None = None
        self._retry_at: float | None = None
        self._unsynced = False
        self._synced_at = 0.0
        self._at_disk_since: float | None = None
        self._failure: Exception | None = None

    def start(self) -> None:
        """Open or continue the files, and start writing. Waits for the disk.

        Raises:
            LogError: There can be no log under that name; nothing has changed then.
        """
        path = self.log.path
        try:
            self.log.begin()
        except LogError:
            self.log.close()
            raise
        except OSError as error:
            self.log.close()
            code = error.errno or 0
            if code == errno.ENOENT and path.parent.is_dir():
                # As in /proc, where the directory exists but accepts no files.
                code = errno.EACCES
            reason = _NOT_BEGUN.get(code, f"{error.strerror}; choose another place")
            raise LogError(
                lack_behind(error) or f"{shown(path)} cannot be written: {reason}."
            ) from error
        self._began = self._synced_at = self._clock.monotonic()
        self._ended = None
        self._open = True
        self._thread.start()

    def take(self, snapshot: Snapshot) -> None:
        """Queue a snapshot for writing. Never blocks: a listener for the collector.

        A snapshot without GPUs, as while there is no driver, gives no row and is not counted.

        Raises:
            Exception: The bug that ended the thread.
        """
        self.take_all({None: snapshot})

    def take_all(self, snapshots: Mapping[str | None, Snapshot]) -> None:
        """Queue one sample of several machines: ``take`` for many.

        Args:
            snapshots: The snapshots by the names of their machines, all with the same time.

        Raises:
            Exception: The bug that ended the thread.
        """
        if self._failure is not None:
            raise self._failure
        known = {name: snapshot for name, snapshot in snapshots.items() if snapshot.gpus}
        if not known:
            return
        with self._changed:
            if not self._open:
                return
            if len(self._queue) >= max(_FEWEST_QUEUED, QUEUED // len(known)):
                self._dropped += 1
                return
            self._queue.append((known, self._clock.monotonic() - self._began))
            self._changed.notify()

    def stop(self, timeout: float = 3.0) -> LogStatus:
        """Write what is queued, wait for the disk for a time, and close the files.

        May be called more than once.

        Args:
            timeout: Seconds to wait for the disk at most.
        """
        with self._changed:
            if self._open:
                self._open = False
                self._ended = self._clock.monotonic()
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        with self._changed:
            # Anything is left only if the disk hangs; it must not be written after the end.
            self._dropped += len(self._queue)
            self._queue.clear()
        return self.status

    @property
    def status(self) -> LogStatus:
        """The current status. Thread-safe."""
        now = self._clock.monotonic() if self._ended is None else self._ended
        return LogStatus(
            path=self.log.path,
            seconds=now - self._began,
            samples=self._samples,
            bytes=self.log.bytes,
            lost=self._dropped + self._failed,
            trouble=self._silence() or self._trouble or self.log.trouble,
        )

    def _silence(self) -> str | None:
        since = self._at_disk_since
        waited = 0.0 if since is None else self._clock.monotonic() - since
        if waited < _HANGING:
            return None
        return (
            f"{shown(self.log.path)} is not written: the disk has not answered for"
            f" {duration(waited)}."
        )

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except Exception as bug:  # noqa: BLE001 - a thread has nobody above it to see this
            self._failure = bug
            self._trouble = (
                f"Logging stopped because of a bug in gpumon, please report it: {bug!r}."
            )
        finally:
            self._at_disk_since = self._clock.monotonic()
            self._sync()
            self.log.close()
            self._at_disk_since = None

    def _turn(self) -> bool:
        """Write one sample, or sync the disk; returns False when nothing is left to do."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._queue or not self._open, _SYNC_SECONDS if self._unsynced else None
            )
            taken = self._queue.popleft() if self._queue else None
            if taken is None and not self._open:
                return False
        if taken is not None:
            self._at_disk_since = self._clock.monotonic()
            self._write(*taken)
        if taken is None or self._clock.monotonic() >= self._synced_at + _SYNC_SECONDS:
            self._sync()
        self._at_disk_since = None
        return True

    def _write(self, snapshots: Mapping[str | None, Snapshot], elapsed: float) -> None:
        now = self._clock.monotonic()
        if self._retry_at is not None and now < self._retry_at:
            self._failed += 1
            return
        try:
            self.log.write(snapshots, elapsed)
        except (OSError, LogError) as error:
            self._failed += 1
            self._retry_at = now + _RETRY_SECONDS
            self._trouble = self._sentence(error)
        else:
            self._samples += 1
            self._retry_at = self._trouble = None
            self._unsynced = True

    def _sync(self) -> None:
        if not self._unsynced:
            return
        self._unsynced = False
        self._synced_at = self._clock.monotonic()
        try:
            self.log.sync()
        except OSError as error:
            self._trouble = self._sentence(error)

    def _sentence(self, error: OSError | LogError) -> str:
        if isinstance(error, LogError):
            return str(error)
        reason = _REASONS.get(error.errno or 0, error.strerror or repr(error))
        return f"{shown(self.log.path)} is not written: {reason}."


class _WakefulClock(SystemClock):
    """A clock that also counts while the machine is suspended."""

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
