"""The states that an alert can name."""

from __future__ import annotations

from gpumon.findings.finding import FindingKind as Kind

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
