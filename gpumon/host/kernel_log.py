"""The kernel log: what drivers and the kernel itself reported, also before gpumon was running.

Each maker has a ``LineParser`` for what its drivers write, and ``oom`` has one for the OOM killer.
Programs write to the same log, and their names are part of the kernel's lines. So only lines of
the kernel's facility count, and what a name makes ambiguous is not said.
"""

from __future__ import annotations

import os
import re
import select
import stat
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.accidents import TEXT_BYTES, AccidentKind
from gpumon.model.processes import LARGEST_PID

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

KMSG = "/dev/kmsg"

NAME = rb"(?:\\x[0-9a-f]{2}|[^\n]){0,15}"
"""Pattern of a process's name: 15 bytes at most (``TASK_COMM_LEN`` of the kernel), any but the null
byte. ``/dev/kmsg`` writes those that are not printable as ``\\x1b``."""

_RECORD_BYTES = 8192
"""Largest record that the kernel writes: ``PRINTKRB_RECORD_MAX`` is less."""
_KMSG_DEVICE = 1 << 8 | 11
"""Its major and minor number: ``Documentation/admin-guide/devices.txt`` of the kernel."""

_JOURNAL = ("journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-monotonic", "-n", "10000")
_JOURNAL_SECONDS = 5.0

# 3,900,3600000000,-;NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has …
# The first number is 8 or more for a line that a program wrote: its facility is not the kernel's.
_KMSG_LINE = re.compile(rb"[0-7],\d+,(\d{1,18}),[^;]*;(.*)", re.DOTALL)
_JOURNAL_LINE = re.compile(rb"\[ *(\d{1,12}\.\d{1,9})\] \S+ kernel: (.*)", re.DOTALL)

_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")
_HELD = 32
"""So many reports may wait for their second line."""


class KernelLine(Struct, frozen=True, gc=False):
    """A line that the kernel wrote."""

    # Seconds after the machine started, by the kernel's own clock. It stands still while the
    # machine sleeps, and is not corrected by NTP: off by minutes after months.
    at: float
    text: bytes


class KernelReport(Struct, frozen=True):
    """What a driver or the kernel reported. The fields are those of ``Accident`` but for these."""

    at: float  # See ``KernelLine``.
    kind: AccidentKind
    slot: str | None = None  # Where the GPU is on the PCI bus, as ``slot_of`` writes it.
    number: int | None = None
    pid: int | None = None
    process_name: str | None = None
    channel: str | None = None
    text: str = ""
    cgroup: str | None = None
    memory: int | None = None


class LineParser(ABC):
    """Finds reports in the lines of the log.

    Some reports are two lines, and the second may not come: ``hold`` the first, and ``take_held``
    it with the second.
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, KernelReport] = {}
        self._older: dict[Hashable, KernelReport] = {}

    @abstractmethod
    def feed(self, line: KernelLine) -> KernelReport | None:
        """The report that this line completes."""

    def hold(self, key: Hashable, report: KernelReport) -> KernelReport | None:
        """Keep the first line of a report; returns one that has waited too long."""
        replaced = self.take_held(key)
        if replaced is None and len(self._held) >= _HELD:
            replaced = self._held.pop(next(iter(self._held)))
        self._held[key] = report
        return replaced

    def take_held(self, key: Hashable) -> KernelReport | None:
        """The first line of a report, which is forgotten."""
        return self._held.pop(key, None) or self._older.pop(key, None)

    def end_turn(self) -> Iterable[KernelReport]:
        """The reports that have waited since the turn before: their second line did not come."""
        given_up, self._older, self._held = self._older, self._held, {}
        return given_up.values()

    @property
    def is_holding(self) -> bool:
        """Whether a report waits for its second line."""
        return bool(self._held or self._older)


def process_id(digits: bytes) -> int | None:
    """A PID; ``None`` for 0 and what is no PID."""
    pid = int(digits) if digits.isdigit() and len(digits) <= 10 else 0
    return pid if 0 < pid <= LARGEST_PID else None


def unescaped(name: bytes) -> str | None:
    """The name of a process or a cgroup as ``/proc`` has it; ``None`` if it is empty."""
    raw = _ESCAPED.sub(lambda code: bytes([int(code[1], 16)]), name)
    return raw.decode(errors="replace") or None


def text_of(rest: bytes) -> str:
    """The text of an accident."""
    return rest[:TEXT_BYTES].decode(errors="replace")


def journal_lines() -> list[KernelLine] | None:
    """The kernel's lines since the machine started by systemd's journal, oldest first.

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
    matches = (match for line in lines if (match := _JOURNAL_LINE.fullmatch(line)))
    return [KernelLine(float(match[1]), match[2]) for match in matches]


class KernelLog:
    """Reads the lines of the kernel's buffer, then those that come; one thread at a time.

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

    def read(self, most_lines: int, most_seconds: float) -> Iterator[KernelLine]:
        """The kernel's lines after those that were read before, oldest first, within these limits.

        Raises:
            OSError: It may not be read, or does not exist.
        """
        for line in self._lines(most_lines, time.monotonic() + most_seconds):
            if match := _KMSG_LINE.fullmatch(line):
                yield KernelLine(int(match[1]) / 1e6, match[2])

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
