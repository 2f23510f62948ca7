"""Limits how much is written to a terminal before it has shown the previous output.

Nothing reports how much output is still in transit: the kernel buffers 21 kB before it blocks,
which is a second on a slow line, and the effect of every key comes after that. So a query that
terminals answer follows the output, and nothing more is written until the answer arrives; output
that is due meanwhile goes into the next frame. The faster the answers, the more is written between
two queries, so that a fast terminal is rarely queried.
"""

from __future__ import annotations

import math

LEAST, MOST = 120, 16384
"""Bytes between two queries: at 20 kB/s the minimum is shown without a visible delay."""

_SLOW, _SLOW_SHARE = 0.008, 0.25
"""Seconds that an answer may take longer than the fastest one; or this share of its time."""
_PATIENCE = 1.0
"""Seconds after which an answer counts as lost."""
_CAUTION, _MOST_CAUTION = 1.0, 16.0
"""Seconds after a slow answer in which the amount is not increased. A busy machine is slow for a
moment, a slow line permanently: so each failed increase delays the next one further."""
_INTERACTIVE = 3
"""The effects of keys are written without waiting, unless this many answers are pending."""


class Pacing:
    """Flow control. All times are in seconds of one clock.

    Attributes:
        heard: Whether this terminal answers at all; until then it gets whole frames without a
            query.
    """

    def __init__(self) -> None:
        self.heard = False
        self._share = LEAST
        self._written = 0
        # The time, and the bytes written before.
        self._asked: list[tuple[float, int]] = []
        self._unanswered_since = math.inf
        self._quickest = math.inf
        self._careful_until = -math.inf
        self._caution = _CAUTION
        self._too_much = math.inf

    def room(self, now: float, *, interactive: bool = False) -> float:
        """Bytes that may be written now.

        Args:
            now: The time.
            interactive: Whether a key was just pressed.
        """
        if not self.heard:
            return math.inf
        if self._asked and now - self._asked[-1][0] >= _PATIENCE:
            self._asked = []
            self._share = LEAST
        if self._asked and not (interactive and len(self._asked) < _INTERACTIVE):
            return 0
        return self._share

    def wrote(self, size: int, now: float) -> bool:
        """Record written bytes; returns whether the query must follow them."""
        self._written += size
        if not self.heard or (self._share > 4 * LEAST and self._written < self._share // 2):
            return False
        self._asked.append((now, self._written))
        self._written = 0
        self._unanswered_since = min(self._unanswered_since, now)
        return True

    def silent(self, now: float) -> bool:
        """Whether answers have stopped: output written now is not seen."""
        return now - self._unanswered_since > _PATIENCE

    def answered(self, now: float) -> None:
        """Record the terminal's answer."""
        self.heard = True
        self._unanswered_since = math.inf
        if not self._asked:
            return
        asked, size = self._asked.pop(0)
        took = now - asked
        self._quickest = min(self._quickest, took)
        longer = took - self._quickest
        if longer > max(_SLOW, _SLOW_SHARE * self._quickest):
            self._careful_until = now + self._caution
            if self._share > LEAST:
                self._too_much = self._share
                self._share //= 2
                self._caution = min(2 * self._caution, _MOST_CAUTION)
            return
        if size >= self._too_much:
            self._too_much, self._caution = math.inf, _CAUTION
        if now >= self._careful_until and 2 * size >= self._share:
            self._share = min(MOST, self._share * 2)
