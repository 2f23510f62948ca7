"""Reads the lines of a stream, from an end that may be hostile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import gpumon
from gpumon.model.processes import ProcessId
from gpumon.recording.recording import Event, EventKind
from gpumon.stream.sample import MOST_LINE, VERSION, StreamedSample, StreamError
from gpumon.stream.state import StreamState
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from gpumon.stream.line import EventLine, Line

MOST_BEFORE = 2**16
"""Bytes before the first line, which greetings of a login shell may fill."""
MOST_CHANGES = 16 * 2**20
"""Bytes of lines after a full one, until the next full one: they bound the memory of the state."""
_QUOTED = 40
_BEGIN = b'{"schema":"gpumon.stream/'
_START = re.compile(rb'\{"schema":"gpumon\.stream/([0-9]{1,9})"')


class StreamReader:
    """Makes samples of the bytes of a stream."""

    def __init__(self) -> None:
        # Making the types takes 15 ms: `gpumon stream` itself only writes.
        from gpumon.stream.line import decode_line

        self._decode = decode_line
        self._rest = bytearray()
        # Not the exception: its traceback would keep what was read.
        self._error = ""
        self._greeting = b""
        self._skipped = 0
        self._state = StreamState()
        self._changes = 0
        self._last: StreamedSample | None = None

    def feed(self, data: bytes) -> list[StreamedSample]:
        """The samples of all lines that these bytes complete, oldest first; often none.

        Args:
            data: The next bytes, cut anywhere; 64 KiB at a time keep time and memory small. Nothing
                after the last ones, to raise what was held back.

        Raises:
            StreamError: The bytes are not a stream, or a line is damaged. Samples of lines before
                it are returned first; the next call raises.
        """
        samples: list[StreamedSample] = []
        try:
            if not self._error:
                self._read(data, samples)
        except StreamError as error:
            self._error = error.sentence
            self._forget()
        if self._error and not samples:
            raise StreamError(self._error)
        return samples

    def _forget(self) -> None:
        """Release everything: no more lines are read."""
        self._rest.clear()
        self._state = StreamState()
        self._last = None

    def _read(self, data: bytes, samples: list[StreamedSample]) -> None:
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._keep(data[start:end])
            start = end + 1
            line = bytes(self._rest)
            self._rest.clear()
            sample = self._sample(line)
            if sample is not None:
                samples.append(sample)
        self._keep(data[start:])

    def _keep(self, part: bytes) -> None:
        """Add a part of a line."""
        if self._last is None and self._skipped + len(self._rest) + len(part) > MOST_BEFORE:
            begin = bytes(self._rest[: len(_BEGIN)]) + part[: len(_BEGIN)]
            if not (begin.startswith(_BEGIN) or _BEGIN.startswith(begin)):
                raise self._no_stream(begin)
        if len(self._rest) + len(part) > MOST_LINE:
            raise StreamError(
                f"a line of the stream is longer than {MOST_LINE // 2**20} MiB; connect again"
            )
        self._rest += part

    def _no_stream(self, line: bytes) -> StreamError:
        begin = printable((self._greeting or line)[:_QUOTED].decode(errors="replace")).strip()
        return StreamError(
            f"the other end does not write a stream of gpumon, it begins with {begin!r}: check the "
            "command that runs there"
        )

    def _sample(self, line: bytes) -> StreamedSample | None:
        """What a line says; ``None`` for a line before the stream."""
        found = _START.match(line)
        if found is None:
            if self._last is not None:
                raise self._damaged("it does not begin with its schema")
            self._greeting = self._greeting or line[:_QUOTED]
            self._skipped += len(line) + 1
            return None
        version = int(found[1])
        if version != VERSION:
            raise StreamError(
                f"the other end writes version {version} of the stream, and gpumon "
                f"{gpumon.__version__} here reads version {VERSION}: install the same gpumon at "
                "both ends"
            )
        try:
            told = self._decode(line)
        except (ValueError, RecursionError) as error:
            raise self._damaged(printable(str(error))) from None
        self._last = self._applied(told, len(line))
        return self._last

    def _damaged(self, what: str) -> StreamError:
        number = 1 if self._last is None else self._last.sequence + 1
        return StreamError(f"line {number} of the stream is damaged: {what}; connect again")

    def _applied(self, told: Line, size: int) -> StreamedSample:
        last = self._last
        if told.full:
            self._state, self._changes = StreamState(), 0
        elif last is None:
            raise StreamError("the stream begins in the middle, without a full line; connect again")
        elif told.sequence != last.sequence + 1:
            raise self._damaged(f"it is line {told.sequence}")
        self._changes += size
        if self._changes > MOST_CHANGES:
            raise self._damaged("there was no full line for too long")
        try:
            snapshot = self._state.apply(told)
        except StreamError as error:
            raise self._damaged(error.sentence) from None
        return StreamedSample(
            snapshot=snapshot,
            sequence=told.sequence,
            written_at=told.written_unix_seconds,
            version=told.gpumon if told.full or last is None else last.version,
            interval=told.interval_seconds if told.full or last is None else last.interval,
            full=told.full,
            dropped=told.dropped,
            heartbeat=told.heartbeat,
            events=tuple(_event(event) for event in told.events if event.kind in _EVENTS),
            states=self._state.states,
        )


_EVENTS = {kind.value: kind for kind in EventKind}


def _event(told: EventLine) -> Event:
    subject: ProcessId | str = told.gpu_uuid
    if told.pid is not None:
        subject = ProcessId(told.pid, told.start_time_ticks)
    kind = _EVENTS[told.kind]
    return Event(told.time_unix_seconds, kind, subject, told.sentence, told.gpu_uuids)
