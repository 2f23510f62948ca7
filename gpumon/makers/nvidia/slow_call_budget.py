"""Schedules slow queries of all GPUs within a budget of driver time.

Most slow queries take microseconds. A few block, 20 ms for each direction of PCIe traffic: sixteen
in a row would delay three ticks at ten samples a second.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from gpumon.makers.backend import GOLDEN, PERIOD, SHARE
from gpumon.makers.nvidia.queries import PollRate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.makers.nvidia.gpu import NvmlGpu
    from gpumon.makers.nvidia.queries import Query

_RARE_PERIOD = 5 * PERIOD

EXPENSIVE_SECONDS = 0.002
"""Queries that cost more than this wait for the budget."""

_LEAST_ROOM = 512
"""Queue length below which stopped queries are not removed."""

_SILVER = 0.4142135623730951
"""Multiples of this spread evenly over the period, too: the same query of all GPUs by it, the
queries of one GPU by ``GOLDEN``."""


class Turn(NamedTuple):
    """A slow query of a GPU."""

    number: int
    offset: float  # Seconds into the period.
    gpu: NvmlGpu
    query: Query


class SlowCallBudget:
    """A queue of slow queries.

    Cheap queries are made when they are due, each at its own offset in the period. Expensive ones
    use a budget that grows by ``SHARE`` of the elapsed time and never exceeds the growth since the
    last sample. At ten samples a second, a query of 20 ms is made at every fourth sample; with
    seconds between samples, several are made in one.
    """

    def __init__(self) -> None:
        self._numbers = count()
        self._asked: Counter[str] = Counter()
        self._queue: list[tuple[float, int, Turn]] = []
        self._waiting: set[Query] = set()
        self._expensive: deque[Turn] = deque()
        self._room = _LEAST_ROOM
        self._budget = 0.0
        self._filled_at: float | None = None

    def add(self, gpu: NvmlGpu, query: Query) -> None:
        """Make a query as soon as possible, and then regularly."""
        if query in self._waiting:
            # It was stopped and added again before its turn.
            return
        number, number_of_gpu = next(self._numbers), self._asked[gpu.uuid]
        self._asked[gpu.uuid] += 1
        if len(self._queue) >= self._room:
            self._drop_stopped()
        offset = (number_of_gpu * GOLDEN + gpu.index * _SILVER) % 1 * _period(query)
        self._push(0.0, Turn(number, offset, gpu, query))

    def _drop_stopped(self) -> None:
        """Remove stopped queries: a driver that fails repeatedly leaves many of them."""
        self._queue = [entry for entry in self._queue if entry[2].query.live]
        heapq.heapify(self._queue)
        self._waiting = {turn.query for turn in self._expensive}
        self._waiting.update(turn.query for _, _, turn in self._queue)
        self._room = max(_LEAST_ROOM, 2 * len(self._queue))

    def take(self, now: float) -> Iterator[Turn]:
        """The queries to make now; ``done`` must be called after each of them.

        Args:
            now: Seconds on the monotonic clock.
        """
        income = 0.0 if self._filled_at is None else (now - self._filled_at) * SHARE
        self._filled_at = now
        self._budget = min(self._budget + income, income)
        while self._queue and self._queue[0][0] <= now:
            turn = heapq.heappop(self._queue)[2]
            if turn.query.cost > EXPENSIVE_SECONDS:
                self._expensive.append(turn)
                continue
            self._waiting.discard(turn.query)
            if turn.query.live:
                yield turn
        while self._expensive and self._budget > 0:
            turn = self._expensive.popleft()
            self._waiting.discard(turn.query)
            if turn.query.live:
                yield turn

    def done(self, turn: Turn, now: float, cost: float) -> None:
        """Reschedule a query that took ``cost`` seconds in the driver."""
        query = turn.query
        if max(query.cost, cost) > EXPENSIVE_SECONDS:
            self._budget -= cost
        if cost:
            query.cost = cost
        if not query.live or (query.rate is PollRate.ONCE and not query.failures):
            return
        # A rare query that fails is retried at the usual period.
        period = PERIOD if query.failures else _period(query)
        due = now + period - (now - turn.offset) % period
        self._push(due, turn)

    def _push(self, due: float, turn: Turn) -> None:
        self._waiting.add(turn.query)
        heapq.heappush(self._queue, (due, turn.number, turn))


def _period(query: Query) -> float:
    return _RARE_PERIOD if query.rate is PollRate.RARE else PERIOD
