"""A connection to ``gpumon remote``: asks, waits for answers with time-outs, and takes exits in.

What comes from the other machine is not trusted: it is bounded, checked by type, and made printable
before a person sees it.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gpumon.host.process_host import Refused
from gpumon.remote.protocol import (
    MOST_ANSWER,
    SCHEMA,
    Answer,
    Declined,
    Exited,
    Failed,
    Hello,
    Lines,
    Message,
    Opened,
)
from gpumon.text.formatting import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.remote.protocol import Request
    from gpumon.system.piped_program import Channel

T = TypeVar("T")

_LEAVE_SECONDS = 2.0
"""Seconds for the program that carries a failed connection to end."""
CONNECT_SECONDS = 15.0
"""Seconds until the other machine must have said hello: a login, and the start of a Python."""
ANSWER_SECONDS = 5.0
"""Seconds for an answer about a handle. All of them are immediate."""
READ_SECONDS = 10.0
"""Seconds for relatives and details, which can hang together with a process."""
_MOST_NOISE = 65536
"""Bytes that a login shell may print before the first line of gpumon."""
_MOST_CHARACTERS = 300
"""Characters of a sentence from the other machine."""


class LostError(Exception):
    """The connection has ended, or is not answered in time; the message says why.

    It names the machine, and is safe to print.
    """

    def __init__(self, sentence: str, *, asked: bool) -> None:
        super().__init__(sentence)
        self.asked = asked  # whether the request may have been received


class RemoteConnection:
    """A connection that has said hello.

    Thread-safe. It never comes back once it is lost.

    Args:
        name: The machine, for sentences; safe to print.
        channel: The pipes, owned by this object.
        patience: Seconds that it waits for anything at most.

    Raises:
        LostError: The other machine has not said hello.
    """

    def __init__(self, name: str, channel: Channel, patience: float = math.inf) -> None:
        self.hello: Hello  # what the other machine has said of itself
        self._name = name
        self._patience = patience
        self._channel = channel
        self._changed = threading.Condition()
        self._hello: Hello | None = None
        self.lost: str | None = None  # why, naming the machine
        self.lost_at: float | None = None  # on the monotonic clock
        self._newest_id = 0
        self._answers: dict[int, Message | None] = {}
        """The answers to the requests that somebody waits for; ``None`` until they come."""
        self._held: dict[int, bool] = {}
        """The open handles, and whether their process has ended."""
        self._noise = 0
        # Seconds to add to a time of the other machine for a time of this one, and the opposite
        # for monotonic times.
        self.time_offset = self._monotonic_offset = 0.0
        self._reader = threading.Thread(target=self._read_on, name="gpumon-remote", daemon=True)
        self._reader.start()
        seconds = min(CONNECT_SECONDS, patience)
        with self._changed:
            self._changed.wait_for(lambda: self._hello or self.lost, seconds)
            hello, lost = self._hello, self.lost
        if hello is None:
            sentence = lost or f"{name} has not answered for {seconds:g} s"
            self.abandon(sentence)
            self.join(_LEAVE_SECONDS)
            raise LostError(sentence, asked=False)
        self.hello = hello

    def their_monotonic(self, ours: float) -> float:
        """A time of this machine's monotonic clock on that of the other machine."""
        return ours + self._monotonic_offset

    def ended(self, handle: int) -> bool:
        """Whether the process of a handle is known to have ended."""
        return self._held.get(handle, False)

    def ask(self, make: Callable[[int], Request], result: type[T], *, patient: bool = False) -> T:
        """Ask, and wait for the answer.

        Args:
            make: Makes the request with its number.
            result: The type of the answer; ``Opened`` or that of its result.
            patient: Whether the answer may take ``READ_SECONDS``, and a late one does not mean that
                the connection is lost.

        Raises:
            LostError: The connection is lost, or the answer is late.
            Refused: The other machine refuses.
            OSError: It could not do it for lack of a resource.
        """
        seconds = min(READ_SECONDS if patient else ANSWER_SECONDS, self._patience)
        deadline = time.monotonic() + seconds
        with self._changed:
            if self.lost is not None:
                raise LostError(self.lost, asked=False)
            self._newest_id += 1
            number = self._newest_id
            self._answers[number] = None
        try:
            self._write(make(number), deadline)
            with self._changed:
                self._changed.wait_for(lambda: self._answers[number] or self.lost, seconds)
                message, lost = self._answers[number], self.lost
        finally:
            with self._changed:
                del self._answers[number]
        if message is None:
            sentence = lost or f"{self._name} has not answered for {seconds:g} s"
            if not patient:
                self.abandon(sentence)
            raise LostError(sentence, asked=True)
        return self._unpacked(message, result)

    def tell(self, request: Request) -> None:
        """Write a request that has no answer; nothing if the connection is lost.

        Raises:
            LostError: It cannot be written.
        """
        if self.lost is None:
            self._write(request, time.monotonic() + ANSWER_SECONDS)

    def forget(self, handle: int) -> None:
        """Forget a handle that is closed."""
        with self._changed:
            self._held.pop(handle, None)

    def wait(self, handles: set[int], seconds: float) -> None:
        """Wait until the process of one of these handles is known to have ended."""
        with self._changed:
            self._changed.wait_for(lambda: any(map(self.ended, handles)), seconds)

    def abandon(self, sentence: str) -> None:
        """Give the connection up; returns at once."""
        self._lose(sentence)
        self._channel.leave()

    def join(self, seconds: float) -> None:
        """Wait until the program that carries it has ended."""
        self._reader.join(seconds)

    def _write(self, request: Request, deadline: float) -> None:
        try:
            self._channel.write(msgspec.json.encode(request) + b"\n", deadline)
        except TimeoutError:
            sentence = f"{self._name} does not read requests"
            self.abandon(sentence)
            raise LostError(sentence, asked=True) from None
        except OSError:
            # The reader knows better why, and learns it at the same time.
            with self._changed:
                self._changed.wait_for(lambda: self.lost, max(0.0, deadline - time.monotonic()))
            raise LostError(self.lost or self._ended(), asked=True) from None

    def _unpacked(self, message: Message, result: type[T]) -> T:
        match message:
            case Declined():
                raise Refused(message.reason, f"{self._safe(message.sentence)} (on {self._name})")
            case Failed():
                raise OSError(message.errno, f"{self._safe(message.sentence)} on {self._name}")
            case Answer():
                try:
                    return msgspec.json.decode(message.result, type=result)
                except (msgspec.MsgspecError, ValueError, RecursionError):
                    pass
            case Opened() if isinstance(message, result):
                return message
        sentence = f"gpumon on {self._name} gave an answer that cannot be read"
        self.abandon(sentence)
        raise LostError(sentence, asked=True)

    # -- the reading thread ------------------------------------------------------------------------

    def _read_on(self) -> None:
        lines = Lines(MOST_ANSWER)
        try:
            while (data := self._channel.read()) and self.lost is None:
                for line in lines.feed(data):
                    self._take(line)
                if lines.too_long:
                    self._take(None)
            self._lose(self._ended())
        finally:
            self._channel.close()

    def _take(self, line: bytes | None) -> None:
        message = None if line is None else _parse(line)
        if self._hello is None:
            self._greet(message, 0 if line is None else len(line) + 1)
        elif message is None or isinstance(message, _OtherHello):
            self._lose(f"what gpumon on {self._name} sent cannot be read")
        elif self.lost is None:
            with self._changed:
                self._keep(message)
                self._changed.notify_all()

    def _greet(self, message: Message | _OtherHello | None, size: int) -> None:
        """Take the first line of the server, after what a login shell has printed."""
        if isinstance(message, Hello) and message.schema == SCHEMA:
            with self._changed:
                self.time_offset = time.time() - message.time
                self._monotonic_offset = message.monotonic - time.monotonic()
                self._hello = message
                self._changed.notify_all()
            return
        if isinstance(message, (Hello, _OtherHello)):
            other = self._safe(message.schema)
            self._lose(
                f"gpumon on {self._name} speaks {other}, and this one {SCHEMA}: install the same "
                "version on both"
            )
        self._noise += size
        if not size or self._noise > _MOST_NOISE:
            self._lose(f"what {self._name} sent is not from gpumon remote")

    def _keep(self, message: Message) -> None:
        match message:
            case Exited(handle=handle):
                if handle in self._held:
                    self._held[handle] = True
            case Opened() | Answer() | Declined() | Failed():
                self._keep_answer(message.id, message)

    def _keep_answer(self, number: int | None, message: Message) -> None:
        # Nobody waits for a late answer; an answer without a number is not to our request.
        if number is None or self._answers.get(number, message) is not None:
            return
        self._answers[number] = message
        if isinstance(message, Opened):
            self._held[message.handle] = False
            self._monotonic_offset = message.monotonic - time.monotonic()

    def _lose(self, sentence: str) -> None:
        with self._changed:
            if self.lost is None:
                self.lost, self.lost_at = sentence, time.monotonic()
            self._changed.notify_all()

    def _ended(self) -> str:
        words = self._channel.last_words
        return f"the connection to {self._name} ended" + (
            f" ({self._safe(words)})" if words else ""
        )

    def _safe(self, text: str) -> str:
        return shortened(printable(text), _MOST_CHARACTERS)


class _OtherHello(msgspec.Struct, frozen=True, tag_field="say", tag="hello"):
    """As much of a hello as every version must say."""

    schema: str


_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Message)
_OTHER: msgspec.json.Decoder[_OtherHello] = msgspec.json.Decoder(_OtherHello)


def _parse(line: bytes) -> Message | _OtherHello | None:
    """A line of the server; ``None`` if it cannot be read."""
    for decoder in (_DECODER, _OTHER):
        try:
            message: Message | _OtherHello = decoder.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        return message
    return None
