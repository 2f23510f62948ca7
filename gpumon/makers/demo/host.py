"""The demo's processes as a ``ProcessHost``, which never affects a real process.

gpumon runs as ``scenario.ME``, with the permissions of an ordinary user: full access to own
processes, and of other processes what ``/proc`` shows to all users.
"""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

from gpumon.host.process_host import Details, ProcessStatus, RelatedProcess
from gpumon.makers.demo.instances import INIT
from gpumon.makers.demo.scenario import GIB, ME, UIDS
from gpumon.makers.demo.signals import deliver, own_line, take

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpumon.host.process_host import ProcessHandle, Target
    from gpumon.makers.demo.gpus import DemoGpu
    from gpumon.makers.demo.instances import ProcessInstance
    from gpumon.makers.demo.scenario import Actor
    from gpumon.makers.demo.world import World
    from gpumon.model.processes import GpuProcess, HolderScan, ProcessId, Workload
    from gpumon.model.snapshot import Snapshot

_LOOK_SECONDS = 0.05
"""Seconds between two checks while waiting."""


class DemoHost:
    """Inspects and signals the demo's processes; see ``ProcessHost``. Thread-safe.

    Args:
        world: The simulated machine.
        gpus: The selected GPUs.
        readonly: Whether every signal is refused.
    """

    uid = UIDS[ME]
    user = ME

    def __init__(self, world: World, gpus: Sequence[DemoGpu], *, readonly: bool = False) -> None:
        self._world = world
        self._gpus = gpus
        self.readonly = readonly

    def workloads(self, processes: Sequence[GpuProcess]) -> Mapping[ProcessId, Workload]:
        """See ``ProcessHost.workloads``."""
        moment = _Moment(self._world)
        found = [moment.find(process.id) for process in processes]
        return {being.id: being.role.place for being in found if being is not None}

    def scan(self, snapshot: Snapshot) -> HolderScan:  # noqa: ARG002 - the demo knows its GPUs
        """See ``ProcessHost.scan``."""
        return self._world.scan(self._gpus, self._world.now(), self._world.state.deeds)

    def relatives(self, roots: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:
        """See ``ProcessHost.relatives``."""
        return _Moment(self._world).relatives(roots)

    def details(self, process: ProcessId) -> Details | None:
        """See ``ProcessHost.details``."""
        moment = _Moment(self._world)
        being = moment.find(process)
        if being is None:
            return None
        role, actor = being.role, being.role.actor
        mine = actor.user == ME
        readers = "root" if role.uid == 0 else f"{actor.user} and root"
        refused = (
            "Its environment, program, working directory and open files are readable by "
            f"{readers} only."
        )
        return Details(
            id=process,
            command=role.command,
            executable=(actor.executable or f"/usr/bin/{role.name}") if mine else None,
            cwd=self._cwd(actor) if mine else None,
            environment=tuple(self._environment(actor).items()) if mine else None,
            threads=actor.threads,
            state=moment.letter(being),
            devices=_devices(actor) if mine else None,
            place=role.place,
            family=moment.relatives([process]),
            unreadable=() if mine else (refused,),
        )

    def open_handle(self, target: Target) -> ProcessHandle:
        """See ``ProcessHost.open_handle``."""
        return _DemoHandle(self._world, target, self.readonly)

    def wait(self, handles: Sequence[ProcessHandle], seconds: float) -> None:
        """See ``ProcessHost.wait``; returns at once if one had ended already."""
        clock, never = self._world.clock, Event()
        deadline = clock.monotonic() + seconds
        while not any(handle.ended() for handle in handles):
            left = deadline - clock.monotonic()
            if left <= 0:
                return
            clock.wait(never, min(left, _LOOK_SECONDS))

    def _environment(self, actor: Actor) -> dict[str, str]:
        """Its environment: that of its parent with its own variables."""
        parent = self._world.roles.get(actor.parent)
        return {**(self._environment(parent.actor) if parent else {}), **actor.environment}

    def _cwd(self, actor: Actor) -> str:
        parent = self._world.roles.get(actor.parent)
        return actor.cwd or (self._cwd(parent.actor) if parent else "/")


class _Moment:
    """The processes at one time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._now = world.now()
        self._deeds = world.state.deeds
        self._everybody = world.everybody(self._now, self._deeds)

    def find(self, process: ProcessId) -> ProcessInstance | None:
        """The process, if it exists."""
        being = self._everybody.get(process.pid)
        return being if being is not None and being.id == process else None

    def letter(self, being: ProcessInstance) -> str:
        """Its state, as in ``ps``."""
        return self._world.letter(being, self._now, self._deeds)

    def relatives(self, roots: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:
        """See ``ProcessHost.relatives``."""
        parents = {
            pid: self._world.parent(being, self._now, self._deeds)
            for pid, being in self._everybody.items()
        }
        family = {root.pid for root in roots if self.find(root) is not None}
        # Parents stand before their children, so one pass finds all descendants.
        below = set(family)
        for pid, parent in parents.items():
            if parent in below:
                below.add(pid)
        for pid in family.copy():
            above = parents[pid]
            while above > INIT:
                family.add(above)
                above = parents[above]
        return tuple(
            self._relative(being, parents[pid])
            for pid, being in self._everybody.items()
            if pid in family or pid in below
        )

    def _relative(self, being: ProcessInstance, parent: int) -> RelatedProcess:
        role = being.role
        return RelatedProcess(
            id=being.id,
            parent=parent,
            group=role.group or being.id.pid,
            session=role.session,
            name=role.name,
            command=role.command,
            user=role.actor.user,
            uid=role.uid,
            state=self.letter(being),
            threads=role.actor.threads,
            rss=int(role.actor.rss_gib * GIB),
            started_at=self._world.start + being.began,
            protected=being.id.pid in own_line(self._world),
        )


class _DemoHandle:
    """See ``ProcessHandle``."""

    def __init__(self, world: World, target: Target, readonly: bool) -> None:
        self.target = target
        self._world = world
        self._readonly = readonly
        self._being = take(world, target, readonly=readonly)

    def send(self, number: int) -> None:
        """See ``ProcessHandle.send``."""
        deliver(self._world, self.target, number, readonly=self._readonly)

    def freeze(self) -> None:
        """See ``ProcessHandle.freeze``; simulated processes do not fork while they are killed."""

    def thaw(self) -> bool:
        """See ``ProcessHandle.thaw``."""
        return False

    def ended(self) -> bool:
        """See ``ProcessHandle.ended``."""
        end = min(self._being.until, self._world.state.deeds.end(self._being.id))
        return self._world.now() >= end

    def status(self) -> ProcessStatus | None:
        """See ``ProcessHandle.status``."""
        if self.ended():
            return None
        return ProcessStatus(
            self._world.letter(self._being, self._world.now(), self._world.state.deeds)
        )

    def close(self) -> None:
        """See ``ProcessHandle.close``."""


def _devices(actor: Actor) -> tuple[str, ...]:
    """Its open device files: a process with that of a GPU has those of the driver, too."""
    gpus = {share.gpu for share in actor.shares} | set(actor.inherited)
    if not gpus:
        return ()
    return tuple(sorted(("/dev/nvidia-uvm", "/dev/nvidiactl", *(f"/dev/nvidia{c}" for c in gpus))))
