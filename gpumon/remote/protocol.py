"""The lines that ``gpumon remote`` and its client exchange: a JSON object a line, each way.

The server begins with ``Hello``. Each request but ``Close`` gets an answer with its ``id``, in
any order: ``Opened``, ``Answer``, ``Declined`` or ``Failed``. ``Exited`` comes unasked, and before
every answer that was made after the exit.

Unknown fields are ignored, so that they can be added; whatever else changes gets a new number in
``SCHEMA``, which the client refuses.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Raw, Struct

from gpumon.host.process_host import Refusal, Target  # noqa: TC001 - msgspec resolves them
from gpumon.model.processes import ProcessId  # noqa: TC001 - msgspec resolves it

SCHEMA = "gpumon.remote/1"
MOST_REQUEST = 2**20
"""Bytes of a request. A target with its command and 16 GPUs takes about ten thousand."""
MOST_ANSWER = 8 * 2**20
"""Bytes of an answer: the families of a machine with thousands of processes take some of them."""


class _Request(Struct, frozen=True, tag_field="ask"):
    id: int


class Relatives(_Request, frozen=True, tag="families"):
    """See ``ProcessHost.relatives``: an ``Answer``."""

    roots: tuple[ProcessId, ...]


class ReadDetails(_Request, frozen=True, tag="details"):
    """See ``ProcessHost.details``: an ``Answer``."""

    process: ProcessId


class Open(_Request, frozen=True, tag="open"):
    """See ``ProcessHost.open_handle``: ``Opened``."""

    target: Target


class Send(_Request, frozen=True, tag="send"):
    """See ``ProcessHandle.send``: an ``Answer`` of null."""

    handle: int
    number: int  # the signal
    # It must not be sent later than this, on the server's monotonic clock: by then the client has
    # reported that nothing is known of the process.
    before: float
    freeze: bool = False  # whether this is ``ProcessHandle.freeze``, with SIGSTOP as the number


class Status(_Request, frozen=True, tag="status"):
    """See ``ProcessHandle.status``: an ``Answer``."""

    handle: int


class Close(_Request, frozen=True, tag="close"):
    """See ``ProcessHandle.close``: no answer."""

    handle: int


Request: TypeAlias = Relatives | ReadDetails | Open | Send | Status | Close


class Hello(Struct, frozen=True, tag_field="say", tag="hello"):
    """The first line of the server."""

    schema: str  # ``SCHEMA`` of the server
    version: str  # of gpumon there
    uid: int | None  # of the user who runs it
    user: str | None  # that user's name
    readonly: bool  # whether it refuses every signal
    time: float  # there, seconds since the epoch
    monotonic: float  # the same on its monotonic clock


class Opened(Struct, frozen=True, tag_field="say", tag="opened"):
    """A handle is open."""

    id: int  # of the request
    handle: int  # its number, which is never used again
    monotonic: float  # the server's monotonic clock


class Answer(Struct, frozen=True, tag_field="say", tag="answer"):
    """What was asked for, as JSON of the type that the request says."""

    id: int
    result: Raw


class Declined(Struct, frozen=True, tag_field="say", tag="declined"):
    """The request was refused; see ``Refused``."""

    id: int
    reason: Refusal
    sentence: str


class Failed(Struct, frozen=True, tag_field="say", tag="failed"):
    """The request failed."""

    id: int | None  # of the request; ``None`` if it could not be read
    errno: int  # the error's number in the server's operating system
    sentence: str  # the error for a person


class Exited(Struct, frozen=True, tag_field="say", tag="exited"):
    """The process of a handle has ended."""

    handle: int


Message: TypeAlias = Hello | Opened | Answer | Declined | Failed | Exited


class Lines:
    """Splits bytes into lines, and holds no more than a line of the greatest length, in bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that are complete with these bytes; ``None`` for a line that is too long."""
        *complete, rest = data.split(b"\n")
        lines: list[bytes | None] = []
        for part in complete:
            self._add(part)
            lines.append(None if self._held > self._most else b"".join(self._parts))
            self._parts, self._held = [], 0
        self._add(rest)
        return lines

    @property
    def too_long(self) -> bool:
        """Whether the line that is not complete yet is too long already."""
        return self._held > self._most

    def _add(self, part: bytes) -> None:
        self._held += len(part)
        if self.too_long:
            self._parts = []
        elif part:
            self._parts.append(part)
