"""The states that an alert can name, and whether a GPU or a process is in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.findings.finding import FindingKind as Kind
from gpumon.findings.status import STATUS_KINDS
from gpumon.model.snapshot import ANSWERING, Unknown

if TYPE_CHECKING:
    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history import History

PROCESS_STATES = frozenset({Kind.IDLE_PROCESS, Kind.GROWING})
"""The states of processes; all others are of GPUs."""
FORECASTS = frozenset({Kind.GROWING, Kind.FILLING})
"""States that look ahead: they begin before they can be seen."""

_NOT_OFFERED = frozenset({Kind.XID, Kind.PREALLOCATED, Kind.WORKING, Kind.UNKNOWN})
"""XIDs are events; the others say nothing, or need a look into the process."""
_OTHER_NAMES: dict[Kind, tuple[str, ...]] = {
    Kind.LOST: ("gone",),
    Kind.RESET_REQUIRED: ("reset",),
    Kind.NO_ANSWER: ("hangs",),
    Kind.MEMORY_ERRORS: ("ecc", "ecc errors"),
    Kind.HOT: ("heat", "too hot"),
    Kind.THROTTLED: ("slowed down", "throttling"),
    Kind.STUCK: ("hung", "hung job"),
    Kind.IDLE_PROCESS: ("process idle",),
    Kind.GROWING: ("memory growing",),
    Kind.FULL: ("memory full",),
}


def plain_name(text: str) -> str:
    """A name as it is compared: small letters, with spaces for ``-`` and ``_``."""
    return " ".join(text.replace("-", " ").replace("_", " ").casefold().split())


STATE_NAMES: dict[str, Kind] = {plain_name(kind.value): kind for kind in Kind} | {
    name: kind for kind, names in _OTHER_NAMES.items() for name in names
}
"""The states by every name, as ``plain_name`` writes it."""
for _kind in _NOT_OFFERED:
    del STATE_NAMES[plain_name(_kind.value)]

OFFERED = tuple(kind.value for kind in Kind if kind in STATE_NAMES.values())
"""The usual names of the states, for messages."""

_PROCESSES = "processes"
_NEEDED: dict[Kind, tuple[str, ...]] = {
    Kind.MEMORY_ERRORS: ("ecc_uncorrected_volatile", "remapped_rows_pending"),
    Kind.HOT: ("temperature_gpu",),
    Kind.THROTTLED: ("clock_event_reasons",),
    Kind.STUCK: ("utilization_gpu", "power_draw"),
    Kind.UNATTRIBUTED: ("memory_used", _PROCESSES),
    Kind.BUSY_UNLISTED: ("utilization_gpu", _PROCESSES),
    Kind.IDLE_IN_JOB: ("utilization_gpu", _PROCESSES),
    Kind.IDLE: ("utilization_gpu", _PROCESSES),
    Kind.SLOW_LINK: ("utilization_gpu", "pcie_generation", "pcie_width"),
    Kind.BUSY_EMPTY: ("utilization_gpu", "sm_active"),
    Kind.STARVED: ("utilization_gpu", _PROCESSES),
    Kind.SHARED: (_PROCESSES,),
    Kind.FILLING: ("memory_used",),
    Kind.MEMORY_BOUND: ("utilization_gpu", "dram_active"),
    Kind.SLOWED_LATELY: ("clock_event_reasons",),
    Kind.FULL: ("memory_free", "memory_total"),
    Kind.FREE: ("utilization_gpu", "memory_used", _PROCESSES),
}
"""The values without which it is unknown whether a GPU is in a state."""
_NEVER = frozenset(
    {Unknown.NOT_SUPPORTED, Unknown.NO_PERMISSION, Unknown.NOT_EXPORTED, Unknown.NOT_RECORDED}
)
"""Reasons that do not pass: the rules do without such a value."""


def absent(history: History, gpu: Gpu, kind: Kind) -> bool | None:
    """Whether a GPU is not in a state, given that its findings do not have it.

    Returns:
        ``False``, or ``None`` if it is unknown: a GPU that does not answer is neither hot nor cool.
    """
    if gpu.status not in ANSWERING:
        return None
    if kind in STATUS_KINDS:
        return False
    if history.old(gpu) is not None:
        return None
    for field in _NEEDED.get(kind, ()):
        if field == _PROCESSES:
            if history.holding(gpu) is None and gpu.unknown.get(field) not in _NEVER:
                return None
        elif getattr(gpu, field) is None and gpu.unknown.get(field) not in _NEVER:
            return None
    return False
