"""Asks ``i915`` and ``xe`` for the size of a card's memory and how much of it is used.

No file in ``/sys`` tells it. Both drivers answer a query on the device file, which users of the
group ``render`` may open: ``DRM_IOCTL_XE_DEVICE_QUERY`` with ``DRM_XE_DEVICE_QUERY_MEM_REGIONS``
(``include/uapi/drm/xe_drm.h``) and ``DRM_IOCTL_I915_QUERY`` with ``DRM_I915_QUERY_MEMORY_REGIONS``
(``include/uapi/drm/i915_drm.h``). The used part is told only to those with ``CAP_PERFMON`` or
``CAP_SYS_ADMIN``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import NamedTuple

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
    """The memory of a card.

    Attributes:
        total: Usable bytes.
        used: Bytes in use; ``None`` if that is told to privileged users only.
    """

    total: int
    used: int | None


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
        # An error of this one query is told instead of its length.
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
