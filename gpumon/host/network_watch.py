"""Reads the network adapters on other threads, so that no sample waits for their firmware."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from gpumon.host.network import NetworkReader
    from gpumon.model.network import Nic
    from gpumon.system.system import System

READ_SECONDS = 2.0
"""Time between readings."""
_PATIENCE = 1.0
_OLD_SECONDS = 10.0
"""Without an answer for as long, nothing is known of the adapters."""


class NetworkWatch:
    """Has the newest reading, which is never waited for. Not thread-safe.

    Args:
        system: The operating system that is read.
    """

    def __init__(self, system: System = THIS_SYSTEM) -> None:
        self._clock = system.clock
        self._system = system
        self._reader: NetworkReader | None = None
        self._began: float | None = None
        self._thread: Thread | None = None
        self._newest: tuple[Nic, ...] | None = None

    def newest(self) -> tuple[Nic, ...] | None:
        """The adapters a short time ago; begins the next reading when it is time.

        Returns:
            ``None`` until the first reading is complete, or if one does not come back.
        """
        now = self._clock.monotonic()
        began = self._began
        if self._thread is not None and self._thread.is_alive():
            return self._newest if began is None or now - began <= _OLD_SECONDS else None
        if began is None or now - began >= READ_SECONDS:
            self._began = now
            self._thread = Thread(target=self._read, name="gpumon-network", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                # No more threads are allowed: it is tried again.
                self._thread, self._newest = None, None
        return self._newest

    def first(self) -> tuple[Nic, ...] | None:
        """The adapters now; waits for them, but not for long."""
        self.newest()
        if self._thread is not None:
            self._thread.join(_PATIENCE)
        return self._newest

    def _read(self) -> None:
        try:
            if self._reader is None:
                # What it needs is not imported before the first frame.
                from gpumon.host.network import NetworkReader

                self._reader = NetworkReader(self._system)
            self._newest = self._reader.read()
        except (ImportError, MemoryError, OSError):
            # No file can be opened, not even that of the module: it is tried again.
            self._newest = None
