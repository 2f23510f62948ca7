"""``gpumon.watch()``: a function is called with every new snapshot."""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING

from gpumon.api.local import open_machine, selection_of
from gpumon.api.snapshots import Snapshot
from gpumon.sampling.gpu_sampler import PATIENCE, GpuSampler, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from gpumon.api.local import Gpus
    from gpumon.makers.source import Source

_STOP_SECONDS = 5.0
_TICK_SECONDS = 0.5
"""How soon ``stop`` is noticed while the driver hangs."""


class Watch:
    """Calls a function with every new snapshot, on a thread of its own, until it is stopped.

    ``gpumon.watch`` makes it. It is a context manager: leaving the block stops it. In a forked
    child it does nothing.

    Attributes:
        error: What the function raised, which ended the watch, or why sampling ended.
    """

    def __init__(
        self, callback: Callable[[Snapshot], object], source: Source, interval: float
    ) -> None:
        self.error: BaseException | None = None
        self._callback = callback
        self._process = os.getpid()
        self._stopping = False
        self._sampler = GpuSampler(source, interval)
        self._thread = threading.Thread(target=self._call, name="gpumon-watch-call", daemon=True)

    def start(self) -> None:
        """Start sampling; returns once the driver has answered or refused, in 10 s at most.

        Raises:
            GpuError: There is no driver or no GPU.
        """
        self._sampler.__enter__()
        try:
            self._sampler.collector.wait_open(PATIENCE)
        except BaseException:
            self._sampler.__exit__()
            raise
        self._thread.start()
        # A function that prints while Python ends would abort the program.
        atexit.register(self._quit)

    def _quit(self) -> None:
        """Stop before Python ends, whatever the function did."""
        if self._process == os.getpid():
            self._stopping = True
            self._sampler.collector.sample_now()
            self._thread.join(_STOP_SECONDS)

    @property
    def running(self) -> bool:
        """Whether the function is still going to be called."""
        return self._process == os.getpid() and self._thread.is_alive() and not self._stopping

    def stop(self) -> None:
        """Stop; may be called by the function itself, and more than once.

        Waits for a call of the function that is under way, 5 s at most.

        Raises:
            BaseException: What the function raised, or why sampling ended.
        """
        if self._process != os.getpid():
            return
        self._stopping = True
        self._sampler.collector.sample_now()
        atexit.unregister(self._quit)
        if threading.current_thread() is not self._thread:
            self._thread.join(_STOP_SECONDS)
            if self.error is not None:
                raise self.error

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except BaseException:
            # The block's own error matters more.
            if error is None:
                raise

    def _call(self) -> None:
        try:
            while not self._stopping:
                try:
                    snapshot = self._sampler.next(_TICK_SECONDS)
                except UnavailableError:
                    # The driver is gone, as while it is upgraded: the snapshot says so.
                    snapshot = self._sampler.newest
                if snapshot is not None and not self._stopping:
                    self._callback(Snapshot.of(snapshot))
        except BaseException as error:  # noqa: BLE001 - ``stop`` raises it
            self.error = error
            # At once, because nobody may ever call ``stop``.
            threading.excepthook(
                threading.ExceptHookArgs((type(error), error, error.__traceback__, self._thread))
            )
        finally:
            try:
                self._sampler.__exit__()
            except BaseException as error:  # noqa: BLE001 - as above
                self.error = self.error or error


def watch(
    callback: Callable[[Snapshot], object],
    interval: float = 1.0,
    *,
    gpus: Gpus = None,
    demo: bool = False,
) -> Watch:
    """Call a function with every new snapshot, on a thread of its own.

    A function that takes longer than the interval gets the newest snapshot next; those between are
    left out. If it raises, the watch ends, the traceback is printed at once, and ``Watch.stop``
    raises the error. While the driver is gone, as during its upgrade, ``snapshot.trouble`` says so.
    ``GpuProcess.place`` and ``Snapshot.reserved`` are not looked up.

    Args:
        callback: The function.
        interval: Seconds between samples, 0.1 to 3600.
        gpus: Only these GPUs, as in ``snapshot``.
        demo: The simulated machine of ``gpumon --demo``.

    Raises:
        GpuError: There is no driver or no such GPU.
        ValueError: The interval or ``gpus`` is invalid.
    """
    machine = open_machine(selection_of(gpus), demo=demo, profiled=True)
    started = Watch(callback, machine.source, interval)
    started.start()
    return started
