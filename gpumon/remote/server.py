"""Answers the questions of another machine's gpumon about the processes of this one.

One thread reads requests. The main thread does everything that concerns handles, in the order of
the requests, and writes every answer. Relatives and details can hang together with a process, so
each is read on a thread of its own.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import threading
import time
from queue import Empty, Queue
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpumon import __version__
from gpumon.host.process_host import Refusal, Refused
from gpumon.kill.frozen import FROZEN
from gpumon.remote.protocol import (
    MOST_ANSWER,
    MOST_REQUEST,
    SCHEMA,
    Answer,
    Close,
    Declined,
    Exited,
    Failed,
    Hello,
    Lines,
    Message,
    Open,
    Opened,
    ReadDetails,
    Relatives,
    Request,
    Send,
    Status,
)
from gpumon.system.resource_errors import allow_open_files, max_open_files

if TYPE_CHECKING:
    from gpumon.host.process_host import ProcessHandle, ProcessHost
    from gpumon.kill.audit_log import AuditLog
    from gpumon.model.processes import ProcessId

MOST_HANDLES = 1024
"""Open handles at a time: each is an open file."""
OWN_FILES = 64
"""Files that are left for reading processes when all handles are open."""
MOST_READERS = 8
"""Threads that read relatives and details at a time: a hung thread stays until the end."""
_MOST_WAITING = 64
_CHECK_SECONDS = 0.05
"""Seconds between two checks for exits while nothing is asked."""
_LEAVE_SECONDS = 5.0
"""Seconds after the client has gone until this process ends, whatever hangs."""
_CHUNK = 65536
_DECODER: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)


class _Id(msgspec.Struct, frozen=True):
    id: int


class _Held(NamedTuple):
    """An open handle."""

    handle: ProcessHandle
    sent: tuple[int, float] | None = None  # the last signal, and its monotonic time


class _Result(NamedTuple):
    """What a reading thread has found."""

    request: Relatives | ReadDetails
    message: Message


class Server:
    """Serves one client until its pipe closes.

    Args:
        host: The processes of this machine.
        read: File descriptor of the requests.
        write: File descriptor of the answers.
        audit_log: The log of the signals that are sent from here.
    """

    def __init__(self, host: ProcessHost, read: int, write: int, audit_log: AuditLog) -> None:
        self._host = host
        self._read = read
        self._write = write
        self._audit_log = audit_log
        self._queue: Queue[Request | Failed | _Result | None] = Queue(_MOST_WAITING)
        self._over = threading.Event()
        self._held: dict[int, _Held] = {}
        self._exited: set[int] = set()
        self._opened = 0
        allow_open_files(MOST_HANDLES)
        self._most_handles = min(MOST_HANDLES, max_open_files(MOST_HANDLES + OWN_FILES) - OWN_FILES)
        self._reading: set[ProcessId | int] = set()
        """The processes whose details are being read, and the requests of relatives."""

    def run(self) -> None:
        """Answer until the client has gone, then close all handles.

        Raises:
            BrokenPipeError: It has gone while it was answered.
        """
        reader = threading.Thread(target=self._read_on, name="gpumon-requests", daemon=True)
        try:
            self._say(
                Hello(
                    SCHEMA,
                    __version__,
                    self._host.uid,
                    self._host.user,
                    self._host.readonly,
                    time.time(),
                    time.monotonic(),
                )
            )
            reader.start()
            while self._serve_next():
                pass
        finally:
            self._over.set()
            for held in self._held.values():
                self._release(held)

    def _serve_next(self) -> bool:
        """Answer the next request, or look for exits; False once the client has gone."""
        watching = len(self._held) > len(self._exited)
        try:
            item = self._queue.get(timeout=_CHECK_SECONDS if watching else None)
        except Empty:
            self._say_exits()
            return True
        if item is None:
            return False
        match item:
            case Failed():
                self._say(item)
            case _Result(request, message):
                self._reading.discard(_subject(request))
                # A parent that was alive when the relatives were read must differ from a parent
                # that had ended: its PID may have been reused before.
                self._say_exits()
                self._say(message)
            case Relatives() | ReadDetails():
                self._begin_reading(item)
            case Close(handle=number):
                self._close(number)
            case _:
                message = self._answer(item)
                self._say_exits()
                self._say(message)
        return True

    # -- requests about handles --------------------------------------------------------------------

    def _answer(self, request: Open | Send | Status) -> Message:
        try:
            match request:
                case Open():
                    return self._open(request)
                case Send():
                    self._send(request)
                    return _result(request.id, None)
                case Status():
                    return _result(request.id, self._find(request.handle).handle.status())
        except Refused as refused:
            return Declined(request.id, refused.reason, refused.sentence)
        except OSError as error:
            return _failed(request.id, error)

    def _find(self, number: int) -> _Held:
        held = self._held.get(number)
        if held is None:
            raise OSError(errno.EBADF, f"there is no handle {number}")
        return held

    def _open(self, request: Open) -> Opened:
        if len(self._held) >= self._most_handles:
            raise OSError(errno.EMFILE, f"{self._most_handles} processes are held already")
        handle = self._host.open_handle(request.target)
        self._opened += 1
        self._held[self._opened] = _Held(handle)
        return Opened(request.id, self._opened, time.monotonic())

    def _send(self, request: Send) -> None:
        held = self._find(request.handle)
        handle, target = held.handle, held.handle.target
        # A client that has gone has reported that nothing is known, and must be right.
        if self._client_has_left() or time.monotonic() > request.before:
            raise Refused(
                Refusal.UNREACHABLE, f"{target.id.pid} got no signal: the request came too late"
            )
        try:
            if request.freeze:
                handle.freeze()
            else:
                handle.send(request.number)
        except Refused as refused:
            self._audit_log.write(target, request.number, refused.reason.value)
            raise
        except (ValueError, OverflowError):
            raise OSError(errno.EINVAL, f"there is no signal {request.number}") from None
        self._held[request.handle] = _Held(handle, (request.number, time.monotonic()))
        self._audit_log.write(target, request.number, "sent")

    def _close(self, number: int) -> None:
        held = self._held.pop(number, None)
        self._exited.discard(number)
        if held is not None:
            self._release(held)

    def _release(self, held: _Held) -> None:
        if held.handle.thaw():
            self._audit_log.write(held.handle.target, signal.SIGCONT, "sent")
        held.handle.close()

    def _say_exits(self) -> None:
        for number, held in self._held.items():
            if number in self._exited or not held.handle.ended():
                continue
            self._exited.add(number)
            if held.sent is not None:
                sent, at = held.sent
                outcome = f"ended after {time.monotonic() - at:.1f} s"
                self._audit_log.write(held.handle.target, sent, outcome)
            self._say(Exited(number))

    # -- what can hang -----------------------------------------------------------------------------

    def _begin_reading(self, request: Relatives | ReadDetails) -> None:
        if _subject(request) in self._reading:
            self._say(Failed(request.id, errno.EAGAIN, "its details are still being read"))
        elif len(self._reading) >= MOST_READERS:
            sentence = f"{MOST_READERS} requests have not been answered yet"
            self._say(Failed(request.id, errno.EAGAIN, sentence))
        else:
            self._reading.add(_subject(request))
            threading.Thread(
                target=self._read_for, args=(request,), name="gpumon-read", daemon=True
            ).start()

    def _read_for(self, request: Relatives | ReadDetails) -> None:
        message: Message
        try:
            if isinstance(request, Relatives):
                message = _result(request.id, self._host.relatives(request.roots))
            else:
                message = _result(request.id, self._host.details(request.process))
        except Exception as error:  # noqa: BLE001 - nobody is above this thread, and the client waits
            message = _failed(request.id, error)
        self._queue.put(_Result(request, message))

    # -- pipes -------------------------------------------------------------------------------------

    def _read_on(self) -> None:
        """Read requests until the pipe closes."""
        lines = Lines(MOST_REQUEST)
        while data := self._read_chunk():
            for line in lines.feed(data):
                if line is None:
                    sentence = f"a request has more than {MOST_REQUEST} bytes"
                    self._queue.put(Failed(None, errno.E2BIG, sentence))
                elif line.strip():
                    self._queue.put(_parse(line))
        self._queue.put(None)
        if not self._over.wait(_LEAVE_SECONDS):
            # The main thread hangs in a system call, and a daemon thread would not end that.
            FROZEN.end()
            os._exit(1)

    def _read_chunk(self) -> bytes:
        try:
            return os.read(self._read, _CHUNK)
        except OSError:
            return b""

    def _client_has_left(self) -> bool:
        """Whether the pipe is closed at the other end, even if requests in it are not read yet."""
        poll = select.poll()
        # A pipe reports it unasked, a socket does not.
        poll.register(self._read, select.POLLRDHUP)
        return bool(poll.poll(0))

    def _say(self, message: Message) -> None:
        data = msgspec.json.encode(message) + b"\n"
        while data:
            data = data[os.write(self._write, data) :]


def _subject(request: Relatives | ReadDetails) -> ProcessId | int:
    return request.process if isinstance(request, ReadDetails) else request.id


def _parse(line: bytes) -> Request | Failed:
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return Failed(_id_of(line), errno.EINVAL, f"the request cannot be read: {error}")


def _id_of(line: bytes) -> int | None:
    """The number of a request that cannot be read."""
    try:
        return msgspec.json.decode(line, type=_Id).id
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _result(number: int, value: object) -> Message:
    data = msgspec.json.encode(value)
    if len(data) > MOST_ANSWER // 2:
        return Failed(number, errno.E2BIG, f"the answer has {len(data)} bytes, too many")
    return Answer(number, msgspec.Raw(data))


def _failed(number: int, error: Exception) -> Failed:
    if isinstance(error, OSError) and error.errno is not None:
        return Failed(number, error.errno, error.strerror or str(error))
    return Failed(number, errno.EIO, f"{type(error).__name__}: {error}")
