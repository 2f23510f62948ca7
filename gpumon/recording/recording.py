"""Recordings: the state of the machine at any past moment that was kept.

``Recording`` is the one interface, whether the snapshots come from memory or from a log.

Times of a recording are seconds since the epoch and never run backwards: if the recorded clock was
set back, everything before is moved back with it, as ``history`` does. The snapshots of a recording
carry its times.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from gpumon.model.accidents import Accident  # noqa: TC001 - msgspec resolves annotations at run time
from gpumon.model.number_types import Time  # noqa: TC001 - as above
from gpumon.model.processes import ProcessId  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpumon.model.snapshot import Snapshot
    from gpumon.recording.history import History

NO_SAMPLES = "The log has no samples yet."
"""The message for a log that contains at most a header."""


class RecordingError(Exception):
    """A recording cannot be read, or is not a recording.

    Attributes:
        sentence: What was expected, what was found and where, for a person.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class EventKind(str, Enum):
    """The kind of an event."""

    CAME = "came"
    """A process was first listed."""
    WENT = "went"
    """A process was listed no more."""
    ERROR = "error"
    """A GPU reported an XID, was lost, or asked for a reset."""
    THROTTLED = "throttled"
    """A GPU began to slow itself down for heat or power brake."""
    FULL = "full"
    """A GPU's memory became full."""
    ACCIDENT = "accident"
    """The kernel reported an accident, see ``Accident``."""


class Event(Struct, frozen=True):
    """Something that happened at one moment.

    Attributes:
        time: When it was first seen, on the recording's clock.
        kind: What happened.
        subject: The process, or the UUID of the GPU.
        sentence: A sentence for the user, such as ``41233 python of chen came to GPU 5``; not safe
            to print, see ``gpumon.text.formatting``.
        gpus: UUIDs of the GPUs concerned.
        accident: What the kernel reported, of ``EventKind.ACCIDENT``; ``None`` for lines that
            follow from the accident of an earlier event.
    """

    time: Time
    kind: EventKind
    subject: ProcessId | str
    sentence: str
    gpus: tuple[str, ...] = ()
    accident: Accident | None = None

    def moved(self, seconds: float) -> Event:
        """The same event so many seconds later: on the timeline of a clock that was set."""
        accident = self.accident
        if accident is not None:
            accident = replace(accident, time=accident.time + seconds)
        return replace(self, time=self.time + seconds, accident=accident)


class WholeRecording:
    """What a recording has whose snapshots all have one origin and one history."""

    @property
    def gaps(self) -> Sequence[tuple[float, float]]:
        """See ``Recording.gaps``."""
        return ()

    @property
    def beginning(self) -> str:
        """See ``Recording.beginning``."""
        return ""

    def origin(self, time: float) -> str:  # noqa: ARG002 - the protocol's signature
        """See ``Recording.origin``."""
        return ""

    def history_of(self, snapshot: Snapshot) -> History | None:  # noqa: ARG002 - as above
        """See ``Recording.history_of``."""
        return None


class Recording(Protocol):
    """Past states of the machine. One thread may query it while another adds to it.

    The recording of a running gpumon grows at its end, and drops or thins out its beginning.
    """

    @property
    def first(self) -> float | None:
        """The time of its oldest snapshot; ``None`` while it is empty."""
        ...

    @property
    def last(self) -> float | None:
        """The time of its newest snapshot."""
        ...

    def at(self, time: float) -> Snapshot | None:
        """The newest snapshot that is not newer than a time; the oldest if all are newer.

        ``None`` only if the recording is empty. Takes less than 200 ms, usually much less. The same
        moment may return the same object again.
        """
        ...

    def between(self, first: float, last: float, most: int) -> Iterator[Snapshot]:
        """Snapshots from ``first`` to ``last``, both included, oldest first.

        If there are more than ``most``, about that many, spaced evenly over time.
        """
        ...

    def step(self, time: float, samples: int) -> float:
        """The time of the snapshot that many before (negative) or after the snapshot at a time.

        Stops at the ends of the recording.
        """
        ...

    def events(self, first: float, last: float) -> Sequence[Event]:
        """Known events from ``first`` to ``last``, both included, oldest first.

        Fast: a log is read in the background, so a later call may return more.
        """
        ...

    @property
    def events_complete(self) -> bool:
        """Whether the whole recording has been read, and its events are known."""
        ...

    def next_event(self, time: float, *, forward: bool) -> Event | None:
        """The nearest event after, or before, a time; ``None`` if no more is known."""
        ...

    @property
    def gaps(self) -> Sequence[tuple[float, float]]:
        """The times in which nothing was recorded, as far as they are known, oldest first. Fast."""
        ...

    @property
    def beginning(self) -> str:
        """Why nothing older is known: a sentence, safe to print; empty if it is not known."""
        ...

    def origin(self, time: float) -> str:
        """Where the snapshot at a time is from, if not from where the newest is. Fast."""
        ...

    def history_of(self, snapshot: Snapshot) -> History | None:
        """The history up to a snapshot; ``None`` if that of the newest one reaches back to it."""
        ...
