"""Signals to the demo's processes, which affect no real process.

It uses none of the functions of Python's module ``signal``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from gpumon.host import refusals
from gpumon.makers.demo.background import GPUMON
from gpumon.makers.demo.instances import INIT
from gpumon.makers.demo.scenario import ME, UIDS
from gpumon.makers.demo.signal_effects import Effect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.host.process_host import Target
    from gpumon.makers.demo.instances import ProcessInstance
    from gpumon.makers.demo.signal_effects import SignalEffects
    from gpumon.makers.demo.world import World

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
    being = world.everybody(world.now(), world.state.deeds).get(pid)
    if being is None:
        raise refusals.gone(pid)
    if being.id != target.id:
        raise refusals.reused(pid)
    return being


def deliver(world: World, target: Target, number: int, *, readonly: bool) -> None:
    """Send a signal to a process.

    Raises:
        Refused: It belongs to another user, must not be signalled, or has ended.
    """
    with world.lock:
        being = take(world, target, readonly=readonly)
        role = being.role
        if role.actor.user != ME:
            seen = structs.replace(target, uid=role.uid, user=role.actor.user, place=role.place)
            raise refusals.not_permitted(seen, number, UIDS[ME])
        deeds = world.state.deeds
        before = deeds.lots.get(being.id) or Effect(being)
        after = _effect(before, number, world.now())
        if after != before:
            followers = _followers(after, deeds, world) if after.end < before.end else []
            world.change(deeds.with_lots(after, *followers))


def _effect(lot: Effect, number: int, now: float) -> Effect:
    """The effect of a signal on its process."""
    stopped, name = lot.stopped(now), refusals.signal_name(number)
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
