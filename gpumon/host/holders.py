"""Finds processes that have a GPU's device file open although the driver does not list them.

The driver omits processes that have the file open but no work on the GPU, such as a data loader
whose parent ended, or a process that hangs while it exits. They can hold memory that no listed
process accounts for. ``gpumon.host.holder_reasons`` says why each of them matters.
"""

from __future__ import annotations

import os
import stat as modes
from typing import TYPE_CHECKING

from gpumon.host.holder_reasons import HolderClassifier, Known, rank
from gpumon.host.procfs import (
    ProcessFiles,
    all_pids,
    boot_time,
    has_files,
    opened,
    started_after_boot,
)
from gpumon.model.processes import HolderScan
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

    from gpumon.model.makers import DeviceFiles
    from gpumon.model.processes import ProcessId, UnlistedHolder
    from gpumon.model.snapshot import Snapshot
    from gpumon.system.system import System

_Device = tuple[int, ...]


class HolderScanner:
    """Scans the open files of every process repeatedly.

    It remembers the holders between scans: one whose parent changed is certainly an orphan. Not
    thread-safe.

    Args:
        files: The device files of the GPUs.
        system: The operating system that is read.
        own_pid: PID of this program, which is never a holder.
    """

    def __init__(
        self,
        files: DeviceFiles,
        system: System = THIS_SYSTEM,
        own_pid: int | None = None,
    ) -> None:
        self._proc = system.proc
        self._clock = system.clock
        self._files = files
        self._name = files.name_pattern()
        self._own_pid = os.getpid() if own_pid is None else own_pid
        self._known: Mapping[ProcessId, Known] = {}

    def scan(self, snapshot: Snapshot) -> HolderScan | None:
        """Scan once.

        A GPU is skipped if its device file is unknown or missing, or if its processes are unknown.
        Processes that started after the list was read are skipped, too.

        Only open files count. A mapping of the device file holds no memory by itself, and reading
        ``/proc/PID/maps`` can hang together with the process.

        Returns:
            ``None`` without any GPU to look for, or without ``/proc``.
        """
        devices = _devices(snapshot, self._files)
        if not devices or snapshot.processes_at is None:
            return None
        try:
            pids = all_pids(self._proc)
        except OSError:
            return None
        at = self._clock.time()
        classifier = HolderClassifier(
            self._proc,
            self._own_pid,
            self._clock.monotonic(),
            snapshot.processes,
            _ambiguous(snapshot),
            self._known,
        )
        youngest = snapshot.processes_at - boot_time()
        holders: list[UnlistedHolder] = []
        unseen = 0
        for pid in pids:
            if pid == self._own_pid:
                continue
            try:
                holder = self._check(pid, devices, classifier, youngest)
            except PermissionError:
                unseen += has_files(self._proc, pid)
            except OSError:
                continue  # It has ended.
            else:
                if holder is not None:
                    holders.append(holder)
        self._known = classifier.known
        return HolderScan(at=at, suspects=tuple(sorted(holders, key=rank)), unseen=unseen)

    def _check(
        self,
        pid: int,
        devices: Mapping[_Device, str],
        classifier: HolderClassifier,
        youngest: float,
    ) -> UnlistedHolder | None:
        """Check a process; ``None`` if it holds no GPU, or the driver lists it on each."""
        with opened(self._proc, pid) as files:
            held = _held(files, devices, self._name)
            if not held:
                return None
            stat = files.stat()
            if started_after_boot(stat.id) > youngest:
                return None
            in_order = [uuid for uuid in devices.values() if uuid in held]
            return classifier.classify(files, stat, in_order)


def _devices(snapshot: Snapshot, files: DeviceFiles) -> dict[_Device, str]:
    """The UUIDs of the GPUs by device file."""
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
    """Identifies a device file, whatever its path or mount namespace."""
    if modes.S_ISCHR(status.st_mode):
        return (status.st_rdev,)
    return status.st_dev, status.st_ino


def _held(files: ProcessFiles, devices: Mapping[_Device, str], name: re.Pattern[str]) -> set[str]:
    """UUIDs of the GPUs that a process has open; ``name`` matches paths that may be of ``devices``.

    Raises:
        PermissionError: This user may not inspect it.
    """
    try:
        held = _gpus(files.directory, "fd", devices, name)
    except PermissionError:
        # Only root sees the files of a dead main thread; its user sees those of live threads.
        if not _has_threads(files):
            raise
        held = None
    if held is None and _has_threads(files):
        held = _gpus(files.directory, f"{files.thread}fd", devices, name)
    return held or set()


def _has_threads(files: ProcessFiles) -> bool:
    """Whether a process has more than one: the links of its ``task`` count them, two too many."""
    return os.stat("task", dir_fd=files.directory).st_nlink > 3


def _gpus(
    directory: int, path: str, devices: Mapping[_Device, str], name: re.Pattern[str]
) -> set[str] | None:
    """UUIDs of the GPUs among open files; ``None`` if no file is open, as in dead threads."""
    files = os.open(path, os.O_DIRECTORY, dir_fd=directory)
    try:
        numbers = os.listdir(files)  # noqa: PTH208 - pathlib knows no open directories
        found = [_gpu(files, number, devices, name) for number in numbers]
    finally:
        os.close(files)
    return {uuid for uuid in found if uuid is not None} if found else None


def _gpu(
    files: int, number: str, devices: Mapping[_Device, str], name: re.Pattern[str]
) -> str | None:
    try:
        # Check the name first: ``stat`` can hang on a file system. The name alone is not enough,
        # because the path may differ in another mount namespace.
        if name.search(os.readlink(number, dir_fd=files)) is None:
            return None
        return devices.get(_device(os.stat(number, dir_fd=files)))
    except (FileNotFoundError, ProcessLookupError):
        return None  # It was closed meanwhile.


def _ambiguous(snapshot: Snapshot) -> set[str]:
    """UUIDs of the GPUs whose listed processes have PIDs of another PID namespace."""
    if snapshot.host.pids_are_ours:
        return set()
    return {
        use.gpu_uuid
        for process in snapshot.processes
        if not process.visible
        for use in process.uses
    }
