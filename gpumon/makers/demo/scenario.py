"""The scenario of the demo: its times, its users, and the definition of an actor.

Times are in seconds after the demo's start, so most are negative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time

from msgspec import Struct

from gpumon.model.processes import Workload

GIB = 2**30

MINUTE = 60.0
HOUR = 3600.0
DAY = 86400.0

PAST = 4 * HOUR
"""Length of the simulated history before the demo's start."""
GPU_LOST = -5.5 * MINUTE
MACHINE_BOOT = -41 * DAY

LOST_GPU = 6
STRAY_GPU = 7
"""The GPU with memory that no process accounts for."""

ME = "ann"
"""The user who runs gpumon on the simulated machine."""
UIDS = {
    "root": 0,
    "svc-llm": 988,
    "ann": 1004,
    "bo": 1006,
    "chen": 1009,
    "dara": 1011,
    "erin": 1013,
    "finn": 1015,
    "gina": 1018,
    "hugo": 1021,
}


class Share(Struct, frozen=True):
    """The use that a process makes of one GPU.

    Attributes:
        gpu: Index of the GPU.
        gib: GPU memory at its start.
        part: Its share of the GPU's utilization.
        decodes: Whether it uses the video decoder.
    """

    gpu: int
    gib: float
    part: float = 0.0
    decodes: bool = False


class Runs(Struct, frozen=True):
    """The runs of an actor: one, or repeated for ever, also before ``started``.

    Attributes:
        started: When a run starts, in seconds after the demo's start.
        lasts: Duration of a run in seconds.
        every: Seconds from the start of a run to that of the next; infinite for a single run.
    """

    started: float
    lasts: float = math.inf
    every: float = math.inf


class Actor(Struct, frozen=True):
    """A process of the scenario, or one that runs repeatedly with a new PID each time.

    Attributes:
        pid: Its PID; each further run has a higher one.
        parent: PID of the process that started it.
        user: Its owner.
        command: Its command line.
        runs: When it runs.
        shares: Its use of GPUs.
        type: C, G or M.
        cpu: Percent of a core while its first GPU is half busy.
        rss_gib: Resident host memory.
        gib_per_hour: Growth of its GPU memory on each GPU.
        name: The kernel's short name of it, if not that of its program.
        threads: Number of threads.
        leads: Whether it leads a session of its own.
        where: What starts with it, also for its children: a container, Slurm step or tmux session.
        executable: Path of its program, if not ``/usr/bin`` with its name.
        cwd: Its working directory, if not that of its parent.
        environment: What it adds to the environment of its parent.
        inherited: GPUs whose device file it holds although the driver does not list it there.
        keeps_gib: Memory of the first of those GPUs that it holds after its parent ended.
        stubborn: Whether only SIGKILL ends it, and not the end of its parent.
    """

    pid: int
    parent: int
    user: str
    command: str
    runs: Runs
    shares: tuple[Share, ...] = ()
    type: str = "C"
    cpu: float = 0.0
    rss_gib: float = 0.01
    gib_per_hour: float = 0.0
    name: str | None = None
    threads: int = 1
    leads: bool = False
    where: Workload = Workload()
    executable: str | None = None
    cwd: str | None = None
    environment: Mapping[str, str] = {}
    inherited: tuple[int, ...] = ()
    keeps_gib: float = 0.0
    stubborn: bool = False


class DemoMachine(Struct, frozen=True):
    """What distinguishes one simulated machine from another.

    Attributes:
        name: Its host name.
        empty: Indices of the GPUs that only recurring processes use.
        sound: Whether none of its GPUs is lost or hot.
    """

    name: str = "ada-07"
    empty: frozenset[int] = frozenset()
    sound: bool = False


VISITS = Runs(started=75.0, lasts=4 * MINUTE, every=13 * MINUTE)
TRANSCRIPTIONS = Runs(started=-40.0, lasts=2 * MINUTE, every=5 * MINUTE)
