"""Finds the processes that hold files of the DRM subsystem (``/dev/dri/...``) open.

The kernel has no list of them for ordinary users, so the open files of all processes are read:
those of new processes at once, and those of the others in turns within a budget of time, because a
process may open the GPU long after it started.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from gpumon.host.procfs import all_pids, has_files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

FIRST_SCAN_SECONDS = 0.25
"""Seconds for the first scan, which should be complete: a thousand processes take about 0.1 s."""

SCAN_SECONDS = 0.001
"""Seconds for each later scan."""

_FULL_SECONDS = 30.0
"""A process whose number of open files did not change may have closed one and opened another, so
its files are looked at again after this time."""

_FIRST_PROCESS = 1

_DIRECTORY = "/dri/"
"""Part of the path of a DRM file, wherever a container has it."""

_DELETED = " (deleted)"


class _Identity(NamedTuple):
    """Tells a process from a later one with the same PID.

    The kernel numbers the inodes of ``/proc`` as it makes them, and makes one when a process is
    first looked at. This is as good as the start time, and ``stat`` gives it together with the
    number of open files (since Linux 6.2), for a fifth of the time.
    """

    inode: int
    made: int


_HIDDEN = _Identity(0, 0)


class _Looked(NamedTuple):
    """What a look at the files of a process found."""

    pid: int  # Its PID.
    identity: _Identity  # The process.
    size: int  # Number of its open files; the size of the directory before Linux 6.2, which is 0.
    at: float  # When, on the monotonic clock.
    files: Mapping[int, str]  # Names of DRM nodes by file descriptor.
    unseen: bool  # Whether its files may not be listed.


class FileHolders:
    """Knows which processes hold DRM files. Not thread-safe; ``scan`` may be abandoned at any time.

    Attributes:
        complete: Whether all processes have been looked at.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._known: dict[int, _Looked] = {}
        self._turns: deque[int] = deque()
        self._scanned = False
        self.complete = False

    def scan(self, now: float, wanted: Collection[int] = ()) -> Mapping[int, Mapping[int, str]]:
        """Look at new processes, at the known holders, and at some of the others.

        Args:
            now: Seconds on the monotonic clock.
            wanted: PIDs that probably hold DRM files, which are looked at in any case.

        Returns:
            By PID, the names of the DRM nodes (``renderD128``) by file descriptor.
        """
        try:
            pids = set(all_pids(self._proc))
        except OSError:
            pids = set()
        known = self._known = {pid: one for pid, one in self._known.items() if pid in pids}
        for pid in [pid for pid, visit in known.items() if visit.files]:
            self._visit(pid, now, again=False)
        for pid in wanted:
            if pid in pids:
                self._visit(pid, now, again=False)
        # Budgets are of real time: a test's clock stands still meanwhile.
        until = time.perf_counter() + (SCAN_SECONDS if self._scanned else FIRST_SCAN_SECONDS)
        new = sorted(pids - known.keys(), reverse=True)
        left = self._visit_until(new, now, until)
        self._take_turns(pids, now, until)
        self._scanned = True
        unseen = any(visit.unseen for visit in self._known.values())
        # A user who may not look at the first process may not see others either: with hidepid=2
        # they do not even appear.
        self.complete = not left and not unseen and _FIRST_PROCESS in self._known
        return {pid: visit.files for pid, visit in sorted(self._known.items()) if visit.files}

    def holds(self, pid: int, descriptor: int) -> bool:
        """Whether a file descriptor of a process still is a DRM file."""
        try:
            return _DIRECTORY in os.readlink(f"{self._proc}/{pid}/fd/{descriptor}")  # noqa: PTH115 - as below
        except OSError:
            return False

    def forget(self, pid: int) -> None:
        """Look at a process again: its files are not what they were."""
        self._known.pop(pid, None)

    def _visit_until(self, pids: Iterable[int], now: float, until: float) -> int:
        """Visit processes until a time; returns the number of those that were left."""
        left = 0
        for pid in pids:
            if time.perf_counter() >= until:
                left += 1
            else:
                self._visit(pid, now)
        return left

    def _take_turns(self, pids: Collection[int], now: float, until: float) -> None:
        if not self._turns:
            self._turns.extend(sorted(pids))
        # Each one at most once in a scan.
        for _ in range(len(self._turns)):
            if time.perf_counter() >= until:
                return
            known = self._known.get(self._turns.popleft())
            if known is not None and known.at != now:
                self._visit(known.pid, now)

    def _visit(self, pid: int, now: float, *, again: bool = True) -> None:
        """Look at the files of a process if they can have changed.

        Args:
            pid: The process.
            now: Seconds on the monotonic clock.
            again: Whether to look from time to time even if nothing indicates a change.
        """
        folder = f"{self._proc}/{pid}/fd"
        before = self._known.get(pid)
        try:
            status = status_of(folder)
        except PermissionError:
            # The file system is mounted with hidepid=1.
            self._known[pid] = _Looked(pid, _HIDDEN, 0, now, {}, unseen=True)
            return
        except OSError:
            self._known.pop(pid, None)
            return
        identity = _Identity(status.st_ino, status.st_ctime_ns)
        same = before is not None and before.identity == identity
        if (
            before is not None
            and same
            and (before.unseen or (status.st_size == before.size and status.st_size))
            and not (again and now - before.at >= _FULL_SECONDS)
        ):
            return
        files: dict[int, str] = {}
        unseen = False
        try:
            files = drm_files(folder)
        except PermissionError:
            unseen = before.unseen if before is not None and same else has_files(self._proc, pid)
        except OSError:
            self._known.pop(pid, None)
            return
        self._known[pid] = _Looked(pid, identity, status.st_size, now, files, unseen)


def status_of(folder: str) -> os.stat_result:
    """The status of a folder of open files: its size is their number since Linux 6.2.

    Raises:
        OSError: The process has ended, or is hidden.
    """
    return os.stat(folder)  # noqa: PTH116 - pathlib is not imported before the first frame


def drm_files(folder: str) -> dict[int, str]:
    """The DRM nodes among the open files of a process.

    Raises:
        OSError: They may not be listed, or the process has ended.
    """
    files: dict[int, str] = {}
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in os.listdir(directory):  # noqa: PTH208 - pathlib knows no open directories
            try:
                target = os.readlink(name, dir_fd=directory)
            except OSError:
                continue  # It was closed.
            if _DIRECTORY in target and name.isdecimal():
                files[int(name)] = target.removesuffix(_DELETED).rpartition("/")[2]
    finally:
        os.close(directory)
    return files
