"""The connection to a host: what it sends, what is wrong with it, and when it is tried again."""

from __future__ import annotations

import random
import signal
import time
from contextlib import suppress
from enum import Enum, auto
from selectors import EVENT_READ
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.fleet.fleet import HostOrigin, HostState, HostStatus
from gpumon.fleet.nvidia_smi import LEAST_INTERVAL, SmiReader
from gpumon.fleet.remote_clock import RemoteClock
from gpumon.fleet.ssh import NOT_FOUND, SMI_MARK, STREAM_MARK, client_fault, ending
from gpumon.model.bounds import plausible
from gpumon.recording.encoded import Once
from gpumon.stream import PART, OtherVersionError, StreamError, StreamReader
from gpumon.system.piped_program import PipedProgram
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from selectors import BaseSelector

    from gpumon.fleet.ssh import SshClient
    from gpumon.model.snapshot import Snapshot
    from gpumon.stream import GpuState

_HANDSHAKE_SECONDS = 20.0
"""ssh gives up connecting by itself; this is for a host that accepts and then is silent."""
_FIRST_SAMPLE_SECONDS = 90.0
"""Without persistence mode a driver takes seconds to wake each GPU."""
_SILENT_INTERVALS, _SILENT_SECONDS = 3, 5.0
_LOST_INTERVALS, _LOST_SECONDS = 10, 30.0
"""After so long without a line the connection is made anew."""
_ENDING_SECONDS = 2.0
"""How long ssh may take to end after it closed its output."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_JITTER = 0.3
_STEADY_SECONDS = 30.0
"""A connection that brought samples for so long is tried again after the shortest pause."""
_ONLY_NVIDIA_SMI = "no gpumon there, only nvidia-smi: fewer values, and nothing can be ended"
_MOST_NOISE = 2**16
"""Bytes that the login files of a user may write before the command begins."""
_MOST_SAID = 2**13
"""The end of the messages of ssh that is kept."""
_BYTES = 2**20, 16 * 2**20, "1 MiB a second"
"""Bytes of a host that are read: a second, and at once. The first sample of 64 GPUs with 4,000
processes has 0.2 MB, and as much of nvidia-smi's tables 1 MB."""
_CONTENT_BYTES = 4 * 2**20, 64 * 2**20, "4 MiB a second before compression"
"""The same after they were expanded: such a sample has 2 MB, and a pipe that nobody read for a
while holds hundreds of smaller ones."""
_SECONDS = 0.3, 5.0, "what takes less than a third of a processor core"
"""Processor time for reading: one host must not hold up the others, whatever it sends."""


class _Phase(Enum):
    WAITING = auto()
    """No client runs; ``HostConnection.due`` says when one should."""
    OPENING = auto()
    """The client connects, until the command has begun on the host."""
    OPEN = auto()
    """The command runs on the host."""
    ENDING = auto()
    """The client was asked to end, or closed its output."""


class _Allowance:
    """How much of something a host may still use.

    Args:
        per_second: By how much it grows each second.
        most: To how much it grows.
        words: What it allows, for a person.
        now: The monotonic time.
    """

    def __init__(self, per_second: float, most: float, words: str, now: float) -> None:
        self.words = words
        self._per_second, self._most = per_second, most
        self._left, self._at = most, now

    def take(self, size: float, now: float) -> bool:
        """Take some of it; whether there was as much."""
        refilled = self._left + (now - self._at) * self._per_second
        self._left, self._at = min(refilled, self._most) - size, now
        return self._left >= 0


class HostConnection:
    """A host. Only the thread of the fleet calls its methods; any thread may read ``state``.

    Args:
        name: The host as the user named it.
        client: How it is reached.
        interval: Seconds between samples.
        selector: The descriptors of a client are registered here, each with the method that reads
            from it and takes the time.
    """

    def __init__(
        self, name: str, client: SshClient, interval: float, selector: BaseSelector
    ) -> None:
        self.name = name
        self.state = HostState(name, HostStatus.CONNECTING, time.time())
        # How long the last client took to begin the command on the host.
        self.handshake_seconds: float | None = None
        self._process: PipedProgram | None = None
        self._client = client
        self._selector = selector
        self._asked_interval = interval
        self._phase = _Phase.WAITING
        self._failures = 0
        self._due = 0.0
        # Why the next client, or this one, uses nvidia-smi although gpumon is there.
        self._other_version, self._asks_gpumon = "", True
        self._plausible = Once(plausible)
        self._begin_reading(0.0)

    def _begin_reading(self, now: float) -> None:
        """Forget what the last client wrote."""
        self._began_at = self._heard_at = now
        self._interval = self._asked_interval
        self._sampled = False
        self._trouble = ""
        self._steady_seconds = 0.0
        self._had_begun = False
        self._noise = b""
        self._said = b""
        self._fault = ""
        self._bytes = _Allowance(*_BYTES, now)
        self._content_bytes = _Allowance(*_CONTENT_BYTES, now)
        self._seconds = _Allowance(*_SECONDS, now)
        self._stream: StreamReader | None = None
        self._smi: SmiReader | None = None
        self._clock = RemoteClock()

    # For the fleet

    @property
    def has_failed(self) -> bool:
        """Whether the last attempt to connect failed."""
        return self._failures > 0

    def is_due(self, now: float) -> bool:
        """Whether a client should be started."""
        return self._phase is _Phase.WAITING and now >= self._due

    def is_opening(self, now: float, seconds: float) -> bool:
        """Whether the client has begun to connect within the last seconds."""
        return self._phase is _Phase.OPENING and now - self._began_at < seconds

    def open(self, now: float) -> None:
        """Start a client."""
        self._begin_reading(now)
        self._asks_gpumon = not self._other_version
        arguments = self._client.stream(self.name, self._asked_interval, gpumon=self._asks_gpumon)
        try:
            self._process = process = PipedProgram(arguments)
        except OSError as error:
            self._down(client_fault(arguments[0], error), now)
            return
        self._phase = _Phase.OPENING
        self._selector.register(process.output, EVENT_READ, self._take_output)
        self._selector.register(process.errors, EVENT_READ, self._take_errors)

    def tick(self, now: float) -> None:
        """Notice what has not happened in time."""
        if self._phase is _Phase.ENDING:
            self._settle(now, kill=now - self._began_at > _ENDING_SECONDS)
        elif self._phase is _Phase.OPENING and now - self._began_at > _HANDSHAKE_SECONDS:
            self._end("it accepts connections, but the login does not end", now)
        elif self._phase is _Phase.OPEN:
            self._notice_silence(now)

    def close(self) -> PipedProgram | None:
        """Stop reading. Returns the client, which the caller must end."""
        self._stop_reading()
        return self._process

    # What arrives

    def _take_output(self, now: float) -> None:
        if self._process is None or (data := self._process.read(self._process.output)) is None:
            return
        if not data:
            self._end(self._held_back(), now)
        elif self._is_allowed(self._bytes, len(data), now):
            began = time.thread_time()
            try:
                self._take(data, now)
                self._is_allowed(self._seconds, time.thread_time() - began, now)
            except OtherVersionError as error:
                self._other_version = error.sentence
                self._end(error.sentence, now)
            except StreamError as error:
                self._end(error.sentence.rstrip("."), now)
            except Exception as error:  # noqa: BLE001 - the other hosts are read on the same thread
                what = printable(f"{type(error).__name__}: {error}")
                self._end(f"gpumon cannot read its output ({what}): please report this", now)

    def _take_errors(self, now: float) -> None:
        if self._process is None or (data := self._process.read(self._process.errors)) is None:
            return
        if data:
            self._said = (self._said + data)[-_MOST_SAID:]
            self._is_allowed(self._bytes, len(data), now)
        else:
            self._selector.unregister(self._process.errors)

    def _stop_reading(self) -> None:
        if self._process is not None:
            for descriptor in (self._process.output, self._process.errors):
                with suppress(KeyError):
                    self._selector.unregister(descriptor)

    def _is_allowed(self, allowance: _Allowance, size: float, now: float) -> bool:
        """Whether the host sends no more than it may; ends the connection if it does."""
        if allowance.take(size, now):
            return True
        self._end(f"it sends more than gpumon reads: {allowance.words}", now)
        return False

    def _held_back(self) -> str:
        """What was wrong with the end of the stream; empty if nothing was."""
        try:
            if self._stream is not None:
                self._stream.feed(b"")
        except StreamError as error:
            return error.sentence
        return ""

    def _take(self, data: bytes, now: float) -> None:
        if self._phase is _Phase.OPENING:
            data = self._after_mark(data, now)
        if not data:
            return
        if self._stream is not None:
            for at in range(0, len(data), PART):
                if not self._take_part(self._stream, data[at : at + PART], now):
                    return
        elif self._smi is not None:
            for snapshot in self._smi.feed(data):
                self._heard_at = now
                sentence = self._other_version or _ONLY_NVIDIA_SMI
                self._live(snapshot, HostOrigin.NVIDIA_SMI, sentence)

    def _take_part(self, stream: StreamReader, data: bytes, now: float) -> bool:
        """Take the newest sample of a part of the stream; whether it may go on."""
        before = stream.content_bytes
        samples = stream.feed(data)
        if not self._is_allowed(self._content_bytes, stream.content_bytes - before, now):
            return False
        for sample in samples:
            self._clock.learn(sample.written_at, time.time())
        if samples:
            self._heard_at = now
            newest = samples[-1]
            heartbeat = newest.heartbeat
            self._live(
                self._clock.snapshot(newest.snapshot),
                HostOrigin.GPUMON,
                "" if heartbeat is None else printable(heartbeat.reason),
                printable(newest.version),
                self._clock.states(newest.states),
            )
        return True

    def _after_mark(self, data: bytes, now: float) -> bytes:
        """What follows the line that says which program writes; empty before it has arrived."""
        *lines, rest = (self._noise + data).split(b"\n")
        for number, line in enumerate(lines):
            if line in (STREAM_MARK, SMI_MARK):
                self._phase = _Phase.OPEN
                self.handshake_seconds = now - self._began_at
                self._began_at = self._heard_at = now
                self._noise = b""
                if line == STREAM_MARK:
                    self._stream = StreamReader()
                else:
                    self._smi = SmiReader(printable(self.name))
                    self._interval = max(self._asked_interval, LEAST_INTERVAL)
                return b"\n".join((*lines[number + 1 :], rest))
        self._noise += data
        if len(self._noise) > _MOST_NOISE:
            raise StreamError("its login files write without end: gpumon does not begin")
        return b""

    # What becomes of the host

    def _live(
        self,
        snapshot: Snapshot,
        origin: HostOrigin,
        sentence: str,
        version: str = "",
        states: tuple[GpuState, ...] = (),
    ) -> None:
        self._sampled = True
        before, wall = self.state, time.time()
        snapshot = self._plausible(snapshot)
        trouble = snapshot.trouble
        self._trouble = "" if trouble is None else printable(trouble.sentence).rstrip(".")
        sentence = self._trouble or sentence
        self.state = HostState(
            self.name,
            HostStatus.LIVE,
            before.since if before.status is HostStatus.LIVE else wall,
            sentence,
            origin,
            snapshot,
            wall,
            version or None,
            states,
        )

    def _notice_silence(self, now: float) -> None:
        silence = now - self._heard_at
        if not self._sampled:
            if silence > _FIRST_SAMPLE_SECONDS:
                self._end("it has sent no sample: its driver may hang", now)
        elif silence > max(_LOST_INTERVALS * self._interval, _LOST_SECONDS):
            self._end("connected, but nothing has arrived", now)
        elif (
            silence > max(_SILENT_INTERVALS * self._interval, _SILENT_SECONDS)
            and self.state.status is HostStatus.LIVE
        ):
            self.state = replace(
                self.state,
                status=HostStatus.SILENT,
                since=time.time() - silence,
                sentence="connected, but nothing arrives",
            )

    def _end(self, fault: str, now: float) -> None:
        """End the client; ``fault`` is empty if it ended by itself, and what it wrote says why."""
        if self._phase is _Phase.ENDING:
            return
        self._fault = fault
        self._had_begun = self._phase is _Phase.OPEN
        if self._sampled:
            self._steady_seconds = now - self._began_at
        self._phase, self._began_at = _Phase.ENDING, now
        self._stop_reading()
        if fault and self._process is not None:
            self._process.signal(signal.SIGTERM)
        self._settle(now, kill=False)

    def _settle(self, now: float, *, kill: bool) -> None:
        """Say why the client ended, once it has."""
        process = self._process
        if process is None:
            return
        if not self._fault and (data := process.read(process.errors)):
            self._said = (self._said + data)[-_MOST_SAID:]
        status = process.end() if kill else process.ended()
        if status is None:
            return
        if self._steady_seconds >= _STEADY_SECONDS:
            self._failures = 0
        if self._asks_gpumon and self._fault and self._fault == self._other_version:
            # Without a pause: its nvidia-smi may answer.
            self._process, self._phase, self._due = None, _Phase.WAITING, now
            return
        # A shell that refuses to run anything may say so on standard output.
        said = self._noise + b"\n" + self._said
        # Without a driver gpumon ends after it has said so in a sample.
        fault = self._fault or self._trouble
        if not (fault or self._sampled) and (status == NOT_FOUND or self._had_begun):
            fault = self._other_version
        # It may have been updated since.
        self._other_version = ""
        self._down(fault or ending(self.name, status, said, began=self._had_begun), now)

    def _down(self, sentence: str, now: float) -> None:
        before = self.state
        self._process, self._phase = None, _Phase.WAITING
        pause = min(_FIRST_PAUSE * 2.0**self._failures, _LONGEST_PAUSE)
        self._failures = min(self._failures + 1, 10)
        # Hosts that went down together must not come back together.
        self._due = now + pause * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - no secret
        self.state = replace(
            before,
            status=HostStatus.DOWN,
            since=before.since if before.status is HostStatus.DOWN else time.time(),
            sentence=sentence,
        )
