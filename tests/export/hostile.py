"""Snapshots whose every text was chosen by somebody else."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.model.accidents import Accident, AccidentKind
from gpumon.model.allocations import Allocation
from gpumon.model.network import Nic, NicKind
from gpumon.model.processes import (
    CgroupMemory,
    Container,
    GpuProcess,
    GpuUse,
    HolderScan,
    HoldReason,
    ProcessId,
    UnlistedHolder,
    Workload,
)
from gpumon.model.serving import InferenceServer, ServerLoad
from gpumon.model.snapshot import (
    Gpu,
    Host,
    MigInstance,
    OwnCost,
    Reserved,
    Snapshot,
    Trouble,
)

TEXTS = (
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd",
    "-2+3",
    "+1",
    "\t=1+1",
    "\r=1+1",
    " =1+1",
    "＝1+1",
    "\x1b]0;owned\x07",
    "\x9b31m",
    "a\nb\r\nc",
    'quote " comma , semicolon ;',
    "back\\slash \\n {braces} }",
    "\udcff bad byte",
    "\ud800",
    "\U0001f600 wide",
    "right \u202e left",
    "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION gauge\n",
    "",
    "\x00",
)

texts = st.one_of(
    st.sampled_from(TEXTS), st.text(st.characters()), st.text("=+-@\t\r\n\"',\\ \ud800\x1b")
)


def place_of(text: str, launcher: ProcessId = ProcessId(4700, 98)) -> Workload:  # noqa: B008 - frozen
    """A place with the text wherever a text may stand."""
    return Workload(
        container=Container(runtime=text, id=text, name=text, pod=text, namespace=text),
        slurm_job=text,
        slurm_step=text,
        jupyter_kernel=text,
        notebook=text,
        tmux=text,
        environment=text,
        launcher=launcher,
        launcher_name=text,
        server=InferenceServer(text, text, 4700, 98, text, text),
    )


def whole_snapshot(text: str) -> Snapshot:
    """A snapshot with a value of each struct of the model."""
    taken = snapshot_of(text)
    (process,) = taken.processes
    return replace(
        taken,
        host=replace(taken.host, nics=(Nic(text, NicKind.ROCE),)),
        processes=(replace(process, cgroup_memory=CgroupMemory(text, 970, 1000)),),
        trouble=Trouble(text, text),
        cost=OwnCost(),
        reserved=(Reserved(text, user=text, pid=5, since=2.0, command=text),),
    )


def snapshot_of(text: str) -> Snapshot:
    """A card, a MIG instance and a process, and the text wherever a text may stand."""
    suspect = UnlistedHolder(
        id=ProcessId(4712, 100),
        gpu_uuids=(text,),
        reason=HoldReason.ORPHAN,
        sentence=text,
        user=text,
        name=text,
        command=(text,),
    )
    use = GpuUse(gpu_uuid=text, gpu_index=0, instance=(1, 0), memory_used=2**20, sm=5)
    return Snapshot(
        time=1_763_700_000.5,
        host=Host(name=text, driver_version=text, library_version=text, cuda_version=text),
        gpus=(
            Gpu(
                index=0,
                uuid=text,
                name=text,
                pci_bus_id=text,
                architecture=text,
                compute_capability=text,
                vbios_version=text,
                serial=text,
                memory_used=2**20,
                recovery_action=text,
                compute_mode=text,
                mig=(MigInstance(uuid=text, index=0, profile=text),),
            ),
        ),
        processes=(
            GpuProcess(
                id=ProcessId(4711, 99),
                type="C",
                uses=(use,),
                user=text,
                name=text,
                command=(text, text),
                state="R",
                place=place_of(text),
                load=ServerLoad(1, models=(text, text), problem=text),
            ),
        ),
        processes_at=1_763_700_000.0,
        holders=HolderScan(at=1_763_700_000.0, suspects=(suspect,)),
        allocations=(Allocation(scheduler=text, job=text, user=text, devices=(text,), nodes=text),),
        accidents=(
            Accident(1.0, AccidentKind.OTHER, text, None, 7, text, text, text, cgroup=text),
        ),
    )
