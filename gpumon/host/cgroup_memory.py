"""Host memory of jobs against the limits of their cgroups, and processes that were killed there.

Of version 2 only: ``Documentation/admin-guide/cgroup-v2.rst`` of the kernel, "Memory Interface
Files". Any user may read these files, which are the kernel's counters and cannot hang.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.host.procfs import read_file
from gpumon.model.processes import CgroupMemory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpumon.system.system import System

_AGAIN = 1.9
_MOST_CGROUPS = 64
_DEEPEST = 32
_GONE_SECONDS = 60.0
"""For so long a cgroup is read after its last GPU process ended, which the kernel may have killed.
"""
_LINES_BYTES = 4096
_MOST_DIGITS = 18
_CGROUP_BYTES = 2**14
_OOM_KILL = b"oom_kill"


class OomKills(Struct, frozen=True):
    """Processes of a cgroup that the OOM killer killed."""

    cgroup: str
    count: int


class _Watched(Struct):
    kills: int | None
    used_at: float


class CgroupMemoryReader:
    """Reads the memory of the cgroups of processes every two seconds, each cgroup once.

    Args:
        system: The operating system that is read.
    """

    def __init__(self, system: System) -> None:
        self._proc = system.proc
        self._root = f"{system.sys}/fs/cgroup"
        self._due = 0.0
        self._memory: dict[int, CgroupMemory] = {}
        self._watched: dict[str, _Watched] = {}
        self._kills: list[OomKills] = []

    def read(self, pids: Iterable[int], now: float) -> Mapping[int, CgroupMemory]:
        """The memory of the processes' cgroups by PID, as far as it is known.

        Args:
            pids: PIDs in this program's own PID namespace.
            now: Seconds on the monotonic clock.
        """
        if now < self._due:
            return self._memory
        self._due = now + _AGAIN
        by_path: dict[str, CgroupMemory | None] = {}
        found: dict[int, CgroupMemory] = {}
        for pid in pids:
            path = self._path_of(pid)
            if path is None or (path not in by_path and len(by_path) >= _MOST_CGROUPS):
                continue
            if path not in by_path:
                by_path[path] = self._read(path)
            memory = by_path[path]
            if memory is not None:
                found[pid] = memory
        self._memory = found
        self._count_kills({memory.cgroup for memory in found.values()}, now)
        return found

    def take_kills(self) -> list[OomKills]:
        """The processes that were killed since the last call, as far as it was seen."""
        kills, self._kills = self._kills, []
        return kills

    def _path_of(self, pid: int) -> str | None:
        """The cgroup of a process; ``None`` of version 1, and outside of this cgroup namespace."""
        try:
            text = read_file(f"{self._proc}/{pid}/cgroup", _CGROUP_BYTES)
        except OSError:
            return None
        for line in text.split(b"\n"):
            if line.startswith(b"0::/"):
                path = line[3:].removesuffix(b" (deleted)").decode("utf-8", "surrogateescape")
                return None if "/.." in path else path.rstrip("/")
        return None

    def _read(self, path: str) -> CgroupMemory | None:
        """The memory of the cgroup with the lowest limit, from this one up; else of this one."""
        parts = path.split("/")
        levels = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
        if len(levels) > _DEEPEST:
            return None
        limits = [self._file(level, "memory.max") for level in levels]
        set_limits = [(at, limit) for at, limit in enumerate(limits) if limit not in {None, b"max"}]
        known = [(size, at) for at, limit in set_limits if (size := _number(limit)) is not None]
        if len(known) < len(set_limits):
            return None
        if not known and limits[-1] is not None:
            # The root of the machine has no such file: this one is that of a namespace, and what
            # is above it may have a limit.
            return None
        limit, at = min(known, default=(None, 0))
        used = _number(self._file(levels[at], "memory.current"))
        return None if used is None else CgroupMemory(levels[at] or "/", used, limit)

    def _file(self, path: str, name: str) -> bytes | None:
        """The content of a file; ``None`` if there is none, empty if it may not be read."""
        try:
            return read_file(f"{self._root}{path}/{name}", _LINES_BYTES).strip()
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return b""

    def _count_kills(self, cgroups: set[str], now: float) -> None:
        for path in cgroups:
            if path not in self._watched and len(self._watched) < 2 * _MOST_CGROUPS:
                self._watched[path] = _Watched(None, now)
        for path, watched in list(self._watched.items()):
            if path in cgroups:
                watched.used_at = now
            kills = self._kills_of(path)
            if kills is None or now - watched.used_at > _GONE_SECONDS:
                del self._watched[path]
                continue
            if watched.kills is not None and kills > watched.kills:
                self._kills.append(OomKills(path, kills - watched.kills))
                del self._kills[:-_MOST_CGROUPS]
            watched.kills = kills

    def _kills_of(self, path: str) -> int | None:
        events = self._file("" if path == "/" else path, "memory.events") or b""
        for line in events.split(b"\n"):
            name, _, count = line.partition(b" ")
            if name == _OOM_KILL:
                return _number(count)
        return None


def _number(digits: bytes | None) -> int | None:
    return int(digits) if digits and digits.isdigit() and len(digits) <= _MOST_DIGITS else None
