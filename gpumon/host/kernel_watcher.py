"""Follows the kernel log on a thread: the reports since the machine started, and new ones."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.host.kernel_log import KernelLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.host.kernel_log import KernelLine, KernelReport, LineParser
    from gpumon.system.system import System

THREAD = "gpumon-kernel-log"

_PAST_LINES, _PAST_SECONDS = 10_000, 0.2
_TURN_LINES, _TURN_SECONDS = 1000, 0.02
_PAUSE_SECONDS = 0.5
"""With these lines and seconds, a kernel that writes without end takes 4 % of a core at most."""
_WAIT_SECONDS = 2.0
_KEPT = 4096
"""So many reports are kept until they are taken: the newest."""
_SLEPT_SECONDS = 60.0
"""The kernel's clock stands still while the machine sleeps: a machine that slept longer than this
has no known times for older lines."""
_CLOCK_SECONDS = 2.0
"""A line that was just written has the time that the kernel's clock gives, unless that is this far
off: the clock is not corrected by NTP."""


class Heard(Struct, frozen=True):
    """A report and its time."""

    time: float  # Seconds since the epoch.
    report: KernelReport
    is_past: bool  # Whether it was there when reading began.


class KernelWatcher:
    """Reads the kernel log, first what is there: 0.2 s at most. Any thread may use it.

    Where the log may not be read the thread ends.

    Args:
        parsers: What finds the reports.
        system: The operating system, whose log it reads.
    """

    def __init__(self, parsers: Sequence[LineParser], system: System) -> None:
        self._parsers = parsers
        self._clock, self._slept = system.clock, system.slept
        self._log = KernelLog(f"{system.dev}/kmsg")
        self._heard: deque[Heard] = deque(maxlen=_KEPT)
        self._has_read_past = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self.is_readable = True
        """Whether the log is read; false once it may not be read, or has ended."""

    def start(self) -> None:
        """Start to read."""
        try:
            self._thread.start()
        except RuntimeError:
            # No more threads: it must not end what samples.
            self._end()

    def stop(self) -> None:
        """End the thread, which takes up to ``_WAIT_SECONDS``; does not wait for it."""
        self._stopped.set()

    def take(self) -> list[Heard] | None:
        """The reports since the last call, oldest first; ``None`` while the past is being read."""
        if not self._has_read_past:
            return None
        return [self._heard.popleft() for _ in range(len(self._heard))]

    def _end(self) -> None:
        self.is_readable = False
        self._has_read_past = True

    def _run(self) -> None:
        try:
            self._read_past()
            self._follow()
        except OSError:
            pass  # It may not be read here, or is gone; `gpumon doctor` says why.
        finally:
            self._end()
            self._log.close()

    def _read_past(self) -> None:
        reports = list(self._reports(self._log.read(_PAST_LINES, _PAST_SECONDS)))
        if self._log.behind:
            self._log.skip()
        # Of both turns, so that the time of none is taken for now.
        reports += [*self._end_turn(), *self._end_turn()]
        if self._slept() <= _SLEPT_SECONDS:
            for report in sorted(reports, key=lambda report: report.at):
                self._heard.append(Heard(self._wall_time(report), report, is_past=True))
        self._has_read_past = True

    def _follow(self) -> None:
        behind = False
        while not self._stopped.is_set():
            reports = list(self._reports(self._log.read(_TURN_LINES, _TURN_SECONDS)))
            for report in (*reports, *self._end_turn()):
                at, now = self._wall_time(report), self._clock.time()
                is_off = not behind and now - at > _CLOCK_SECONDS
                self._heard.append(Heard(now if is_off else at, report, is_past=False))
            behind = self._log.behind
            if not behind and not any(parser.is_holding for parser in self._parsers):
                self._log.wait(_WAIT_SECONDS)
            self._stopped.wait(_PAUSE_SECONDS)

    def _reports(self, lines: Iterable[KernelLine]) -> Iterable[KernelReport]:
        for line in lines:
            for parser in self._parsers:
                report = parser.feed(line)
                if report is not None:
                    yield report

    def _end_turn(self) -> list[KernelReport]:
        return [report for parser in self._parsers for report in parser.end_turn()]

    def _wall_time(self, report: KernelReport) -> float:
        """When it was, in seconds since the epoch."""
        return self._clock.time() - max(0.0, self._clock.monotonic() - report.at)
