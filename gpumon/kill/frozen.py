"""Processes that are stopped only until SIGKILL reaches them, and continued if it does not.

Whatever ends this program between the two signals must not leave them stopped: the end of the
program, in order or by a signal or a bug, continues them, and so do ``MOST_SECONDS`` in which the
thread that stopped them hangs or a client says nothing.
"""

from __future__ import annotations

import atexit
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_SECONDS = 5.0
"""Seconds without another process stopped or killed after which all are continued: a client gives
a connection up that has not answered for this long."""

_LOCK_SECONDS = 1.0


class Freezable(Protocol):
    """A process that can be continued."""

    def resume(self) -> None:
        """Continue it."""
        ...


class FrozenProcesses:
    """The processes that this program has stopped and not killed yet. Thread-safe."""

    def __init__(self) -> None:
        # A pidfd that is closed while another thread continues its process may get the number of
        # another one, so handles are closed under this lock, too.
        self.lock = threading.RLock()
        self._frozen: dict[Freezable, None] = {}
        self._deadline = 0.0
        self._ended = False
        self._watched = False

    def stop(self, process: Freezable, stop: Callable[[], None]) -> None:
        """Stop a process; nothing once the program ends.

        Raises:
            Exception: What ``stop`` raises; the process counts as running then.
        """
        with self.lock:
            if self._ended:
                return
            self._watch()
            # Before, so that a signal handler that raises in between leaves it known.
            self._frozen[process] = None
            try:
                stop()
            except Exception:
                self._frozen.pop(process, None)
                raise

    def killed(self, process: Freezable) -> None:
        """Forget a process that has got SIGKILL or SIGCONT."""
        with self.lock:
            self._frozen.pop(process, None)
            self._deadline = time.monotonic() + MOST_SECONDS

    def resume(self, process: Freezable) -> None:
        """Continue a process, if it was stopped here."""
        with self.lock:
            if process in self._frozen:
                del self._frozen[process]
                process.resume()

    def end(self) -> None:
        """Continue all processes, and stop no others: this program ends."""
        with self._patiently():
            self._ended = True
            self._resume_all()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """A block in which this program is stopped itself: no process is."""
        with self._patiently():
            self._resume_all()
            yield

    @contextmanager
    def _patiently(self) -> Iterator[None]:
        """Hold the lock, unless a thread hangs with it: nothing may prevent an end."""
        held = self.lock.acquire(timeout=_LOCK_SECONDS)
        try:
            yield
        finally:
            if held:
                self.lock.release()

    def _resume_all(self) -> None:
        while self._frozen:
            self._frozen.popitem()[0].resume()

    def _watch(self) -> None:
        """Continue them even if the thread that stops them hangs."""
        self._deadline = time.monotonic() + MOST_SECONDS
        if not self._watched:
            atexit.unregister(self.end)
            atexit.register(self.end)
            threading.Thread(target=self._wait, name="gpumon-frozen", daemon=True).start()
            self._watched = True

    def _wait(self) -> None:
        while True:
            time.sleep(max(0.0, self._deadline - time.monotonic()))
            with self._patiently():
                if time.monotonic() >= self._deadline:
                    self._resume_all()
                    self._watched = False
                    return


FROZEN = FrozenProcesses()
"""Those of this program."""
