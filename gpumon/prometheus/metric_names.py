"""The metrics read backwards: from the name of an exporter's metric to a field.

dcgm-exporter's names and units are in ``export.as_prometheus``. nvidia_gpu_exporter makes its names
of nvidia-smi's: dots become underscores, and the unit becomes a suffix.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gpumon.export.as_prometheus import USER_METRICS, exported_metrics, exported_value
from gpumon.model.metrics import Metric, Unit
from gpumon.model.snapshot import GPU_METRIC, GPU_METRICS
from gpumon.recording.csv.nvidia_smi import OTHER_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SMI_INFO = "nvidia_smi_gpu_info"
USER_GPUS, USER_MEMORY, USER_IDLE_MEMORY = USER_METRICS
XID_COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
"""How often dcgm-exporter has seen the XID of the label ``xid`` within its window."""
ALL_NAMES = f"DCGM_FI_.+|{XID_COUNT}|nvidia_smi_.+|gpumon_.+"
"""A pattern for the names of every exporter."""

_SMI_SUFFIXES: dict[Unit, tuple[str, Callable[[float], float]]] = {
    Unit.BYTES: ("_bytes", lambda size: size),
    # A ratio such as 0.07 times 100 is not exactly a whole number.
    Unit.PERCENT: ("_ratio", lambda ratio: round(ratio * 100, 6)),
    Unit.WATTS: ("_watts", lambda power: power),
    Unit.MEGAHERTZ: ("_clock_hz", lambda clock: clock / 1e6),
}
_BLANK_INTEGERS = range(2**31 - 16, 2**31)
_BLANK_LONG = float(2**63)
"""What 9223372036854775792 and the 15 after it are as floating-point numbers."""
_BLANK_FLOATS = range(2**47, 2**47 + 16)
_REAL_UNITS = (Unit.WATTS, Unit.JOULES, Unit.BYTES_PER_SECOND, Unit.SHARE)
_YES_NO_UNITS = (Unit.ENABLED, Unit.YES_NO)


class ExportedField(NamedTuple):
    """The field of the model that a metric is."""

    metric: Metric  # the row of the table
    convert: Callable[[float], float]  # from the exporter's unit to the model's

    def read(self, text: str) -> float | bool | None:
        """The value in the model's unit; ``None`` for a blank and for what is no number."""
        value = number(text)
        if value is None or is_blank(value):
            return None
        value = self.convert(value)
        if self.metric.unit in _YES_NO_UNITS:
            return value != 0
        if self.metric.field == "xid" and value == 0:
            return None
        return value if self.metric.unit in _REAL_UNITS else round(value)


def number(text: str) -> float | None:
    """A finite number; ``None`` if it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def is_blank(value: float) -> bool:
    """Whether it is one of the numbers that DCGM writes for an unknown value."""
    return value == _BLANK_LONG or value in _BLANK_INTEGERS or value in _BLANK_FLOATS


def names_of(fields: Iterable[str]) -> str:
    """A pattern for the metrics of all exporters that are one of these fields."""
    wanted = {GPU_METRIC[field] for field in fields}
    return "|".join(name for name, known in FIELDS.items() if known.metric in wanted)


def _fields() -> Iterator[tuple[str, ExportedField]]:
    for metric, name, _, _ in exported_metrics():
        yield name, ExportedField(metric, partial(exported_value, metric))
    others = {name: other for other, name in OTHER_NAMES.items()}
    for metric in GPU_METRICS:
        if metric.smi is None or metric.unit is Unit.TEXT:
            continue
        suffix, convert = _SMI_SUFFIXES.get(metric.unit, ("", float))
        for name in filter(None, (metric.smi, others.get(metric.smi))):
            yield f"nvidia_smi_{name.replace('.', '_')}{suffix}", ExportedField(metric, convert)


FIELDS: dict[str, ExportedField] = dict(_fields())
"""The field of each metric, by its name at the exporter."""
