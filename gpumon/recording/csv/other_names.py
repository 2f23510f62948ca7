"""The headings of logs that scripts and other programs wrote, as names of gpumon's columns.

Scripts write nvidia-smi's names with other marks between the words, in another order of the words,
or with the unit at the end. A name counts only if its meaning is certain, and so does its unit.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpumon.model.metrics import Unit
from gpumon.recording.csv.columns import column_name, readable_column, readable_columns
from gpumon.recording.csv.nvidia_smi import OTHER_NAMES

_UNITS: dict[Unit, dict[str, float]] = {
    # nvidia-smi wrote MB for MiB before 2013, and scripts still do.
    Unit.BYTES: {"mib": 1, "mb": 1, "gib": 1024, "gb": 1024, "kib": 2**-10, "bytes": 2**-20},
    Unit.PERCENT: {"%": 1, "pct": 1, "percent": 1},
    Unit.CELSIUS: {"c": 1, "°c": 1, "celsius": 1, "degc": 1, "deg": 1},
    Unit.WATTS: {"w": 1, "watt": 1, "watts": 1, "mw": 0.001},
    Unit.MEGAHERTZ: {"mhz": 1, "ghz": 1000},
}  # fmt: skip
"""Units in headings, and what to multiply a number with for the unit of the column."""

_WORDS = {
    "timestamp": ("time", "datetime", "date time", "date", "time stamp", "unix time", "epoch"),
    "index": ("gpu", "gpu index", "gpu id", "gpu idx", "gpu number", "device", "device id"),
    "name": ("gpu name", "device name", "gpu type", "model"),
    "uuid": ("gpu uuid",),
    "utilization.gpu [%]": ("gpu utilization", "gpu util", "util gpu", "utilization", "gpu usage"),
    "utilization.memory [%]": ("memory utilization", "mem util", "util memory", "utilization mem"),
    "memory.used [MiB]": ("used memory", "mem used", "gpu memory used", "vram used"),
    "memory.total [MiB]": ("total memory", "mem total", "gpu memory total", "vram total"),
    "memory.free [MiB]": ("free memory", "mem free", "gpu memory free", "vram free"),
    "temperature.gpu": ("gpu temperature", "gpu temp", "temp gpu", "temperature", "temp"),
    "power.draw [W]": ("power", "gpu power", "power usage", "gpu power draw", "power watts"),
    "clocks.current.sm [MHz]": ("sm clock", "clock sm", "gpu clock"),
    "clocks.current.memory [MHz]": ("mem clock", "memory clock", "clock mem"),
    "fan.speed [%]": ("fan", "gpu fan", "fan speed"),
    "pstate": ("perf state", "performance state"),
}  # fmt: skip
"""Names that scripts write."""


class Heading(NamedTuple):
    """What a heading means.

    Attributes:
        name: The name of the column; ``None`` if it has no meaning for gpumon.
        factor: What to multiply the numbers of its cells with.
        has_unit: Whether it names the unit.
    """

    name: str | None
    factor: float = 1.0
    has_unit: bool = False


def heading_words(text: str) -> str:
    """The words of a heading, whatever is between them."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def _known() -> dict[str, str]:
    measured = [one for one in readable_columns(processes=False) if one.metric is not None]
    found = {heading_words(one.name.partition(" [")[0]): one.name for one in measured}
    found |= {heading_words(other): name for other, name in OTHER_NAMES.items()}
    found |= {heading_words(word): name for name, words in _WORDS.items() for word in words}
    return found | {heading_words(name.partition(" [")[0]): name for name in _WORDS}


_KNOWN = _known()


def heading_of(text: str) -> Heading:
    """What a heading means, with its unit."""
    strict = column_name(text, processes=False)
    bare, _, rest = text.strip().partition("[")
    if not rest:
        bare, _, rest = text.strip().partition("(")
    unit = rest.rstrip(")] ").strip().lower()
    name = strict or _KNOWN.get(heading_words(bare))
    if name is None and not unit:
        words, _, unit = heading_words(bare).rpartition(" ")
        name = _KNOWN.get(words)
        if name is None:
            return Heading(None)
    if name is None:
        return Heading(None)
    full = column_name(name, processes=False)
    if full is None or not unit:
        return Heading(full)
    of_column = readable_column(full, processes=False).unit
    if unit == of_column.csv.lower():
        return Heading(full, has_unit=True)
    factor = _UNITS.get(of_column, {}).get(unit)
    return Heading(None) if factor is None else Heading(full, factor, has_unit=True)
