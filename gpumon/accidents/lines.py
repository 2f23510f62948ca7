"""Which lines of the kernel log are of one accident."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.accidents import Accident

_FOLLOWS_SECONDS = 2.0
"""A driver reports what follows from an error within so many seconds."""
_CONSEQUENCE = "previous xid"
"""NVIDIA's driver writes this in a line that follows from an earlier XID."""


_MOST_OPEN = 64
"""So many accidents of one moment are looked at for the one that a line follows from."""


class _Group:
    """The lines of one accident, oldest first."""

    def __init__(self, first: Accident) -> None:
        self.lines = [first]
        self.pids = {first.pid} - {None}

    def add(self, line: Accident) -> None:
        self.lines.append(line)
        self.pids |= {line.pid} - {None}


def first_lines(accidents: Iterable[Accident]) -> dict[Accident, tuple[Accident, ...]]:
    """The first line of each accident, and the lines that follow from it, both oldest first.

    A line follows from the one before it if both are of the same GPU or the same process and less
    than ``_FOLLOWS_SECONDS`` apart, and the kernel does not name different processes.
    """
    groups: list[_Group] = []
    # Those that a line may still follow from.
    recent: list[_Group] = []
    for accident in sorted(set(accidents), key=_order):
        recent = [
            group
            for group in recent[-_MOST_OPEN:]
            if accident.time - group.lines[-1].time <= _FOLLOWS_SECONDS
        ]
        group = next((group for group in reversed(recent) if _follows(group, accident)), None)
        if group is None:
            group = _Group(accident)
            groups.append(group)
            recent.append(group)
        else:
            group.add(accident)
    return {group.lines[0]: tuple(group.lines[1:]) for group in groups}


def _order(accident: Accident) -> tuple[float, str]:
    return accident.time, accident.gpu_uuid or ""


def _follows(group: _Group, accident: Accident) -> bool:
    first, pids = group.lines[0], group.pids
    if accident.gpu_uuid != first.gpu_uuid:
        return False
    if accident.gpu_uuid is None:
        # Two processes may be killed at once, and a cgroup counts what its own line reports.
        same_cgroup = accident.cgroup is not None and accident.cgroup == first.cgroup
        return accident.pid in pids or (accident.pid is None and same_cgroup)
    if accident.pid is None or not pids or accident.pid in pids:
        return True
    return _CONSEQUENCE in accident.text.lower()
