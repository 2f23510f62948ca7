"""What ``i915`` and ``xe`` offer: where their files are, what the names in them mean, and queries.

No file in ``/sys`` has the size of a card's memory and how much of it is used. Both drivers answer
a query on the device file, which users of the group ``render`` may open: see
``DRM_XE_DEVICE_QUERY_MEM_REGIONS`` (``include/uapi/drm/xe_drm.h``) and
``DRM_I915_QUERY_MEMORY_REGIONS`` (``include/uapi/drm/i915_drm.h``). Only those with
``CAP_PERFMON`` or ``CAP_SYS_ADMIN`` get the used part.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import NamedTuple

# The bits of ``Gpu.clock_event_reasons``.
_POWER_CAP, _SLOWDOWN, _SOFT_THERMAL, _THERMAL = 0x004, 0x008, 0x020, 0x040

THROTTLE_REASONS = {
    "pl1": _POWER_CAP,
    "pl2": _POWER_CAP,
    "pl4": _POWER_CAP,
    "vr_tdc": _POWER_CAP,
    "iccmax": _POWER_CAP,
    "fastvmode": _POWER_CAP,
    "psys_pl1": _POWER_CAP,
    "psys_pl2": _POWER_CAP,
    "prochot": _SLOWDOWN,
    "psys_crit": _SLOWDOWN,
    "ratl": _SOFT_THERMAL,
    "soc_avg_thermal": _SOFT_THERMAL,
    "thermal": _THERMAL,
    "vr_thermalert": _THERMAL,
    "soc_thermal": _THERMAL,
    "mem_thermal": _THERMAL,
    "vr_thermal": _THERMAL,
}
"""Reasons of both drivers: ``pl1``, ``pl2`` and ``pl4`` are limits of power, ``vr_tdc`` and
``iccmax`` of current. ``prochot`` is a signal from outside of the GPU: heat or lack of power.
``ratl`` is a limit of the mean temperature."""


class DriverFiles(NamedTuple):
    """Where a driver has its files, below the folder of the GPU."""

    # Prefixes of the clocks of the main part of the GPU, the newest form first.
    clocks: tuple[str, ...]
    # The same of the part that has the video engines, where that is separate.
    video_clocks: tuple[str, ...]
    actual: str  # Name of the actual clock.
    highest: str  # Name of the highest clock that the hardware allows.
    idle: tuple[str, ...]  # Counters of milliseconds in the idle state, the newest form first.
    throttle: str  # Prefix of the reasons for lower clocks.
    throttle_status: str  # Whether there is any.
    hwmon: str  # Content of ``name`` of its hwmon folder; a part of a GPU may have another one.
    energy: tuple[str, ...]  # Names of energy counters, that of the whole card first.
    # Groups of power limits; the first group that has any applies.
    limits: tuple[tuple[str, ...], ...]
    temperature: str  # Prefix of the temperature of the package.
    memory_temperature: str | None  # Prefix of that of the memory.


def i915_files(node: str) -> DriverFiles:
    """The files of ``i915``; ``node`` is the name of the GPU's primary node."""
    return DriverFiles(
        # ``gt_...`` is the form before Linux 5.18.
        clocks=(f"drm/{node}/gt/gt0/rps_", f"drm/{node}/gt_"),
        video_clocks=(f"drm/{node}/gt/gt1/rps_",),
        actual="act_freq_mhz",
        highest="RP0_freq_mhz",
        idle=(f"drm/{node}/gt/gt0/rc6_residency_ms", f"drm/{node}/power/rc6_residency_ms"),
        throttle=f"drm/{node}/gt/gt0/throttle_reason_",
        throttle_status=f"drm/{node}/gt/gt0/throttle_reason_status",
        hwmon="i915",
        energy=("energy1_input",),
        limits=(("power1_max",),),
        temperature="temp1",
        memory_temperature=None,
    )


XE_FILES = DriverFiles(
    clocks=("tile0/gt0/freq0/",),
    video_clocks=("tile0/gt1/freq0/",),
    actual="act_freq",
    highest="rp0_freq",
    idle=("tile0/gt0/gtidle/idle_residency_ms",),
    throttle="tile0/gt0/freq0/throttle/reason_",
    throttle_status="tile0/gt0/freq0/throttle/status",
    hwmon="xe",
    # The first ones are of the card, the second ones of the package only.
    energy=("energy1_input", "energy2_input"),
    limits=(("power1_max", "power1_cap"), ("power2_max", "power2_cap")),
    temperature="temp2",
    memory_temperature="temp3",
)


_READ_WRITE = 3 << 30
_DRM = ord("d") << 8
_DRIVER_COMMANDS = 0x40

_XE_QUERY = struct.Struct("=QIIQ2Q")
"""``struct drm_xe_device_query``: extensions, query, size, data, reserved."""
_XE_DEVICE_QUERY = _READ_WRITE | _XE_QUERY.size << 16 | _DRM | _DRIVER_COMMANDS
_XE_MEMORY_REGIONS = 1
_XE_HEAD = struct.Struct("=II")
_XE_REGION = struct.Struct("=HHIQQQQ6Q")
"""``struct drm_xe_mem_region``: class, instance, smallest page, size, used, ..."""

_I915_QUERY = struct.Struct("=IIQ")
"""``struct drm_i915_query``: number of items, flags, pointer to the items."""
_I915_ITEM = struct.Struct("=QiIQ")
"""``struct drm_i915_query_item``: query, length, flags, pointer to the data."""
_I915_DEVICE_QUERY = _READ_WRITE | _I915_QUERY.size << 16 | _DRM | _DRIVER_COMMANDS + 0x39
_I915_MEMORY_REGIONS = 4
_I915_HEAD = struct.Struct("=I3I")
_I915_REGION = struct.Struct("=HHIQQ8Q")
"""``struct drm_i915_memory_region_info``: class, instance, reserved, size, unallocated, ..."""

_LOCAL = 1
"""The class of a card's own memory in both drivers."""

_MOST_BYTES = 64 * 1024
"""Far more than an answer has."""


def ioctl(descriptor: int, request: int, argument: bytearray) -> None:
    """Ask the driver; it writes its answer into the argument.

    Raises:
        OSError: The driver's error.
    """
    import fcntl  # Other systems do not have it.

    fcntl.ioctl(descriptor, request, argument)


class CardMemory(NamedTuple):
    """The memory of a card."""

    total: int  # Usable bytes.
    used: int | None  # Bytes in use; ``None`` for users who may not know it.


def read_card_memory(driver: str, path: str) -> CardMemory | None:
    """The memory of a card, all of its tiles together.

    Args:
        driver: Name of its driver.
        path: Its device file. It is closed again at once: who holds it counts as a user of the
            GPU.

    Returns:
        ``None`` if it has no memory of its own.

    Raises:
        OSError: The file cannot be opened, or the driver does not know the query.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        regions = _xe_regions(descriptor) if driver == "xe" else _i915_regions(descriptor)
    finally:
        os.close(descriptor)
    if not regions:
        return None
    total = sum(size for size, _ in regions)
    used = sum(used for _, used in regions)
    # Without the right to know it, the driver says that nothing is used.
    return CardMemory(total, used or None)


def _xe_regions(descriptor: int) -> list[tuple[int, int]]:
    """Size and used bytes of each region of the card's own memory."""
    query = bytearray(_XE_QUERY.pack(0, _XE_MEMORY_REGIONS, 0, 0, 0, 0))
    ioctl(descriptor, _XE_DEVICE_QUERY, query)
    data = _buffer(_XE_QUERY.unpack(query)[2], _XE_HEAD)
    query = bytearray(
        _XE_QUERY.pack(0, _XE_MEMORY_REGIONS, len(data), ctypes.addressof(data), 0, 0)
    )
    ioctl(descriptor, _XE_DEVICE_QUERY, query)
    (count, _) = _XE_HEAD.unpack_from(data)
    return [
        (size, used)
        for kind, _, _, size, used, *_ in _entries(data, _XE_REGION, _XE_HEAD.size, count)
        if kind == _LOCAL
    ]


def _i915_regions(descriptor: int) -> list[tuple[int, int]]:
    """The same of ``i915``."""
    data = _buffer(_i915_ask(descriptor, 0, 0), _I915_HEAD)
    _i915_ask(descriptor, len(data), ctypes.addressof(data))
    (count, *_) = _I915_HEAD.unpack_from(data)
    return [
        (size, size - free)
        for kind, _, _, size, free, *_ in _entries(data, _I915_REGION, _I915_HEAD.size, count)
        if kind == _LOCAL and free <= size
    ]


def _i915_ask(descriptor: int, length: int, address: int) -> int:
    """Put the query; returns the length of the answer."""
    item = ctypes.create_string_buffer(
        _I915_ITEM.pack(_I915_MEMORY_REGIONS, length, 0, address), _I915_ITEM.size
    )
    ioctl(
        descriptor,
        _I915_DEVICE_QUERY,
        bytearray(_I915_QUERY.pack(1, 0, ctypes.addressof(item))),
    )
    answer: int = _I915_ITEM.unpack(item.raw)[1]
    if answer < 0:
        # An error of this query takes the place of its length.
        raise OSError(-answer, os.strerror(-answer))
    return answer


def _buffer(size: int, head: struct.Struct) -> ctypes.Array[ctypes.c_char]:
    if not head.size <= size <= _MOST_BYTES:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return ctypes.create_string_buffer(size)


def _entries(
    data: ctypes.Array[ctypes.c_char], entry: struct.Struct, offset: int, count: int
) -> list[tuple[int, ...]]:
    room = (len(data) - offset) // entry.size
    return [
        entry.unpack_from(data, offset + number * entry.size) for number in range(min(count, room))
    ]
