"""XIDs in the kernel log: what NVIDIA's driver reported, also before gpumon was running."""

from __future__ import annotations

import os
import re
import select
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.host.pci import slot

if TYPE_CHECKING:
    from collections.abc import Iterator

KMSG = "/dev/kmsg"

_RECORD_BYTES = 8192
"""Largest record that the kernel writes: ``PRINTKRB_RECORD_MAX`` is less."""
_KMSG_DEVICE = 1 << 8 | 11
"""Its major and minor number: ``Documentation/admin-guide/devices.txt`` of the kernel."""

_JOURNAL = ("journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-monotonic", "-n", "10000")
_JOURNAL_SECONDS = 5.0

# 3,900,3600000000,-;NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has …
# The first number is 8 or more for a line that a program wrote: its facility is not the kernel's.
# The text begins with NVRM, so that no path or name in the message of another part is taken for it.
_TEXT = rb"NVRM: Xid \((?:PCI:)?([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})[^)]*\): (\d{1,5})(?!\d)"
_KMSG_XID = re.compile(rb"^[0-7],\d+,(\d{1,18}),[^;]*;" + _TEXT, re.IGNORECASE)
_JOURNAL_XID = re.compile(rb"^\[ *(\d{1,12}\.\d{1,9})\] \S+ kernel: " + _TEXT, re.IGNORECASE)


class Xid(Struct, frozen=True):
    """An error that the driver reported."""

    number: int
    slot: str  # where the GPU is on the PCI bus, as ``slot_of`` writes it
    # Seconds after the machine started, by the kernel's own clock. It stands still while the
    # machine sleeps, and is not corrected by NTP: off by minutes after months.
    at: float


def journal_xids() -> list[Xid] | None:
    """The XIDs since the machine started by systemd's journal, oldest first.

    Members of the groups ``adm`` and ``systemd-journal`` may read it where only root may read
    ``/dev/kmsg``. A large journal takes seconds of a core, so nothing but ``gpumon doctor`` asks.

    Returns:
        ``None`` where there is none, or it may not be read.
    """
    import subprocess  # The dashboard imports this module too, and starts nothing.

    try:
        done = subprocess.run(
            _JOURNAL,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_JOURNAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Without the right to read the kernel's messages it shows none, and says so on stderr only.
    if done.returncode or not done.stdout:
        return None
    lines = done.stdout.split(b"\n")
    return [_xid(match, float(match[1])) for line in lines if (match := _JOURNAL_XID.match(line))]


class KernelLog:
    """Reads the XIDs from the kernel's buffer, then those that come; one thread at a time.

    See ``Documentation/ABI/testing/dev-kmsg`` of the kernel for the form.

    Args:
        path: ``/dev/kmsg``.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._rest = b""
        self._skipping = False
        self.behind = False
        """Whether the last ``read`` ended at one of its limits."""

    def read(self, most_lines: int, most_seconds: float) -> list[Xid]:
        """The XIDs after those that were read before, oldest first, within these limits.

        Raises:
            OSError: It may not be read, or does not exist.
        """
        return [
            _xid(match, int(match[1]) / 1e6)
            for line in self._lines(most_lines, time.monotonic() + most_seconds)
            if (match := _KMSG_XID.match(line))
        ]

    def skip(self) -> None:
        """Leave out what is there now: later reads begin with what comes."""
        if self._descriptor is None:
            return
        self._rest, self._skipping = b"", False
        with suppress(OSError):  # A pipe cannot: it is read in small parts instead.
            os.lseek(self._descriptor, 0, os.SEEK_END)

    def wait(self, seconds: float) -> bool:
        """Wait until the kernel writes something.

        Returns:
            Whether it wrote; at once and always true for a file that is not the kernel's.
        """
        if self._descriptor is None:
            return False
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        """Release the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is None:
            status = os.stat(self._path)  # noqa: PTH116 - no import
            if stat.S_ISCHR(status.st_mode) and status.st_rdev != _KMSG_DEVICE:
                # Some containers have a console in its place.
                raise OSError(f"{self._path} is another device")
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags)
        return self._descriptor

    def _lines(self, most: int, until: float) -> Iterator[bytes]:
        descriptor = self._open()
        self.behind = False
        count = 0
        while True:
            if count >= most or time.monotonic() >= until:
                self.behind = True
                return
            try:
                data = os.read(descriptor, _RECORD_BYTES)
            except BrokenPipeError:
                count += 1
                continue  # Overwritten meanwhile: the next line is there.
            except BlockingIOError:
                return
            if not data:
                return
            *whole, rest = (self._rest + data).split(b"\n")
            if whole and self._skipping:
                del whole[0]
                self._skipping = False
            if len(rest) > _RECORD_BYTES:
                # No line of the kernel's: what remains of it is left out.
                rest, self._skipping = b"", True
            self._rest = rest
            count += len(whole) + (not whole)
            yield from whole


def _xid(match: re.Match[bytes], at: float) -> Xid:
    domain, bus, device = (match[group].decode() for group in (2, 3, 4))
    return Xid(int(match[5]), slot(domain, bus, device), at)
