"""Cards, processes and snapshots in a line, for tests: what is not named is unremarkable."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from gpumon.model.makers import DeviceFiles
from gpumon.model.processes import GpuProcess, GpuUse, ProcessId
from gpumon.model.snapshot import Gpu, Host, Snapshot
from gpumon.sampling.machine import Machine

if TYPE_CHECKING:
    from gpumon.host.process_host import ProcessHost
    from gpumon.makers.source import Source
    from gpumon.recording.recording import Event

GIB = 2**30
NOON = 1_699_963_200.0
"""A time to begin at: 14 November 2023, 12:00 UTC, so that minutes and hours begin there too."""

_GPU = Gpu(
    index=0,
    uuid="GPU-0",
    name="NVIDIA H100 80GB HBM3",
    memory_used=GIB // 2,
    memory_free=79 * GIB,
    memory_total=80 * GIB,
    memory_unified=False,
    utilization_gpu=0,
    utilization_memory=0,
    temperature_gpu=40,
    temperature_slowdown=92,
    power_draw=70.0,
    power_limit=700.0,
    clock_sm=1980,
    clock_event_reasons=0,
)


class GivenMachine(Machine):
    """A machine of these parts."""

    def __init__(self, source: Source, processes: ProcessHost) -> None:
        self._source = source
        self.processes = processes

    @property
    def source(self) -> Source:
        """See ``Machine.source``."""
        return self._source


def device_files(folder: object = "/dev") -> DeviceFiles:
    """Device files named as NVIDIA's driver names them, in a folder of their own."""
    return DeviceFiles(gpu=f"{folder}/nvidia{{minor}}", prefix=f"{folder}/nvidia")


def gpu(**changes: object) -> Gpu:
    """An idle H100 with index 0 and UUID ``GPU-0``, or ``GPU-n`` for the index n."""
    if "index" in changes:
        changes.setdefault("uuid", f"GPU-{changes['index']}")
    return msgspec.structs.replace(_GPU, **changes)


def process(
    pid: int = 100,
    *,
    memory_used: int | None = GIB,
    sm: int | None = 0,
    gpus: tuple[int, ...] = (0,),
    start_time: int | None = 1,
    type_: str = "C",
    user: str | None = "ann",
    visible: bool = True,
    started_at: float | None = NOON - 86400,
) -> GpuProcess:
    """A process of ann's that has computed since a day before ``NOON``; the memory is per card."""
    uses = tuple(
        GpuUse(gpu_uuid=f"GPU-{index}", gpu_index=index, memory_used=memory_used, sm=sm)
        for index in gpus
    )
    return GpuProcess(
        id=ProcessId(pid, start_time),
        type=type_,
        uses=uses,
        visible=visible,
        user=user,
        started_at=started_at,
    )


def snapshot(
    time: float = NOON,
    *gpus: Gpu,
    processes: tuple[GpuProcess, ...] = (),
    processes_at: float | None = 0.0,
    in_container: bool | None = None,
    pids_are_ours: bool = True,
) -> Snapshot:
    """A snapshot with one idle card unless others are given.

    The processes were listed at ``processes_at``, ``None`` for never, or just then by default.
    """
    return Snapshot(
        time=time,
        host=Host(name="ada-07", in_container=in_container, pids_are_ours=pids_are_ours),
        gpus=gpus or (gpu(),),
        processes=processes,
        processes_at=time if processes_at == 0.0 else processes_at,
    )


def recording_of(*events: Event) -> Any:
    """A recording in which no more than these events happened."""
    return SimpleNamespace(
        events=lambda first, last: [event for event in events if first <= event.time <= last]
    )
