"""The demo's processes as a ``ProcessHost``, which never affects a real process.

gpumon runs as ``scenario.ME``, with the permissions of an ordinary user: full access to own
processes, and of other processes what ``/proc`` shows to all users. Signals to these processes use
none of the functions of Python's module ``signal``.
"""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

from msgspec import structs

from gpumon.host import refusals
from gpumon.host.process_host import Details, ProcessStatus, RelatedProcess
from gpumon.makers.demo.background import GPUMON
from gpumon.makers.demo.scenario import GIB, ME, UIDS
from gpumon.makers.demo.world import INIT, Effect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpumon.host.process_host import ProcessHandle, Target
    from gpumon.makers.demo.gpus import DemoGpu
    from gpumon.makers.demo.scenario import Actor
    from gpumon.makers.demo.world import ProcessInstance, SignalEffects, World
    from gpumon.model.processes import GpuProcess, HolderScan, ProcessId, Workload
    from gpumon.model.snapshot import Snapshot

_STOPPING = {"STOP", "TSTP", "TTIN", "TTOU"}
_IGNORED = {"CHLD", "URG", "WINCH"}
_KILLED_AFTER = 0.15
"""Seconds that the kernel takes to end a large process."""


def own_line(world: World) -> Iterator[int]:
    """PIDs of the simulated gpumon and its ancestors without init."""
    above = GPUMON
    while above.pid > INIT:
        yield above.pid
        above = world.roles[above.parent].actor


def take(world: World, target: Target, *, readonly: bool) -> ProcessInstance:
    """The target's process, if it may be signalled.

    Raises:
        Refused: It must not be signalled, or it has ended.
    """
    pid = target.id.pid
    if readonly:
        raise refusals.read_only()
    if pid <= INIT:
        raise refusals.whole_system(pid)
    if pid == GPUMON.pid:
        raise refusals.gpumon_itself(pid)
    if pid in own_line(world):
        raise refusals.above_gpumon(pid)
    instance = world.everybody(world.now(), world.state.effects).get(pid)
    if instance is None:
        raise refusals.gone(pid)
    if instance.id != target.id:
        raise refusals.reused(pid)
    return instance


def deliver(world: World, target: Target, number: int, *, readonly: bool) -> None:
    """Send a signal to a process.

    Raises:
        Refused: It belongs to another user, must not be signalled, or has ended.
    """
    with world.lock:
        instance = take(world, target, readonly=readonly)
        role = instance.role
        if role.actor.user != ME:
            seen = structs.replace(target, uid=role.uid, user=role.actor.user, place=role.place)
            raise refusals.not_permitted(seen, number, UIDS[ME])
        effects = world.state.effects
        before = effects.by_process.get(instance.id) or Effect(instance)
        after = _effect(before, number, world.now())
        if after != before:
            followers = _followers(after, effects, world) if after.end < before.end else []
            world.change(effects.with_effects(after, *followers))


def _effect(effect: Effect, number: int, now: float) -> Effect:
    """The effect of a signal on its process."""
    stopped, name = effect.stopped(now), refusals.signal_name(number)
    if name == "KILL":
        return _ending(effect, now + _KILLED_AFTER)
    if name in _STOPPING:
        return effect if stopped else structs.replace(effect, turns=(*effect.turns, now))
    if name == "CONT":
        return _continued(effect, now) if stopped else effect
    if number == 0 or name in _IGNORED or effect.instance.role.actor.stubborn:
        return effect
    if stopped:
        return structs.replace(effect, pending=True)
    return _ending(effect, now + _tidying(effect.instance))


def _continued(effect: Effect, now: float) -> Effect:
    going = structs.replace(effect, turns=(*effect.turns, now))
    return _ending(going, now + _tidying(effect.instance)) if effect.pending else going


def _followers(ended: Effect, effects: SignalEffects, world: World) -> list[Effect]:
    """The effects of a process's end on its descendants: all but stubborn ones end too."""
    followers = []
    for instance in world.everybody(world.now(), effects).values():
        actor = instance.role.actor
        if actor.parent == ended.instance.id.pid and not actor.stubborn:
            effect = _ending(
                effects.by_process.get(instance.id) or Effect(instance),
                ended.end + _tidying(instance) / 4,
            )
            followers += [effect, *_followers(effect, effects, world)]
    return followers


def _ending(effect: Effect, end: float) -> Effect:
    return structs.replace(effect, end=min(effect.end, end))


def _tidying(instance: ProcessInstance) -> float:
    """Seconds that a process takes to end after a signal: from 0.4 to 1."""
    return 0.4 + instance.id.pid % 13 * 0.05


_LOOK_SECONDS = 0.05
"""Seconds between two checks while waiting."""


class DemoHost:
    """Inspects and signals the demo's processes; see ``ProcessHost``. Thread-safe."""

    uid = UIDS[ME]
    user = ME

    def __init__(self, world: World, gpus: Sequence[DemoGpu], *, readonly: bool = False) -> None:
        self._world = world
        self._gpus = gpus
        self.readonly = readonly

    def workloads(self, processes: Sequence[GpuProcess]) -> Mapping[ProcessId, Workload]:
        """See ``ProcessHost.workloads``."""
        there = _WorldNow(self._world)
        found = [there.find(process.id) for process in processes]
        return {instance.id: instance.role.place for instance in found if instance is not None}

    def scan(self, snapshot: Snapshot) -> HolderScan:  # noqa: ARG002 - the demo knows its GPUs
        """See ``ProcessHost.scan``."""
        return self._world.scan(self._gpus, self._world.now(), self._world.state.effects)

    def relatives(self, roots: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:
        """See ``ProcessHost.relatives``."""
        return _WorldNow(self._world).relatives(roots)

    def details(self, process: ProcessId) -> Details | None:
        """See ``ProcessHost.details``."""
        there = _WorldNow(self._world)
        instance = there.find(process)
        if instance is None:
            return None
        role, actor = instance.role, instance.role.actor
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
            state=there.state_of(instance),
            devices=_devices(actor) if mine else None,
            place=role.place,
            family=there.relatives([process]),
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


class _WorldNow:
    """The processes at one time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._now = world.now()
        self._effects = world.state.effects
        self._everybody = world.everybody(self._now, self._effects)

    def find(self, process: ProcessId) -> ProcessInstance | None:
        """The process, if it exists."""
        instance = self._everybody.get(process.pid)
        return instance if instance is not None and instance.id == process else None

    def state_of(self, instance: ProcessInstance) -> str:
        """Its state, as in ``ps``."""
        return self._world.state_of(instance, self._now, self._effects)

    def relatives(self, roots: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:
        """See ``ProcessHost.relatives``."""
        parents = {
            pid: self._world.parent(instance, self._now, self._effects)
            for pid, instance in self._everybody.items()
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
            self._relative(instance, parents[pid])
            for pid, instance in self._everybody.items()
            if pid in family or pid in below
        )

    def _relative(self, instance: ProcessInstance, parent: int) -> RelatedProcess:
        role = instance.role
        return RelatedProcess(
            id=instance.id,
            parent=parent,
            group=role.group or instance.id.pid,
            session=role.session,
            name=role.name,
            command=role.command,
            user=role.actor.user,
            uid=role.uid,
            state=self.state_of(instance),
            threads=role.actor.threads,
            rss=int(role.actor.rss_gib * GIB),
            started_at=self._world.start + instance.began,
            protected=instance.id.pid in own_line(self._world),
        )


class _DemoHandle:
    """See ``ProcessHandle``."""

    def __init__(self, world: World, target: Target, readonly: bool) -> None:
        self.target = target
        self._world = world
        self._readonly = readonly
        self._instance = take(world, target, readonly=readonly)

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
        end = min(self._instance.until, self._world.state.effects.end(self._instance.id))
        return self._world.now() >= end

    def status(self) -> ProcessStatus | None:
        """See ``ProcessHandle.status``."""
        if self.ended():
            return None
        return ProcessStatus(
            self._world.state_of(self._instance, self._world.now(), self._world.state.effects)
        )

    def close(self) -> None:
        """See ``ProcessHandle.close``."""


def _devices(actor: Actor) -> tuple[str, ...]:
    """Its open device files: a process with that of a GPU has those of the driver, too."""
    gpus = {share.gpu for share in actor.shares} | set(actor.inherited)
    if not gpus:
        return ()
    return tuple(sorted(("/dev/nvidia-uvm", "/dev/nvidiactl", *(f"/dev/nvidia{c}" for c in gpus))))
