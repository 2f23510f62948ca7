"""What a program costs, read from the kernel: processor time and memory of a process tree."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def tree(root: int) -> list[int]:
    """A process and all its living descendants."""
    found = [root]
    for pid in found:
        for task in _listed(f"/proc/{pid}/task"):
            try:
                children = Path(f"/proc/{pid}/task/{task}/children").read_text()
            except OSError:
                continue
            found += [int(child) for child in children.split()]
    return found


def cpu_seconds(root: int) -> float:
    """Processor time of a process tree so far, threads and children that ended included.

    Children that ended count in whole ticks of the kernel, all else in nanoseconds.
    """
    return sum(_clock(pid) + _ended_children(pid) for pid in tree(root))


def pss_bytes(root: int) -> int:
    """Memory of a process tree, shared pages shared out among all who have them (``smaps``).

    0 where the kernel does not say.
    """
    return sum(pss_of(pid) for pid in tree(root))


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return []


def _clock(pid: int) -> float:
    # The kernel's number for a process's own clock: MAKE_PROCESS_CPUCLOCK with CPUCLOCK_SCHED.
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        # It ended, or this kernel has no such clocks; ticks are coarser.
        return _ticks(pid, 11)


def _ended_children(pid: int) -> float:
    return _ticks(pid, 13)


def _ticks(pid: int, field: int) -> float:
    """Seconds of a user's time and the system's, which follows it in ``stat`` (see proc(5))."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = stat[stat.rindex(")") + 2 :].split()
    return (int(fields[field]) + int(fields[field + 1])) / _TICKS


def pss_of(pid: int) -> int:
    """Memory of one process, in bytes; 0 where the kernel does not say."""
    # Not every kernel adds up.
    for name in ("smaps_rollup", "smaps"):
        try:
            lines = Path(f"/proc/{pid}/{name}").read_text().splitlines()
        except OSError:
            continue
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return 0
