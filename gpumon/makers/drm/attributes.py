"""Reads attributes of a GPU: files of one value below its folder in ``/sys``.

The kernel answers with the value, or with an error number that says why there is none. The PCIe
link of a GPU is read here, too.
"""

from __future__ import annotations

import errno
import os
import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gpumon.model.snapshot import Unknown

if TYPE_CHECKING:
    from gpumon.makers.source import CallWatch

_PAGE_BYTES = 4096
"""The most that an attribute of text can have."""

_MOST_DIGITS = 24
"""More than a 64-bit number has; a longer one is corrupt."""

NO_HWMON = "hwmon"
"""A folder without any value."""

_MOST_DEGREES = 300
"""Larger values are errors of the firmware: it answers with all bits set, or with noise."""

_HELD_FILES = 48
"""Files that are held open for each GPU: sixteen GPUs stay below the usual limit of 1024."""

_REASONS = {
    errno.ENOENT: Unknown.NOT_SUPPORTED,
    errno.ENOTDIR: Unknown.NOT_SUPPORTED,
    errno.EISDIR: Unknown.NOT_SUPPORTED,
    errno.EINVAL: Unknown.NOT_SUPPORTED,
    errno.EOPNOTSUPP: Unknown.NOT_SUPPORTED,
    errno.ENODATA: Unknown.NOT_SUPPORTED,
    errno.ENXIO: Unknown.NOT_SUPPORTED,
    errno.EACCES: Unknown.NO_PERMISSION,
}
"""The meaning of an error. All others are passing ones: the GPU is reset (amdgpu: ``EPERM``), its
firmware is busy (``EBUSY``, ``EAGAIN``, ``ETIME``) or fails (``EIO``)."""


class GpuLostError(Exception):
    """The GPU is not there any more, or its driver has let go of it."""


class Attributes:
    """The attributes of one GPU.

    Files that are read repeatedly stay open: reading again takes 1 µs and not 8, and after the
    GPU was removed it fails with ``ENODEV`` even if another one has taken its place. An open file
    keeps neither the GPU awake nor the driver loaded.

    Attributes:
        folder: The folder of the GPU.
        answered: Number of reads since ``begin_pass`` that gave a value.
        failed: Number of reads since then that failed with ``EIO``.
    """

    def __init__(self, folder: str, gpu_uuid: str, calls: CallWatch) -> None:
        self.folder = folder
        self._uuid = gpu_uuid
        self._calls = calls
        self._held: dict[str, int] = {}
        self._missing: set[str] = set()
        self.answered = self.failed = 0

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close all files."""
        held, self._held = self._held, {}
        for descriptor in held.values():
            os.close(descriptor)

    def forget_missing(self) -> None:
        """Try files again that were missing."""
        self._missing.clear()

    def begin_pass(self) -> None:
        """Count reads from zero."""
        self.answered = self.failed = 0

    @property
    def all_failed(self) -> bool:
        """Whether every read since ``begin_pass`` failed as those of a dead GPU do."""
        return self.failed > 0 and not self.answered

    # Values

    def raw(self, name: str, limit: int = _PAGE_BYTES) -> bytes | Unknown:
        """The content of a file.

        Args:
            name: Path below ``folder``.
            limit: The most bytes to read.

        Raises:
            GpuLostError: The GPU is gone.
            CallGivenUpError: See ``CallWatch.run``.
        """
        if name in self._missing:
            return Unknown.NOT_SUPPORTED
        try:
            data = self._calls.run(self._uuid, name, partial(self.read, name, limit))
        except OSError as error:
            return self._reason(name, error)
        self.answered += 1
        return data

    def text(self, name: str) -> str | Unknown:
        """The content as text without spaces around it; empty counts as not supported."""
        data = self.raw(name)
        if isinstance(data, Unknown):
            return data
        return data.decode(errors="replace").strip() or Unknown.NOT_SUPPORTED

    def scaled(self, name: str, unit: int, most: int) -> int | Unknown:
        """A whole number in a larger unit than the file's.

        Args:
            name: Path below ``folder``.
            unit: How many of the file's are 1.
            most: A number that is farther from 0 cannot be, and is not supported.
        """
        value = self.number(name)
        if isinstance(value, Unknown):
            return value
        value = round(value / unit)
        return value if -most <= value <= most else Unknown.NOT_SUPPORTED

    def degrees(self, name: str) -> int | Unknown:
        """Degrees Celsius of a sensor of thousandths."""
        return self.scaled(name, 1000, _MOST_DEGREES)

    def number(self, name: str) -> int | Unknown:
        """The content as a decimal number, or as a hexadecimal one after ``0x``."""
        data = self.raw(name)
        if isinstance(data, Unknown):
            return data
        if len(data) > _MOST_DIGITS:
            return Unknown.NOT_SUPPORTED
        try:
            # base 0 would refuse leading zeros
            return int(data, 16) if data[:2] == b"0x" else int(data)
        except ValueError:
            return Unknown.NOT_SUPPORTED

    def folders(self, name: str) -> list[str]:
        """The names in a folder, sorted; nothing if it cannot be read."""
        try:
            return sorted(os.listdir(f"{self.folder}/{name}"))  # noqa: PTH208 - pathlib is not imported before the first frame
        except OSError:
            return []

    def hwmon(self, name: str) -> str:
        """The path of its hwmon folder below ``folder``: ``hwmon/hwmon3``.

        Args:
            name: The content of its file ``name``.

        Returns:
            ``NO_HWMON`` without one.
        """
        for entry in self.folders("hwmon"):
            path = f"hwmon/{entry}"
            if entry.startswith("hwmon") and self.text(f"{path}/name") == name:
                return path
        return NO_HWMON

    # Files

    def read(self, name: str, limit: int) -> bytes:
        """Read a file, without measuring it. Tests replace this method to fail or to hang.

        Raises:
            OSError: The kernel's error.
        """
        descriptor = self._held.get(name)
        if descriptor is not None:
            return os.pread(descriptor, limit, 0)
        descriptor = os.open(f"{self.folder}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        if len(self._held) < _HELD_FILES:
            self._held[name] = descriptor
            return os.pread(descriptor, limit, 0)
        try:
            return os.pread(descriptor, limit, 0)
        finally:
            os.close(descriptor)

    def _reason(self, name: str, error: OSError) -> Unknown:
        number = error.errno or 0
        if number == errno.ENODEV:
            raise GpuLostError from None
        if number in {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}:
            self._missing.add(name)
        if number == errno.EIO:
            self.failed += 1
        return _REASONS.get(number, Unknown.NO_ANSWER)


_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9])?) GT/s")
"""As ``pci_speed_string()`` in the kernel writes it."""

GENERATIONS = {25: 1, 50: 2, 80: 3, 160: 4, 320: 5, 640: 6}
"""By tenths of gigatransfers per second."""


class PcieLink(NamedTuple):
    """A link."""

    generation: int | Unknown  # Its PCIe generation, or why it is unknown.
    width: int | Unknown  # Its number of lanes.


NO_LINK = PcieLink(Unknown.NOT_SUPPORTED, Unknown.NOT_SUPPORTED)


def read_link(attributes: Attributes, which: str, folder: str = "") -> PcieLink:
    """The link of a device.

    Args:
        attributes: The attributes of a GPU.
        which: ``current`` or ``max``.
        folder: Path of the device from the folder of the GPU, with a slash at the end: ``../`` is
            the bridge above it.
    """
    speed = attributes.text(f"{folder}{which}_link_speed")
    width = attributes.number(f"{folder}{which}_link_width")
    if width in {0, 255}:
        # There is no link, or the device does not respond.
        width = Unknown.NOT_SUPPORTED
    if isinstance(speed, Unknown):
        return PcieLink(speed, width)
    match = _SPEED.match(speed)
    generation = None if match is None else GENERATIONS.get(round(float(match[1]) * 10))
    return PcieLink(generation or Unknown.NOT_SUPPORTED, width)
