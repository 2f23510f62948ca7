"""Waits for what threads do, and calls of drivers that hang, each on a thread of its own."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from gpumon.makers.source import CallGivenUpError
from tests.known import known

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.makers.backend import GpuBackend
    from gpumon.makers.source import Source


def wait_until(true: Callable[[], object]) -> None:
    """Wait until something is so that a thread does."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.001)


class Hanging:
    """A thread whose work hangs in a call about a GPU, which ``release`` lets return."""

    def __init__(
        self,
        source: Source | GpuBackend,
        work: Callable[[], object],
        gpu: str | None,
        function: str,
        release: Callable[[], object],
    ) -> None:
        self._work, self._release = work, release
        self._ended_by: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

        def hangs() -> bool:
            call = source.current_call
            return call is not None and (call.gpu_uuid, call.function) == (gpu, function)

        wait_until(hangs)
        self.call = known(source.current_call)

    def _run(self) -> None:
        try:
            self._work()
        except CallGivenUpError as given_up:
            self._ended_by = given_up

    def goes_on(self) -> None:
        """The call returns, and the thread ends."""
        self._release()
        self.thread.join(60)
        assert not self.thread.is_alive()

    def ends(self) -> None:
        """The call returns, and the thread ends since it was given up."""
        self.goes_on()
        assert isinstance(self._ended_by, CallGivenUpError)
