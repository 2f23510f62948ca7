"""Reads process trees: launchers and shells above GPU processes, data loaders below."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpumon.host.process_host import RelatedProcess
from gpumon.host.processes import COMMAND_BYTES
from gpumon.host.procfs import (
    Stat,
    ancestors,
    boot_time,
    living_thread,
    opened,
    owner,
    read_command,
    read_stat,
    read_table,
    started_after_boot,
)
from gpumon.system.users import user_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.processes import ProcessId

_INIT = 1
_REMEMBERED = 10_000


def read_relatives(roots: Iterable[ProcessId], proc: str = "/proc") -> tuple[RelatedProcess, ...]:
    """These processes with all their ancestors and descendants, in one pass over ``/proc``.

    PID 1 is left out unless it is one of the roots, as the program of a container is. So is a root
    that has ended or whose PID was reused.

    Args:
        roots: The processes.
        proc: Where the process file system is mounted.

    Returns:
        Each process once, parents before children, older before younger siblings.
    """
    table = read_table(proc)
    found = [table[root.pid] for root in roots if root.pid in table and table[root.pid].id == root]
    children = _children(table)
    family = {stat.id.pid for stat in found if stat.id.pid == _INIT}
    for stat in found:
        family.update(_ancestors(stat, table))
        _add_descendants(stat.id.pid, children, family)
    boot = boot_time()
    own = table.get(os.getpid())
    protected = {_INIT} if own is None else {_INIT, *_ancestors(own, table)}
    relatives = (
        _relative(table[pid], proc, boot, pid in protected)
        for pid in _parents_first(family, table, children)
    )
    return tuple(one for one in relatives if one is not None)


class DescendantFinder:
    """Finds out which processes descend from one.

    A descendant stays one after its parents have ended, if it was seen before.

    Args:
        root: PID of the process; it counts as its own descendant.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._known: dict[ProcessId, bool] = {}

    def includes(self, process: ProcessId) -> bool:
        """Whether a process descends from the root, or is the root."""
        known = self._known.get(process)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            pid = process.pid
            known = pid == self._root or self._root in ancestors("/proc", pid)
            self._known[process] = known
        return known


def _children(table: dict[int, Stat]) -> dict[int, list[int]]:
    """The children of each process, the oldest first."""
    children: dict[int, list[int]] = {}
    for stat in sorted(table.values(), key=_age):
        parent = _parent(stat, table)
        if parent is not None:
            children.setdefault(parent.id.pid, []).append(stat.id.pid)
    return children


def _age(stat: Stat) -> tuple[int, int]:
    return stat.id.start_time or 0, stat.id.pid


def _parent(stat: Stat, table: dict[int, Stat]) -> Stat | None:
    """The parent of a process, unless its PID was reused while the table was read."""
    parent = table.get(stat.parent)
    if parent is None or (parent.id.start_time or 0) > (stat.id.start_time or 0):
        return None
    return parent


def _ancestors(stat: Stat, table: dict[int, Stat]) -> set[int]:
    """A process and its ancestors without PID 1."""
    line: set[int] = set()
    above: Stat | None = stat
    while above is not None and above.id.pid != _INIT and above.id.pid not in line:
        line.add(above.id.pid)
        above = _parent(above, table)
    return line


def _add_descendants(pid: int, children: dict[int, list[int]], family: set[int]) -> None:
    waiting = list(children.get(pid, ()))
    seen = {pid}
    while waiting:
        child = waiting.pop()
        if child not in seen:
            seen.add(child)
            family.add(child)
            waiting += children.get(child, ())


def _parents_first(
    family: set[int], table: dict[int, Stat], children: dict[int, list[int]]
) -> list[int]:
    """The family, each followed by its descendants."""
    tops = [
        stat
        for stat in sorted((table[pid] for pid in family), key=_age)
        if (parent := _parent(stat, table)) is None or parent.id.pid not in family
    ]
    order: list[int] = []
    waiting = [stat.id.pid for stat in reversed(tops)]
    while waiting:
        pid = waiting.pop()
        order.append(pid)
        waiting += [child for child in reversed(children.get(pid, ())) if child in family]
    return order


def _relative(stat: Stat, proc: str, boot: float, protected: bool) -> RelatedProcess | None:
    """Read one process; ``None`` if it has ended meanwhile."""
    try:
        with opened(proc, stat.id.pid) as directory:
            # Before the command, so that an exec in between is noticed at the next reading.
            now = read_stat(directory)
            if now.id != stat.id:
                return None
            uid = owner(directory)
            command = read_command(directory, COMMAND_BYTES, living_thread(directory))
    except OSError:
        return None
    return RelatedProcess(
        id=stat.id,
        parent=stat.parent,
        group=stat.group,
        session=stat.session,
        name=stat.name,
        command=command,
        user=user_name(uid),
        uid=uid,
        state=stat.state,
        threads=stat.threads,
        rss=stat.rss,
        started_at=boot + started_after_boot(stat.id),
        protected=protected,
        stack_start=now.stack_start,
    )
