"""Reads what the clients of the GPUs use: memory, and the time that engines worked for them.

A client is one opening of a DRM file. Its file descriptor can be duplicated and inherited, so one
client can have several descriptors in several processes; it counts once.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gpumon.host.namespaces import in_initial_pid_namespace
from gpumon.host.procfs import read_once, stat_of
from gpumon.makers.drm.fdinfo import (
    FDINFO_BYTES,
    ClientUsage,
    parse_head,
    parse_usage,
)
from gpumon.makers.drm.holders import FileHolders

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpumon.makers.calls import CallWatch
    from gpumon.system.system import System

_BROKERS = {"systemd-logind", "elogind-daemon", "seatd"}
"""Services that open a GPU for a display server and keep the file open themselves."""

_WHOLE = 100.0


class Node(NamedTuple):
    """The GPU of a device node.

    Attributes:
        gpu_uuid: Its UUID.
        bus_id: Its PCI bus ID.
        readable: Whether the use of its clients may be read now: reading would wake a sleeping
            GPU (``xe`` does), and hang where another read of it hangs.
    """

    gpu_uuid: str
    bus_id: str
    readable: bool


class Client(Struct, frozen=True):
    """A client at one moment.

    Attributes:
        pid: Its process; of several that share it, the one with the lowest PID that is not a
            session service.
        usage: What it has used since it was opened.
        busy: Percent of time that each engine worked for it since the last reading; ``None`` at
            the first one.
    """

    pid: int
    usage: ClientUsage
    busy: Mapping[str, float] | None


class ClientScan(NamedTuple):
    """The clients of all GPUs.

    Attributes:
        clients: By the GPU's PCI bus ID.
        silent: PIDs of holders of a GPU whose use could not be read, by PCI bus ID.
        complete: Whether these are all clients on the machine.
    """

    clients: Mapping[str, list[Client]]
    silent: Mapping[str, set[int]]
    complete: bool


class _Read(NamedTuple):
    """The last reading of a client."""

    at: float
    data: bytes
    usage: ClientUsage


_Key = tuple[str, int, int | None]
"""PCI bus ID and client ID; without the latter, PID and file descriptor."""


class ClientReader:
    """Reads the clients repeatedly. Not thread-safe; ``read`` may be abandoned at any time.

    Args:
        calls: Publishes reads that may hang.
        system: The operating system that is read.
    """

    def __init__(self, calls: CallWatch, system: System) -> None:
        self._calls = calls
        self._clock = system.clock
        self._proc = proc = system.proc
        self._holders = FileHolders(proc)
        self._last: Mapping[_Key, _Read] = {}
        self._sees_all = in_initial_pid_namespace(proc)

    def read(
        self, now: float, nodes: Mapping[str, Node | None], wanted: Collection[int] = ()
    ) -> ClientScan:
        """Read all clients of these nodes.

        Args:
            now: Seconds on the monotonic clock.
            nodes: The GPU of each device node, by name; ``None`` for one whose GPU only the client
                tells. Other nodes are ignored.
            wanted: PIDs that probably hold such a node.

        Raises:
            CallGivenUpError: See ``CallWatch.run``.
        """
        holders = self._holders
        found: dict[_Key, tuple[list[int], _Read]] = {}
        silent: dict[str, set[int]] = {}
        refused = False
        for pid, files in holders.scan(now, wanted).items():
            for descriptor, name in files.items():
                if name not in nodes:
                    continue
                node = nodes[name]
                if node is not None and not node.readable:
                    silent.setdefault(node.bus_id, set()).add(pid)
                    continue
                uuid = "" if node is None else node.gpu_uuid
                if uuid in self._calls.hanging:
                    continue
                read = partial(read_fdinfo, f"{self._proc}/{pid}/fdinfo/{descriptor}")
                at = self._clock.monotonic()
                try:
                    data = self._calls.run(uuid, "fdinfo", read)
                except PermissionError:
                    refused = True
                    continue
                except OSError:
                    holders.forget(pid)
                    continue
                head = parse_head(data)
                if head is None:
                    if node is not None and holders.holds(pid, descriptor):
                        # The driver tells nothing before Linux 5.14 (amdgpu) and 5.19 (i915).
                        silent.setdefault(node.bus_id, set()).add(pid)
                    else:
                        holders.forget(pid)
                    continue
                key: _Key = (head.bus_id, pid, descriptor)
                if head.client_id is not None:
                    key = (head.bus_id, head.client_id, None)
                if key in found:
                    pids = found[key][0]
                    if pid not in pids:
                        pids.append(pid)
                else:
                    found[key] = [pid], self._reading(key, at, data)
        clients: dict[str, list[Client]] = {}
        for key, (pids, reading) in found.items():
            client = Client(self._owner(pids), reading.usage, self._busy(key, reading))
            clients.setdefault(key[0], []).append(client)
        self._last = {key: reading for key, (_, reading) in found.items()}
        complete = holders.complete and not refused and self._sees_all
        return ClientScan(clients, silent, complete)

    def _reading(self, key: _Key, at: float, data: bytes) -> _Read:
        last = self._last.get(key)
        if last is not None and last.data == data:
            return _Read(at, data, last.usage)
        usage = parse_usage(data)
        return _Read(at, data, usage if last is None else _monotonic(last.usage, usage))

    def _busy(self, key: _Key, reading: _Read) -> Mapping[str, float] | None:
        """Percent of time that each engine worked since the last reading."""
        usage = reading.usage
        if usage.percent:
            return usage.percent
        last = self._last.get(key)
        if last is None:
            return None
        before, seconds = last.usage, reading.at - last.at
        busy: dict[str, float] = {}
        for name, value in usage.engine_ns.items():
            if seconds > 0:
                # The drivers leave out an engine that was never used.
                share = (value - before.engine_ns.get(name, 0)) / (seconds * 1e9)
                busy[name] = _percent(share, usage.capacity.get(name, 1))
        for name, value in usage.cycles.items():
            elapsed = usage.total_cycles.get(name, 0) - before.total_cycles.get(name, 0)
            if elapsed > 0 and name in before.total_cycles:
                share = (value - before.cycles.get(name, 0)) / elapsed
                busy[name] = _percent(share, usage.capacity.get(name, 1))
        return busy

    def _owner(self, pids: list[int]) -> int:
        """The process that a client belongs to; ``pids`` are ascending."""
        if len(pids) > 1:
            for pid in pids:
                stat = stat_of(self._proc, pid)
                if stat is not None and stat.name not in _BROKERS:
                    return pid
        return pids[0]


def read_fdinfo(path: str) -> bytes:
    """What a driver tells of an open file.

    Raises:
        OSError: It cannot be read.
    """
    # The kernel gives the text of one file in one piece.
    return read_once(path, FDINFO_BYTES)


def _percent(share: float, capacity: int) -> float:
    return min(_WHOLE, max(0.0, share / max(1, capacity) * _WHOLE))


def _monotonic(before: ClientUsage, usage: ClientUsage) -> ClientUsage:
    """Keep a larger value of before, as ``drm-usage-stats.rst`` asks."""
    return replace(
        usage,
        engine_ns=_larger(before.engine_ns, usage.engine_ns),
        cycles=_larger(before.cycles, usage.cycles),
    )


def _larger(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {name: max(value, before.get(name, 0)) for name, value in now.items()}
