"""Findings about a GPU or a process: one class each, with everything that is known of it.

A rule takes the history and a subject and returns a finding, ``False`` or, where a value is
unknown, ``None``. It reports only what was observed: a condition that held at the first sample is
reported as having held for "at least" that long. Conditions have to be followed in every sample;
the history keeps their intervals, so create it with ``History(conditions())``. To use other
thresholds, create it with ``History(conditions(thresholds), thresholds)``.
"""

from gpumon.findings.faults import is_of_the_past
from gpumon.findings.finding import (
    BRIEF_CELLS,
    SHORT_CELLS,
    Finding,
    FindingKind,
    Severity,
)
from gpumon.findings.memory import Account, memory_account
from gpumon.findings.registry import (
    RULES,
    Explanation,
    conditions,
    explain,
    gpu_answer,
    gpu_findings,
    gpu_state,
    process_findings,
)
from gpumon.findings.work import mig_state, not_free
from gpumon.model.thresholds import DEFAULTS, Thresholds

__all__ = [
    "BRIEF_CELLS",
    "DEFAULTS",
    "RULES",
    "SHORT_CELLS",
    "Account",
    "Explanation",
    "Finding",
    "FindingKind",
    "Severity",
    "Thresholds",
    "conditions",
    "explain",
    "gpu_answer",
    "gpu_findings",
    "gpu_state",
    "is_of_the_past",
    "memory_account",
    "mig_state",
    "not_free",
    "process_findings",
]
