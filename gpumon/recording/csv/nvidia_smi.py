"""Where the CSV of ``nvidia-smi --query-gpu=… --format=csv`` differs from gpumon's.

Source: ``nvidia-smi --help-query-gpu`` and ``nvidia-smi(1)``. A space follows each comma, numbers
carry their unit unless ``nounits`` was requested, the time is local without a zone, some columns
have two names, and an unknown value is a word in brackets. A message may stand between the rows.
"""

from __future__ import annotations

import re
from functools import lru_cache

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

POWER = ("power.draw [W]", "power.draw.average [W]", "power.draw.instant [W]")
"""Columns with the power of a GPU, the best first: the first two are means of the last second where
the GPU has a mean. The columns ``module.power.draw…`` include the CPU of a Grace Hopper module."""

CLOCK_EVENT_BITS: dict[str, int] = {
    "gpu_idle": 0x01,
    "applications_clocks_setting": 0x02,
    "sw_power_cap": 0x04,
    "hw_slowdown": 0x08,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}
"""The bit that a column of a single clock event reason stands for."""
_CLOCK_EVENT_NAMES = ("clocks_event_reasons.", "clocks_throttle_reasons.")
"""Drivers before 535 have the second."""


def clock_event_bit(heading: str) -> int | None:
    """The bit of a column of a single clock event reason; ``None`` for any other column."""
    for prefix in _CLOCK_EVENT_NAMES:
        if heading.strip().startswith(prefix):
            return CLOCK_EVENT_BITS.get(heading.strip().removeprefix(prefix))
    return None


_NAMES = (
    r"(accounting|addressing|c2c|clocks|compute|count|display|driver|dram|ecc|encoder|enforced"
    r"|fabric|fan|gom|gpu|gsp|hostname|index|inforom|kmd|memory|mig|module|name|pci|pcie|persistence"
    r"|platform|power|protected|pstate|remapped|reset|retired|serial|temperature|timestamp"
    r"|utilization|uuid|vbios|vgpu)(_[a-z_]+)*(\.[A-Za-z0-9_.]+)?( \[(%|MiB|W|MHz|us|ms|s)\])?"
)


def is_smi_name(heading: str) -> bool:
    """Whether a heading looks like one of nvidia-smi, which has many that gpumon does not need."""
    return re.fullmatch(_NAMES, heading) is not None


UNKNOWN_WORDS: dict[str, Unknown] = {
    "n/a": Unknown.NOT_SUPPORTED,
    "not supported": Unknown.NOT_SUPPORTED,
    "not available": Unknown.NOT_SUPPORTED,
    "requested functionality has been deprecated": Unknown.NOT_SUPPORTED,
    "unknown error": Unknown.NO_ANSWER,
    "timeout": Unknown.NO_ANSWER,
    "err!": Unknown.NO_ANSWER,
    "insufficient permissions": Unknown.NO_PERMISSION,
}
"""What stands in place of a value, in small letters and without the brackets."""


_LOST_WORDS = ("gpu is lost", "gpu requires re", "reset required")
"""How the words of a GPU that is gone begin: some drivers add what to do, or ask for a restart."""

# Compiled at the first use: logs of gpumon need none of them.
_MESSAGES = (
    r"(?i)\s*(unable to determine the device handle|failed to initialize nvml|no devices were found"
    r"|nvidia-smi (has failed|couldn't)|warning: |field \".*\" is not a valid field|gpu is lost"
    r"|gpu [0-9a-f:.]+:? (is lost|requires re|has fallen off|detected critical xid)"
    r"|nvml library version: |(please )?also try adding directory that contains libnvidia-ml"
    r"|invalid combination of input arguments|unknown error\s*$"
    r"|.{0,200}nvidia-smi: ((command )?not found|error )|driver/library version mismatch)"
)
_HANDLE = (
    r"(?i)\s*(unable to determine the device handle for gpu"
    r"|gpu [0-9a-f:.]+:? (is lost|requires re|has fallen off))"
)
_INDEX = r"(?i)\s*(?:gpu (\d{1,3}):? |unable to determine the device handle for gpu ?(\d{1,3}): )"
_BUS_ID = r"([0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])"


@lru_cache(2048)
def unknown_word(cell: str) -> Unknown | None:
    """The reason for an unknown value from nvidia-smi's word; ``None`` for any other text."""
    word = cell.strip(" []").lower()
    if word.startswith(_LOST_WORDS):
        return Unknown.GPU_LOST
    return UNKNOWN_WORDS.get(word)


def is_message(line: str) -> bool:
    """Whether a line is a message of nvidia-smi, or of a shell that has none."""
    # Most lines are rows, which begin with a digit.
    return not line[:1].isdigit() and re.match(_MESSAGES, line) is not None


def is_lost_gpu(line: str) -> bool:
    """Whether a line is the message that stands in place of the row of a GPU."""
    return re.match(_HANDLE, line) is not None


def index_in(message: str) -> str:
    """The index of the GPU in a message such as ``GPU 2 requires reset``; empty without one."""
    found = re.match(_INDEX, message)
    return "" if found is None else found[1] or found[2]


def lost_cell(text: str) -> str:
    """The word of nvidia-smi for a GPU that is gone as a text says."""
    return "[GPU requires reset]" if "reset" in text.lower() else "[GPU is lost]"


def bus_id_in(text: str) -> str:
    """Bus, device and function in a text, without the domain; empty if there is none."""
    found = re.search(_BUS_ID, text)
    return "" if found is None else found[1].lower()
