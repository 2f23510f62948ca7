"""Which lines of the kernel log are of one accident."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.model.accidents import Accident

SAME_SECONDS = 2.0
"""A driver reports what follows from an error within so many seconds."""
_CONSEQUENCE = "previous xid"
"""NVIDIA's driver writes this in a line that follows from an earlier XID."""


def first_lines(accidents: Iterable[Accident]) -> dict[Accident, tuple[Accident, ...]]:
    """The first line of each accident, and the lines that follow from it, both oldest first.

    A line follows from the one before it if both are of the same GPU or the same process and less
    than ``SAME_SECONDS`` apart, and the kernel does not name different processes.
    """
    groups: list[list[Accident]] = []
    for accident in sorted(set(accidents), key=_order):
        group = next((group for group in reversed(groups) if _follows(group, accident)), None)
        if group is None:
            groups.append([accident])
        else:
            group.append(accident)
    return {group[0]: tuple(group[1:]) for group in groups}


def _order(accident: Accident) -> tuple[float, str]:
    return accident.time, accident.gpu_uuid or ""


def _follows(group: list[Accident], accident: Accident) -> bool:
    if accident.time - group[-1].time > SAME_SECONDS:
        return False
    if accident.gpu_uuid != group[0].gpu_uuid:
        return False
    pids = {line.pid for line in group} - {None}
    if accident.gpu_uuid is None:
        # Two processes may be killed at once, and a cgroup counts what its own line reports.
        same_cgroup = accident.cgroup is not None and accident.cgroup == group[0].cgroup
        return accident.pid in pids or (accident.pid is None and same_cgroup)
    if accident.pid is None or not pids or accident.pid in pids:
        return True
    return _CONSEQUENCE in accident.text.lower()
