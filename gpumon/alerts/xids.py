"""Which XIDs an alert tells, and what it says of them."""

from __future__ import annotations

from msgspec import Struct

from gpumon.findings.finding import Severity
from gpumon.sources.maker_words import ErrorSeverity, error_code

_ORDER = (
    ErrorSeverity.BY_PROGRAM,
    ErrorSeverity.NOTE,
    ErrorSeverity.WARNING,
    ErrorSeverity.CRITICAL,
)
"""From the least to the most severe."""
WORTH_TELLING = ErrorSeverity.WARNING
"""The least severe XIDs that ``xid`` alone tells."""
SEVERITY_WORDS: dict[str, ErrorSeverity] = {
    "critical": ErrorSeverity.CRITICAL,
    "warning": ErrorSeverity.WARNING,
    "note": ErrorSeverity.NOTE,
    "all": ErrorSeverity.BY_PROGRAM,
}
"""The words after ``xid``, each with the least severe XIDs that it tells."""


class XidChoice(Struct, frozen=True):
    """A choice of XIDs: by severity, by number, or both.

    Attributes:
        least: The least severe ones; ``None`` for those of ``numbers`` only.
        numbers: Further ones.
    """

    least: ErrorSeverity | None
    numbers: frozenset[int]

    def includes(self, number: int) -> bool:
        """Whether it is one of them. A number that no table has counts as the least severe."""
        if number in self.numbers:
            return True
        if self.least is None:
            return False
        severity = error_code(number).severity or ErrorSeverity.BY_PROGRAM
        return _ORDER.index(severity) >= _ORDER.index(self.least)


def xid_severity(number: int) -> Severity:
    """How much attention an XID needs."""
    severity = error_code(number).severity
    if severity is ErrorSeverity.CRITICAL:
        return Severity.CRITICAL
    return Severity.WARNING if severity is ErrorSeverity.WARNING else Severity.NOTE


def xid_sentence(number: int) -> str:
    """What an XID means, and what to do about it."""
    code = error_code(number)
    advice = f"; {code.advice}" if code.advice else ""
    return f"{code.label}: {code.explanation}{advice}"
