"""What a report reads: rows of the two files of a log, merged by time."""

from __future__ import annotations

from msgspec import Struct

from gpumon.availability import normal_with_reserve
from gpumon.model.processes import Container, ProcessId  # noqa: TC001 - msgspec resolves annotations

PATIENCE = 2.5
"""Number of usual intervals for which a sample counts at most; a longer interval has a gap."""


class GpuSample(Struct, frozen=True, gc=False):
    """A row of the GPU file; ``None`` is unknown.

    All fields but the time are those of columns, see ``gpumon.recording.csv.columns``. In a log of
    several machines ``host_name`` is the name by which the user knows the machine.
    """

    time: float
    index: int | None
    uuid: str | None
    pci_bus_id: str | None
    name: str | None
    utilization_gpu: float | None
    sm_active: float | None
    memory_used: float | None
    memory_total: float | None
    power_draw: float | None
    power_limit_max: float | None
    energy: float | None
    clock_event_reasons: int | None
    clock_events_known: int | None
    ecc_uncorrected_volatile: int | None
    ecc_uncorrected_aggregate: int | None
    xid: int | None
    xid_at: float | None
    status: str | None
    processes: int | None
    age: float | None
    host_name: str | None
    elapsed: float | None
    serial: str | None

    @property
    def gpu(self) -> str:
        """The key of the GPU on its host."""
        known = self.uuid or self.pci_bus_id
        if known is None and self.index is None and self.serial is not None:
            return f"serial {self.serial}"
        return known or f"index {self.index}"

    @property
    def holds_memory(self) -> bool | None:
        """Whether more memory is in use than an unused GPU needs."""
        if self.memory_used is None:
            return None
        # A log may not say whether the driver's reserve counts as used.
        return self.memory_used > normal_with_reserve(self.memory_total)

    def ecc_errors(self, after: GpuSample) -> int | None:
        """New uncorrected errors; the volatile counter restarts when the driver is loaded."""
        old, new = self.ecc_uncorrected_volatile, after.ecc_uncorrected_volatile
        old_ever, new_ever = self.ecc_uncorrected_aggregate, after.ecc_uncorrected_aggregate
        found = None
        if old is not None and new is not None:
            found = new - old if new >= old else new
        if old_ever is not None and new_ever is not None:
            ever = new_ever - old_ever
            if found is None or ever > found:
                found = max(0, ever)
        return found


class ListedUse(Struct, frozen=True, gc=False):
    """A row of the process file: the use that one process makes of one GPU or a part of it.

    Its time is that of its sample. The fields from ``user`` on are set only if the owners were
    requested; ``hostname`` only in a log of several machines.
    """

    time: float
    gpu_index: int | None
    gpu_uuid: str | None
    gpu_instance: int | None
    compute_instance: int | None
    pid: int
    type: str | None
    memory_used: float | None
    sm: float | None
    cpu_percent: float | None
    state: str | None
    hostname: str | None
    user: str | None = None
    started_at: float | None = None
    start_ticks: int | None = None
    name: str | None = None
    command: str | None = None
    container: Container | None = None
    slurm_job: str | None = None
    session: int | None = None
    launcher: ProcessId | None = None
    launcher_name: str | None = None

    @property
    def gpu(self) -> str:
        """The same key as that of the GPU's sample."""
        return self.gpu_uuid or f"index {self.gpu_index}"

    @property
    def use(self) -> tuple[object, ...]:
        """Distinguishes it from the other rows of its list."""
        process = self.pid, self.started_at, self.start_ticks
        return *process, self.gpu, self.gpu_instance, self.compute_instance


class MergedSample(Struct):
    """The GPUs of one host at one time, from one log."""

    log: int  # number of the log among those read; its ``elapsed`` is comparable with its own only
    host: str | None  # name of the machine; ``None`` if the log does not say
    time: float  # seconds since the epoch, which within a file never run backwards
    elapsed: float | None  # seconds of the monotonic clock; ``None`` if the log has none
    gpus: dict[str, GpuSample]  # one sample per GPU
    began: float  # time of the first sample of the log
    listed: list[ListedUse] = []  # the processes, if a list was written then
    usual: float = 0.0  # the usual sampling interval of the log at that time; 0 for a single sample
    is_last: bool = False  # whether the log ends with it

    @property
    def reach(self) -> float:
        """Maximum number of seconds for which its samples count."""
        return PATIENCE * self.usual
