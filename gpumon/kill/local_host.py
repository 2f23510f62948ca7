"""The processes of the machine that gpumon runs on."""

from __future__ import annotations

import os
import threading
from functools import cached_property
from typing import TYPE_CHECKING

from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpumon.host.holders import HolderScanner
    from gpumon.host.process_host import Details, ProcessHandle, RelatedProcess, Target
    from gpumon.host.workloads import WorkloadReader
    from gpumon.model.makers import DeviceFiles
    from gpumon.model.processes import GpuProcess, HolderScan, ProcessId, Workload
    from gpumon.model.snapshot import Snapshot
    from gpumon.system.system import System


class LocalHost:
    """See ``ProcessHost``.

    Thread-safe. ``workloads`` and ``scan`` keep state between calls: each has a lock, so one caller
    at a time. The other methods keep none.

    Imports are delayed to the first call, because the first frame needs none of them.

    Args:
        files: Returns the device files of the GPUs, when they are needed.
        readonly: Whether every signal is refused.
        system: The operating system that is read.
    """

    def __init__(
        self,
        files: Callable[[], DeviceFiles],
        *,
        readonly: bool = False,
        system: System = THIS_SYSTEM,
    ) -> None:
        self._files = files
        self.readonly = readonly
        self._system = system
        self._places_lock = threading.Lock()
        self._scan_lock = threading.Lock()

    @property
    def uid(self) -> int:
        """The user id that gpumon runs as."""
        return os.geteuid()

    @property
    def user(self) -> str:
        """The name of that user. May wait for the network, once."""
        from gpumon.system.system import user_name

        return user_name(self.uid)

    def workloads(self, processes: Sequence[GpuProcess]) -> Mapping[ProcessId, Workload]:
        """See ``ProcessHost.workloads``."""
        with self._places_lock:
            return self._place_reader.read(processes)

    def scan(self, snapshot: Snapshot) -> HolderScan | None:
        """See ``ProcessHost.scan``."""
        with self._scan_lock:
            return self._scanner.scan(snapshot)

    def relatives(self, roots: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:
        """See ``ProcessHost.relatives``."""
        from gpumon.host.process_tree import read_relatives

        return read_relatives(roots, self._system)

    def details(self, process: ProcessId) -> Details | None:
        """See ``ProcessHost.details``."""
        from gpumon.host.details import read_details
        from gpumon.host.workloads import WorkloadReader
        from gpumon.model.processes import GpuProcess

        # A separate reader, so that a hung reader elsewhere does not delay the details.
        anybody = GpuProcess(process, type="", uses=())
        place = WorkloadReader(self._system).read([anybody]).get(process)
        return read_details(process, self._files(), self._system, place)

    def open_handle(self, target: Target) -> ProcessHandle:
        """See ``ProcessHost.open_handle``."""
        from gpumon.kill.signals import open_handle

        return open_handle(target, readonly=self.readonly, system=self._system)

    def wait(self, handles: Sequence[ProcessHandle], seconds: float) -> None:
        """See ``ProcessHost.wait``."""
        from gpumon.host.handle import wait_for_any

        wait_for_any(handles, seconds)

    @cached_property
    def _place_reader(self) -> WorkloadReader:
        from gpumon.host.workloads import WorkloadReader

        return WorkloadReader(self._system)

    @cached_property
    def _scanner(self) -> HolderScanner:
        from gpumon.host.holders import HolderScanner

        return HolderScanner(self._files(), self._system)
