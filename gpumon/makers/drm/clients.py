"""Reads what the clients of the GPUs use: memory, and the time that engines worked for them.

A client is one opening of a DRM file. Its file descriptor can be duplicated and inherited, so one
client can have several descriptors in several processes; it counts once.

The keys of ``/proc/PID/fdinfo/N`` are those of ``Documentation/gpu/drm-usage-stats.rst`` in the
kernel, and the older ones that amdgpu wrote from Linux 5.14 to 5.18 (``amdgpu_fdinfo.c`` of that
time)::

    pdev:   0000:03:00.0
    pasid:  32774
    vram mem:       19960 kB
    gfx0:   4.23%
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gpumon.host.procfs import in_initial_pid_namespace, read_once, stat_of
from gpumon.makers.drm.holders import FileHolders

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpumon.makers.source import CallWatch
    from gpumon.system.system import System

FDINFO_BYTES = 16 * 1024
"""Several times what the drivers write."""

_HEAD = re.compile(
    rb"^(drm-driver|drm-pdev|drm-client-id|pdev|pasid):\s*([!-~]{1,64})[ \t]*$", re.MULTILINE
)
_LINE = re.compile(
    rb"^drm-(engine-capacity|engine|cycles|total-cycles|memory|resident)"
    rb"-([!-9;-~]{1,32}):[ \t]*([0-9]{1,20})(?:[ \t]+(ns|KiB|MiB|GiB))?[ \t]*$",
    re.MULTILINE,
)
_OLD_MEMORY = re.compile(rb"^(vram|gtt|cpu) mem:[ \t]*([0-9]{1,20}) kB[ \t]*$", re.MULTILINE)
_OLD_ENGINE = re.compile(
    rb"^([a-z]{1,16}(?:_1)?)([0-9]{1,2}):[ \t]*([0-9]{1,3}(?:\.[0-9]{1,6})?)%[ \t]*$", re.MULTILINE
)

_HEAD_BYTES = 512
"""The drivers write what identifies a client first; the rest is long."""

_UNITS = {b"": 1, b"ns": 1, b"KiB": 2**10, b"MiB": 2**20, b"GiB": 2**30}
_MEMORY = {b"memory", b"resident"}
_MOST_DIGITS = 20
_MOST_ENGINES = 32
_MOST_BYTES = 2**50
"""More memory than a GPU can address is a wrong number."""


class ClientHead(Struct, frozen=True, gc=False):
    """Which client of which GPU an open file belongs to."""

    bus_id: str  # PCI bus ID of the GPU.
    # Number of the client, the same for all duplicates of a file; ``None`` if the driver does not
    # tell it.
    client_id: int | None


class ClientUsage(Struct, frozen=True, gc=False):
    """The use that a client has made of its GPU. Names of engines and regions are the driver's."""

    engine_ns: Mapping[str, int] = {}  # Nanoseconds that engines were busy for it, in all.
    cycles: Mapping[str, int] = {}  # Cycles that engines were busy for it, in all.
    total_cycles: Mapping[str, int] = {}  # Cycles of these engines in all, busy or not.
    capacity: Mapping[str, int] = {}  # Number of engines under one name, where it is not 1.
    percent: Mapping[str, float] = {}  # Percent of an engine, as in the older form.
    memory: Mapping[str, int] = {}  # Bytes of ``drm-memory-*``: what its buffers occupy.
    # Bytes of ``drm-resident-*``: the part that has backing store now.
    resident: Mapping[str, int] = {}


def parse_head(data: bytes) -> ClientHead | None:
    """The client of an open file; ``None`` if it is not the file of a PCI device's DRM driver."""
    found = dict(_HEAD.findall(data, 0, _HEAD_BYTES))
    bus_id = found.get(b"drm-pdev")
    if bus_id is not None and b"drm-driver" in found:
        return ClientHead(bus_id.decode(), _number(found.get(b"drm-client-id")))
    bus_id = found.get(b"pdev")
    if bus_id is None:
        return None
    return ClientHead(bus_id.decode(), _number(found.get(b"pasid")))


def parse_usage(data: bytes) -> ClientUsage:
    """The use that the client of a file has made. Lines that are not valid are ignored."""
    tables: dict[bytes, dict[str, int]] = {}
    for kind, name, number, unit in _LINE.findall(data):
        value = int(number) * _UNITS[unit]
        if kind in _MEMORY and value > _MOST_BYTES:
            continue
        table = tables.setdefault(kind, {})
        if len(table) < _MOST_ENGINES:
            table[name.decode()] = value
    if not tables:
        return _parse_old(data)
    empty: dict[str, int] = {}
    return ClientUsage(
        engine_ns=tables.get(b"engine", empty),
        cycles=tables.get(b"cycles", empty),
        total_cycles=tables.get(b"total-cycles", empty),
        capacity=tables.get(b"engine-capacity", empty),
        memory=tables.get(b"memory", empty),
        resident=tables.get(b"resident", empty),
    )


def _parse_old(data: bytes) -> ClientUsage:
    """The older form; several engines of one kind (``gfx0``, ``gfx1``) are added."""
    percent: dict[str, float] = {}
    for name, _, value in _OLD_ENGINE.findall(data):
        engine = name.decode()
        percent[engine] = min(100.0, percent.get(engine, 0.0) + float(value))
    memory = {
        name.decode(): int(number) * 1024
        for name, number in _OLD_MEMORY.findall(data)
        if int(number) * 1024 <= _MOST_BYTES
    }
    return ClientUsage(percent=percent, memory=memory)


def _number(text: bytes | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and len(text) <= _MOST_DIGITS else None


_BROKERS = {"systemd-logind", "elogind-daemon", "seatd"}
"""Services that open a GPU for a display server and keep the file open themselves."""

_WHOLE = 100.0


class Node(NamedTuple):
    """The GPU of a device node."""

    gpu_uuid: str  # Its UUID.
    bus_id: str  # Its PCI bus ID.
    # Whether the use of its clients may be read now: reading would wake a sleeping GPU (``xe``
    # does), and hang where another read of it hangs.
    readable: bool


class Client(Struct, frozen=True):
    """A client at one moment."""

    # Its process; of several that share it, the one with the lowest PID that is not a session
    # service.
    pid: int
    usage: ClientUsage  # What it has used since it was opened.
    # Percent of time that each engine worked for it since the last reading; ``None`` at the first
    # one.
    busy: Mapping[str, float] | None


class ClientScan(NamedTuple):
    """The clients of all GPUs."""

    clients: Mapping[str, list[Client]]  # By the GPU's PCI bus ID.
    # PIDs of holders of a GPU whose use could not be read, by PCI bus ID.
    silent: Mapping[str, set[int]]
    complete: bool  # Whether these are all clients on the machine.


class _Read(NamedTuple):
    """The last reading of a client."""

    at: float
    data: bytes
    usage: ClientUsage


_Key = tuple[str, int, int | None]
"""PCI bus ID and client ID; without the latter, PID and file descriptor."""


class ClientReader:
    """Reads the clients repeatedly. Not thread-safe; ``read`` may be abandoned at any time."""

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
                        # The driver has nothing before Linux 5.14 (amdgpu) and 5.19 (i915).
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
    """What a driver reports of an open file.

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
