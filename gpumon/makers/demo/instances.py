"""The actors of the demo as processes, with the properties that they inherit from parents."""

from __future__ import annotations

import math

from msgspec import Struct, structs

from gpumon.makers.demo.background import EXTRAS
from gpumon.makers.demo.processes import LEADS
from gpumon.makers.demo.scenario import MACHINE_BOOT, UIDS, Actor
from gpumon.model.processes import ProcessId, Workload

INIT = 1
TICKS_PER_SECOND = 100

_LAUNCHERS = {"torchrun", "mpirun"}
_RUN_STEP = 7
"""Difference between the PIDs of two consecutive runs of a recurring process."""


class Role(Struct, frozen=True):
    """An actor with the properties that follow from its position in the process tree.

    Attributes:
        actor: The actor.
        uid: UID of its owner.
        command: Its argument vector.
        name: The kernel's short name of it.
        session: Its session.
        group: Its process group; ``None`` if it leads one.
        place: Where it runs.
    """

    actor: Actor
    uid: int
    command: tuple[str, ...]
    name: str
    session: int
    group: int | None
    place: Workload


class ProcessInstance(Struct, frozen=True):
    """One run of a role.

    Attributes:
        role: The role.
        id: Its identity.
        began: When it started, in seconds after the demo's start.
        until: When it ends without a signal.
    """

    role: Role
    id: ProcessId
    began: float
    until: float


def being(role: Role, now: float) -> ProcessInstance:
    """The run of a role at a time; of a role without repetition its only run."""
    runs = role.actor.runs
    run = 0 if runs.every == math.inf else math.floor((now - runs.started) / runs.every)
    began = runs.started + run * runs.every if run else runs.started
    pid = role.actor.pid + _RUN_STEP * run
    return ProcessInstance(role, ProcessId(pid, _start_time(began)), began, began + runs.lasts)


def make_roles() -> dict[int, Role]:
    """All roles by the PID of their first run, parents before children."""
    actors = {actor.pid: actor for actor in (*EXTRAS, *LEADS)}
    roles: dict[int, Role] = {}

    def add(actor: Actor) -> None:
        if actor.pid in roles:
            return
        parent = actors.get(actor.parent)
        if parent is not None:
            add(parent)
        roles[actor.pid] = _role(actor, roles.get(actor.parent))

    for actor in actors.values():
        add(actor)
    return roles


def _role(actor: Actor, parent: Role | None) -> Role:
    command = tuple(actor.command.split())
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
    from_parent = ProcessId(parent.actor.pid, _start_time(parent.actor.runs.started))
    if parent.place.launcher is None and parent.name in _LAUNCHERS:
        own |= {"launcher": from_parent, "launcher_name": parent.name}
    return structs.replace(parent.place, session=session, parent=from_parent, **own)


def _start_time(began: float) -> int:
    return int((began - MACHINE_BOOT) * TICKS_PER_SECOND)
