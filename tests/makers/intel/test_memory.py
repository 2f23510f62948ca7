"""The query for a card's memory, byte by byte as the drivers read and write it."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.makers.intel import drivers
from gpumon.makers.intel.drivers import CardMemory, read_card_memory

Ioctl = Callable[[int, int, bytearray], int]
Read = Callable[[str, Ioctl], CardMemory | None]

GIB = 2**30

SYSTEM, LOCAL = 0, 1

# Usable memory of a B580, without what the firmware keeps: canonical/intel-graphics-preview#14.
B580_BYTES = 0x2FB800000
# Size and use of an A750's memory: flightlessmango/MangoHud#1936.
A750_BYTES, A750_USED = 8522825728, 32079872

XE_REQUEST, I915_REQUEST = 0xC0286440, 0xC0106479
"""``DRM_IOWR(DRM_COMMAND_BASE + 0x00, ...)`` of 40 bytes, and ``+ 0x39`` of 16 bytes."""


def xe_answer(*regions: tuple[int, int, int]) -> bytes:
    """``struct drm_xe_query_mem_regions``: class, size and used bytes of each region."""
    data = struct.pack("=II", len(regions), 0)
    for number, (kind, size, used) in enumerate(regions):
        data += struct.pack("=HHIQQQQ6Q", kind, number, 4096, size, used, size, 0, *[0] * 6)
    return data


def i915_answer(*regions: tuple[int, int, int]) -> bytes:
    """``struct drm_i915_query_memory_regions``: class, size and free bytes of each region."""
    data = struct.pack("=I3I", len(regions), 0, 0, 0)
    for number, (kind, size, free) in enumerate(regions):
        data += struct.pack("=HHIQQ8Q", kind, number, 0, size, free, *[0] * 8)
    return data


def xe_driver(answer: bytes) -> Ioctl:
    """An ``xe`` that answers with these bytes."""

    def ioctl(_: int, request: int, query: bytearray) -> int:
        assert request == XE_REQUEST
        extensions, kind, size, address, *_rest = struct.unpack("=QIIQ2Q", query)
        assert (extensions, kind) == (0, 1)
        if size == 0:
            struct.pack_into("=I", query, 12, len(answer))
        else:
            assert size == len(answer)
            ctypes.memmove(address, answer, len(answer))
        return 0

    return ioctl


def i915_driver(answer: bytes | int) -> Ioctl:
    """An ``i915`` that answers with these bytes, or with an error of the item."""

    def ioctl(_: int, request: int, query: bytearray) -> int:
        assert request == I915_REQUEST
        count, flags, items = struct.unpack("=IIQ", query)
        assert (count, flags) == (1, 0)
        kind, length, _flags, address = struct.unpack("=QiIQ", ctypes.string_at(items, 24))
        assert kind == 4
        size = answer if isinstance(answer, int) else len(answer)
        if length and isinstance(answer, bytes):
            ctypes.memmove(address, answer, len(answer))
        ctypes.memmove(items + 8, struct.pack("=i", size), 4)
        return 0

    return ioctl


@pytest.fixture
def device(tmp_path: Path) -> str:
    path = tmp_path / "renderD128"
    path.touch()
    return str(path)


@pytest.fixture
def read(device: str, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Reads the memory of a card of which a driver answers so."""

    def answered(driver: str, ioctl: Ioctl) -> CardMemory | None:
        monkeypatch.setattr(drivers, "ioctl", ioctl)
        return read_card_memory(driver, device)

    return answered


def test_memory_of_xe(read: Read) -> None:
    answer = xe_answer((SYSTEM, 32 * GIB, 5), (LOCAL, A750_BYTES, A750_USED))
    assert read("xe", xe_driver(answer)) == CardMemory(A750_BYTES, A750_USED)


def test_memory_of_all_tiles_is_added(read: Read) -> None:
    answer = xe_answer((LOCAL, 64 * GIB, 1), (LOCAL, 64 * GIB, 2))
    assert read("xe", xe_driver(answer)) == CardMemory(128 * GIB, 3)


def test_memory_of_i915(read: Read) -> None:
    answer = i915_answer((SYSTEM, 32 * GIB, 32 * GIB), (LOCAL, 16 * GIB, 13 * GIB))
    assert read("i915", i915_driver(answer)) == CardMemory(16 * GIB, 3 * GIB)


def test_what_is_used_is_unknown_and_not_zero_without_the_right_to_know_it(read: Read) -> None:
    xe = xe_driver(xe_answer((LOCAL, B580_BYTES, 0)))
    i915 = i915_driver(i915_answer((LOCAL, B580_BYTES, B580_BYTES)))
    assert read("xe", xe) == read("i915", i915) == CardMemory(B580_BYTES, None)


def test_processor_graphics_have_no_memory_of_their_own(read: Read) -> None:
    assert read("xe", xe_driver(xe_answer((SYSTEM, 32 * GIB, 5)))) is None


@pytest.mark.parametrize("answer", [-errno.EINVAL, 0, 3, 2**30, struct.pack("=I3I", 1000, 0, 0, 0)])
def test_a_wrong_answer_is_no_memory(read: Read, answer: int | bytes) -> None:
    try:
        assert read("i915", i915_driver(answer)) is None
    except OSError as error:
        assert error.errno == errno.EINVAL  # noqa: PT017 - either is right


def test_the_file_is_closed_again(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "ioctl", xe_driver(xe_answer((LOCAL, GIB, 1))))
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the names
    read_card_memory("xe", device)
    monkeypatch.undo()
    with pytest.raises(OSError, match="Inappropriate ioctl"):
        read_card_memory("xe", device)
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - the names
