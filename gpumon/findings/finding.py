"""The structure of a finding."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Literal, TypeAlias, final

from msgspec import Struct

from gpumon.model.processes import ProcessId  # noqa: TC001 - msgspec resolves annotations at run time

SHORT_CELLS = 32
"""The widest ``Finding.short``."""
BRIEF_CELLS = 10
"""The widest ``Finding.brief``."""


class Severity(IntEnum):
    """How much attention a finding needs."""

    QUIET = 0
    """All is well."""
    GOOD = 1
    """A GPU is free."""
    NOTE = 2
    """Worth knowing."""
    WARNING = 3
    """Something is probably wrong."""
    CRITICAL = 4
    """The GPU cannot be used."""

    @classmethod
    def _missing_(cls, _: object) -> Severity:
        # A newer gpumon on another machine has more.
        return cls.NOTE


class FindingKind(str, Enum):
    """The kinds of findings, in display order within one severity."""

    LOST = "lost"
    RESET_REQUIRED = "reset required"
    NO_ANSWER = "no answer"
    FAILING = "failing"
    MEMORY_ERRORS = "memory errors"
    RECOVERY = "recovery"
    HOT = "hot"
    THROTTLED = "throttled"
    XID = "xid"
    ACCIDENT = "accident"
    NVLINK_ERRORS = "nvlink errors"
    STUCK = "stuck"
    UNATTRIBUTED = "unattributed"
    BUSY_UNLISTED = "busy unlisted"
    IDLE_IN_JOB = "idle in job"
    IDLE = "idle"
    SLOW_LINK = "slow link"
    BUSY_EMPTY = "busy but empty"
    STARVED = "starved"
    SHARED = "shared"
    FILLING = "filling"
    SLOWED_LATELY = "slowed lately"
    REQUESTS_WAIT = "requests wait"
    SLOW_SERVER = "slow server"
    IDLE_PROCESS = "idle process"
    GROWING = "growing"
    PREALLOCATED = "preallocated"
    ALLOCATED = "allocated"
    RESERVED = "reserved"
    FULL = "full"
    MEMORY_BOUND = "memory-bound"
    OLD = "old values"
    NO_PERMISSION = "no permission"
    ASLEEP = "asleep"
    FREE = "free"
    WORKING = "working"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, _: object) -> FindingKind:
        # A newer gpumon on another machine has more words.
        return cls.UNKNOWN


@final
class Finding(Struct, frozen=True):
    """A statement about a GPU or a process."""

    kind: FindingKind
    subject: str | ProcessId
    """UUID of the GPU, or the process."""
    severity: Severity
    sentence: str
    short: str
    """For a column, at most ``SHORT_CELLS`` cells, safe to print."""
    brief: str
    """For a narrow screen, at most ``BRIEF_CELLS`` cells."""
    since: float | None = None
    """When it was first observed, in seconds since the epoch."""
    evidence: tuple[str, ...] = ()
    """The observations behind it, with their numbers."""


Answer: TypeAlias = Finding | Literal[False] | None
"""What a rule says: its finding, ``False`` if there is none, ``None`` if a value is unknown."""
