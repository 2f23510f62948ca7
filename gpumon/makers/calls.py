"""The driver call in progress, so that a watchdog sees which GPU it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gpumon.makers.source import Call, CallGivenUpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.system.clock import Clock

T = TypeVar("T")


class CallWatch:
    """Publishes calls that can hang in the driver, as while a GPU is reset.

    Only one thread at a time may use ``run``, see ``Source``; any thread may use the rest.

    Attributes:
        driver_seconds: Seconds spent inside ``run``.
        hanging: The GPUs whose call was given up and has not returned, and when it began.
    """

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._inside: list[Call] = []
        self.driver_seconds = 0.0
        self.hanging: dict[str, float] = {}

    def run(self, gpu_uuid: str | None, name: str, read: Callable[[], T]) -> T:
        """Read something.

        Args:
            gpu_uuid: The GPU that it reads; ``None`` for the driver as a whole.
            name: What is read, for the watchdog.
            read: Reads it.

        Raises:
            CallGivenUpError: It was given up before it returned.
        """
        since = self._monotonic()
        inside = self._inside = [Call(gpu_uuid, name, since)]
        try:
            return read()
        finally:
            try:
                # Only one thread can pop the call: this one, or ``give_up``.
                inside.pop()
            except IndexError:
                self.hanging.pop(gpu_uuid or "", None)
                raise CallGivenUpError from None
            self.driver_seconds += self._monotonic() - since

    @property
    def current_call(self) -> Call | None:
        """The call in progress."""
        inside = self._inside.copy()
        return inside[0] if inside else None

    def give_up(self, call: Call) -> bool:
        """See ``Source.give_up``."""
        inside = self._inside
        if call.gpu_uuid is None or call not in inside.copy():
            return False
        self.hanging[call.gpu_uuid] = call.since
        try:
            inside.pop()
        except IndexError:
            # It returned at this moment.
            del self.hanging[call.gpu_uuid]
            return False
        return True
