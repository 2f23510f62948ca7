"""Where the CSV of ``nvidia-smi --query-gpu=… --format=csv`` differs from gpumon's.

Source: ``nvidia-smi --help-query-gpu`` and ``nvidia-smi(1)``. A space follows each comma, numbers
carry their unit unless ``nounits`` was requested, the time is local without a zone, some columns
have two names, and an unknown value is a word in brackets.
"""

from __future__ import annotations

from gpumon.model.snapshot import Unknown

OTHER_NAMES: dict[str, str] = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.gr": "clocks.current.graphics",
    "clocks.video": "clocks.current.video",
    "clocks.max.mem": "clocks.max.memory",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks_throttle_reasons.active": "clocks_event_reasons.active",
    "pcie.link.gen.current": "pcie.link.gen.gpucurrent",
}
"""Names that mean the same column, of which a log writes the second."""

UNKNOWN_WORDS: dict[str, Unknown] = {
    "n/a": Unknown.NOT_SUPPORTED,
    "not supported": Unknown.NOT_SUPPORTED,
    "not available": Unknown.NOT_SUPPORTED,
    "unknown error": Unknown.NO_ANSWER,
    "err!": Unknown.NO_ANSWER,
    "insufficient permissions": Unknown.NO_PERMISSION,
    "gpu requires reset": Unknown.GPU_LOST,
    "gpu is lost": Unknown.GPU_LOST,
}
"""What stands in place of a value, in small letters and without the brackets."""


def unknown_word(cell: str) -> Unknown | None:
    """The reason for an unknown value from nvidia-smi's word; ``None`` for any other text."""
    return UNKNOWN_WORDS.get(cell.strip(" []").lower())
