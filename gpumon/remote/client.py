"""The processes of another machine as a ``ProcessHost``.

What that machine says of them is made as harmless as what ``/proc`` says here. Names and commands
of processes are hostile on every machine, and whoever shows them knows. States, sentences and times
come from gpumon or the kernel here; from another machine they may be anything.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from gpumon.host.process_host import Details, ProcessStatus, Refusal, Refused, RelatedProcess
from gpumon.host.refusals import read_only, signal_name
from gpumon.remote import protocol
from gpumon.remote.connection import ANSWER_SECONDS, LostError, RemoteConnection
from gpumon.system.piped_program import Channel
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpumon.host.process_host import ProcessHandle, Target
    from gpumon.model.processes import GpuProcess, HolderScan, ProcessId, Workload
    from gpumon.model.snapshot import Snapshot

T = TypeVar("T")

RETRY_SECONDS = 5.0
"""Seconds after a failure in which nothing tries to connect: a termination has many processes."""
_CLOSE_SECONDS = 2.0
_LATEST = 2.0**33
"""A time beyond this, in the year 2242, is none."""
_MOST_CHARACTERS = 300


class RemoteHost:
    """See ``ProcessHost``. Thread-safe.

    It connects at the first question or at ``connect``, and anew at a question after the connection
    was lost. The handles of a lost connection stay lost: nothing is guessed about their
    processes.

    Args:
        name: The machine, for sentences.
        command: The program that carries the connection, such as ssh, with its arguments, which end
            with ``gpumon remote``.
        readonly: Whether every signal is refused, here and there.
        patience: Seconds to wait for an answer at most.
        retry_after: See ``RETRY_SECONDS``.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        readonly: bool = False,
        patience: float = math.inf,
        retry_after: float = RETRY_SECONDS,
    ) -> None:
        self._name = printable(name)
        self._command = tuple(command)
        self._readonly = readonly
        self._patience = patience
        self._retry_after = retry_after
        self._connecting = threading.Lock()
        self._connection: RemoteConnection | None = None
        self._opening: Channel | None = None
        self._failure = ""
        self._failed_at: float | None = None
        self._closed = False

    @property
    def uid(self) -> int | None:
        """UID of the user who is logged in there; ``None`` before the first connection."""
        connection = self._connection
        return None if connection is None else connection.hello.uid

    @property
    def user(self) -> str | None:
        """Name of that user; ``None`` before the first connection."""
        connection = self._connection
        return None if connection is None else connection.hello.user

    @property
    def readonly(self) -> bool:
        """Whether every signal is refused, here or there."""
        connection = self._connection
        return self._readonly or (connection is not None and connection.hello.readonly)

    def connect(self) -> None:
        """Connect on another thread, so that the user there is known before a signal is chosen."""

        def connect() -> None:
            # A failure is reported when something is asked.
            with suppress(LostError):
                self._connected()

        threading.Thread(target=connect, name="gpumon-connect", daemon=True).start()

    def close(self) -> None:
        """End the connection, which closes all handles. May be called more than once."""
        self._closed = True
        if (opening := self._opening) is not None:
            opening.leave()
        # What connects at this moment notices that, and ends.
        if self._connecting.acquire(timeout=_CLOSE_SECONDS):
            self._connecting.release()
        connection = self._connection
        if connection is not None:
            connection.abandon(f"gpumon has closed the connection to {self._name}")
            connection.join(_CLOSE_SECONDS)

    def workloads(self, processes: Sequence[GpuProcess]) -> Mapping[ProcessId, Workload]:  # noqa: ARG002 - see ProcessHost
        """Empty: the snapshots of that machine have the workloads already."""
        return {}

    def scan(self, snapshot: Snapshot) -> HolderScan | None:
        """The last scan of that machine, which is in its snapshots."""
        return snapshot.holders

    def relatives(self, roots: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:
        """See ``ProcessHost.relatives``."""
        asked = tuple(roots)
        found, time_offset = self._read(
            lambda number: protocol.Relatives(number, asked), tuple[RelatedProcess, ...]
        )
        return _plausible_family(found, time_offset)

    def details(self, process: ProcessId) -> Details | None:
        """See ``ProcessHost.details``."""
        found, time_offset = self._read(
            lambda number: protocol.ReadDetails(number, process),
            Details | None,  # type: ignore[arg-type]  # a union is no type for mypy
        )
        return None if found is None else _plausible_details(found, process, time_offset)

    def _read(self, make: Callable[[int], protocol.Request], result: type[T]) -> tuple[T, float]:
        """What was read there, and what to add to its times.

        Raises:
            Refused: There is no answer.
        """
        try:
            connection = self._connected()
            return connection.ask(make, result, patient=True), connection.time_offset
        except LostError as lost:
            raise Refused(Refusal.UNREACHABLE, str(lost)) from None
        except OSError as error:
            raise Refused(Refusal.UNREACHABLE, error.strerror or str(error)) from None

    def open_handle(self, target: Target) -> ProcessHandle:
        """See ``ProcessHost.open_handle``."""
        if self._readonly:
            raise read_only()
        try:
            connection = self._connected()
            opened = connection.ask(lambda number: protocol.Open(number, target), protocol.Opened)
        except LostError as lost:
            sentence = f"{target.id.pid} got no signal: {lost}"
            raise Refused(Refusal.UNREACHABLE, sentence) from None
        return _RemoteHandle(connection, target, opened.handle)

    def wait(self, handles: Sequence[ProcessHandle], seconds: float) -> None:
        """See ``ProcessHost.wait``."""
        mine = [handle for handle in handles if isinstance(handle, _RemoteHandle)]
        if mine:
            # The handles of one termination are nearly always of one connection.
            newest = mine[-1].connection
            newest.wait({handle.number for handle in mine if handle.connection is newest}, seconds)

    def _connected(self) -> RemoteConnection:
        """The connection, made anew if it is lost.

        Raises:
            LostError: There is none.
        """
        with self._connecting:
            connection = self._connection
            if connection is not None and connection.lost is None:
                return connection
            if connection is not None and self._failed_at is None:
                # Counted from the loss: the machine may have come back long ago.
                self._failure, self._failed_at = connection.lost or "", connection.lost_at
            now = time.monotonic()
            if self._failed_at is not None and now - self._failed_at < self._retry_after:
                raise LostError(self._failure, asked=False)
            if self._closed:
                raise LostError(f"the connection to {self._name} is closed", asked=False)
            try:
                self._opening = channel = Channel(self._command)
                if self._closed:
                    channel.leave()
                self._connection = RemoteConnection(self._name, channel, self._patience)
            except LostError as lost:
                self._fail(str(lost))
                raise
            except OSError as error:
                self._fail(f"{printable(self._command[0])} cannot be started: {error.strerror}")
                raise LostError(self._failure, asked=False) from None
            finally:
                self._opening = None
            self._failed_at = None
            return self._connection

    def _fail(self, sentence: str) -> None:
        self._failure, self._failed_at = sentence, time.monotonic()


class _RemoteHandle:
    """See ``ProcessHandle``."""

    def __init__(self, connection: RemoteConnection, target: Target, number: int) -> None:
        self.connection = connection
        self.number = number
        self.target = target
        self._ended = False
        self._closed = False

    def send(self, number: int) -> None:
        """See ``ProcessHandle.send``."""
        self._send(number)

    def freeze(self) -> None:
        """See ``ProcessHandle.freeze``."""
        self._send(signal.SIGSTOP, freeze=True)

    def thaw(self) -> bool:
        """See ``ProcessHandle.thaw``; the other machine does it when the handle is closed."""
        return False

    def _send(self, number: int, *, freeze: bool = False) -> None:
        pid, name = self.target.id.pid, signal_name(number)
        before = self.connection.their_monotonic(time.monotonic() + ANSWER_SECONDS)
        try:
            self.connection.ask(
                lambda id_: protocol.Send(id_, self.number, number, before, freeze),
                type(None),
            )
        except LostError as lost:
            if lost.asked:
                sentence = f"{pid} may have got {name}: {lost}"
                raise Refused(Refusal.UNANSWERED, sentence) from None
            sentence = f"{pid} got no {name}: {lost}"
            raise Refused(Refusal.UNREACHABLE, sentence) from None

    def ended(self) -> bool:
        """See ``ProcessHandle.ended``; without asking, because exits are announced."""
        self._ended = self._ended or (not self._closed and self.connection.ended(self.number))
        return self._ended

    def status(self) -> ProcessStatus | None:
        """See ``ProcessHandle.status``."""
        try:
            status = self.connection.ask(
                lambda id_: protocol.Status(id_, self.number),
                ProcessStatus | None,  # type: ignore[arg-type]  # a union is no type for mypy
            )
        except LostError as lost:
            sentence = f"{self.target.id.pid} may still be running: {lost}"
            raise Refused(Refusal.UNREACHABLE, sentence) from None
        return None if status is None else _plausible_status(status)

    def close(self) -> None:
        """See ``ProcessHandle.close``."""
        if self._closed:
            return
        self._closed = True
        # A lost connection closes it, too.
        with suppress(LostError):
            self.connection.tell(protocol.Close(0, self.number))
        self.connection.forget(self.number)


def _plausible_status(status: ProcessStatus) -> ProcessStatus:
    """A status with a state of one letter and printable names."""
    return replace(
        status,
        state=_letter(status.state),
        wait_channel=_text(status.wait_channel),
        parent_name=_text(status.parent_name),
    )


def _plausible_family(
    family: Iterable[RelatedProcess], time_offset: float
) -> tuple[RelatedProcess, ...]:
    """These processes, each PID once and none before its parent, in this machine's time."""
    listed = tuple(family)
    pids = {relative.id.pid for relative in listed}
    kept: dict[int, RelatedProcess] = {}
    for relative in listed:
        if relative.id.pid in kept or (relative.parent in pids and relative.parent not in kept):
            continue
        kept[relative.id.pid] = replace(
            relative,
            user=_text(relative.user),
            state=_letter(relative.state),
            started_at=_time(relative.started_at, time_offset),
        )
    return tuple(kept.values())


def _plausible_details(details: Details, process: ProcessId, time_offset: float) -> Details:
    """Details of the process that was asked for, in this machine's time.

    Raises:
        Refused: They are of another process.
    """
    if details.id != process:
        sentence = f"the details are those of {details.id.pid}, not of {process.pid}"
        raise Refused(Refusal.UNREACHABLE, sentence)
    return replace(
        details,
        state=None if details.state is None else _letter(details.state),
        wait_channel=_text(details.wait_channel),
        family=_plausible_family(details.family, time_offset),
        unreadable=tuple(_cut(printable(sentence)) for sentence in details.unreadable),
    )


def _letter(state: str) -> str:
    return state if len(state) == 1 and state.isascii() and state.isalpha() else "?"


def _text(text: str | None) -> str | None:
    return None if text is None else _cut(printable(text))


def _cut(text: str) -> str:
    return text[:_MOST_CHARACTERS]


def _time(time: float | None, offset: float) -> float | None:
    if time is None or not 0 <= time + offset <= _LATEST:
        return None
    return time + offset
