"""One GPU: its handle, its values, and its reaction to the driver's errors."""

from __future__ import annotations

import ctypes
import math
from functools import partial
from typing import TYPE_CHECKING

import pynvml

from gpumon.makers.backend import COMPUTE, DRIVER_FIELDS, REASON_OF_STATUS, Answers, BackendGpu
from gpumon.makers.nvidia import MAKER
from gpumon.makers.nvidia.queries import (
    PASSES,
    REACTIONS,
    FieldBatch,
    FieldQuery,
    PollRate,
    Query,
    Reaction,
)
from gpumon.model.metrics import Tier
from gpumon.model.snapshot import GPU_METRICS, GpuStatus, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.makers.nvidia.gpm import GpmSampler
    from gpumon.makers.nvidia.library import Library
    from gpumon.system.system import Clock

STATUS_OF_CODE: dict[int, GpuStatus] = {
    pynvml.NVML_ERROR_GPU_IS_LOST: GpuStatus.LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED: GpuStatus.RESET_REQUIRED,
    pynvml.NVML_ERROR_NO_PERMISSION: GpuStatus.NO_PERMISSION,
    pynvml.NVML_ERROR_OPERATING_SYSTEM: GpuStatus.NO_PERMISSION,
}
"""The status of a GPU whose handle cannot be obtained; for any other code it is ``FAILING``."""

_FAILURE_RATES = (PollRate.FAST, PollRate.DETAIL)
"""The poll rates of the queries whose errors make a GPU ``FAILING``."""

DYNAMIC_FIELDS: tuple[str, ...] = (
    *(
        metric.field
        for metric in GPU_METRICS
        if metric.tier is not Tier.STATIC and metric.field not in {"xid", "xid_at"}
    ),
    "fan_speeds",
)
"""The fields that are unknown while a GPU does not respond."""


_NEVER_REPORTED = {
    metric.field: Unknown.NOT_SUPPORTED for metric in GPU_METRICS if not metric.is_for(MAKER)
}


class _GoneError(Exception):
    """Something no longer responds.

    Attributes:
        code: NVML's error code.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class DriverGoneError(_GoneError):
    """The driver as a whole no longer responds."""


class GpuGoneError(_GoneError):
    """A GPU no longer responds."""


class StaleHandleError(Exception):
    """A handle no longer refers to its GPU: the GPUs must be enumerated again."""


class NvmlGpu(BackendGpu):
    """A GPU, identified by its UUID: ``index-N`` if its handle could never be obtained.

    Attributes:
        handle: NVML's handle; always the same object, because queries hold it.
        lists: Its process lists; see ``processes``.
        may_sleep: Whether the kernel may power it down.
        mig_handles: NVML's handles of its MIG devices, in the same order.
        mig_changed: MIG was switched on or off: all queries must start again.
        resume_at: When the next suspended query is due.
        fast: Queries of every sample.
        details: Queries of every sample if a listener keeps all values, else of every second.
        slow: Queries that take turns with those of other GPUs.
        process_lists: Queries of its processes.
        profile: Queries for how much of it works.
        mig_shares: What they report of its GPU instances, by their ids.
    """

    def __init__(
        self,
        library: Library,
        clock: Clock,
        uuid: str,
        index: int,
        add_slow_call: Callable[[NvmlGpu, Query], None],
    ) -> None:
        super().__init__(uuid, index, clock, Answers(DRIVER_FIELDS))
        self.handle = ctypes.c_void_p()
        self.lists = Answers()
        self.may_sleep = False
        self.mig_handles: tuple[ctypes.c_void_p, ...] = ()
        self.mig_changed = False
        self.call = partial(library.call, uuid)
        self.prepared = partial(library.prepared, uuid)
        self.reader = partial(library.reader, uuid)
        self.ask_driver = partial(library.ask, uuid)
        self.text = partial(library.text, uuid)
        self.has = library.has
        self._hanging = library.hanging
        self.fast: list[Query] = []
        self.details: list[Query] = []
        self.slow: list[Query] = []
        self.process_lists: list[Query] = []
        self.profile: list[Query] = []
        self._by_rate = {
            PollRate.FAST: self.fast,
            PollRate.DETAIL: self.details,
            PollRate.ONCE: self.slow,
            PollRate.SLOW: self.slow,
            PollRate.RARE: self.slow,
            PollRate.PROCESSES: self.process_lists,
            PollRate.PROFILE: self.profile,
        }
        self.mig_shares: dict[int | None, dict[str, float | None]] = {}
        self._gpm: GpmSampler | None = None
        self.resume_at = math.inf
        self._suspended: list[Query] = []
        self._add_slow_call = add_slow_call
        self._batches: dict[PollRate, FieldBatch] = {}
        self._broken: set[Query] = set()
        self._details_read = False

    @property
    def bus_id(self) -> str | None:
        """Its PCI bus ID, as NVML or the kernel writes it."""
        return self.answers.values["pci_bus_id"]

    # Queries

    def begin(self) -> None:
        """Reset it to the state of a GPU that was just found."""
        self.stop_asking()
        self.answers.unknown = _NEVER_REPORTED
        self.answers.miss(DYNAMIC_FIELDS, None)
        self.lists = Answers()
        self.mig, self.mig_handles = (), ()
        self.mig_changed = False
        self._details_read = False

    def stop_asking(self) -> None:
        """Drop all queries, and the errors counted with them."""
        for queries in self._by_rate.values():
            for query in queries:
                query.live = False
            queries.clear()
        for batch in self._batches.values():
            for query in batch.queries:
                query.live = False
        self.mig_shares = {}
        if self._gpm is not None:
            self._gpm.free()
            self._gpm = None
        self._suspended, self.resume_at = [], math.inf
        self._batches = {}
        self._broken = set()

    def profile_with(self, gpm: GpmSampler) -> None:
        """Ask how much of it works from now on."""
        self._gpm = gpm
        for query in gpm.queries:
            self.add_query(query)

    def hangs(self) -> bool:
        """Whether a call that reads it was given up and has not returned."""
        return self.uuid in self._hanging

    def add_query(self, query: Query) -> None:
        """Make a query from now on, at its poll rate."""
        query.live = True
        if isinstance(query, FieldQuery):
            self._batch(query.rate).add(query)
            return
        queries = self._by_rate[query.rate]
        queries.append(query)
        if queries is self.slow:
            self._add_slow_call(self, query)

    def _batch(self, rate: PollRate) -> FieldBatch:
        batch = self._batches.get(rate)
        if batch is None:
            batch = self._batches[rate] = FieldBatch(self)
            self.add_query(Query((), batch.ask, rate))
        return batch

    def ask_about_processes_again(self) -> None:
        """Retry refused process lists: MIG devices now allow another way."""
        for query in self._suspended:
            if query.rate is PollRate.PROCESSES:
                query.retry_at = self.resume_at = -math.inf

    def resume(self, now: float) -> None:
        """Retry the suspended queries that are due."""
        resumed = [query for query in self._suspended if query.retry_at <= now]
        self._suspended = [query for query in self._suspended if query.retry_at > now]
        self._update_resume_time()
        for query in resumed:
            self.add_query(query)

    def _update_resume_time(self) -> None:
        self.resume_at = min((query.retry_at for query in self._suspended), default=math.inf)

    def _drop(self, query: Query) -> None:
        """Stop a query."""
        query.live = False
        self._broken.discard(query)
        if isinstance(query, FieldQuery) and query in self._batches[query.rate].queries:
            self._batches[query.rate].drop(query)
        for queries in (self._by_rate[query.rate], self._suspended):
            if query in queries:
                queries.remove(query)

    # Calls

    def ask(self, query: Query, now: float) -> Query | None:
        """Make a query if it is due.

        Returns:
            The older query that replaces it from now on, if any.

        Raises:
            DriverGoneError: The driver is gone.
            GpuGoneError: This GPU is gone.
            StaleHandleError: The handle no longer refers to a GPU.
        """
        if query.retry_at > now:
            return None
        code = query.ask()
        return self.settle(query, code) if code or query.failures else None

    def ask_all(self, queries: list[Query], now: float) -> None:
        """Put these queries, and the older ones that replace them. Raises as ``ask`` does."""
        pending = list(queries)
        for query in pending:
            # The same as ``ask``, inlined: this runs a thousand times a second.
            if query.retry_at > now:
                continue
            code = query.ask()
            if not code and not query.failures:
                continue
            older = self.settle(query, code)
            # A field is read with the next batch.
            if older is not None and not isinstance(older, FieldQuery):
                pending.append(older)

    def read_fast(self, now: float, *, details: bool) -> None:
        """Make the queries of every sample. Raises as ``ask`` does."""
        # After a restart no value is known yet.
        details = details or not self._details_read
        self.ask_all(self.fast + self.details if details else self.fast, now)
        self._details_read = True
        self.sampled_at = self.clock.time()
        self._update_status()

    def settle(self, query: Query, code: int) -> Query | None:
        """React to the code of a query. Returns and raises as ``ask`` does."""
        answers = self.lists if query.rate is PollRate.PROCESSES else self.answers
        if not code:
            self._recover(query, answers)
            return None
        if not query.failures and not query.answered:
            query.answered = any(answers.values.get(name) is not None for name in query.names)
        reaction = REACTIONS.get(code, Reaction.FAILING)
        if reaction is Reaction.DRIVER:
            raise DriverGoneError(code)
        if reaction is Reaction.GPU:
            raise GpuGoneError(code)
        if reaction is Reaction.STALE:
            if self.handle_is_stale():
                raise StaleHandleError
            reaction = Reaction.OTHER
        if reaction is Reaction.OTHER:
            return self._suspend(query, answers, Unknown.NOT_SUPPORTED)
        if reaction is Reaction.REFUSED:
            return self._suspend(query, answers, Unknown.NO_PERMISSION)
        if query.refused is not None and reaction is not Reaction.EMPTY:
            return self._suspend(query, answers, query.refused)
        if reaction is Reaction.EMPTY:
            self._recover(query, answers)
            answers.miss(query.names, None)
        else:
            self._fail(query, answers, passing=reaction is Reaction.PASSING)
        return None

    def _suspend(self, query: Query, answers: Answers, reason: Unknown) -> Query | None:
        """Suspend a refused query for a while, and use the older one meanwhile."""
        known, older = query.refused is reason, query.otherwise
        self._drop(query)
        query.refuse(self.clock.monotonic(), reason)
        self._suspended.append(query)
        self._update_resume_time()
        if known:
            # The values of the older query stay.
            return None
        answers.miss(query.names, reason)
        if reason is not Unknown.NOT_SUPPORTED:
            self._drop_older(query)
            return None
        if older is None:
            return None
        # The reason of the newer query does not apply to the older one.
        answers.found(older.names)
        self.add_query(older)
        return older

    def _fail(self, query: Query, answers: Answers, *, passing: bool) -> None:
        now = self.clock.monotonic()
        query.fail(now, forgiven=0 if passing else PASSES)
        nothing_kept = all(answers.values.get(name) is None for name in query.names)
        given_up = query.failures >= PASSES
        if (nothing_kept or query.is_too_old(now)) if passing else given_up:
            answers.miss(query.names, Unknown.NO_ANSWER)
            self._broken.add(query)

    def _recover(self, query: Query, answers: Answers) -> None:
        if query in self._broken or query.refused is not None:
            self._broken.discard(query)
            answers.found(query.names)
        query.recover()
        self._drop_older(query)

    def _drop_older(self, query: Query) -> None:
        while (older := query.otherwise) is not None:
            self._drop(older)
            older.recover()
            query = older

    def handle_is_stale(self) -> bool:
        """Whether the handle no longer refers to this GPU."""
        code, uuid = self.text(pynvml.nvmlDeviceGetUUID, self.handle)
        return code == pynvml.NVML_ERROR_INVALID_ARGUMENT or (not code and uuid != self.uuid)

    # State

    def _update_status(self) -> None:
        """Mark the GPU as failing while most of its fast queries fail."""
        if not self._broken and self.status is GpuStatus.OK:
            return
        batches = [self._batches[rate] for rate in _FAILURE_RATES if rate in self._batches]
        fields = [query for batch in batches for query in batch.queries]
        asked = {*self.fast, *self.details, *fields}
        failing = 2 * len(self._broken & asked) > len(asked)
        self.set_status(GpuStatus.FAILING if failing else GpuStatus.OK)

    def stop_responding(self, status: GpuStatus) -> None:
        """Stop all queries: dynamic values become unknown, static ones stay."""
        self.set_status(status)
        self.stop_asking()
        reason = REASON_OF_STATUS[status]
        moving = tuple(name for name in DYNAMIC_FIELDS if self.answers.unknown.get(name) != reason)
        if moving:
            self.answers.miss(moving, reason)
        self.lists = Answers()
        self.lists.miss((COMPUTE,), reason)
        self.mig, self.mig_handles = (), ()

    @property
    def processes_unknown(self) -> Unknown | None:
        """Why its processes are unknown: because the compute list is."""
        if self.lists.values.get(COMPUTE) is not None:
            return None
        return self.lists.unknown.get(COMPUTE, Unknown.NOT_READ)
