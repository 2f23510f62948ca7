"""What gpumon says of a card or a process: a rule a function, each with its evidence.

A rule takes the history and what it judges and gives a finding or ``None``. It claims only what was
seen: an unknown value makes no finding, and what held already when gpumon began to look is said to
have held "at least" since then. What has to be followed over time, in every sample, are the
conditions; the history keeps their spells, so make it with ``History(conditions())``. Where other
lines are to be drawn: ``History(conditions(thresholds), thresholds)``; rules judge by these.
"""

from gpumon.findings.cards import LASTING, RULES, card_findings, card_state
from gpumon.findings.conditions import conditions
from gpumon.findings.errors import PROGRAM_XIDS, XID_MEANINGS
from gpumon.findings.finding import (
    BRIEF_CELLS,
    SHORT_CELLS,
    Finding,
    FindingKind,
    Severity,
)
from gpumon.findings.memory import Account, memory_account
from gpumon.findings.processes import process_findings
from gpumon.findings.reservation import reservation_hint
from gpumon.findings.work import not_free
from gpumon.thresholds import DEFAULTS, Thresholds

__all__ = [
    "BRIEF_CELLS",
    "DEFAULTS",
    "LASTING",
    "PROGRAM_XIDS",
    "RULES",
    "SHORT_CELLS",
    "XID_MEANINGS",
    "Account",
    "Finding",
    "FindingKind",
    "Severity",
    "Thresholds",
    "card_findings",
    "card_state",
    "conditions",
    "memory_account",
    "not_free",
    "process_findings",
    "reservation_hint",
]
