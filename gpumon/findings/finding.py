"""What a finding is."""

from __future__ import annotations

from enum import Enum, IntEnum

from msgspec import Struct

from gpumon.model import ProcessId  # noqa: TC001 - msgspec resolves annotations at run time

SHORT_CELLS = 32
"""The widest ``Finding.short``."""
BRIEF_CELLS = 10
"""The widest ``Finding.brief``."""


class Severity(IntEnum):
    """How much a finding asks for the eye."""

    QUIET = 0
    """All is well."""
    GOOD = 1
    """Something to take: a free card."""
    NOTE = 2
    """Worth knowing."""
    WARNING = 3
    """Something is probably wrong."""
    CRITICAL = 4
    """The card cannot be used."""


class FindingKind(str, Enum):
    """What is found, in the order in which those of one severity are shown."""

    LOST = "lost"
    RESET_REQUIRED = "reset required"
    NO_ANSWER = "no answer"
    FAILING = "failing"
    MEMORY_ERRORS = "memory errors"
    RECOVERY = "recovery"
    HOT = "hot"
    THROTTLED = "throttled"
    XID = "xid"
    STUCK = "stuck"
    UNATTRIBUTED = "unattributed"
    BUSY_UNLISTED = "busy unlisted"
    IDLE = "idle"
    IDLE_PROCESS = "idle process"
    GROWING = "growing"
    RESERVED = "reserved"
    LOCKED = "locked"
    FULL = "full"
    OLD = "old values"
    NO_PERMISSION = "no permission"
    ASLEEP = "asleep"
    FREE = "free"
    WORKING = "working"
    UNKNOWN = "unknown"


class Finding(Struct, frozen=True):
    """Something that is said of a card or a process.

    Attributes:
        kind: What.
        subject: UUID of the card, or the process.
        severity: How much it asks for the eye.
        sentence: The whole of it, for the details.
        short: For a column, at most ``SHORT_CELLS`` cells, safe to print.
        brief: For a narrow screen, at most ``BRIEF_CELLS`` cells.
        since: Since when, as far as was seen; seconds since the epoch.
        evidence: The facts behind it, with their numbers.
    """

    kind: FindingKind
    subject: str | ProcessId
    severity: Severity
    sentence: str
    short: str
    brief: str
    since: float | None = None
    evidence: tuple[str, ...] = ()
