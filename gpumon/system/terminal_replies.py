"""Waits for replies of the terminal, so that none is left for the shell.

A terminal replies to a query as if the reply were typed. Over a slow line that takes up to a
second: a reply that arrives after the program has ended would stand on the shell's prompt.
"""

from __future__ import annotations

import os
import re
import time
from threading import Lock

REPLY_SECONDS = 1.5
"""How long a reply may take. Without one after that, none is expected any more."""
_FENCE_SECONDS = 0.2
"""The slowest terminal that is always queried once more, to know that all reports have arrived."""
_FORGOTTEN_SECONDS = 10.0
"""After these seconds a reply that did not come no longer counts: a later one is another's."""

MODE_QUERY = "\x1b[?2026$p"
"""A query (DECRQM) that terminals reply to at once, and that has no effect."""

ATTRIBUTES = "attributes"
"""The kind of a reply to DA1."""

_QUERIES = {
    MODE_QUERY: "2026",
    "\x1b[?2048$p": "2048",
    # The terminal reports its size at once.
    "\x1b[?2048h": "size",
}
"""Everything on the screen that a terminal replies to: Textual queries, too."""
_REPORT = re.compile(r"\x1b\[(?:<[\d;-]+[Mm]|[IO])")
"""A report of the mouse or of the focus."""
_REPLY = re.compile(r"\x1b\[(?:\?(?P<mode>\d+);\d+\$y|(?P<attributes>\?[\d;]*c)|48;[\d;:]*t)")
_UNFINISHED = re.compile(r"\x1b(?:\[[\d;:?<$-]*)?\Z")
"""The beginning of a reply or a report, which may arrive in parts."""
_LONGEST = 4096
"""Characters of one that is still waited for."""
_MOST_BYTES = 4096


class TerminalReplies:
    """The replies that are outstanding: follows everything that is written and read."""

    def __init__(self) -> None:
        self._sent: list[tuple[str, float]] = []
        self._first_sent: float | None = None
        self._seconds: float | None = None
        self._reported_at: float | None = None
        self._unfinished = ""
        # One thread writes, another reads.
        self._lock = Lock()

    def written(self, text: str) -> None:
        """Note the queries in this output."""
        if "\x1b[" not in text:
            return
        now = time.monotonic()
        for query, kind in _QUERIES.items():
            for _ in range(text.count(query)):
                self.expect(kind, now)

    def expect(self, kind: str, sent_at: float) -> None:
        """Note a query that was sent."""
        with self._lock:
            self._first_sent = self._first_sent or sent_at
            recent = [it for it in self._sent if sent_at - it[1] < _FORGOTTEN_SECONDS]
            self._sent = [*recent, (kind, sent_at)]

    def read(self, text: str) -> None:
        """Note the replies in this input."""
        text = self._unfinished + text
        for reply in _REPLY.finditer(text):
            kind = reply["mode"] or (ATTRIBUTES if reply["attributes"] else "size")
            if not self._take(kind) and kind == "size":
                self._reported_at = time.monotonic()
        if _REPORT.search(text):
            self._reported_at = time.monotonic()
        unfinished = _UNFINISHED.search(text)
        self._unfinished = ""
        if unfinished is not None and len(unfinished[0]) <= _LONGEST:
            self._unfinished = unfinished[0]

    def _take(self, kind: str) -> bool:
        """Whether this reply was outstanding."""
        with self._lock:
            for index, (sent, at) in enumerate(self._sent):
                if sent == kind:
                    del self._sent[index]
                    self._seconds = time.monotonic() - at
                    return True
        return False

    @property
    def reports_may_follow(self) -> bool:
        """Whether to wait for one more reply, so that no report arrives after it.

        A slow terminal is waited for only while it reports: a mouse that moves sends many.
        """
        if self._seconds is None:
            return False
        now, at = time.monotonic(), self._reported_at
        return self._seconds < _FENCE_SECONDS or (at is not None and now - at < REPLY_SECONDS)

    def seconds_left(self) -> float:
        """Seconds for which an outstanding reply may still arrive; 0 if there is none."""
        if not self._sent or self._first_sent is None:
            return 0.0
        # Terminals that have never replied need not be waited for after each query.
        newest = self._first_sent if self._seconds is None else self._sent[-1][1]
        return max(0.0, newest + REPLY_SECONDS - time.monotonic())

    def drain(self, descriptor: int) -> None:
        """Read and drop input of the terminal until no reply is outstanding."""
        from select import POLLIN, poll  # not on every system

        ready = poll()
        ready.register(descriptor, POLLIN)
        while (left := self.seconds_left()) and ready.poll(1000 * left):
            try:
                data = os.read(descriptor, _MOST_BYTES)
            except OSError:
                break
            if not data:
                break
            self.read(data.decode("ascii", "replace"))
        self._sent.clear()
