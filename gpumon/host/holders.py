"""Who holds a card's device file though the driver does not list it there.

The driver's list leaves out whoever has the file open and no work on the card: a data loader left
behind by its parent, a process that hangs on its way out. Such a holder can keep memory in use that
no process accounts for. Why each matters is said by ``gpumon.host.suspicion``.
"""

from __future__ import annotations

import os
import stat as modes
from typing import TYPE_CHECKING

from gpumon.host.namespaces import pid_trust
from gpumon.host.procfs import (
    all_pids,
    boot_time,
    living_thread,
    opened,
    read_stat,
    started_after_boot,
    stat_of,
)
from gpumon.host.suspicion import Judge, Known, rank
from gpumon.model.snapshot import HolderScan
from gpumon.system.clock import Clock, SystemClock

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

    from gpumon.host.device_files import DeviceFiles
    from gpumon.model.snapshot import ProcessId, Snapshot, Suspect

_Device = tuple[int, ...]


class HolderScanner:
    """Looks at the open files of every process, again and again.

    It remembers those that hold a card from scan to scan: whose parent changed is an orphan for
    certain. Not safe to use from several threads at a time.

    Args:
        files: The device files of the cards.
        proc: Where the process file system is mounted.
        own_pid: The number of this program, which is never a suspect.
        clock: Time, for tests.
    """

    def __init__(
        self,
        files: DeviceFiles,
        proc: str = "/proc",
        own_pid: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._proc = proc
        self._files = files
        self._name = files.name_pattern()
        self._own_pid = os.getpid() if own_pid is None else own_pid
        self._clock: Clock = clock or SystemClock()
        self._known: Mapping[ProcessId, Known] = {}

    def scan(self, snapshot: Snapshot) -> HolderScan | None:
        """Look once.

        A card is passed over when its device file is not known (``minor_number`` is ``None``) or
        not there, and when its processes are not listed (``processes`` is in its ``unknown``): no
        suspect then says nothing of it. Left out are also processes younger than the list.

        Only open files count. Mappings of the device file keep no memory in use by themselves, and
        reading ``/proc/PID/maps`` waits with any process that hangs while its memory changes.

        Returns:
            ``None`` where there is no card to look for, or no ``/proc`` to look in.
        """
        devices = _devices(snapshot, self._files)
        if not devices or snapshot.processes_at is None:
            return None
        try:
            pids = all_pids(self._proc)
        except OSError:
            return None
        at = self._clock.time()
        judge = Judge(
            self._proc,
            self._own_pid,
            self._clock.monotonic(),
            snapshot.processes,
            _ambiguous(snapshot),
            self._known,
        )
        youngest = snapshot.processes_at - boot_time()
        suspects: list[Suspect] = []
        unseen = 0
        for pid in pids:
            if pid == self._own_pid:
                continue
            try:
                suspect = self._look_at(pid, devices, judge, youngest)
            except PermissionError:
                unseen += self._may_hold_something(pid)
            except OSError:
                continue  # It has ended.
            else:
                if suspect is not None:
                    suspects.append(suspect)
        self._known = judge.known
        return HolderScan(at=at, suspects=tuple(sorted(suspects, key=rank)), unseen=unseen)

    def _look_at(
        self, pid: int, devices: Mapping[_Device, str], judge: Judge, youngest: float
    ) -> Suspect | None:
        """One process; ``None`` when there is nothing against it."""
        with opened(self._proc, pid) as directory:
            held = _held(directory, devices, self._name)
            if not held:
                return None
            stat = read_stat(directory)
            if started_after_boot(stat.id) > youngest:
                return None
            in_order = [uuid for uuid in devices.values() if uuid in held]
            return judge.suspect(directory, stat, in_order)

    def _may_hold_something(self, pid: int) -> bool:
        """Whether a process that may not be looked into could have files open."""
        stat = stat_of(self._proc, pid)
        return stat is not None and not stat.kernel_thread and not stat.ended


def _devices(snapshot: Snapshot, files: DeviceFiles) -> dict[_Device, str]:
    """The cards' device files, each with the UUID of its card."""
    devices: dict[_Device, str] = {}
    for gpu in snapshot.gpus:
        path = files.path_of(gpu)
        if path is None or "processes" in gpu.unknown:
            continue
        try:
            status = os.stat(path)  # noqa: PTH116 - as below
        except OSError:
            continue
        devices[_device(status)] = gpu.uuid
    return devices


def _device(status: os.stat_result) -> _Device:
    """The same for the same card in whatever mount name space, under whatever path."""
    if modes.S_ISCHR(status.st_mode):
        return (status.st_rdev,)
    return status.st_dev, status.st_ino


def _held(directory: int, devices: Mapping[_Device, str], name: re.Pattern[str]) -> set[str]:
    """UUIDs of the cards that a process has open.

    Args:
        directory: Its ``/proc/PID``, open.
        devices: What to look for.
        name: Matches the paths that may be one of them.

    Raises:
        PermissionError: It is not ours to look into.
    """
    try:
        held = _cards(directory, "fd", devices, name)
    except PermissionError:
        # The files of a dead main thread are root's to see, those of the living remain its user's.
        if not _has_threads(directory):
            raise
        held = None
    if held is None and _has_threads(directory):
        held = _cards(directory, f"{living_thread(directory)}fd", devices, name)
    return held or set()


def _has_threads(directory: int) -> bool:
    """Whether a process has more than one: the links of its ``task`` count them, two too many."""
    return os.stat("task", dir_fd=directory).st_nlink > 3


def _cards(
    directory: int, path: str, devices: Mapping[_Device, str], name: re.Pattern[str]
) -> set[str] | None:
    """UUIDs of the cards among some open files; ``None`` where none is open, as in dead threads."""
    files = os.open(path, os.O_DIRECTORY, dir_fd=directory)
    try:
        numbers = os.listdir(files)  # noqa: PTH208 - pathlib knows no open directories
        found = [_card(files, number, devices, name) for number in numbers]
    finally:
        os.close(files)
    return {uuid for uuid in found if uuid is not None} if found else None


def _card(
    files: int, number: str, devices: Mapping[_Device, str], name: re.Pattern[str]
) -> str | None:
    try:
        # By name first: to ask a file itself may wait for its file system for ever. In other mount
        # name spaces the rest of the path may differ, so the name decides nothing.
        if name.search(os.readlink(number, dir_fd=files)) is None:
            return None
        return devices.get(_device(os.stat(number, dir_fd=files)))
    except (FileNotFoundError, ProcessLookupError):
        return None  # It was closed meanwhile.


def _ambiguous(snapshot: Snapshot) -> set[str]:
    """UUIDs of the cards that list processes by numbers that mean nothing here."""
    trust = pid_trust(snapshot.host.driver_version, snapshot.host.in_container is False)
    if trust.processes:
        return set()
    return {
        use.gpu_uuid
        for process in snapshot.processes
        if not process.visible
        for use in process.uses
    }
