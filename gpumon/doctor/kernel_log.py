"""XIDs in the kernel log: what the driver reported before gpumon was running."""

from __future__ import annotations

import os
import re
import stat
import time
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_RECORD_BYTES = 8192
"""Largest record that the kernel writes: ``PRINTKRB_RECORD_MAX`` is less."""
_MOST_SECONDS = 1.0
_KMSG = 1 << 8 | 11
"""Its major and minor number: ``Documentation/admin-guide/devices.txt`` of the kernel."""

# NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
_XID = re.compile(
    rb"^\d+,\d+,(\d+),[^;]*;.*NVRM: Xid \((?:PCI:)?([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})[^)]*\): "
    rb"(\d{1,5})",
    re.IGNORECASE,
)


class Xid(Struct, frozen=True):
    """An error that the driver reported.

    Attributes:
        number: Its XID.
        slot: Where the GPU is on the PCI bus, ``0000:41:00``.
        at: Seconds after the machine started.
    """

    number: int
    slot: str
    at: float


def read_xids(log: Path) -> list[Xid] | None:
    """The XIDs in the kernel's buffer, oldest first.

    The kernel keeps a few thousand lines; older ones are in the system's log files. See
    ``Documentation/ABI/testing/dev-kmsg`` of the kernel for the form.

    Args:
        log: ``/dev/kmsg``.

    Returns:
        ``None`` where it may not be read.
    """
    try:
        if _is_another_device(log):
            return None
        descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return [
            Xid(int(match[3]), match[2].decode().lower(), int(match[1]) / 1e6)
            for line in _lines(descriptor)
            if (match := _XID.match(line))
        ]
    except OSError:
        return None  # Anyone may open it, few may read it: kernel.dmesg_restrict
    finally:
        os.close(descriptor)


def _is_another_device(log: Path) -> bool:
    """Whether it is another device: some containers have a console in its place."""
    status = log.stat()
    return stat.S_ISCHR(status.st_mode) and status.st_rdev != _KMSG


def _lines(descriptor: int) -> Iterator[bytes]:
    until = time.monotonic() + _MOST_SECONDS
    rest = b""
    while time.monotonic() < until:
        try:
            data = os.read(descriptor, _RECORD_BYTES)
        except BrokenPipeError:
            continue  # Overwritten meanwhile: the next line is there.
        except BlockingIOError:
            break
        if not data:
            break
        *whole, rest = (rest + data).split(b"\n")
        yield from whole
    yield rest
