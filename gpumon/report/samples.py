"""What a report reads: samples of GPUs, and the processes that are listed with them.

What seldom changes from row to row is an object of its own, which equal rows share.
"""

from __future__ import annotations

from msgspec import Struct

from gpumon.availability import normal_with_reserve
from gpumon.model.processes import Container, ProcessId  # noqa: TC001 - msgspec resolves annotations
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.recording.csv.allocation_cells import AllocatedGpu, Jobs, Users

PATIENCE = 2.5
"""Number of usual intervals for which a sample counts at most; a longer interval has a gap."""

Identity = tuple[int, float | None]
"""PID and start, in clock ticks since boot or, where those are not known, in seconds."""


class SteadyGpu(Struct, gc=False):
    """What seldom changes from sample to sample of a GPU; ``None`` is unknown.

    All fields but ``key`` are those of columns, see ``gpumon.recording.csv.columns``.
    """

    index: int | None
    uuid: str | None
    pci_bus_id: str | None
    name: str | None
    memory_total: float | None
    power_limit_max: float | None
    clock_event_reasons: int | None
    clock_events_known: int | None
    ecc_uncorrected_volatile: int | None
    ecc_uncorrected_aggregate: int | None
    xid: int | None
    xid_at: float | None
    status: str | None
    processes: int | None
    # In a log of several machines the name by which the user knows the machine.
    host_name: str | None
    serial: str | None
    # Of the jobs that it is allocated to.
    allocations: int | None
    allocated_jobs: Jobs | None
    allocated_users: Users | None
    # Identifies the GPU on its host.
    key: str = ""

    def __post_init__(self) -> None:
        """Find the key."""
        known = self.uuid or self.pci_bus_id
        if known is None and self.index is None and self.serial is not None:
            known = f"serial {self.serial}"
        self.key = known or f"index {self.index}"

    @property
    def allocated(self) -> AllocatedGpu:
        """The jobs that it is allocated to."""
        return AllocatedGpu(self.allocations, self.allocated_jobs, self.allocated_users)

    def ecc_errors(self, after: SteadyGpu) -> int | None:
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


class GpuSample(Struct, frozen=True, gc=False):
    """A row of the GPU file; ``None`` is unknown."""

    time: float
    utilization_gpu: float | None
    sm_active: float | None
    memory_used: float | None
    power_draw: float | None
    energy: float | None
    age: float | None
    elapsed: float | None
    state: SteadyGpu

    @property
    def holds_memory(self) -> bool | None:
        """Whether more memory is in use than an unused GPU needs."""
        if self.memory_used is None:
            return None
        # A log may not say whether the driver's reserve counts as used.
        return self.memory_used > normal_with_reserve(self.state.memory_total)


class SteadyUse(Struct, gc=False):
    """What seldom changes from list to list of a process on a GPU, or on a part of it.

    The fields from ``user`` on are set only if the owners were requested.
    """

    gpu_index: int | None
    gpu_uuid: str | None
    gpu_instance: int | None
    compute_instance: int | None
    pid: int
    type: str | None
    # Only in a log of several machines.
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
    # Of its inference server, see ``GpuProcess.server_id``.
    server_id: ProcessId | None = None
    engine: str | None = None
    model: str | None = None
    # The key of its GPU, as in the GPU's sample.
    gpu: str = ""
    # Distinguishes the process from a later one with the same PID.
    identity: Identity = (0, None)
    # Distinguishes its use of the GPU from the others of a list.
    use: tuple[object, ...] = ()

    def __post_init__(self) -> None:
        """Find the keys."""
        ticks = self.start_ticks
        self.gpu = self.gpu_uuid or f"index {self.gpu_index}"
        self.identity = self.pid, self.started_at if ticks is None else ticks
        process = self.pid, self.started_at, ticks
        self.use = *process, self.gpu, self.gpu_instance, self.compute_instance

    @property
    def server(self) -> InferenceServer | None:
        """Its inference server."""
        if self.engine is None or self.server_id is None:
            return None
        server = self.server_id
        return InferenceServer(self.engine, self.model, server.pid, server.start_time)


PROCESS_COLUMNS = SteadyUse.__struct_fields__[:-3]
USE_COLUMNS = PROCESS_COLUMNS[: PROCESS_COLUMNS.index("user")]
"""The columns of a process; with its owner and place, and without."""


class ListedUse(Struct, frozen=True, gc=False):
    """A row of the process file; ``None`` is unknown. Its time is that of its sample."""

    time: float
    memory_used: float | None
    sm: float | None
    cpu_percent: float | None
    state: str | None
    # Of its inference server as a whole.
    running: int | None
    waiting: int | None
    requests: float | None
    tokens: float | None
    prompt_tokens: float | None
    process: SteadyUse

    @property
    def load(self) -> ServerLoad:
        """What its inference server reported, as far as a report needs it."""
        return ServerLoad(
            self.running, self.waiting, self.requests, self.tokens, self.prompt_tokens
        )


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
