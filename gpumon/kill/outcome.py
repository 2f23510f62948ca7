"""Outcomes for the terminated processes and their memory."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from gpumon.host.process_host import ProcessStatus, Refusal, Target  # noqa: TC001 - msgspec resolves them
from gpumon.model.processes import UnlistedHolder  # noqa: TC001 - msgspec resolves annotations at run time

PATIENCE = 5.0
"""Seconds after a signal until SIGKILL is offered."""

TOLERANCE = 64 * 2**20
"""Missing bytes that are tolerated without a search for their holder. Libraries of other processes
allocate this much at any time (cuBLAS: a workspace of 32 MiB on Hopper), and their process list is
not read at the same time as the GPU's memory."""


class Outcome(str, Enum):
    """The outcome for a process."""

    WAITING = "waiting"
    """The signal was sent and it has not ended yet."""
    ENDED = "ended"
    GONE = "already gone"
    """It had ended before the signal was sent."""
    REFUSED = "refused"
    """No signal was sent; ``TargetOutcome.refusal`` says why."""
    UNKNOWN = "unknown"
    """It got a signal, or may have got one, and its machine cannot be asked any more."""


class TargetOutcome(Struct, frozen=True):
    """The outcome for one process, with details.

    Attributes:
        target: The process.
        outcome: The outcome.
        late: Whether it was found only during the session: a child forked meanwhile.
        signal: The last signal sent to it.
        refusal: Why no signal was sent.
        sentence: More for the user than the outcome says: its owner, what it waits for, which
            process has to reap it.
        status: Its status while it has not exited.
        seconds: Seconds from the first signal to its exit.
    """

    target: Target
    outcome: Outcome
    late: bool = False
    signal: int | None = None
    refusal: Refusal | None = None
    sentence: str = ""
    status: ProcessStatus | None = None
    seconds: float | None = None


class MemoryReclaimed(Struct, frozen=True):
    """The memory of one GPU since the first signal.

    Attributes:
        gpu_uuid: The GPU.
        gpu_index: Its index.
        expected: Bytes that the targets held there; ``None`` if unknown.
        before: Bytes in use when the first signal was sent.
        now: Bytes in use now; ``None`` while the GPU does not report it.
        others: Bytes that other processes on the GPU allocated meanwhile, by the driver's list;
            negative if they freed memory; ``None`` if unknown.
        remaining: Unlisted processes that have the device file open, relatives of the targets
            first; scanned for if memory is missing. Without monitors and children of processes that
            continue.
        settled: Whether ``now`` is not expected to change any more: two equal values, complete, or
            waited long enough. A GPU with missing memory is still observed.
        listed: PIDs of exited targets that the driver still lists on the GPU.
    """

    gpu_uuid: str
    gpu_index: int
    expected: int | None
    before: int
    now: int | None
    others: int | None = None
    remaining: tuple[UnlistedHolder, ...] = ()
    settled: bool = False
    listed: tuple[int, ...] = ()

    @property
    def returned(self) -> int | None:
        """Bytes reclaimed, whatever others did; negative if they allocated more unobserved."""
        return None if self.now is None else self.before - self.now + (self.others or 0)

    @property
    def missing(self) -> int | None:
        """Bytes that should have been reclaimed and were not."""
        if self.expected is None or self.returned is None:
            return None
        return min(self.expected, max(0, self.expected - self.returned))

    @property
    def open(self) -> bool:
        """Whether a newer snapshot may change the result."""
        return not self.settled or self.short or self.now is None

    @property
    def short(self) -> bool:
        """Whether so much is missing that a process must hold it."""
        return self.missing is not None and self.missing > TOLERANCE


class TerminationReport(Struct, frozen=True):
    """The state of a termination session.

    Attributes:
        signal: The last signal sent; 0 before the first.
        seconds: Seconds since that signal.
        outcomes: The outcome of each process, in the order of sending.
        memory: The memory of the GPUs concerned, by index.
        offers_kill: Whether some targets are still alive ``PATIENCE`` seconds after the last
            signal.
        done: Whether nothing is left to wait for.
        unlogged: Why the audit log lacks sent signals; empty if it is complete.
        name: What the targets are together, such as a job; may be empty.
    """

    signal: int
    seconds: float
    outcomes: tuple[TargetOutcome, ...]
    memory: tuple[MemoryReclaimed, ...] = ()
    offers_kill: bool = False
    done: bool = False
    unlogged: str = ""
    name: str = ""
