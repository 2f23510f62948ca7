"""Parses what a DRM driver tells of one open file in ``/proc/PID/fdinfo/N``.

The keys are those of ``Documentation/gpu/drm-usage-stats.rst`` in the kernel, and the older ones
that amdgpu wrote from Linux 5.14 to 5.18 (``amdgpu_fdinfo.c`` of that time)::

    pdev:   0000:03:00.0
    pasid:  32774
    vram mem:       19960 kB
    gfx0:   4.23%
"""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time

from msgspec import Struct

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
    """Which client of which GPU an open file belongs to.

    Attributes:
        bus_id: PCI bus ID of the GPU.
        client_id: Number of the client, the same for all duplicates of a file; ``None`` if the
            driver does not tell it.
    """

    bus_id: str
    client_id: int | None


class ClientUsage(Struct, frozen=True, gc=False):
    """The use that a client has made of its GPU. Names of engines and regions are the driver's.

    Attributes:
        engine_ns: Nanoseconds that engines were busy for it, in all.
        cycles: Cycles that engines were busy for it, in all.
        total_cycles: Cycles of these engines in all, busy or not.
        capacity: Number of engines under one name, where it is not 1.
        percent: Percent of an engine, as the older form tells it.
        memory: Bytes of ``drm-memory-*``: what its buffers occupy.
        resident: Bytes of ``drm-resident-*``: the part that has backing store now.
    """

    engine_ns: Mapping[str, int] = {}
    cycles: Mapping[str, int] = {}
    total_cycles: Mapping[str, int] = {}
    capacity: Mapping[str, int] = {}
    percent: Mapping[str, float] = {}
    memory: Mapping[str, int] = {}
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
