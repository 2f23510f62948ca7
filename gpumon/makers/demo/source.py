"""The demo as a backend: what its driver would say at each time, and its host beside it."""

from __future__ import annotations

import math
from copy import copy
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.makers.backend import DriverInfo, GpuBackend, ListedProcess, Reading
from gpumon.makers.demo.curves import mean, ripples, steady, together
from gpumon.makers.demo.gpus import (
    decoding_of,
    make_noise,
    memory_activity,
    read,
    utilization_of,
)
from gpumon.makers.demo.network import demo_nics
from gpumon.makers.demo.scenario import (
    GIB,
    GPU_LOST,
    HOUR,
    LEADS,
    LOST_GPU,
    LOST_PID,
    PAST,
    DemoMachine,
)
from gpumon.makers.demo.world import ScenarioState, World
from gpumon.makers.sampler import Sampler
from gpumon.makers.source import NoSuchGpuError
from gpumon.model.accidents import ACCIDENT_SECONDS, Accident, AccidentKind
from gpumon.model.makers import DeviceFiles
from gpumon.model.processes import GpuProcess, GpuUse, HolderScan
from gpumon.model.selection import ALL, GpuSelection
from gpumon.model.serving import ServerLoad
from gpumon.model.snapshot import Host
from gpumon.system.system import THIS_SYSTEM, System

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from gpumon.makers.demo.gpus import DemoGpu
    from gpumon.makers.demo.host import DemoHost
    from gpumon.makers.demo.scenario import RequestLoad, Share
    from gpumon.makers.demo.world import ProcessInstance, Role
    from gpumon.model.allocations import Allocation
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.model.topology import Topology
    from gpumon.system.system import Clock

ADA = DemoMachine()
"""The simulated machine of ``gpumon --demo``."""

PAST_STEPS: tuple[tuple[float, float], ...] = ((PAST, 60.0), (1800.0, 15.0), (120.0, 1.0))
"""From so many seconds before the start, the seconds from one snapshot to the next: as fine as the
charts of that past look, and no finer, since all of it is made before the screen takes keys."""


_TOKENS_OF_REQUEST, _PROMPT_SHARE = 220.0, 3.1
"""Tokens of a usual answer, and tokens of prompts for each generated token."""


class _Lists(Struct, frozen=True):
    """What the driver lists of its processes at one time, and who else holds the GPUs."""

    at: float  # When it was asked, seconds since the epoch.
    state: ScenarioState  # How the story went then.
    listed: Mapping[int, ListedProcess]  # Those with work on a GPU, by PID.
    info: Mapping[int, GpuProcess]  # What the host knows of them, by PID.
    holders: HolderScan | None  # Who only holds their device files; ``None`` before the demo began.
    used: tuple[int, ...]  # Bytes in use of each GPU.
    allocations: tuple[Allocation, ...]  # What Slurm has given to jobs.


class DemoBackend(GpuBackend):
    """The demo as a ``GpuBackend``, and what its host knows at the same there.

    Attributes:
        world: The machine.
        shown: Its GPUs that are selected.

    Args:
        seed: Chooses the machine: names of its GPUs, and when what rises and falls.
        clock: Where the time comes from.
        selection: The GPUs to show, with the processes on them.
        machine: What distinguishes it from other simulated machines.
    """

    name = "demo"
    device_files = DeviceFiles(gpu="/dev/nvidia{minor}", prefix="/dev/nvidia")

    def __init__(
        self, seed: int, clock: Clock, selection: GpuSelection, machine: DemoMachine
    ) -> None:
        random = Random(seed)  # noqa: S311 - a scenario, and no secret
        self.world = World(random, clock, machine)
        self.machine_name = machine.name
        self._start = self.world.start
        self._selection = selection
        self.shown = [c for c in self.world.gpus if selection.includes(c.index, c.uuid)]
        self._leads = self._on({gpu.index for gpu in self.shown})
        # What the kernel log would have: the line of the GPU that is lost.
        self._accidents = tuple(
            [
                Accident(
                    self._start + GPU_LOST,
                    AccidentKind.ERROR_CODE,
                    gpu.uuid,
                    number=79,
                    pid=LOST_PID,
                    process_name="python",
                    text="GPU has fallen off the bus.",
                )
                for gpu in self.shown
                if gpu.index == LOST_GPU and not gpu.sound
            ]
        )
        self._cpu_busy = together(
            steady(0.41), ripples(*make_noise(random, 0.06), (0.05, 97.0, random.random()))
        )
        self._lists: _Lists | None = None
        self._driver = DriverInfo(
            version="570.124.06",
            library_version="12.570.124.06",
            cuda_version="12.8",
            since=self._start - PAST,
        )

    def open(self) -> None:
        """Nothing to make ready; there may be nothing to show.

        Raises:
            NoSuchGpuError: When one was chosen that it does not have.
        """
        gpus = self.world.gpus
        missing = self._selection.missing(len(gpus), [gpu.uuid for gpu in gpus])
        if missing:
            raise NoSuchGpuError(missing, len(gpus), "The demo")

    def read(self, *, full: bool = True) -> Reading:  # noqa: ARG002 - the protocol's signature
        """The machine as it is now."""
        return self._at(self.world.clock.time())

    def past(self) -> Iterator[Reading]:
        """The four hours before the demo began, coarsely at first, by the second at the end.

        With it graphs are filled, and what is said of the past has been seen.
        """
        ends = (*(before for before, _ in PAST_STEPS[1:]), 0.0)
        for (before, step), end in zip(PAST_STEPS, ends, strict=True):
            for number in range(round((before - end) / step)):
                yield self._at(self._start - before + number * step)

    def _at(self, time: float) -> Reading:
        state = self.world.state
        lists = self._listed(time, state)
        return Reading(
            time=time,
            gpus=tuple(
                [
                    read(state.gpus[gpu.index], self._start, time, lists.used[gpu.index])
                    for gpu in self.shown
                ]
            ),
            driver=self._driver,
            listed=lists.listed,
            listed_at=lists.at,
            holders=lists.holders,
            allocations=lists.allocations,
            accidents=(
                self._accidents if 0 <= time - self._start - GPU_LOST < ACCIDENT_SECONDS else ()
            ),
        )

    def topology(self, gpus: Sequence[Gpu]) -> Topology:
        """See ``GpuBackend.topology``."""
        from gpumon.makers.demo.topology import demo_topology

        return demo_topology(gpus)

    def process(self, pid: int) -> GpuProcess | None:
        """What the host knew of a process when the lists were read."""
        return None if self._lists is None else self._lists.info.get(pid)

    def machine(self) -> Host:
        """How the machine was when the lists were read."""
        now = 0.0 if self._lists is None else self._lists.at - self._start
        busy = self._cpu_busy
        return Host(
            name=self.machine_name,
            cpu_percent=round(100 * mean(busy, now, 1.0), 1),
            cpu_count=96,
            load=(
                round(93 * mean(busy, now, 60.0), 2),
                round(93 * mean(busy, now, 300.0), 2),
                round(93 * mean(busy, now, 900.0), 2),
            ),
            memory_total=1008 * GIB,
            memory_used=int((205 + 17 * mean(busy, now, 20.0)) * GIB),
            nics=demo_nics(busy, now),
        )

    def _on(self, gpus: set[int]) -> list[tuple[Role, tuple[Share, ...]]]:
        """Who has a share of some of these GPUs, and which."""
        found = []
        for lead in LEADS:
            shares = tuple(share for share in lead.shares if share.gpu in gpus)
            if shares:
                found.append((self.world.roles[lead.pid], shares))
        return found

    def _listed(self, time: float, state: ScenarioState) -> _Lists:
        # Process lists have a slower pace than the GPUs, as they have with a real driver. What a
        # signal brought about and the loss of a GPU show at once, and the demo begins with a list.
        at = float(math.floor(time))
        now, asked = at - self._start, time - self._start
        changes = (GPU_LOST, 0.0, state.effects.newest(asked))
        newest = max((at for at in changes if at <= asked), default=now)
        if newest > now:
            at, now = self._start + newest, newest
        # Remembered for the samples that follow in the same second; it could as well be made anew.
        if self._lists is None or self._lists.at != at or self._lists.state is not state:
            found = self._processes(now, state)
            used = self.world.unattributed(now, state.effects)
            for process, _ in found:
                for use in process.uses:
                    used[use.gpu_index] += use.memory_used or 0
            # Who holds a GPU besides is looked for from the start on, as by a real gpumon.
            holders = self.world.scan(self.shown, now, state.effects) if now >= 0 else None
            listed = {info.id.pid: process for process, info in found}
            info = {info.id.pid: info for _, info in found}
            given = self.world.allocations(now, state.effects, self.shown)
            self._lists = _Lists(at, state, listed, info, holders, tuple(used), given)
        return self._lists

    def _processes(
        self, now: float, state: ScenarioState
    ) -> list[tuple[ListedProcess, GpuProcess]]:
        utilizations = [utilization_of(gpu, now) for gpu in state.gpus]
        found = []
        parts = [0.0] * len(utilizations)
        for role, shares in self._leads:
            instance = self.world.present(role, now, state.effects)
            if instance is not None:
                found.append((instance, shares))
                if not state.effects.stopped(instance.id, now):
                    for share in shares:
                        parts[share.gpu] += share.part
        return [
            self._process(instance, shares, now, state, utilizations, parts)
            for instance, shares in found
        ]

    def _process(
        self,
        instance: ProcessInstance,
        shares: tuple[Share, ...],
        now: float,
        state: ScenarioState,
        utilizations: list[int],
        parts: list[float],
    ) -> tuple[ListedProcess, GpuProcess]:
        role, actor = instance.role, instance.role.actor
        stopped = state.effects.stopped(instance.id, now)
        # Allocators take memory from the driver in large blocks.
        grown = int(actor.gib_per_hour * (now - instance.began) / HOUR * 8) * (GIB // 8)
        uses = []
        for share in shares:
            gpu = state.gpus[share.gpu]
            sm = 0
            if share.part and not stopped:
                # The utilisation of a GPU is that of the processes that work on it.
                sm = round(utilizations[share.gpu] * share.part / parts[share.gpu])
            decoder = decoding_of(gpu, now) if share.decodes and not stopped else 0
            uses.append(
                GpuUse(
                    gpu_uuid=gpu.uuid,
                    gpu_index=share.gpu,
                    memory_used=int(share.gib * 512) * (GIB // 512) + grown,
                    sm=sm,
                    memory_activity=memory_activity(sm),
                    encoder=0,
                    decoder=decoder,
                )
            )
        busy = utilizations[shares[0].gpu] / 100
        return ListedProcess(actor.type, tuple(uses)), GpuProcess(
            instance.id,
            "",
            (),
            user=actor.user,
            uid=role.uid,
            name=role.name,
            command=role.command,
            state=self.world.state_of(instance, now, state.effects),
            cpu_percent=0.0 if stopped else round(actor.cpu * (0.8 + 0.4 * busy), 1),
            rss=int(actor.rss_gib * GIB),
            started_at=self._start + instance.began,
            place=role.place,
            load=_load(actor.requests, state.gpus[shares[0].gpu], now, busy),
        )


def _load(requests: RequestLoad | None, gpu: DemoGpu, now: float, busy: float) -> ServerLoad | None:
    """What an inference server reports on this GPU, which is so busy just now, 0 to 1."""
    if requests is None:
        return None
    kv_cache = 0.0 if requests.has_kv_cache else None
    if now > requests.until:
        return ServerLoad(0, 0, 0.0, 0.0, 0.0, kv_cache)
    tokens = requests.tokens * mean(gpu.busy, now, 30.0)
    return ServerLoad(
        running=max(1, round(requests.at_once * busy)),
        # Requests wait once the KV cache is nearly full.
        waiting=max(0, round(requests.at_once * (busy - 0.5))),
        requests=round(tokens / _TOKENS_OF_REQUEST, 2),
        tokens=round(tokens, 1),
        prompt_tokens=round(tokens * _PROMPT_SHARE, 1),
        kv_cache=None if kv_cache is None else round(min(98.0, 20.0 + 130.0 * busy), 1),
    )


class _DemoMachine:
    """The machine around the demo's GPUs, as ``MachineReader`` reads a real one."""

    def __init__(self, backend: DemoBackend) -> None:
        self._backend = backend
        self.name = backend.machine_name

    def read(self) -> Host:
        """See ``MachineReader.read``."""
        return self._backend.machine()


class _DemoProcesses:
    """The demo's processes, as ``ProcessReader`` reads real ones."""

    def __init__(self, backend: DemoBackend) -> None:
        self._backend = backend

    def read(self, pid: int, now: float) -> GpuProcess | None:  # noqa: ARG002 - the protocol's signature
        """See ``ProcessReader.read``."""
        return self._backend.process(pid)

    def keep_only(self, pids: Collection[int]) -> None:
        """Nothing is kept."""

    def has_ended(self, pid: int) -> bool:  # noqa: ARG002 - as above
        """See ``ProcessReader.has_ended``: those that are not visible run elsewhere."""
        return False


class DemoSource(Sampler):
    """The demo as a ``Source``: the story begins when it is made. See ``DemoBackend``."""

    backend: DemoBackend

    def __init__(
        self,
        seed: int = 1,
        clock: Clock | None = None,
        selection: GpuSelection = ALL,
        machine: DemoMachine = ADA,
    ) -> None:
        clock = clock or THIS_SYSTEM.clock
        backend = DemoBackend(seed, clock, selection, machine)
        system = System(clock=clock)
        super().__init__(backend, system, _DemoMachine(backend), _DemoProcesses(backend))

    def past(self) -> Iterator[Snapshot]:
        """See ``Source.past``. A copy makes it, so that another thread may sample meanwhile."""
        backend = copy(self.backend)
        processes = _DemoProcesses(backend)
        system = System(clock=self._clock)
        return Sampler(backend, system, _DemoMachine(backend), processes).past()

    def host(self, *, readonly: bool = False) -> DemoHost:
        """The processes of this machine, to be inspected and signalled; none of them is real."""
        from gpumon.makers.demo.host import DemoHost

        return DemoHost(self.backend.world, self.backend.shown, readonly=readonly)
