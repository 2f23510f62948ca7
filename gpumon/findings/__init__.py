"""Findings about a GPU or a process: one function per rule, each with its evidence.

A rule takes the history and a subject and returns a finding or ``None``. It reports only what was
observed: an unknown value gives no finding, and a condition that held at the first sample is
reported as having held for "at least" that long. Conditions have to be followed in every sample;
the history keeps their intervals, so create it with ``History(conditions())``. To use other
thresholds, create it with ``History(conditions(thresholds), thresholds)``.
"""

from gpumon.findings.conditions import conditions
from gpumon.findings.errors import is_of_the_past
from gpumon.findings.explanations import Explanation, explain
from gpumon.findings.finding import (
    BRIEF_CELLS,
    SHORT_CELLS,
    Finding,
    FindingKind,
    Severity,
)
from gpumon.findings.gpu_rules import LASTING, RULES, gpu_answer, gpu_findings, gpu_state
from gpumon.findings.memory import Account, memory_account
from gpumon.findings.process_rules import process_findings
from gpumon.findings.work import mig_state, not_free
from gpumon.model.thresholds import DEFAULTS, Thresholds

__all__ = [
    "BRIEF_CELLS",
    "DEFAULTS",
    "LASTING",
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
