"""The lines that ``gpumon remote`` and its client exchange: one JSON object a line, each way.

The server begins with ``Hello``. Each request but ``Close`` gets one answer with its ``id``, in
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
    """See ``ProcessHandle.send``: an ``Answer`` of null.

    Attributes:
        handle: The handle.
        number: The signal.
        before: The signal must not be sent later than this, on the server's monotonic clock: the
            client has told its user by then that nothing is known of it.
        freeze: Whether this is ``ProcessHandle.freeze``, with SIGSTOP as the number.
    """

    handle: int
    number: int
    before: float
    freeze: bool = False


class Status(_Request, frozen=True, tag="status"):
    """See ``ProcessHandle.status``: an ``Answer``."""

    handle: int


class Close(_Request, frozen=True, tag="close"):
    """See ``ProcessHandle.close``: no answer."""

    handle: int


Request: TypeAlias = Relatives | ReadDetails | Open | Send | Status | Close


class Hello(Struct, frozen=True, tag_field="say", tag="hello"):
    """The first line of the server.

    Attributes:
        schema: ``SCHEMA`` of the server.
        version: Version of gpumon there.
        uid: UID of the user who runs it.
        user: That user's name.
        readonly: Whether it refuses every signal.
        time: The time there, seconds since the epoch.
        monotonic: The same on its monotonic clock.
    """

    schema: str
    version: str
    uid: int | None
    user: str | None
    readonly: bool
    time: float
    monotonic: float


class Opened(Struct, frozen=True, tag_field="say", tag="opened"):
    """A handle is open.

    Attributes:
        id: That of the request.
        handle: Its number, which is never used again.
        monotonic: The server's monotonic clock.
    """

    id: int
    handle: int
    monotonic: float


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
    """The request failed.

    Attributes:
        id: That of the request; ``None`` if it could not be read.
        errno: The error's number in the server's operating system.
        sentence: The error for a person.
    """

    id: int | None
    errno: int
    sentence: str


class Exited(Struct, frozen=True, tag_field="say", tag="exited"):
    """The process of a handle has ended."""

    handle: int


Message: TypeAlias = Hello | Opened | Answer | Declined | Failed | Exited


class Lines:
    """Splits bytes into lines, and holds no more than one of the greatest length.

    Args:
        most: Maximum bytes of a line.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that are complete with these bytes; ``None`` for one that is too long."""
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
