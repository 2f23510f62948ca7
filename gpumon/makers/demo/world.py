"""The machine of the demo: which processes it has at a time, and how much work its GPUs have left.

Times are in seconds after the demo's start. Effects of signals are never removed or changed for the
past, so that one time always gives one snapshot.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time
from threading import Lock
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from gpumon.allocations.host_lists import expand_hosts
from gpumon.host.holder_reasons import rank
from gpumon.makers.demo.background import EXTRAS
from gpumon.makers.demo.gpus import DRIVER_CLIENTS, GPUS, DemoGpu, make_gpus
from gpumon.makers.demo.scenario import (
    GIB,
    JOB_STUCK,
    JOBS,
    LEADS,
    MACHINE_BOOT,
    ME,
    NODES_JOB,
    PAST,
    UIDS,
    Actor,
)
from gpumon.model.allocations import SLURM, Allocation
from gpumon.model.processes import HolderScan, HoldReason, ProcessId, UnlistedHolder, Workload
from gpumon.text.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from gpumon.makers.demo.scenario import DemoMachine, Share
    from gpumon.system.system import Clock

INIT = 1
TICKS_PER_SECOND = 100

_LAUNCHERS = {"torchrun", "mpirun"}
_RUN_STEP = 7
"""Difference between the PIDs of two consecutive runs of a recurring process."""


class Role(Struct, frozen=True):
    """An actor with the properties that follow from its position in the process tree."""

    actor: Actor  # The actor.
    uid: int  # UID of its owner.
    command: tuple[str, ...]  # Its argument vector.
    name: str  # The kernel's short name of it.
    session: int  # Its session.
    group: int | None  # Its process group; ``None`` if it leads one.
    place: Workload  # Where it runs.


class ProcessInstance(Struct, frozen=True):
    """One run of a role."""

    role: Role  # The role.
    id: ProcessId  # Its identity.
    began: float  # When it started, in seconds after the demo's start.
    until: float  # When it ends without a signal.


def instance_of(role: Role, now: float) -> ProcessInstance:
    """The run of a role at a time; of a role without repetition its only run."""
    runs = role.actor.runs
    run = runs.run_at(now)
    began = runs.start_of(run)
    pid = role.actor.pid + _RUN_STEP * run
    return ProcessInstance(role, ProcessId(pid, _start_time(began)), began, began + runs.lasts)


def make_roles(node_rank: int) -> dict[int, Role]:
    """All roles of a machine by the PID of their first run, parents before children.

    ``node_rank`` is the ``rank`` of a ``DemoMachine``.
    """
    actors = {actor.pid: actor for actor in (*EXTRAS, *LEADS)}
    roles: dict[int, Role] = {}

    def add(actor: Actor) -> None:
        if actor.pid in roles:
            return
        parent = actors.get(actor.parent)
        if parent is not None:
            add(parent)
        roles[actor.pid] = _role(actor, roles.get(actor.parent), node_rank)

    for actor in actors.values():
        add(actor)
    return roles


def _role(actor: Actor, parent: Role | None, node_rank: int) -> Role:
    command = tuple(actor.command.replace("{rank}", str(node_rank)).split())
    name = actor.name or command[0].rpartition("/")[2][:15]
    place = actor.where
    session, group = actor.pid, None
    if parent is not None:
        if not actor.leads:
            session = parent.session
            # A shell gives each of its jobs a process group; children of a job stay in it.
            group = None if parent.name == "bash" else parent.group or parent.actor.pid
        place = _placed(actor, session, parent)
    return Role(actor, UIDS[actor.user], command, name, session, group, place)


def _placed(actor: Actor, session: int, parent: Role) -> Workload:
    """Its place: that of its parent with its own changes."""
    own = {field: value for field, value in structs.asdict(actor.where).items() if value}
    server = actor.where.server
    if server is not None:
        # Its descendants have the same, as the engines of a server do.
        start_time = _start_time(actor.runs.started)
        own["server"] = structs.replace(server, pid=actor.pid, start_time=start_time)
    from_parent = ProcessId(parent.actor.pid, _start_time(parent.actor.runs.started))
    if parent.place.launcher is None and parent.name in _LAUNCHERS:
        own |= {"launcher": from_parent, "launcher_name": parent.name}
    return structs.replace(parent.place, session=session, parent=from_parent, **own)


def _start_time(began: float) -> int:
    return int((began - MACHINE_BOOT) * TICKS_PER_SECOND)


class Effect(Struct, frozen=True):
    """The effect of signals on one process."""

    instance: ProcessInstance  # The process.
    end: float = math.inf  # When it ends because of them.
    turns: tuple[float, ...] = ()  # When it was stopped and continued, alternately.
    # Whether it received a signal to end while stopped, and ends once continued.
    pending: bool = False

    def stopped(self, now: float) -> bool:
        """Whether it is stopped at a time."""
        return bisect_right(self.turns, now) % 2 == 1

    @property
    def silences(self) -> list[tuple[float, float]]:
        """The intervals in which it does not do the work of the scenario."""
        last = min(self.end, self.instance.until)
        turns = [turn for turn in self.turns if turn < last]
        # It does no work after its end, stopped or not.
        if len(turns) % 2 == 0:
            turns.append(last)
        return list(zip(turns[::2], [*turns[1::2], self.instance.until], strict=True))


class SignalEffects(Struct, frozen=True):
    """The effects of all signals."""

    by_process: Mapping[ProcessId, Effect] = {}  # The effects by process.
    times: tuple[float, ...] = ()  # When any of them starts to show, ascending.

    def end(self, process: ProcessId) -> float:
        """When a process ends because of a signal; infinite without one."""
        effect = self.by_process.get(process)
        return math.inf if effect is None else effect.end

    def stopped(self, process: ProcessId, now: float) -> bool:
        """Whether a process is stopped at a time."""
        effect = self.by_process.get(process)
        return effect is not None and effect.stopped(now)

    def newest(self, now: float) -> float:
        """The last time before ``now`` at which an effect started to show."""
        place = bisect_right(self.times, now)
        return self.times[place - 1] if place else -math.inf

    def with_effects(self, *effects: Effect) -> SignalEffects:
        """These effects with more of them."""
        known = {**self.by_process, **{effect.instance.id: effect for effect in effects}}
        times = {time for effect in known.values() for time in (effect.end, *effect.turns)}
        return SignalEffects(known, tuple(sorted(times - {math.inf})))


_OBSERVERS = {"nvidia-smi"}
_STOPPED = "it is stopped: it ends by SIGKILL only, or once continued"
_UNSEEN = 214
"""How many processes of others there are that only root can look into."""
_WARM_UP = 6.0
"""Seconds from the start of a process to its first kernel."""


class ScenarioState(Struct, frozen=True):
    """How the story goes on since the last signal."""

    effects: SignalEffects  # What signals have changed.
    # The GPUs, each with the work of the processes that run and nothing else.
    gpus: tuple[DemoGpu, ...]


class World:
    """See the module.

    Attributes:
        clock: Where the time comes from.
        start: When the demo began, seconds since the epoch.
        gpus: The GPUs as in the story.
        roles: Everybody, by number, parents first.
        state: How it goes on. Whoever reads it several times for one answer keeps what was read:
            another thread may replace it, and does so as a whole.
        lock: To be held by who replaces ``state``.
    """

    def __init__(self, random: Random, clock: Clock, machine: DemoMachine) -> None:
        self.clock = clock
        self.start = clock.time()
        self.gpus = make_gpus(random, sound=machine.sound)
        self.roles = make_roles(machine.rank)
        self._name, self._lags = machine.name, machine.lags
        self.lock = Lock()
        self._once = {
            pid: instance_of(role, 0.0)
            for pid, role in self.roles.items()
            if role.actor.runs.every == math.inf
        }
        # The open files of others are not ours to see.
        self._holders = [
            role for role in self.roles.values() if role.actor.inherited and role.actor.user == ME
        ]
        self._keepers = [role for role in self._holders if role.actor.keeps_gib]
        self.state = self._state(SignalEffects().with_effects(*self._absent(machine)))

    def _absent(self, machine: DemoMachine) -> list[Effect]:
        """The processes that would use an empty GPU ended before the past of this machine.

        On one that lags, the training of the job with several nodes has ended, too.
        """
        lagging = [NODES_JOB.script] if machine.lags and NODES_JOB.script else []
        return [Effect(self._once[pid], end=JOB_STUCK) for pid in lagging] + [
            Effect(found, end=-2 * PAST)
            for found in self._once.values()
            if not machine.empty.isdisjoint(
                (*found.role.actor.inherited, *(share.gpu for share in found.role.actor.shares))
            )
        ]

    def now(self) -> float:
        """Seconds after the start."""
        return self.clock.time() - self.start

    def present(self, role: Role, now: float, effects: SignalEffects) -> ProcessInstance | None:
        """The process of a role, if it is there."""
        found = self._once.get(role.actor.pid) or instance_of(role, now)
        return found if found.began <= now < min(found.until, effects.end(found.id)) else None

    def everybody(self, now: float, effects: SignalEffects) -> dict[int, ProcessInstance]:
        """All processes, by number, parents first."""
        instances = [self.present(role, now, effects) for role in self.roles.values()]
        return {found.id.pid: found for found in instances if found is not None}

    def allocations(
        self, now: float, effects: SignalEffects, shown: Iterable[DemoGpu]
    ) -> tuple[Allocation, ...]:
        """What Slurm has given to jobs on these GPUs."""
        uuids = {gpu.index: gpu.uuid for gpu in shown}
        found = []
        for job in JOBS:
            run = job.runs.run_at(now)
            since = job.runs.start_of(run)
            script = None if job.script is None else self.roles[job.script]
            goes_on = self._lags and job is NODES_JOB
            is_over = script is not None and self.present(script, now, effects) is None
            devices = tuple(uuids[index] for index in job.gpus if index in uuids)
            if since <= now < since + job.runs.lasts and devices and (goes_on or not is_over):
                found.append(
                    Allocation(
                        *(SLURM, str(job.number), job.user, devices),
                        since=self.start + since,
                        until=self.start + since + job.limit,
                        nodes=job.nodes if self._name in (expand_hosts(job.nodes) or ()) else None,
                    )
                )
        return tuple(found)

    def parent(self, child: ProcessInstance, now: float, effects: SignalEffects) -> int:
        """The number of its parent: that of init once the one that started it has ended."""
        pid = child.role.actor.parent
        if not pid or self.present(self.roles[pid], now, effects) is not None:
            return pid
        return INIT

    def state_of(self, who: ProcessInstance, now: float, effects: SignalEffects) -> str:
        """Its state, as in ``ps``."""
        if effects.stopped(who.id, now):
            return "T"
        return "R" if who.role.actor.cpu >= 50 else "S"

    def unattributed(self, now: float, effects: SignalEffects) -> list[int]:
        """Bytes in use of each GPU that no process in the driver's list has."""
        used = [DRIVER_CLIENTS] * GPUS
        for role in self._keepers:
            holder = self.present(role, now, effects)
            if holder is not None and self.parent(holder, now, effects) == INIT:
                used[role.actor.inherited[0]] += int(role.actor.keeps_gib * GIB)
        return used

    def scan(self, gpus: Iterable[DemoGpu], now: float, effects: SignalEffects) -> HolderScan:
        """Who holds the device files of some GPUs without instance in the driver's list.

        Why each matters is in the words of ``gpumon.host.holder_reasons``.
        """
        uuids = {gpu.index: gpu.uuid for gpu in gpus}
        suspects = []
        for role in self._holders:
            held = tuple(uuids[gpu] for gpu in role.actor.inherited if gpu in uuids)
            holder = self.present(role, now, effects) if held else None
            if holder is not None:
                suspects.append(self._suspect(holder, held, now, effects))
        return HolderScan(self.start + now, tuple(sorted(suspects, key=rank)), _UNSEEN)

    def change(self, effects: SignalEffects) -> None:
        """Go on from here. ``lock`` is held."""
        self.state = self._state(effects)

    def _state(self, effects: SignalEffects) -> ScenarioState:
        # The load of a recurring process is 0 between its runs already.
        away = [
            (found.role.actor.shares, silence)
            for found in self._once.values()
            for silence in ((MACHINE_BOOT, found.began + _WARM_UP), (found.until, math.inf))
        ]
        away += [
            (effect.instance.role.actor.shares, silence)
            for effect in effects.by_process.values()
            for silence in effect.silences
        ]
        return ScenarioState(effects, tuple(_dimmed(gpu, away) for gpu in self.gpus))

    def _suspect(
        self,
        holder: ProcessInstance,
        gpu_uuids: tuple[str, ...],
        now: float,
        effects: SignalEffects,
    ) -> UnlistedHolder:
        role = holder.role
        parent = self._once[self.parent(holder, now, effects)]
        stopped = effects.stopped(holder.id, now)
        if role.name in _OBSERVERS:
            reason = HoldReason.OBSERVER
            sentence = "by its name it is a monitor or a service of the machine"
        elif parent.id.pid == INIT:
            reason = HoldReason.ORPHAN
            sentence = f"{self._loss(role.actor.parent, now, effects)}; init took it over"
            if stopped:
                sentence += f"; {_STOPPED}"
        elif stopped:
            reason, sentence = HoldReason.STOPPED, _STOPPED
        else:
            reason = HoldReason.CHILD
            called = f"{parent.id.pid} ({parent.role.name})"
            sentence = f"it is a child of {called}, which the driver lists"
        return UnlistedHolder(
            id=holder.id,
            gpu_uuids=gpu_uuids,
            reason=reason,
            sentence=sentence,
            user=role.actor.user,
            uid=role.uid,
            name=role.name,
            command=role.command,
            state=self.state_of(holder, now, effects),
            parent=parent.id,
            started_at=self.start + holder.began,
            place=role.place,
        )

    def _loss(self, pid: int, now: float, effects: SignalEffects) -> str:
        """How somebody lost a parent: nobody was there to see what was before the past."""
        parent = self._once[pid]
        ended = min(parent.until, effects.end(parent.id))
        if ended < -PAST:
            return f"its parent has ended, and so has {pid}, which led its process group"
        ago = now - ended
        return f"its parent {pid} ended {f'{duration(ago)} ago' if ago >= 1 else 'just now'}"


def _dimmed(gpu: DemoGpu, away: Iterable[tuple[tuple[Share, ...], tuple[float, float]]]) -> DemoGpu:
    """A GPU without the work of processes while they are absent or stopped.

    Args:
        gpu: The GPU with all its processes.
        away: The shares of a process, and from when till when it does not work.
    """
    computing: defaultdict[float, float] = defaultdict(float)
    decoding: defaultdict[float, float] = defaultdict(float)
    for shares, (since, until) in away:
        for share in shares:
            if share.gpu == gpu.index:
                computing[since] -= share.part
                computing[until] += share.part
                decoding[since] -= share.decodes
                decoding[until] += share.decodes
    return gpu.dimmed(_steps(computing), _steps(decoding)) if computing else gpu


def _steps(changes: dict[float, float]) -> list[tuple[float, float]]:
    """From when on how much is left of all that a GPU does."""
    left, steps = 1.0, []
    for time, change in sorted(changes.items()):
        left += change
        if time < math.inf:
            # Nothing is left of sums that rounding keeps from 0.
            steps.append((time, max(0.0, round(left, 9))))
    return steps
