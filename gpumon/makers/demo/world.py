"""The machine of the demo: who is there at which moment, and what is left of the work on its GPUs.

Times are in seconds after the demo's start.
"""

from __future__ import annotations

import math
from collections import defaultdict
from threading import Lock
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.host.holder_reasons import rank
from gpumon.makers.demo.gpus import DRIVER_CLIENTS, GPUS, DemoGpu, make_gpus
from gpumon.makers.demo.instances import INIT, ProcessInstance, Role, being, make_roles
from gpumon.makers.demo.scenario import GIB, MACHINE_BOOT, ME, PAST
from gpumon.makers.demo.signal_effects import Effect, SignalEffects
from gpumon.model.processes import HolderScan, HoldReason, UnlistedHolder
from gpumon.text.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from gpumon.makers.demo.scenario import DemoMachine, Share
    from gpumon.system.clock import Clock

_OBSERVERS = {"nvidia-smi"}
_STOPPED = "it is stopped: it ends by SIGKILL only, or once continued"
_UNSEEN = 214
"""How many processes of others there are that only root can look into."""
_WARM_UP = 6.0
"""Seconds from the start of a process to its first kernel."""


class ScenarioState(Struct, frozen=True):
    """How the story goes on since the last signal.

    Attributes:
        deeds: What signals have changed.
        gpus: The GPUs, each with the work of the processes that run and nothing else.
    """

    deeds: SignalEffects
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
        self.roles = make_roles()
        self.lock = Lock()
        self._once = {
            pid: being(role, 0.0)
            for pid, role in self.roles.items()
            if role.actor.runs.every == math.inf
        }
        # The open files of others are not ours to see.
        self._holders = [
            role for role in self.roles.values() if role.actor.inherited and role.actor.user == ME
        ]
        self._keepers = [role for role in self._holders if role.actor.keeps_gib]
        self.state = self._state(SignalEffects().with_lots(*self._absent(machine)))

    def _absent(self, machine: DemoMachine) -> list[Effect]:
        """The processes that would use an empty GPU ended before the past of this machine."""
        return [
            Effect(found, end=-2 * PAST)
            for found in self._once.values()
            if not machine.empty.isdisjoint(
                (*found.role.actor.inherited, *(share.gpu for share in found.role.actor.shares))
            )
        ]

    def now(self) -> float:
        """Seconds after the start."""
        return self.clock.time() - self.start

    def present(self, role: Role, now: float, deeds: SignalEffects) -> ProcessInstance | None:
        """The process of a role, if it is there."""
        found = self._once.get(role.actor.pid) or being(role, now)
        return found if found.began <= now < min(found.until, deeds.end(found.id)) else None

    def everybody(self, now: float, deeds: SignalEffects) -> dict[int, ProcessInstance]:
        """All processes, by number, parents first."""
        beings = [self.present(role, now, deeds) for role in self.roles.values()]
        return {found.id.pid: found for found in beings if found is not None}

    def parent(self, child: ProcessInstance, now: float, deeds: SignalEffects) -> int:
        """The number of its parent: that of init once the one that started it has ended."""
        pid = child.role.actor.parent
        if not pid or self.present(self.roles[pid], now, deeds) is not None:
            return pid
        return INIT

    def letter(self, who: ProcessInstance, now: float, deeds: SignalEffects) -> str:
        """Its state, as in ``ps``."""
        if deeds.stopped(who.id, now):
            return "T"
        return "R" if who.role.actor.cpu >= 50 else "S"

    def unattributed(self, now: float, deeds: SignalEffects) -> list[int]:
        """Bytes in use of each GPU that no process in the driver's list has."""
        used = [DRIVER_CLIENTS] * GPUS
        for role in self._keepers:
            holder = self.present(role, now, deeds)
            if holder is not None and self.parent(holder, now, deeds) == INIT:
                used[role.actor.inherited[0]] += int(role.actor.keeps_gib * GIB)
        return used

    def scan(self, gpus: Iterable[DemoGpu], now: float, deeds: SignalEffects) -> HolderScan:
        """Who holds the device files of some GPUs without being in the driver's list.

        Why each matters is told in the words of ``gpumon.host.holder_reasons``.
        """
        uuids = {gpu.index: gpu.uuid for gpu in gpus}
        suspects = []
        for role in self._holders:
            held = tuple(uuids[gpu] for gpu in role.actor.inherited if gpu in uuids)
            holder = self.present(role, now, deeds) if held else None
            if holder is not None:
                suspects.append(self._suspect(holder, held, now, deeds))
        return HolderScan(self.start + now, tuple(sorted(suspects, key=rank)), _UNSEEN)

    def change(self, deeds: SignalEffects) -> None:
        """Go on from here. ``lock`` is held."""
        self.state = self._state(deeds)

    def _state(self, deeds: SignalEffects) -> ScenarioState:
        # The load of a recurring process is 0 between its runs already.
        away = [
            (found.role.actor.shares, silence)
            for found in self._once.values()
            for silence in ((MACHINE_BOOT, found.began + _WARM_UP), (found.until, math.inf))
        ]
        away += [
            (lot.being.role.actor.shares, silence)
            for lot in deeds.lots.values()
            for silence in lot.silences
        ]
        return ScenarioState(deeds, tuple(_dimmed(gpu, away) for gpu in self.gpus))

    def _suspect(
        self, holder: ProcessInstance, gpu_uuids: tuple[str, ...], now: float, deeds: SignalEffects
    ) -> UnlistedHolder:
        role = holder.role
        parent = self._once[self.parent(holder, now, deeds)]
        stopped = deeds.stopped(holder.id, now)
        if role.name in _OBSERVERS:
            reason = HoldReason.OBSERVER
            sentence = "it is a monitor or a service of the machine, by its name"
        elif parent.id.pid == INIT:
            reason = HoldReason.ORPHAN
            sentence = f"{self._loss(role.actor.parent, now, deeds)}; init took it over"
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
            state=self.letter(holder, now, deeds),
            parent=parent.id,
            started_at=self.start + holder.began,
            place=role.place,
        )

    def _loss(self, pid: int, now: float, deeds: SignalEffects) -> str:
        """How somebody lost a parent: nobody was there to see what was before the past."""
        parent = self._once[pid]
        ended = min(parent.until, deeds.end(parent.id))
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
    for moment, change in sorted(changes.items()):
        left += change
        if moment < math.inf:
            # Nothing is left of sums that rounding keeps from 0.
            steps.append((moment, max(0.0, round(left, 9))))
    return steps
