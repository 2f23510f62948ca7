"""Processes above and below a process: launchers and shells, data loaders, the shell of a job.

psutil is slower here, and waits for processes that hang: ``docs/decisions/0004-processes.md``.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING

from gpumon.host.process_host import RelatedProcess
from gpumon.host.processes import COMMAND_BYTES
from gpumon.host.procfs import (
    Stat,
    boot_time,
    opened,
    read_table,
    started_after_boot,
    stat_of,
)
from gpumon.system.system import THIS_SYSTEM, user_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.system.system import System

_INIT = 1
_MOST_ANCESTORS = 1000
_REMEMBERED = 4096


def ancestors(process: Stat, find: Callable[[int], Stat | None]) -> Iterator[Stat]:
    """The ancestors of a process, nearest first, as far as they are visible.

    A parent that started later than its child has reused the PID of the real one and is left out.

    Args:
        process: The process.
        find: Returns the process that has a PID.
    """
    pid, youngest = process.parent, process.id.start_time or 0
    for _ in range(_MOST_ANCESTORS):
        if not pid or (parent := find(pid)) is None:
            return
        start = parent.id.start_time or 0
        if start > youngest:
            return
        yield parent
        pid, youngest = parent.parent, start


def pids_above(pid: int, system: System = THIS_SYSTEM) -> frozenset[int]:
    """The PIDs of the ancestors of a process, with that of the first hidden one."""
    find = partial(stat_of, system.proc)
    process = find(pid)
    line = () if process is None else (process, *ancestors(process, find))
    return frozenset(stat.parent for stat in line if stat.parent)


def is_orphaned() -> bool:
    """Whether no shell could continue our process group (POSIX: orphaned process group).

    The kernel then ignores the terminal's stop signals, but not SIGSTOP: a session leader, as
    started by ``ssh -t host gpumon``, would stay stopped.
    """
    find = partial(stat_of, THIS_SYSTEM.proc)
    own = find(os.getpid())
    if own is None:
        return False
    for parent in ancestors(own, find):
        if parent.session != own.session:
            return True
        if parent.group != own.group:
            return False
    return True


class Descendants:
    """The processes that descend from one; any thread may ask.

    A process stays a descendant after its parents have ended, if it was seen before. Of the others,
    those are forgotten that were not asked for longest.

    Args:
        root: PID of the process; it counts as its own descendant.
        group: A process group whose members count as descendants, too.
        system: The operating system that is read.
    """

    def __init__(self, root: int, group: int | None = None, system: System = THIS_SYSTEM) -> None:
        self._root, self._group = root, group
        self._find = partial(stat_of, system.proc)
        self._known: dict[ProcessId, bool] = {}
        self._lock = threading.Lock()

    def among(self, processes: Iterable[GpuProcess]) -> tuple[GpuProcess, ...]:
        """Those of these processes that are descendants."""
        with self._lock:
            return tuple([process for process in processes if self._includes(process.id)])

    def had(self, pid: int) -> bool:
        """Whether a descendant had this PID: the driver may list it after its exit."""
        with self._lock:
            return pid == self._root or any(
                known and process.pid == pid for process, known in self._known.items()
            )

    def _includes(self, process: ProcessId) -> bool:
        known = self._known.pop(process, None)
        if known is None:
            known = self._descends(process)
            if len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
        self._known[process] = known
        return known

    def _descends(self, process: ProcessId) -> bool:
        stat = self._find(process.pid)
        if stat is None or stat.id != process:
            return False
        return any(
            each.id.pid == self._root or each.group == self._group or self._known.get(each.id)
            for each in (stat, *ancestors(stat, self._find))
        )


def read_relatives(
    roots: Iterable[ProcessId], system: System = THIS_SYSTEM
) -> tuple[RelatedProcess, ...]:
    """These processes with all their ancestors and descendants, in one pass over ``/proc``.

    PID 1 is left out unless it is one of the roots, as the program of a container is. So is a root
    that has ended or whose PID was reused.

    Returns:
        Each process once, parents before children, older before younger siblings.
    """
    table = read_table(system.proc)
    found = [table[root.pid] for root in roots if root.pid in table and table[root.pid].id == root]
    children = _children(table)
    relatives = {stat.id.pid for stat in found if stat.id.pid == _INIT}
    for stat in found:
        relatives.update(_line(stat, table))
        _add_descendants(stat.id.pid, children, relatives)
    boot = boot_time()
    own = table.get(os.getpid())
    protected = {_INIT} if own is None else {_INIT, *_line(own, table)}
    read = (
        _relative(table[pid], system.proc, boot, pid in protected)
        for pid in _parents_first(relatives, table, children)
    )
    return tuple(relative for relative in read if relative is not None)


def descendants(root: ProcessId, system: System = THIS_SYSTEM) -> list[ProcessId]:
    """The descendants of a process, in one pass over ``/proc``; none if it has ended."""
    table = read_table(system.proc)
    if root.pid not in table or table[root.pid].id != root:
        return []
    found: set[int] = set()
    _add_descendants(root.pid, _children(table), found)
    return [table[pid].id for pid in sorted(found)]


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
    return next(ancestors(stat, table.get), None)


def _line(stat: Stat, table: dict[int, Stat]) -> set[int]:
    """A process and its ancestors, without PID 1."""
    return {each.id.pid for each in (stat, *ancestors(stat, table.get))} - {_INIT}


def _add_descendants(pid: int, children: dict[int, list[int]], relatives: set[int]) -> None:
    waiting = list(children.get(pid, ()))
    seen = {pid}
    while waiting:
        child = waiting.pop()
        if child not in seen:
            seen.add(child)
            relatives.add(child)
            waiting += children.get(child, ())


def _parents_first(
    relatives: set[int], table: dict[int, Stat], children: dict[int, list[int]]
) -> list[int]:
    """These processes, each followed by its descendants."""
    tops = [
        stat
        for stat in sorted((table[pid] for pid in relatives), key=_age)
        if (parent := _parent(stat, table)) is None or parent.id.pid not in relatives
    ]
    order: list[int] = []
    waiting = [stat.id.pid for stat in reversed(tops)]
    while waiting:
        pid = waiting.pop()
        order.append(pid)
        waiting += [child for child in reversed(children.get(pid, ())) if child in relatives]
    return order


def _relative(stat: Stat, proc: str, boot: float, protected: bool) -> RelatedProcess | None:
    """Read one process; ``None`` if it has ended meanwhile."""
    try:
        with opened(proc, stat.id.pid) as files:
            # Before the command, so that an exec in between is noticed at the next reading.
            now = files.stat()
            if now.id != stat.id:
                return None
            uid = files.owner()
            command = files.command(COMMAND_BYTES)
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
