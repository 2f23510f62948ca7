"""Ending processes, and staying with them until the memory is back or it is known why not."""

from gpumon.kill.outcome import (
    PATIENCE,
    TOLERANCE,
    MemoryReclaimed,
    Outcome,
    TargetOutcome,
    TerminationReport,
)
from gpumon.kill.session import TerminationSession

__all__ = [
    "PATIENCE",
    "TOLERANCE",
    "MemoryReclaimed",
    "Outcome",
    "TargetOutcome",
    "TerminationReport",
    "TerminationSession",
]
