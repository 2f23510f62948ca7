"""Whose turn it is: slow questions of all cards, one after the other, on a budget of driver time.

Most slow questions cost microseconds. A few make the caller wait, 20 ms for each direction of
PCIe traffic, and sixteen of those in a row would spoil three ticks at ten samples a second.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from gpumon.sources.nvml.reading import Pace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.sources.nvml.card import Card
    from gpumon.sources.nvml.reading import Reading

PERIOD = 2.0
"""Seconds between two readings of a slow value."""
_RARE_PERIOD = 5 * PERIOD

DEAR_SECONDS = 0.002
"""What costs more than this waits for the budget."""

SHARE = 0.05
"""How much of the time may go into dear questions."""

_LEAST_ROOM = 512
"""So many questions are queued before any is looked for that is not asked any more."""

_GOLDEN, _SILVER = 0.6180339887498949, 0.4142135623730951
"""Their multiples spread evenly over the period, however many there are: the questions to one card
by the one, the same question to all cards by the other."""


class Turn(NamedTuple):
    """A slow question, its moment in its period, and the card it is put to."""

    number: int
    moment: float
    card: Card
    reading: Reading


class Turns:
    """A queue of slow questions.

    Cheap ones are asked when they are due, each at a moment of the period of its own. Dear ones
    are paid from a purse that fills with ``SHARE`` of the time that passes and never holds more
    than came in since the last sample. So at ten samples a second one of 20 ms is asked at every
    fourth, and with seconds between the samples several are asked in one.
    """

    def __init__(self) -> None:
        self._numbers = count()
        self._asked: Counter[str] = Counter()
        self._queue: list[tuple[float, int, Turn]] = []
        self._waiting: set[Reading] = set()
        self._dear: deque[Turn] = deque()
        self._room = _LEAST_ROOM
        self._purse = 0.0
        self._filled_at: float | None = None

    def add(self, card: Card, reading: Reading) -> None:
        """Ask this one as soon as may be, and from then on in turn."""
        if reading in self._waiting:
            # It was dropped and taken up again before its turn came.
            return
        number, place = next(self._numbers), self._asked[card.uuid]
        self._asked[card.uuid] += 1
        if len(self._queue) >= self._room:
            self._drop_dead()
        moment = (place * _GOLDEN + card.index * _SILVER) % 1 * _period(reading)
        self._push(0.0, Turn(number, moment, card, reading))

    def _drop_dead(self) -> None:
        """Forget what is not asked any more: a driver that fails again and again leaves it all."""
        self._queue = [one for one in self._queue if one[2].reading.live]
        heapq.heapify(self._queue)
        self._waiting = {turn.reading for turn in self._dear}
        self._waiting.update(turn.reading for _, _, turn in self._queue)
        self._room = max(_LEAST_ROOM, 2 * len(self._queue))

    def take(self, now: float) -> Iterator[Turn]:
        """What to ask now, one by one: each is followed by a call of ``done``.

        The first time these are all that are cheap: nobody waits for a picture.

        Args:
            now: On the monotonic clock.
        """
        income = 0.0 if self._filled_at is None else (now - self._filled_at) * SHARE
        self._filled_at = now
        self._purse = min(self._purse + income, income)
        while self._queue and self._queue[0][0] <= now:
            turn = heapq.heappop(self._queue)[2]
            if turn.reading.cost > DEAR_SECONDS:
                self._dear.append(turn)
                continue
            self._waiting.discard(turn.reading)
            if turn.reading.live:
                yield turn
        while self._dear and self._purse > 0:
            turn = self._dear.popleft()
            self._waiting.discard(turn.reading)
            if turn.reading.live:
                yield turn

    def done(self, turn: Turn, now: float, cost: float) -> None:
        """It was asked, which took ``cost`` seconds in the driver."""
        reading = turn.reading
        if max(reading.cost, cost) > DEAR_SECONDS:
            self._purse -= cost
        if cost:
            reading.cost = cost
        if not reading.live or (reading.pace is Pace.ONCE and not reading.failures):
            return
        # Until it is answered again it comes as often as others.
        period = PERIOD if reading.failures else _period(reading)
        due = now + period - (now - turn.moment) % period
        self._push(due, turn)

    def _push(self, due: float, turn: Turn) -> None:
        self._waiting.add(turn.reading)
        heapq.heappush(self._queue, (due, turn.number, turn))


def _period(reading: Reading) -> float:
    return _RARE_PERIOD if reading.pace is Pace.RARE else PERIOD
