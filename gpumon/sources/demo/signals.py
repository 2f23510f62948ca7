"""Signals to the demo's processes, which affect no real process.

It uses only the numbers of Python's module ``signal`` and none of its functions. Refusals have the
messages of ``gpumon.kill.signals``.
"""

from __future__ import annotations

from signal import Signals
from typing import TYPE_CHECKING

from msgspec import structs

from gpumon.host.process_host import Refusal, Refused
from gpumon.sources.demo.background import GPUMON
from gpumon.sources.demo.instances import INIT
from gpumon.sources.demo.scenario import ME
from gpumon.sources.demo.signal_effects import Effect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.host.process_host import Target
    from gpumon.sources.demo.instances import ProcessInstance
    from gpumon.sources.demo.signal_effects import SignalEffects
    from gpumon.sources.demo.world import World

_NAMES: dict[int, str] = {number: number.name.removeprefix("SIG") for number in Signals}
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
        raise Refused(Refusal.READ_ONLY, "gpumon runs with --readonly: it sends no signal")
    if pid <= INIT:
        raise Refused(
            Refusal.PROTECTED, f"{pid} is never signalled: it stands for the whole system"
        )
    if pid == GPUMON.pid:
        raise Refused(Refusal.PROTECTED, f"{pid} is gpumon itself: q leaves it")
    if pid in own_line(world):
        raise Refused(
            Refusal.PROTECTED,
            f"{pid} is what gpumon was started from: ending it would end gpumon too",
        )
    being = world.everybody(world.now(), world.state.deeds).get(pid)
    if being is None:
        raise Refused(Refusal.GONE, f"{pid} had ended already")
    if being.id != target.id:
        raise Refused(
            Refusal.REUSED, f"{pid} is another process by now; the one you chose has ended"
        )
    return being


def deliver(world: World, target: Target, number: int, *, readonly: bool) -> None:
    """Send a signal to a process.

    Raises:
        Refused: It belongs to another user, must not be signalled, or has ended.
    """
    with world.lock:
        being = take(world, target, readonly=readonly)
        if being.role.actor.user != ME:
            raise Refused(Refusal.NOT_PERMITTED, _not_permitted(being, number))
        deeds = world.state.deeds
        before = deeds.lots.get(being.id) or Effect(being)
        after = _effect(before, number, world.now())
        if after != before:
            followers = _followers(after, deeds, world) if after.end < before.end else []
            world.change(deeds.with_lots(after, *followers))


def _not_permitted(being: ProcessInstance, number: int) -> str:
    """The message for a process of another user, with a way to end it."""
    pid, owner, place = being.id.pid, being.role.actor.user, being.role.place
    ask = "ask an administrator" if owner == "root" else f"ask {owner}"
    way = f"sudo kill -{_NAMES.get(number, number)} {pid}"
    if place.slurm_job is not None:
        way = f"an operator runs scancel {place.slurm_job}"
    elif place.container is not None and place.container.runtime == "docker":
        way = f"docker stop {place.container.name}, which ends all that is in it"
    return f"{pid} is {owner}'s, not yours: {ask}, or {way}"


def _effect(lot: Effect, number: int, now: float) -> Effect:
    """The effect of a signal on its process."""
    stopped, name = lot.stopped(now), _NAMES.get(number)
    if name == "KILL":
        return _ending(lot, now + _KILLED_AFTER)
    if name in _STOPPING:
        return lot if stopped else structs.replace(lot, turns=(*lot.turns, now))
    if name == "CONT":
        return _continued(lot, now) if stopped else lot
    if number == 0 or name in _IGNORED or lot.being.role.actor.stubborn:
        return lot
    if stopped:
        return structs.replace(lot, pending=True)
    return _ending(lot, now + _tidying(lot.being))


def _continued(lot: Effect, now: float) -> Effect:
    going = structs.replace(lot, turns=(*lot.turns, now))
    return _ending(going, now + _tidying(lot.being)) if lot.pending else going


def _followers(ended: Effect, deeds: SignalEffects, world: World) -> list[Effect]:
    """The effects of a process's end on its descendants: all but stubborn ones end too."""
    followers = []
    for being in world.everybody(world.now(), deeds).values():
        actor = being.role.actor
        if actor.parent == ended.being.id.pid and not actor.stubborn:
            lot = _ending(
                deeds.lots.get(being.id) or Effect(being), ended.end + _tidying(being) / 4
            )
            followers += [lot, *_followers(lot, deeds, world)]
    return followers


def _ending(lot: Effect, end: float) -> Effect:
    return structs.replace(lot, end=min(lot.end, end))


def _tidying(being: ProcessInstance) -> float:
    """Seconds that a process takes to end after a signal: from 0.4 to 1."""
    return 0.4 + being.id.pid % 13 * 0.05
