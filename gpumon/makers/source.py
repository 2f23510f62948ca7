"""The interface of everything that produces snapshots: ``Source``, and the calls of drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpumon.model.snapshot import Snapshot
    from gpumon.system.system import Clock


class SourceError(Exception):
    """A source cannot be opened, for a reason that the user can act on.

    Attributes:
        sentence: What is wrong.
        advice: What to do about it.
    """

    def __init__(self, sentence: str, advice: str) -> None:
        super().__init__(f"{sentence} {advice}")
        self.sentence = sentence
        self.advice = advice

    def __reduce__(self) -> tuple[object, ...]:
        # A subclass may take other arguments; a worker process sends its errors to another one.
        return _rebuilt, (type(self), self.sentence, self.advice)


def _rebuilt(kind: type[SourceError], sentence: str, advice: str) -> SourceError:
    error = kind.__new__(kind)
    SourceError.__init__(error, sentence, advice)
    return error


class NoSuchGpuError(SourceError):
    """The selection names GPUs that the machine does not have.

    Args:
        missing: The missing ones as they were named.
        count: Number of GPUs of the machine.
        machine: How the message calls the machine.
    """

    def __init__(self, missing: Sequence[str], count: int, machine: str = "This machine") -> None:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        super().__init__(
            f"There is no GPU {', '.join(missing[:_NAMED])}{more}.", gpus_there(count, machine)
        )


_NAMED = 4


def gpus_there(count: int, machine: str = "This machine") -> str:
    """A sentence that says which GPUs a machine has."""
    if count < 2:
        return f"{machine} has {'only GPU 0' if count else 'no GPU'}."
    return f"{machine} has GPUs 0 to {count - 1}."


class Call(Struct, frozen=True, gc=False):
    """A driver call in progress."""

    gpu_uuid: str | None  # The GPU that it reads; ``None`` for the driver as a whole.
    function: str  # Its name.
    since: float  # When it began, on the monotonic clock.


class CallGivenUpError(Exception):
    """A hung call of this thread returned after ``Source.give_up``.

    Another thread samples the source now: this one must not use it again.
    """


class Source(Protocol):
    """Produces snapshots. The defaults are those of a source that calls no driver.

    One thread at a time calls ``open``, ``sample`` and ``close``, and another thread only after
    ``give_up``. Any thread may call the rest.
    """

    def open(self) -> None:
        """Prepare for sampling.

        Raises:
            SourceError: There is nothing to sample.
            CallGivenUpError: This thread was given up; another one opens the source.
        """
        ...

    def sample(self, *, full: bool = True) -> Snapshot:
        """Take a snapshot. Errors of GPUs and drivers are part of it and not raised.

        Args:
            full: Whether a listener keeps all values. If not, values that only the page of a GPU
                shows may be up to a second old.

        Raises:
            CallGivenUpError: This thread was given up; another one samples the source.
        """
        ...

    def give_up(self, call: Call, /) -> bool:  # noqa: ARG002 - for subclasses that call a driver
        """Skip a GPU whose call hangs, until the call returns.

        The thread in the call is blocked until then. Another thread may continue with ``sample``,
        or with ``open`` if that had not returned.

        Returns:
            False if there is nothing to give up: the call has returned, or it does not read a
            single GPU.
        """
        return False

    def past(self) -> Iterable[Snapshot]:
        """What the source knows of the time before it was opened, oldest first; mostly nothing.

        May be read on any thread, also while another one samples.
        """
        return ()

    def close(self) -> None:
        """Release all resources. May be called more than once."""
        ...

    @property
    def hostname(self) -> str:
        """Name of the machine; known before the first snapshot."""
        ...

    @property
    def current_call(self) -> Call | None:
        """The call that ``sample`` waits for now, for a watchdog."""
        return None

    @property
    def driver_seconds(self) -> float:
        """Seconds spent in driver calls since it was opened."""
        return 0.0


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
