"""Reads the state, traffic and errors of network adapters, and which GPUs are near them.

All is in sysfs: ``Documentation/ABI/testing/sysfs-class-net`` and ``sysfs-class-infiniband`` of the
kernel. The counters of an InfiniBand port are asked of the adapter, which takes long if its
firmware hangs: see ``gpumon.host.network_watch``.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from gpumon.host.network_ports import find_ports
from gpumon.host.pci import graphics_devices, read_word
from gpumon.model.network import Nic
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.host.network_ports import Port
    from gpumon.system.system import System

_LEAST_SECONDS = 0.2
"""A rate over less time is left out."""
_MOST_TOTAL = 10**18
"""``gpumon.model.number_types.Count``."""
_MOST_RATE = 10**13
"""Bytes per second; a hundred times as much as the fastest port."""
_NUMBER = re.compile(r"[0-9]{1,20}")
_RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec\b.*")
"""``400 Gb/sec (4X NDR)``, ``2.5 Gb/sec (1X SDR)``."""
_NVIDIA = "0x10de"
_MOST_GPUS = 64

_WORD = 4
"""InfiniBand counts words of four bytes: section 16.1.3.5 of its specification, volume 1."""
_INTERFACE_ERRORS = ("statistics/rx_errors", "statistics/tx_errors")
_PORT_ERRORS = (
    "counters/symbol_error",
    "counters/port_rcv_errors",
    "counters/port_xmit_discards",
    "counters/local_link_integrity_errors",
    "counters/excessive_buffer_overrun_errors",
)
_WAITS = ("counters/port_xmit_wait", "hw_counters/np_cnp_sent", "hw_counters/out_of_buffer")
"""Ticks in which data waited to be sent; notices to slow down, which this side sent; packets that
found no buffer."""


class _Counters(NamedTuple):
    """The counters of a port. ``None`` is unknown."""

    at: float  # When they were read, by the monotonic clock.
    received: int | None
    transmitted: int | None
    # Of each kind.
    errors: tuple[int | None, ...]
    waits: tuple[int | None, ...]
    link_losses: int | None
    up: bool | None
    # What was seen of it until then.
    errors_at: float | None = None
    link_lost_at: float | None = None


class _Place(NamedTuple):
    """Where an adapter is."""

    numa_node: int | None = None
    near: tuple[str, ...] = ()
    nearness: str | None = None


class NetworkReader:
    """Reads the network adapters repeatedly. Not thread-safe.

    Args:
        system: The operating system that is read.
    """

    def __init__(self, system: System = THIS_SYSTEM) -> None:
        self._system = system
        self._before: dict[str, _Counters] = {}
        self._places: dict[str | None, _Place] = {}

    def read(self) -> tuple[Nic, ...]:
        """The adapters now, at most ``MOST_NICS``. The first reading has no rates."""
        ports = find_ports(self._system.sys)
        if not {port.pci_bus_id for port in ports} <= self._places.keys():
            self._places = _places({port.pci_bus_id for port in ports}, self._system.sys)
        before, self._before = self._before, {}
        return tuple(
            sorted((self._nic(port, before.get(port.folder)) for port in ports), key=_by_name)
        )

    def _nic(self, port: Port, before: _Counters | None) -> Nic:
        now = self._system.clock.monotonic()
        counters = (_interface if port.is_interface else _rdma)(port, now)
        if before is not None:
            counters = _with_sightings(before, counters, self._system.clock.time())
        self._before[port.folder] = counters
        place = self._places[port.pci_bus_id]
        return Nic(
            name=port.name,
            kind=port.kind,
            up=counters.up,
            speed=_speed(port),
            received=_total(counters.received),
            transmitted=_total(counters.transmitted),
            receive_rate=_rate(before, counters, "received"),
            transmit_rate=_rate(before, counters, "transmitted"),
            errors=_total(_sum(counters.errors)),
            errors_at=counters.errors_at,
            link_losses=_total(counters.link_losses),
            link_lost_at=counters.link_lost_at,
            congested=None if before is None else _rises(before.waits, counters.waits),
            numa_node=place.numa_node,
            pci_bus_id=port.pci_bus_id,
            near=place.near,
            nearness=place.nearness,
        )


def _by_name(nic: Nic) -> list[str | int]:
    """``mlx5_10`` after ``mlx5_9``."""
    parts = re.split(r"([0-9]{1,9})", nic.name)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def _interface(port: Port, now: float) -> _Counters:
    """The counters of a network interface."""
    losses = _number(port, "carrier_down_count")
    if losses is None:
        # Before Linux 4.16. It counts both directions.
        changes = _number(port, "carrier_changes")
        losses = None if changes is None else changes // 2
    state = read_word(f"{port.folder}/operstate")
    up = None if state is None else {"up": True, "unknown": None}.get(state, False)
    if state == "unknown":
        up = {"1": True, "0": False}.get(read_word(f"{port.folder}/carrier") or "")
    return _Counters(
        now,
        _number(port, "statistics/rx_bytes"),
        _number(port, "statistics/tx_bytes"),
        tuple(_number(port, file) for file in _INTERFACE_ERRORS),
        (),
        losses,
        up,
    )


def _rdma(port: Port, now: float) -> _Counters:
    """The counters of a port of an RDMA device; a driver may have none of them."""
    received, transmitted = (_number(port, f"counters/port_{way}_data") for way in ("rcv", "xmit"))
    state = read_word(f"{port.folder}/state")
    return _Counters(
        now,
        None if received is None else received * _WORD,
        None if transmitted is None else transmitted * _WORD,
        tuple(_number(port, file) for file in _PORT_ERRORS),
        tuple(_number(port, file) for file in _WAITS),
        _number(port, "counters/link_downed"),
        None if not state else state.endswith(": ACTIVE"),
    )


def _speed(port: Port) -> int | None:
    """Bytes per second. An interface without a link has -1, or an error."""
    megabits = _number(port, "speed")
    if megabits is not None:
        return _total(megabits * 10**6 // 8) or None
    rate = _RATE.fullmatch(read_word(f"{port.folder}/rate") or "")
    return None if rate is None else int(float(rate[1]) * 1e9 / 8) or None


def _number(port: Port, file: str) -> int | None:
    """A counter; ``None`` for ``N/A (no PMA)``, -1, or without the file."""
    word = read_word(f"{port.folder}/{file}")
    return int(word) if word is not None and _NUMBER.fullmatch(word) else None


def _sum(counts: Iterable[int | None]) -> int | None:
    """The sum of those that are known; ``None`` without any."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _total(value: int | None) -> int | None:
    return value if value is None or value <= _MOST_TOTAL else None


def _rate(before: _Counters | None, now: _Counters, field: str) -> float | None:
    """Bytes per second since the reading before; ``None`` if the counter was set back."""
    old = None if before is None else getattr(before, field)
    new = getattr(now, field)
    if before is None or old is None or new is None or new < old:
        return None
    seconds = now.at - before.at
    if seconds < _LEAST_SECONDS:
        return None
    rate = (new - old) / seconds
    return rate if rate <= _MOST_RATE else None


def _rises(old: Iterable[int | None], new: Iterable[int | None]) -> bool | None:
    """Whether any of the counters has risen; ``None`` if all are unknown or were set back."""
    found = [
        after > before
        for before, after in zip(old, new, strict=True)
        if before is not None and after is not None and after >= before
    ]
    return any(found) if found else None


def _with_sightings(before: _Counters, now: _Counters, time: float) -> _Counters:
    """The counters, with when errors and lost links were last seen."""
    lost = _rises([before.link_losses], [now.link_losses]) or (before.up and now.up is False)
    return now._replace(
        errors_at=time if _rises(before.errors, now.errors) else before.errors_at,
        link_lost_at=time if lost else before.link_lost_at,
    )


def _places(bus_ids: set[str | None], sys: str) -> dict[str | None, _Place]:
    """Where adapters are and which GPUs are near them, by PCI bus ID."""
    from gpumon.host.topology import pci_place, proximity
    from gpumon.model.topology import Link

    gpus = {bus_id: pci_place(bus_id, sys) for bus_id in _gpus(sys)}
    places: dict[str | None, _Place] = {None: _Place()}
    for bus_id in bus_ids:
        if bus_id is None:
            continue
        place = pci_place(bus_id, sys)
        links = {gpu: proximity(place, at) for gpu, at in gpus.items()}
        nearest = min(links.values(), default=Link.UNKNOWN)
        near = tuple(gpu for gpu, link in links.items() if link is nearest)
        places[bus_id] = (
            _Place(place.numa_node, near, nearest.label)
            if nearest < Link.SYSTEM
            else _Place(place.numa_node)
        )
    return places


def _gpus(sys: str) -> list[str]:
    """The kernel's names of the GPUs: those with a driver for it, and NVIDIA's without one."""
    found = set(graphics_devices(_NVIDIA, sys))
    folder = f"{sys}/class/drm"
    try:
        nodes = [name for name in os.listdir(folder) if name.startswith("renderD")]  # noqa: PTH208 - as in network_ports
    except OSError:
        nodes = []
    found.update(
        os.path.realpath(f"{folder}/{name}/device").rpartition("/")[2]
        for name in nodes[:_MOST_GPUS]
    )
    return sorted(found)[:_MOST_GPUS]
