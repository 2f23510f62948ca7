"""Queries to the driver: their state, rates and order, and the reaction to each NVML error.

Most queries take microseconds. A few block for 20 ms, so they have a budget of driver time:
``docs/decisions/0003-nvml.md``.
"""

from __future__ import annotations

import ctypes
import heapq
import struct
from collections import Counter, deque
from collections.abc import Callable
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import pynvml

from gpumon.makers.backend import GOLDEN, KEPT_SECONDS, PERIOD, SHARE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.makers.nvidia.gpu import NvmlGpu
    from gpumon.model.snapshot import Unknown

_RARE_PERIOD = 5 * PERIOD

EXPENSIVE_SECONDS = 0.002
"""Queries that cost more than this wait for the budget."""

_LEAST_ROOM = 512
"""Queue length below which stopped queries are not removed."""

_SILVER = 0.4142135623730951
"""Multiples of this spread evenly over the period, too: the same query of all GPUs by it, the
queries of one GPU by ``GOLDEN``."""


class Reaction(Enum):
    """The meaning of an error."""

    DRIVER = "the driver as a whole is gone, or was replaced"
    STALE = "the handle may be stale; if it is not, the GPU does not support the call"
    OTHER = "not supported: use the older call, and retry this one after a pause"
    REFUSED = "no permission: retry after a pause"
    EMPTY = "no error: there is no value"
    GPU = "the GPU is gone"
    PASSING = "temporary: keep the last value for a while, and call less often"
    FAILING = "temporary at first, then a sign of a defect"


REACTIONS: dict[int, Reaction] = {
    pynvml.NVML_ERROR_UNINITIALIZED: Reaction.DRIVER,
    pynvml.NVML_ERROR_INVALID_ARGUMENT: Reaction.STALE,
    pynvml.NVML_ERROR_NOT_SUPPORTED: Reaction.OTHER,
    pynvml.NVML_ERROR_NO_PERMISSION: Reaction.REFUSED,
    pynvml.NVML_ERROR_NOT_FOUND: Reaction.EMPTY,
    pynvml.NVML_ERROR_INSUFFICIENT_SIZE: Reaction.PASSING,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Reaction.DRIVER,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: Reaction.DRIVER,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Reaction.OTHER,
    pynvml.NVML_ERROR_GPU_IS_LOST: Reaction.GPU,
    pynvml.NVML_ERROR_RESET_REQUIRED: Reaction.GPU,
    pynvml.NVML_ERROR_OPERATING_SYSTEM: Reaction.REFUSED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Reaction.DRIVER,
    pynvml.NVML_ERROR_IN_USE: Reaction.PASSING,
    pynvml.NVML_ERROR_MEMORY: Reaction.PASSING,
    pynvml.NVML_ERROR_NO_DATA: Reaction.EMPTY,
    pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED: Reaction.OTHER,
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: Reaction.PASSING,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: Reaction.OTHER,
    pynvml.NVML_ERROR_DEPRECATED: Reaction.OTHER,
    pynvml.NVML_ERROR_NOT_READY: Reaction.PASSING,
}
"""By NVML's error code. All others count as UNKNOWN (999): ``FAILING``."""

PASSES = 3
"""How many UNKNOWN errors in a row still count as temporary."""

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 5.0

_PAUSES_AFTER_ANSWERS = (1.0, 5.0, 30.0, 60.0)
"""Seconds before a refused query that has succeeded before is retried, one entry per refusal."""
_PAUSES_WITHOUT_ANSWER = (10.0, 60.0, 300.0)
"""The same for a query that never succeeded. A GPU refuses about a dozen queries for ever: with the
last of these pauses, retries are below one percent of the calls."""


def pause_after(refusals: int, *, answered: bool) -> float:
    """Seconds to wait before a refused query is retried.

    Args:
        refusals: Number of refusals in a row, at least 1.
        answered: Whether it ever succeeded.
    """
    pauses = _PAUSES_AFTER_ANSWERS if answered else _PAUSES_WITHOUT_ANSWER
    return pauses[min(refusals, len(pauses)) - 1]


class PollRate(Enum):
    """How often a query is made."""

    ONCE = "until it succeeds"
    FAST = "every sample"
    DETAIL = "every sample if a listener keeps all values, else every second"
    SLOW = "every few seconds"
    RARE = "several times a minute"
    PROCESSES = "with the process lists"
    PROFILE = "every second while somebody watches or logs"


Ask = Callable[[], int]
"""Makes the call, stores the value if it succeeded, and returns NVML's code."""


class Query:
    """A query to one GPU.

    Attributes:
        names: The values that it reads.
        ask: Makes the call.
        rate: How often it is made.
        otherwise: The older query that replaces it while it is not supported.
        cost: Seconds in the driver the last time; an estimate before the first.
        failures: Errors in a row.
        refused: Why the GPU refuses it; ``None`` while it does not.
        refusals: Refusals in a row.
        answered: Whether it succeeded before the errors.
        retry_at: It is not made before this time, on the monotonic clock.
        live: False while it is stopped.
    """

    __slots__ = (
        "answered",
        "ask",
        "cost",
        "failing_since",
        "failures",
        "live",
        "names",
        "otherwise",
        "rate",
        "refusals",
        "refused",
        "retry_at",
    )

    def __init__(
        self,
        names: tuple[str, ...],
        ask: Ask,
        rate: PollRate,
        otherwise: Query | None = None,
        cost: float = 0.0,
    ) -> None:
        self.names = names
        self.ask = ask
        self.rate = rate
        self.otherwise = otherwise
        self.cost = cost
        self.failures = 0
        self.failing_since = 0.0
        self.refused: Unknown | None = None
        self.refusals = 0
        self.answered = False
        self.retry_at = 0.0
        self.live = True
        if otherwise is not None:
            otherwise.live = False

    def fail(self, now: float, forgiven: int) -> None:
        """Count an error; after ``forgiven`` errors the query is made less and less often."""
        if self.failures == 0:
            self.failing_since = now
        self.failures += 1
        if self.failures > forgiven:
            longer = 2 ** min(self.failures - forgiven - 1, 8)
            self.retry_at = now + min(_LONGEST_PAUSE, _FIRST_PAUSE * longer)

    def refuse(self, now: float, reason: Unknown) -> None:
        """Count a refusal: the query pauses, longer each time."""
        self.failures += 1
        self.refusals += 1
        self.refused = reason
        self.retry_at = now + pause_after(self.refusals, answered=self.answered)

    def recover(self) -> None:
        """Reset the counts after a success."""
        self.failures = self.refusals = 0
        self.refused = None

    def is_too_old(self, now: float) -> bool:
        """Whether the value from before the errors has expired."""
        return now - self.failing_since >= KEPT_SECONDS


class FieldQuery(Query):
    """A query of ``nvmlDeviceGetFieldValues``, which reads many fields in one call.

    Attributes:
        field: The field's number in nvml.h. Numbers above 250 are never used: their meaning
            changed between two driver branches.
        scope: The field's scope: a link, or all of them.
        keep: Stores the value of a type; returns ``SUCCESS``, or an error code if it is unusable.
    """

    __slots__ = ("field", "keep", "scope")

    ALL_LINKS = 0xFFFFFFFF

    def __init__(
        self,
        names: tuple[str, ...],
        field: int,
        keep: Callable[[int, float], int],
        rate: PollRate,
        otherwise: Query | None = None,
        scope: int = 0,
    ) -> None:
        super().__init__(names, lambda: pynvml.NVML_SUCCESS, rate, otherwise)
        self.field = field
        self.scope = scope
        self.keep = keep


ENTRY = struct.Struct("@IIqqIIQ")
"""``nvmlFieldValue_t``: field, scope, timestamp, latency, type of the value, code, value."""


class FieldBatch:
    """The fields of one GPU that are read together, into a buffer that is kept.

    ``pynvml.nvmlDeviceGetFieldValues`` makes all structures anew for each call, and its union hides
    the number of a type that it does not know.
    """

    def __init__(self, gpu: NvmlGpu) -> None:
        self._gpu = gpu
        self.queries: list[FieldQuery] = []
        self._asked: list[FieldQuery] = []
        self._prepare()

    def add(self, query: FieldQuery) -> None:
        """Include a field from the next call on."""
        self.queries.append(query)

    def ask(self) -> int:
        """Read all fields, and let the GPU settle each field's own code."""
        if self._asked != self.queries:
            self._prepare()
        if not self._asked:
            return 0
        gpu, count = self._gpu, ctypes.c_int(len(self._asked))
        code = gpu.call("nvmlDeviceGetFieldValues", gpu.handle, count, self._buffer)
        for query, entry in zip(self._asked, ENTRY.iter_unpack(self._buffer), strict=True):
            own_code = code or entry[5]
            if not own_code:
                own_code = query.keep(entry[4], decode(entry[4], entry[6]))
            if own_code or query.failures:
                gpu.settle(query, own_code)
        return 0

    def drop(self, query: FieldQuery) -> None:
        """Exclude a field from the next call on."""
        self.queries.remove(query)

    def _prepare(self) -> None:
        self._asked = list(self.queries)
        self._buffer = ctypes.create_string_buffer(ENTRY.size * len(self._asked))
        for i, query in enumerate(self._asked):
            ENTRY.pack_into(self._buffer, i * ENTRY.size, query.field, query.scope, 0, 0, 0, 0, 0)


def decode(kind: int, raw: int) -> float:
    """The number in the eight bytes of ``nvmlValue_t``.

    Args:
        kind: An ``nvmlValueType_t``; for an unknown type the result is ``raw``.
        raw: The eight bytes as an unsigned number.
    """
    if kind == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT:
        return raw & 0xFFFFFFFF
    if kind == pynvml.NVML_VALUE_TYPE_SIGNED_INT:
        return ctypes.c_int32(raw & 0xFFFFFFFF).value
    if kind == pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG:
        return ctypes.c_int64(raw).value
    if kind == pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT:
        return raw & 0xFFFF
    if kind == pynvml.NVML_VALUE_TYPE_DOUBLE:
        return ctypes.c_double.from_buffer_copy(ctypes.c_uint64(raw)).value
    return raw


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
