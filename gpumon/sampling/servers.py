"""Asks the inference servers of this machine what they do.

A server is asked only if its processes belong to the user of this program, or to a user whom the
configuration names; see ``gpumon.sampling.asked_server`` for where.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpumon.config.settings import Serving
    from gpumon.model.processes import GpuProcess, ProcessId
    from gpumon.model.serving import ServerLoad
    from gpumon.sampling.asked_server import AskedServer
    from gpumon.serving import Engine
    from gpumon.system.system import System

_MOST_SERVERS = 64
"""Servers that are asked: if all hang, a round of questions takes a minute."""
_LONG_SECONDS = 0.2
"""After as much time what is known is returned before the other servers are asked."""


class _Key(NamedTuple):
    """What a server is known by: a program may exec another server."""

    root: ProcessId  # Its outermost process.
    engine: Engine
    uid: int | None  # The user of its processes.


class Servers:
    """Asks repeatedly. Not thread-safe.

    Args:
        settings: Returns what the configuration says; called when there is a server.
        system: The operating system that is read.
    """

    def __init__(self, settings: Callable[[], Serving], system: System = THIS_SYSTEM) -> None:
        self._read_settings = settings
        self._settings: Serving | None = None
        self._system = system
        self._asked: dict[_Key, AskedServer] = {}

    def find(self, processes: Iterable[GpuProcess]) -> tuple[Mapping[ProcessId, ServerLoad], float]:
        """Ask the servers for which it is time.

        Args:
            processes: The processes on GPUs, with their workloads.

        Returns:
            What is known of the server of each process that has one which may be asked; and seconds
            until it is useful to ask again: 0 if some were not asked because others took long.
        """
        members = _members(processes)
        if not members:
            self._asked.clear()
            return {}, math.inf
        if self._settings is None:
            self._settings = self._read_settings()
        if not self._settings.ask:
            return {}, math.inf
        # The parts are imported when there is a server.
        from gpumon.sampling.asked_server import AskedServer

        askable = [key for key in members if _may_ask(key, members[key], self._settings)]
        self._asked = {
            key: self._asked.get(key) or AskedServer(*key, self._system)
            for key in askable[:_MOST_SERVERS]
        }
        self._ask_due(self._settings)
        found = {
            process.id: server.load
            for key, server in self._asked.items()
            if server.load is not None
            for process in members[key]
        }
        return found, min((server.pause for server in self._asked.values()), default=math.inf)

    def _ask_due(self, settings: Serving) -> None:
        """Ask the servers for which it is time, until that has taken long."""
        began = self._system.clock.monotonic()
        # Those that hang take a second each: they come last.
        for server in sorted(self._asked.values(), key=lambda each: (each.has_failed, each.due)):
            if server.pause == 0:
                server.ask(settings)
                if self._system.clock.monotonic() - began >= _LONG_SECONDS:
                    return


def _members(processes: Iterable[GpuProcess]) -> dict[_Key, list[GpuProcess]]:
    """The processes on GPUs of each server that reports anything."""
    from gpumon.serving import ENGINES

    found: defaultdict[tuple[ProcessId, str], list[GpuProcess]] = defaultdict(list)
    for process in processes:
        root, place = process.server_id, process.place
        if process.visible and root is not None and place is not None and place.server is not None:
            found[root, place.server.engine].append(process)
    return {
        _Key(root, ENGINES[engine], of_server[0].uid): of_server
        for (root, engine), of_server in found.items()
        if engine in ENGINES and ENGINES[engine].metrics_path is not None
    }


def _may_ask(key: _Key, processes: Sequence[GpuProcess], settings: Serving) -> bool:
    """Whether all processes of a server belong to one user, whose servers are asked."""
    named = {name.strip() for name in settings.users.split(",")} - {""}
    if key.uid is None or any(process.uid != key.uid for process in processes):
        return False
    return key.uid == os.geteuid() or processes[0].user in named
