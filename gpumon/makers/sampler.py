"""Joins the readings of a backend with the host's data of processes and of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from gpumon.host.machine import MachineReader
from gpumon.host.processes import ProcessReader
from gpumon.model.bounds import plausible_gpus, plausible_processes
from gpumon.model.process_states import ENDED
from gpumon.model.processes import CgroupMemory, GpuProcess, ProcessId
from gpumon.model.snapshot import Gpu, GpuStatus, Host, Snapshot
from gpumon.system.resource_errors import tolerated_lack_of_files
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gpumon.host.cgroup_memory import CgroupMemoryReader
    from gpumon.host.kernel_watcher import Heard, KernelWatcher
    from gpumon.makers.accidents import RecentAccidents
    from gpumon.makers.backend import DriverInfo, GpuBackend, ListedProcess, Reading
    from gpumon.makers.source import Call
    from gpumon.model.accidents import Accident
    from gpumon.system.system import System

_MEMORY = ("memory_total", "memory_free", "memory_used")


class ReadsMachine(Protocol):
    """Reads the machine; see ``MachineReader``."""

    @property
    def name(self) -> str:
        """Host name."""
        ...

    def read(self) -> Host:
        """The machine now, without its driver."""
        ...


class ReadsProcesses(Protocol):
    """Reads processes; see ``ProcessReader``."""

    def read(self, pid: int, now: float) -> GpuProcess | None:
        """A process without its use of GPUs; ``None`` if it cannot be read."""
        ...

    def keep_only(self, pids: Collection[int]) -> None:
        """Forget all other processes."""
        ...

    def has_ended(self, pid: int) -> bool:
        """Whether there is no process with this PID."""
        ...


class Sampler:
    """Takes snapshots of one machine; implements ``Source``.

    Attributes:
        backend: The backend of its GPUs.
    """

    def __init__(
        self,
        backend: GpuBackend,
        system: System = THIS_SYSTEM,
        machine: ReadsMachine | None = None,
        processes: ReadsProcesses | None = None,
    ) -> None:
        self.backend = backend
        self._system = system
        self._clock = system.clock
        self._kernel: KernelWatcher | None = None
        self._accidents: RecentAccidents | None = None
        self._machine: ReadsMachine = machine or MachineReader(system)
        self._reader: ReadsProcesses = processes or ProcessReader(system)
        self._driver: DriverInfo | None = None
        self._machine_now: Host | None = None
        self._host = Host(name=self._machine.name)
        self._listed: Mapping[int, ListedProcess] | None = None
        self._processes: tuple[GpuProcess, ...] = ()
        self._made: dict[int, tuple[GpuProcess | None, GpuProcess]] = {}
        self._has_sampled = False
        self._reads_cgroups = processes is None
        self._cgroups: CgroupMemoryReader | None = None
        self._memory: Mapping[int, CgroupMemory] = {}

    def open(self) -> None:
        """See ``Source.open``."""
        self.backend.open()

    def sample(self, *, full: bool = True) -> Snapshot:
        """See ``Source.sample``."""
        now = self._clock.monotonic()
        if self._kernel is not None:
            heard = self._kernel.take()
            self.backend.hear(heard, is_readable=self._kernel.is_readable)
            reading = self.backend.read(full=full)
            reading = reading._replace(accidents=self._add_accidents(heard, reading))
        else:
            reading = self.backend.read(full=full)
            if reading.accidents is None:
                self._watch_kernel()
        return self._snapshot(reading, now)

    def past(self) -> Iterator[Snapshot]:
        """See ``Source.past``."""
        now = self._clock.monotonic()
        return (self._snapshot(reading, now) for reading in self.backend.past())

    def give_up(self, call: Call, /) -> bool:
        """See ``Source.give_up``."""
        return self.backend.give_up(call)

    def close(self) -> None:
        """See ``Source.close``."""
        self.backend.close()
        if self._kernel is not None:
            self._kernel.stop()
            self._kernel = None
        self._has_sampled = False
        self._forget()

    @property
    def hostname(self) -> str:
        """See ``Source.hostname``."""
        return self._machine.name

    @property
    def current_call(self) -> Call | None:
        """See ``Source.current_call``."""
        return self.backend.current_call

    @property
    def driver_seconds(self) -> float:
        """See ``Source.driver_seconds``."""
        return self.backend.driver_seconds

    def _snapshot(self, reading: Reading, now: float) -> Snapshot:
        listed = reading.listed
        if listed is not self._listed:
            if listed is None:
                self._forget()
            else:
                if self._reads_cgroups and reading.driver.pids_are_ours:
                    self._read_cgroups(listed, now)
                joined = self._join(listed, now, reading.driver)
                self._processes = plausible_processes(joined, reading.gpus)
                self._machine_now = self._machine.read()
                self._describe(reading.driver)
            self._listed = listed
        if reading.driver is not self._driver:
            self._describe(reading.driver)
        return Snapshot(
            time=reading.time,
            host=self._host,
            gpus=plausible_gpus(
                tuple(
                    [
                        self._with_host_memory(gpu)
                        if gpu.memory_unified and gpu.memory_total is None
                        else gpu
                        for gpu in reading.gpus
                    ]
                )
            ),
            processes=self._processes,
            processes_at=reading.listed_at,
            source=self.backend.name,
            trouble=reading.trouble,
            holders=reading.holders,
            allocations=reading.allocations,
            accidents=reading.accidents or (),
        )

    # Accidents

    def _watch_kernel(self) -> None:
        """Follow the kernel log from the second sample on; many commands wait for the first."""
        if not self._has_sampled:
            self._has_sampled = True
            return
        # Without a file for its modules, the next sample tries again.
        with tolerated_lack_of_files():
            from gpumon.makers.accidents import RecentAccidents, watcher_of

            self._accidents = self._accidents or RecentAccidents()
            self._kernel = watcher_of(self._system)
            self._kernel.start()

    def _add_accidents(
        self, heard: Sequence[Heard] | None, reading: Reading
    ) -> tuple[Accident, ...]:
        kernel, accidents = self._kernel, self._accidents
        if kernel is None or accidents is None:
            return ()
        if heard is not None:
            accidents.add(heard, reading.gpus, reading.time)
            accidents.add_error_codes(reading.gpus)
            kills = [] if self._cgroups is None else self._cgroups.take_kills()
            if not kernel.is_readable:
                accidents.add_kills(kills, reading.time)
        return accidents.at(reading.time)

    # Host

    def _describe(self, driver: DriverInfo) -> None:
        """Update the host from the driver and the machine."""
        self._driver = driver
        self._host = replace(
            self._machine_now or Host(self._machine.name),
            driver_version=driver.version,
            library_version=driver.library_version,
            cuda_version=driver.cuda_version,
            driver_since=driver.since,
            pids_are_ours=driver.pids_are_ours,
        )

    def _with_host_memory(self, gpu: Gpu) -> Gpu:
        """Fill in the memory of a GPU that uses the host's, if the driver does not report it.

        Its used memory is that of its processes, not that of the host (nvtop#511).
        """
        total, host_used = self._host.memory_total, self._host.memory_used
        if gpu.status is not GpuStatus.OK:
            known = {name: why for name, why in gpu.unknown.items() if name != "memory_total"}
            return replace(gpu, memory_total=total, unknown=known)
        unknown = {name: why for name, why in gpu.unknown.items() if name not in _MEMORY}
        used = None
        if "processes" in unknown:
            unknown["memory_used"] = unknown["processes"]
        else:
            uses = [
                u for process in self._processes for u in process.uses if u.gpu_uuid == gpu.uuid
            ]
            sizes = [use.memory_used for use in uses if use.memory_used is not None]
            used = sum(sizes) if len(sizes) == len(uses) else None
        free = None if total is None or host_used is None else total - host_used
        return replace(gpu, memory_total=total, memory_free=free, memory_used=used, unknown=unknown)

    # Processes

    def _read_cgroups(self, pids: Iterable[int], now: float) -> None:
        if self._cgroups is None:
            with tolerated_lack_of_files():
                from gpumon.host.cgroup_memory import CgroupMemoryReader

                self._cgroups = CgroupMemoryReader(self._system)
        self._memory = {} if self._cgroups is None else self._cgroups.read(pids, now)

    def _forget(self) -> None:
        """Forget all processes."""
        self._listed, self._processes, self._made = None, (), {}
        self._reader.keep_only(())

    def _join(
        self, listed: Mapping[int, ListedProcess], now: float, driver: DriverInfo
    ) -> tuple[GpuProcess, ...]:
        """The listed processes; an unchanged process is the same object as before."""
        self._reader.keep_only(listed.keys())
        before, self._made = self._made, {}
        for pid, entry in listed.items():
            info = self._reader.read(pid, now) if driver.pids_are_ours else None
            known, process = before.get(pid, (None, None))
            memory = None if info is None else self._memory.get(pid, info.cgroup_memory)
            state = None if info is None else info.state
            if info is None and driver.pids_are_ours and self._reader.has_ended(pid):
                state = ENDED
            if (
                process is None
                or known is not info
                or (process.type, process.uses, process.state) != (*entry, state)
                or process.cgroup_memory != memory
            ):
                process = _process(pid, info, entry, state, memory)
            self._made[pid] = info, process
        return tuple([process for _, process in self._made.values()])


def _process(
    pid: int,
    info: GpuProcess | None,
    listed: ListedProcess,
    state: str | None,
    memory: CgroupMemory | None,
) -> GpuProcess:
    if info is None:
        nobody = ProcessId(pid, None)
        return GpuProcess(nobody, listed.type, listed.uses, visible=False, state=state)
    return replace(info, type=listed.type, uses=listed.uses, state=state, cgroup_memory=memory)
